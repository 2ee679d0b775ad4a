"""The rules of workloads (Deployment to ReplicationController), pod templates and pod disruption
budgets (local-cluster 5.8)."""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.text.fielderrors import invalid
from hekla.api.text.fieldrules import Errors, not_negative, one_of, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.kind import FieldError
from hekla.local.apiserver.objects.validation import pod as pods
from hekla.local.apiserver.objects.validation.metadata import (
    at_most_all,
    counts,
    immutable,
    int_or_percent,
    matches,
    metadata,
    percent,
    status_counts,
)
from hekla.podrules.claims import claim_spec


def unmatched(labels: Json | None) -> FieldError:
    return invalid(
        "spec.template.metadata.labels",
        labels or None,
        "`selector` does not match template `labels`",
    )


def _selector(spec: Json, kind: str, errors: Errors) -> bool | None:
    """Whether the selector matches the template's labels; None if the selector itself is invalid."""
    wanted, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if wanted is None:
        if kind != "daemonset":
            errors.required("spec.selector")
        return False
    before = len(errors)
    selector(wanted, "spec.selector", errors)
    right = len(errors) == before
    if not wanted.get("matchLabels") and not wanted.get("matchExpressions"):
        errors.invalid("spec.selector", wanted, f"empty selector is invalid for {kind}")
        return True
    return matches(wanted, labels) if right else None


def _selected_template(spec: Json, errors: Errors, kind: str, shown: str) -> None:
    """The selector must match the template's labels, and the template must be one of pods that may
    run.

    `kind` and `shown` name the kind in two different messages: one of them calls replica sets
    deployments.
    """
    template = spec.get("template") or {}
    right = _selector(spec, kind, errors)
    if right is None and kind != "daemonset":
        errors.invalid(
            "spec.selector",
            spec["selector"],
            "" if kind == "statefulset" else "invalid label selector",
        )
    if right is False:
        errors.append(unmatched((template.get("metadata") or {}).get("labels")))
    if right is not None or kind == "daemonset":
        pods.template(
            _as_run(spec, template) if kind == "statefulset" else template, "spec.template", errors
        )
    if right is None and kind == "deployment":
        return
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy != "Always":
        errors.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {shown} is not Supported"
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", why)


def _as_run(spec: Json, template: Json) -> Json:
    """The template of a stateful set without hostname and subdomain, which the controller sets, and
    with a volume for each claim template."""
    claims = [
        (claim.get("metadata") or {}).get("name") or ""
        for claim in spec.get("volumeClaimTemplates") or ()
    ]
    pod = template.get("spec") or {}
    if not claims and not pod.get("subdomain") and not pod.get("hostname"):
        return template
    own = {name: value for name, value in pod.items() if name not in ("subdomain", "hostname")}
    if claims:
        claimed = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in dict.fromkeys(claims)
        ]
        own["volumes"] = claimed + [
            volume for volume in pod.get("volumes") or () if volume.get("name") not in claims
        ]
    return {**template, "spec": own}


def deployment(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", errors)
    _selected_template(spec, errors, "deployment", "ReplicaSet")
    strategy = spec.get("strategy") or {}
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind not in ("Recreate", "RollingUpdate"):
        errors.not_supported("spec.strategy", strategy, ("Recreate", "RollingUpdate"))
    elif kind == "Recreate" and rolling is not None:
        errors.forbidden(
            "spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'"
        )
    elif kind == "RollingUpdate" and rolling is None:
        errors.required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil")
    elif kind == "RollingUpdate":
        _rolling(rolling or {}, "spec.strategy.rollingUpdate", errors)
    for name in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        not_negative(spec.get(name), f"spec.{name}", errors)
    if spec.get("progressDeadlineSeconds") is not None and spec["progressDeadlineSeconds"] <= (
        spec.get("minReadySeconds") or 0
    ):
        why = "must be greater than minReadySeconds"
        errors.invalid("spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"], why)
    return errors


def _rolling(rolling: Json, path: str, errors: Errors) -> None:
    for name in ("maxUnavailable", "maxSurge"):
        int_or_percent(rolling.get(name), f"{path}.{name}", errors)
    missing, more = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    if not percent(missing or 0) and not percent(more or 0):
        errors.invalid(f"{path}.maxUnavailable", missing or 0, "may not be 0 when `maxSurge` is 0")
    at_most_all(missing, f"{path}.maxUnavailable", errors)


def replica_set(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", errors)
    not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds", errors)
    _selected_template(spec, errors, "deployment", "ReplicaSet")
    return errors


def replication_controller(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", errors)
    wanted, template = spec.get("selector") or {}, spec.get("template")
    if not wanted:
        errors.required("spec.selector")
    if template is None:
        errors.required("spec.template")
        return errors
    labels = (template.get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        errors.append(unmatched(labels))
    pods.template(template, "spec.template", errors)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy != "Always":
        errors.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    return errors


def stateful_set(tree: Json, *, updated: bool = False) -> Errors:
    """`updated`: skip the fields that an update cannot change."""
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    policy = spec.get("podManagementPolicy")
    if not policy:
        errors.required("spec.podManagementPolicy")
    elif policy not in ("OrderedReady", "Parallel"):
        errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    _set_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy", errors)
    kept: Json = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in (
        ("whenDeleted", "whenScaled") if "persistentVolumeClaimRetentionPolicy" in spec else ()
    ):
        if kept.get(name) not in ("Retain", "Delete"):
            path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            errors.not_supported(path, kept.get(name) or "", ("Retain", "Delete"))
    if not updated:
        for position, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            claim_spec(
                claim.get("spec") or {}, f"spec.volumeClaimTemplates[{position}].spec", errors
            )
    counts(spec, ("replicas", "minReadySeconds"), errors, "spec")
    not_negative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start", errors)
    name = spec.get("serviceName") or ""
    if name and not updated:
        errors.malformed("spec.serviceName", name, names.dns_label(name))
    _selected_template(spec, errors, "statefulset", "StatefulSet")
    return errors


def _set_strategy(strategy: Json, path: str, errors: Errors) -> None:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if not kind:
        errors.required(path)
    elif kind not in ("RollingUpdate", "OnDelete"):
        errors.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")
    elif kind == "OnDelete" and rolling is not None:
        errors.invalid(
            f"{path}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'"
        )
    elif rolling is not None:
        not_negative(rolling.get("partition"), f"{path}.rollingUpdate.partition", errors)
        missing, where = rolling.get("maxUnavailable"), f"{path}.rollingUpdate.maxUnavailable"
        if missing is not None:
            int_or_percent(missing, where, errors)
            if not percent(missing):
                errors.invalid(where, missing, "cannot be 0")
            at_most_all(missing, where, errors)


def daemon_set(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    _selected_template(spec, errors, "daemonset", "DaemonSet")
    not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds", errors)
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        errors.not_supported(path, strategy, ("RollingUpdate", "OnDelete"))
    elif strategy["type"] == "RollingUpdate":
        if strategy.get("rollingUpdate") is None:
            errors.required(f"{path}.rollingUpdate")
        else:
            _rolling_daemons(strategy["rollingUpdate"], f"{path}.rollingUpdate", errors)
    not_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit", errors)
    return errors


def _rolling_daemons(rolling: Json, path: str, errors: Errors) -> None:
    missing, more = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    for check in (int_or_percent, at_most_all):
        check(missing, f"{path}.maxUnavailable", errors)
        check(more, f"{path}.maxSurge", errors)
    if percent(missing or 0) and percent(more or 0):
        errors.invalid(f"{path}.maxSurge", more, "may not be set when maxUnavailable is non-zero")
    elif not percent(missing or 0) and not percent(more or 0):
        errors.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def pod_disruption_budget(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    given = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
    if len(given) == 2:
        errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in given:
        int_or_percent(spec[name], f"spec.{name}", errors)
        at_most_all(spec[name], f"spec.{name}", errors)
    selector(spec.get("selector"), "spec.selector", errors)
    policies = ("AlwaysAllow", "IfHealthyBudget")
    policy = spec.get("unhealthyPodEvictionPolicy")
    one_of(policy, policies, "spec.unhealthyPodEvictionPolicy", errors, known=policy == "")
    return errors


def with_fixed_selector(check: Callable[[Json], Errors]) -> Callable[[Json, Json], Errors]:
    """The check of an update of a workload whose selector is immutable."""

    def update(new: Json, old: Json) -> Errors:
        errors = check(new)
        wanted = (new.get("spec") or {}).get("selector")
        before = (old.get("spec") or {}).get("selector")
        immutable(wanted, before, "spec.selector", errors)
        return errors

    return update


_SET_CHANGEABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def stateful_set_update(new: Json, old: Json) -> Errors:
    errors = stateful_set(new, updated=True)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if any(
        spec.get(name) != before.get(name)
        for name in spec.keys() | before.keys()
        if name not in _SET_CHANGEABLE
    ):
        errors.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        )
    return errors


def pod_template(tree: Json) -> Errors:
    errors = metadata(tree)
    pods.template(tree.get("template") or {}, "template", errors)
    return errors


# --- statuses -------------------------------------------------------------------------------------

_SET_COUNTS = (
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
)
_REPLICA_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
_DAEMON_COUNTS = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)


def _no_more_than(status: Json, names: tuple[str, ...], ready: str, errors: Errors) -> None:
    """The counts in a status may not exceed `replicas`, and the available ones may not exceed the
    ready ones."""
    for name in names:
        if (status.get(name) or 0) > (status.get("replicas") or 0):
            errors.invalid(f"status.{name}", status[name], "cannot be greater than status.replicas")
    if (status.get("availableReplicas") or 0) > (status.get("readyReplicas") or 0):
        why = f"cannot be greater than {ready}"
        errors.invalid("status.availableReplicas", status["availableReplicas"], why)


def _collisions(new: Json, old: Json, errors: Errors) -> None:
    count, before = ((tree.get("status") or {}).get("collisionCount") for tree in (new, old))
    if before is not None and (count or 0) < before:
        errors.invalid("status.collisionCount", count or 0, "cannot be decremented")


def deployment_status(new: Json, old: Json) -> Errors:
    errors, status = metadata(new), new.get("status") or {}
    names = (
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    )
    counts(status, names, errors)
    _no_more_than(
        status, ("updatedReplicas", "readyReplicas", "availableReplicas"), "readyReplicas", errors
    )
    _collisions(new, old, errors)
    return errors


def replica_set_status(new: Json, old: Json) -> Errors:
    errors, status = metadata(new), new.get("status") or {}
    counts(status, (*_REPLICA_COUNTS, "observedGeneration", "terminatingReplicas"), errors)
    _no_more_than(status, _REPLICA_COUNTS[1:], "readyReplicas", errors)
    return errors


def stateful_set_status(new: Json, old: Json) -> Errors:
    errors, status = metadata(new), new.get("status") or {}
    counts(status, (*_SET_COUNTS, "observedGeneration", "collisionCount"), errors)
    _no_more_than(status, _SET_COUNTS[1:], "status.readyReplicas", errors)
    _collisions(new, old, errors)
    return errors


def daemon_set_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    counts(new.get("status") or {}, _DAEMON_COUNTS, errors)
    _collisions(new, old, errors)
    return errors


CREATE = {
    ("apps", "Deployment"): deployment,
    ("apps", "ReplicaSet"): replica_set,
    ("apps", "StatefulSet"): stateful_set,
    ("apps", "DaemonSet"): daemon_set,
    ("", "ReplicationController"): replication_controller,
    ("", "PodTemplate"): pod_template,
    ("policy", "PodDisruptionBudget"): pod_disruption_budget,
}
UPDATE = {
    ("apps", "Deployment"): with_fixed_selector(deployment),
    ("apps", "ReplicaSet"): with_fixed_selector(replica_set),
    ("apps", "DaemonSet"): with_fixed_selector(daemon_set),
    ("apps", "StatefulSet"): stateful_set_update,
}
STATUS = {
    ("apps", "Deployment"): deployment_status,
    ("apps", "ReplicaSet"): replica_set_status,
    ("", "ReplicationController"): replica_set_status,
    ("apps", "StatefulSet"): stateful_set_status,
    ("apps", "DaemonSet"): daemon_set_status,
    ("policy", "PodDisruptionBudget"): status_counts(
        "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"
    ),
}
