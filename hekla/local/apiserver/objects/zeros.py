"""Empty fields that Kubernetes shows nevertheless, because Go writes out fields without
`omitempty`.

No manager owns them, so they are added after field ownership is computed. Only rare kinds are
listed: a cluster stores too many pods and events to write empty fields into each.
"""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.trees import Json

RBAC = "rbac.authorization.k8s.io"


def _role(tree: Json) -> None:
    tree.setdefault("rules", None)


def _limits(tree: Json) -> None:
    tree["spec"].setdefault("limits", None)


def _claim(tree: Json) -> None:
    _devices(tree.setdefault("spec", {}))


def _claim_template(tree: Json) -> None:
    _devices(tree.setdefault("spec", {}).setdefault("spec", {}))


def _devices(spec: Json) -> None:
    if not spec.get("devices"):
        spec["devices"] = {"requests": None}


def _drivers(tree: Json) -> None:
    spec = tree["spec"]
    spec.setdefault("drivers", None)
    for driver in spec["drivers"] or ():
        driver.setdefault("topologyKeys", None)


def _metrics(tree: Json) -> None:
    tree.setdefault("status", {}).setdefault("currentMetrics", None)


def _capacities(tree: Json) -> None:
    for device in (tree.get("spec") or {}).get("devices") or ():
        for amount in (device.get("capacity") or {}).values():
            amount.setdefault("value", "0")


def _value(tree: Json) -> None:
    tree.setdefault("value", 0)


def _revision(tree: Json) -> None:
    tree.setdefault("revision", 0)


def _service_name(tree: Json) -> None:
    if "spec" in tree:  # a status update has no spec
        tree["spec"].setdefault("serviceName", "")


def _pods(tree: Json) -> None:
    tree.setdefault("spec", {}).setdefault("podSelector", {})


def _slice(tree: Json) -> None:
    tree.setdefault("endpoints", None)
    tree.setdefault("ports", None)


ZEROS: dict[tuple[str, str], Callable[[Json], None]] = {
    (RBAC, "Role"): _role,
    (RBAC, "ClusterRole"): _role,
    ("", "LimitRange"): _limits,
    ("discovery.k8s.io", "EndpointSlice"): _slice,
    ("resource.k8s.io", "ResourceClaim"): _claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): _claim_template,
    ("storage.k8s.io", "CSINode"): _drivers,
    ("autoscaling", "HorizontalPodAutoscaler"): _metrics,
    ("scheduling.k8s.io", "PriorityClass"): _value,
    ("resource.k8s.io", "ResourceSlice"): _capacities,
    ("apps", "ControllerRevision"): _revision,
    ("apps", "StatefulSet"): _service_name,
    ("networking.k8s.io", "NetworkPolicy"): _pods,
}
