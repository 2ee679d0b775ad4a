"""The rules of what makes pods: Deployment to CronJob, and of disruption budgets (local-cluster
5.8)."""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.text.fieldrules import Errors, not_negative, one_of, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import forbidden, invalid, not_supported, required
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
)
from hekla.podrules.claims import claim_spec


def unmatched(labels: Json | None) -> FieldError:
    return invalid(
        "spec.template.metadata.labels",
        labels or None,
        "`selector` does not match template `labels`",
    )


def _selector(spec: Json, kind: str, found: Errors) -> bool | None:
    """Whether the selector matches the template's labels; None where it is no selector."""
    wanted, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if wanted is None:
        if kind != "daemonset":
            found.append(required("spec.selector"))
        return False
    before = len(found)
    selector(wanted, "spec.selector", found)
    right = len(found) == before
    if not wanted.get("matchLabels") and not wanted.get("matchExpressions"):
        found.append(invalid("spec.selector", wanted, f"empty selector is invalid for {kind}"))
        return True
    return matches(wanted, labels) if right else None


def _selected_template(spec: Json, found: Errors, kind: str, shown: str) -> None:
    """A selector that is there and matches the template's labels, and a template that may run.

    `kind` and `shown` are what the kind is called in messages: replica sets are deployments to one
    of them.
    """
    template = spec.get("template") or {}
    right = _selector(spec, kind, found)
    if right is None and kind != "daemonset":
        found.append(
            invalid(
                "spec.selector",
                spec["selector"],
                "" if kind == "statefulset" else "invalid label selector",
            )
        )
    if right is False:
        found.append(unmatched((template.get("metadata") or {}).get("labels")))
    if right is not None or kind == "daemonset":
        pods.template(
            _as_run(spec, template) if kind == "statefulset" else template, "spec.template", found
        )
    if right is None and kind == "deployment":
        return
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy != "Always":
        found.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {shown} is not Supported"
        found.append(forbidden("spec.template.spec.activeDeadlineSeconds", why))


def _as_run(spec: Json, template: Json) -> Json:
    """A stateful set's template with what its pods get from the set: names, and volumes that are
    claimed for each."""
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
    found = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", found)
    _selected_template(spec, found, "deployment", "ReplicaSet")
    strategy = spec.get("strategy") or {}
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind not in ("Recreate", "RollingUpdate"):
        found.append(not_supported("spec.strategy", strategy, ("Recreate", "RollingUpdate")))
    elif kind == "Recreate" and rolling is not None:
        found.append(
            forbidden(
                "spec.strategy.rollingUpdate",
                "may not be specified when strategy `type` is 'Recreate'",
            )
        )
    elif kind == "RollingUpdate" and rolling is None:
        found.append(
            required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil")
        )
    elif kind == "RollingUpdate":
        _rolling(rolling or {}, "spec.strategy.rollingUpdate", found)
    for name in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        not_negative(spec.get(name), f"spec.{name}", found)
    if spec.get("progressDeadlineSeconds") is not None and spec["progressDeadlineSeconds"] <= (
        spec.get("minReadySeconds") or 0
    ):
        why = "must be greater than minReadySeconds"
        found.append(invalid("spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"], why))
    return found


def _rolling(rolling: Json, path: str, found: Errors) -> None:
    for name in ("maxUnavailable", "maxSurge"):
        int_or_percent(rolling.get(name), f"{path}.{name}", found)
    missing, more = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    if not percent(missing or 0) and not percent(more or 0):
        found.append(
            invalid(f"{path}.maxUnavailable", missing or 0, "may not be 0 when `maxSurge` is 0")
        )
    at_most_all(missing, f"{path}.maxUnavailable", found)


def replica_set(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", found)
    not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds", found)
    _selected_template(spec, found, "deployment", "ReplicaSet")
    return found


def replication_controller(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", found)
    wanted, template = spec.get("selector") or {}, spec.get("template")
    if not wanted:
        found.append(required("spec.selector"))
    if template is None:
        found.append(required("spec.template"))
        return found
    labels = (template.get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        found.append(unmatched(labels))
    pods.template(template, "spec.template", found)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy != "Always":
        found.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return found


def stateful_set(tree: Json, *, updated: bool = False) -> Errors:
    """`updated`: what cannot change any more is not looked at."""
    found = metadata(tree)
    spec = tree.get("spec") or {}
    policy = spec.get("podManagementPolicy")
    if not policy:
        found.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        found.append(
            invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
        )
    _set_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy", found)
    kept: Json = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in (
        ("whenDeleted", "whenScaled") if "persistentVolumeClaimRetentionPolicy" in spec else ()
    ):
        if kept.get(name) not in ("Retain", "Delete"):
            path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            found.append(not_supported(path, kept.get(name) or "", ("Retain", "Delete")))
    if not updated:
        for position, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            claim_spec(
                claim.get("spec") or {}, f"spec.volumeClaimTemplates[{position}].spec", found
            )
    counts(spec, ("replicas", "minReadySeconds"), found, "spec")
    not_negative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start", found)
    name = spec.get("serviceName") or ""
    if name and not updated:
        found += [invalid("spec.serviceName", name, reason) for reason in names.dns_label(name)]
    _selected_template(spec, found, "statefulset", "StatefulSet")
    return found


def _set_strategy(strategy: Json, path: str, found: Errors) -> None:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if not kind:
        found.append(required(path))
    elif kind not in ("RollingUpdate", "OnDelete"):
        found.append(invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"))
    elif kind == "OnDelete" and rolling is not None:
        found.append(
            invalid(
                f"{path}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'"
            )
        )
    elif rolling is not None:
        not_negative(rolling.get("partition"), f"{path}.rollingUpdate.partition", found)
        missing, where = rolling.get("maxUnavailable"), f"{path}.rollingUpdate.maxUnavailable"
        if missing is not None:
            int_or_percent(missing, where, found)
            if not percent(missing):
                found.append(invalid(where, missing, "cannot be 0"))
            at_most_all(missing, where, found)


def daemon_set(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    _selected_template(spec, found, "daemonset", "DaemonSet")
    not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds", found)
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        found.append(not_supported(path, strategy, ("RollingUpdate", "OnDelete")))
    elif strategy["type"] == "RollingUpdate":
        if strategy.get("rollingUpdate") is None:
            found.append(required(f"{path}.rollingUpdate"))
        else:
            _rolling_daemons(strategy["rollingUpdate"], f"{path}.rollingUpdate", found)
    not_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit", found)
    return found


def _rolling_daemons(rolling: Json, path: str, found: Errors) -> None:
    missing, more = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    for check in (int_or_percent, at_most_all):
        check(missing, f"{path}.maxUnavailable", found)
        check(more, f"{path}.maxSurge", found)
    if percent(missing or 0) and percent(more or 0):
        found.append(
            invalid(f"{path}.maxSurge", more, "may not be set when maxUnavailable is non-zero")
        )
    elif not percent(missing or 0) and not percent(more or 0):
        found.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def pod_disruption_budget(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    given = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
    if len(given) == 2:
        found.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in given:
        int_or_percent(spec[name], f"spec.{name}", found)
        at_most_all(spec[name], f"spec.{name}", found)
    selector(spec.get("selector"), "spec.selector", found)
    policies = ("AlwaysAllow", "IfHealthyBudget")
    policy = spec.get("unhealthyPodEvictionPolicy")
    one_of(policy, policies, "spec.unhealthyPodEvictionPolicy", found, known=policy == "")
    return found


def with_fixed_selector(check: Callable[[Json], Errors]) -> Callable[[Json, Json], Errors]:
    """The update of a workload whose selector never changes."""

    def update(new: Json, old: Json) -> Errors:
        found = check(new)
        wanted, before = (
            (new.get("spec") or {}).get("selector"),
            (old.get("spec") or {}).get("selector"),
        )
        immutable(wanted, before, "spec.selector", found)
        return found

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
    found = stateful_set(new, updated=True)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if any(
        spec.get(name) != before.get(name)
        for name in spec.keys() | before.keys()
        if name not in _SET_CHANGEABLE
    ):
        found.append(
            forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
                "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            )
        )
    return found


def pod_template(tree: Json) -> Errors:
    found = metadata(tree)
    pods.template(tree.get("template") or {}, "template", found)
    return found


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


def _no_more_than(status: Json, names: tuple[str, ...], ready: str, found: Errors) -> None:
    """Parts of the replicas are no more than all of them, those that are available no more than
    those that are ready."""
    for name in names:
        if (status.get(name) or 0) > (status.get("replicas") or 0):
            found.append(
                invalid(f"status.{name}", status[name], "cannot be greater than status.replicas")
            )
    if (status.get("availableReplicas") or 0) > (status.get("readyReplicas") or 0):
        found.append(
            invalid(
                "status.availableReplicas",
                status["availableReplicas"],
                f"cannot be greater than {ready}",
            )
        )


def _collisions(new: Json, old: Json, found: Errors) -> None:
    count, before = ((tree.get("status") or {}).get("collisionCount") for tree in (new, old))
    if before is not None and (count or 0) < before:
        found.append(invalid("status.collisionCount", count or 0, "cannot be decremented"))


def deployment_status(new: Json, old: Json) -> Errors:
    found, status = metadata(new), new.get("status") or {}
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
    counts(status, names, found)
    _no_more_than(
        status, ("updatedReplicas", "readyReplicas", "availableReplicas"), "readyReplicas", found
    )
    _collisions(new, old, found)
    return found


def replica_set_status(new: Json, old: Json) -> Errors:
    found, status = metadata(new), new.get("status") or {}
    counts(status, (*_REPLICA_COUNTS, "observedGeneration", "terminatingReplicas"), found)
    _no_more_than(status, _REPLICA_COUNTS[1:], "readyReplicas", found)
    return found


def stateful_set_status(new: Json, old: Json) -> Errors:
    found, status = metadata(new), new.get("status") or {}
    counts(status, (*_SET_COUNTS, "observedGeneration", "collisionCount"), found)
    _no_more_than(status, _SET_COUNTS[1:], "status.readyReplicas", found)
    _collisions(new, old, found)
    return found


def daemon_set_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    counts(new.get("status") or {}, _DAEMON_COUNTS, found)
    _collisions(new, old, found)
    return found


def pod_disruption_budget_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    counts(
        new.get("status") or {},
        ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
        found,
    )
    return found


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
    ("policy", "PodDisruptionBudget"): pod_disruption_budget_status,
}
