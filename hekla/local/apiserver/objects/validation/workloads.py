"""The rules of what makes pods: Deployment to CronJob, and of disruption budgets (local-cluster 5.8)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hekla.local.apiserver.kind import FieldError
from hekla.local.apiserver.objects.errors import forbidden, invalid, not_supported, required
from hekla.local.apiserver.objects.validation import pod as pods
from hekla.local.apiserver.objects.validation.metadata import (
    Errors,
    immutable,
    int_or_percent,
    matches,
    metadata,
    not_negative,
    one_of,
    selector,
)

Json = dict[str, Any]


def _unmatched(labels: Json | None) -> FieldError:
    return invalid("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`")


def _selected_template(spec: Json, found: Errors, *, restart: tuple[str, ...] = ("Always",), needed: bool = True) -> None:
    """A selector that is there and matches the template's labels, and a template that may run."""
    wanted = spec.get("selector")
    template = spec.get("template") or {}
    if wanted is None:
        if needed:
            found.append(required("spec.selector"))
        found.append(_unmatched((template.get("metadata") or {}).get("labels")))
    else:
        selector(wanted, "spec.selector", found)
        if not wanted.get("matchLabels") and not wanted.get("matchExpressions"):
            found.append(invalid("spec.selector", wanted, "empty selector is invalid for deployment"))
        elif any(reason.field.startswith("spec.selector") for reason in found):
            found.append(invalid("spec.selector", wanted, "invalid label selector"))
        elif not matches(wanted, (template.get("metadata") or {}).get("labels")):
            found.append(_unmatched((template.get("metadata") or {}).get("labels")))
    pods.template(template, "spec.template", found)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy not in restart:
        found.append(not_supported("spec.template.spec.restartPolicy", policy, restart))
    if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
        found.append(forbidden("spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in this workload is not Supported"))


def deployment(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", found)
    _selected_template(spec, found)
    strategy = spec.get("strategy") or {}
    one_of(strategy.get("type"), ("Recreate", "RollingUpdate"), "spec.strategy", found, needed=True)
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate" and rolling is not None:
        found.append(forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'"))
    elif rolling is not None:
        _rolling(rolling, "spec.strategy.rollingUpdate", found)
    for name in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        not_negative(spec.get(name), f"spec.{name}", found)
    if spec.get("progressDeadlineSeconds") is not None and spec["progressDeadlineSeconds"] <= (spec.get("minReadySeconds") or 0):
        why = "must be greater than minReadySeconds"
        found.append(invalid("spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"], why))
    return found


def _rolling(rolling: Json, path: str, found: Errors) -> None:
    for name in ("maxUnavailable", "maxSurge"):
        int_or_percent(rolling.get(name), f"{path}.{name}", found)
    if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
        found.append(invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0"))


def replica_set(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", found)
    not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds", found)
    _selected_template(spec, found)
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
        found.append(invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    pods.template(template, "spec.template", found)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy != "Always":
        found.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return found


def stateful_set(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    not_negative(spec.get("replicas"), "spec.replicas", found)
    one_of(spec.get("podManagementPolicy"), ("OrderedReady", "Parallel"), "spec.podManagementPolicy", found, needed=True)
    kind = (spec.get("updateStrategy") or {}).get("type")
    if kind not in ("RollingUpdate", "OnDelete"):
        found.append(invalid("spec.updateStrategy.type", kind, "must be 'RollingUpdate' or 'OnDelete'"))
    partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition")
    not_negative(partition, "spec.updateStrategy.rollingUpdate.partition", found)
    _selected_template(spec, found)
    return found


def daemon_set(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    _selected_template(spec, found, needed=False)
    strategy = spec.get("updateStrategy") or {}
    one_of(strategy.get("type"), ("RollingUpdate", "OnDelete"), "spec.updateStrategy.type", found, needed=True)
    if strategy.get("type") == "RollingUpdate":
        _rolling(strategy.get("rollingUpdate") or {}, "spec.updateStrategy.rollingUpdate", found)
    not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds", found)
    return found


_FAILURE_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


def _failure_rule(rule: Json, path: str, found: Errors) -> None:
    one_of(rule.get("action"), _FAILURE_ACTIONS, f"{path}.action", found, needed=True)
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if codes is not None and conditions:
        why = "specifying both OnExitCodes and OnPodConditions is not supported"
        found.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {why}"))
    elif codes is None and not conditions:
        found.append(FieldError(path, "FieldValueInvalid", "Invalid value: specifying one of OnExitCodes and OnPodConditions is required"))
    if codes is not None:
        one_of(codes.get("operator"), ("In", "NotIn"), f"{path}.onExitCodes.operator", found, needed=True)
        if not codes.get("values"):
            found.append(invalid(f"{path}.onExitCodes.values", codes.get("values"), "at least one value is required"))


def _job_spec(spec: Json, path: str, found: Errors) -> None:
    for name in (
        "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
        "backoffLimitPerIndex", "maxFailedIndexes",
    ):  # fmt: skip
        not_negative(spec.get(name), f"{path}.{name}", found)
    mode = spec.get("completionMode")
    one_of(mode, ("NonIndexed", "Indexed"), f"{path}.completionMode", found)
    if mode != "Indexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                found.append(invalid(f"{path}.{name}", spec[name], "requires indexed completion mode"))
    one_of(spec.get("podReplacementPolicy"), ("Failed", "TerminatingOrFailed"), f"{path}.podReplacementPolicy", found)
    for position, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        _failure_rule(rule, f"{path}.podFailurePolicy.rules[{position}]", found)
    if mode == "Indexed" and spec.get("completions") is None:
        found.append(required(f"{path}.completions", "when completion mode is Indexed"))
    template = spec.get("template") or {}
    pods.template(template, f"{path}.template", found)
    policy = (template.get("spec") or {}).get("restartPolicy")
    where = f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        found.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        found.append(not_supported(where, policy, ("OnFailure", "Never")))
    if spec.get("podFailurePolicy") and policy != "Never":
        found.append(invalid(where, policy, 'only "Never" is supported when podFailurePolicy is specified'))


def new_job(tree: Json) -> Errors:
    found = job(tree)
    spec = tree.get("spec") or {}
    wanted = spec.get("selector") or {}
    if not spec.get("manualSelector") and (len(wanted.get("matchLabels") or ()) > 1 or wanted.get("matchExpressions")):
        position = next((number for number, error in enumerate(found) if error.field == "spec.template.metadata.labels"), len(found))
        found.insert(position, invalid("spec.selector", wanted, "`selector` not auto-generated"))
    return found


def job(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    _job_spec(spec, "spec", found)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if spec.get("selector") is None:
        found += [required("spec.selector"), _unmatched(labels)]
    else:
        selector(spec["selector"], "spec.selector", found)
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if not matches(spec["selector"], labels):
            found.append(_unmatched(labels))
    return found


def job_update(new: Json, old: Json) -> Errors:
    found = job(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for name in ("completionMode", "selector", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        immutable(spec.get(name), before.get(name), f"spec.{name}", found)
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        immutable(spec.get("completions"), before.get("completions"), "spec.completions", found)
    started = bool((old.get("status") or {}).get("startTime"))
    if started or not before.get("suspend"):
        immutable(spec.get("template"), before.get("template"), "spec.template", found)
    return found


_CRON_FIELD = re.compile(r"(\*|\?|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?(,(\*|\?|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?)*").fullmatch
_CRON_NAMES = {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}


def cron_reason(schedule: str) -> str:
    """Why a text is no schedule; empty when it is one."""
    if schedule in _CRON_NAMES or schedule.startswith("@every "):
        return ""
    parts = schedule.split()
    if len(parts) != 5:
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    for part in parts:
        if _CRON_FIELD(part) is None:
            return f"failed to parse field {part}"
    limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    for part, (low, high) in zip(parts, limits):
        for number in re.findall(r"(?<![/\d])\d+", part):
            if not low <= int(number) <= high:
                side = f"above maximum ({high})" if int(number) > high else f"below minimum ({low})"
                return f"end of range ({number}) {side}: {part}"
    return ""


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def cron_job(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    schedule = spec.get("schedule") or ""
    if not schedule:
        found.append(required("spec.schedule"))
    else:
        zoned = "TZ=" in schedule
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead" if zoned else cron_reason(schedule)
        if why:
            found.append(invalid("spec.schedule", schedule, why))
    zone = spec.get("timeZone")
    if zone is not None and not _is_zone(zone):
        found.append(invalid("spec.timeZone", zone, f"unknown time zone {zone}" if zone else "timeZone must be nil or non-empty string"))
    one_of(spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy", found, needed=True)
    for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        not_negative(spec.get(name), f"spec.{name}", found)
    _job_spec((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec", found)
    name = (tree.get("metadata") or {}).get("name") or ""
    if len(name) > 52:
        found.append(invalid("metadata.name", name, "must be no more than 52 characters"))
    return found


def pod_disruption_budget(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    given = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
    if len(given) == 2:
        found.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in given:
        int_or_percent(spec[name], f"spec.{name}", found)
    selector(spec.get("selector"), "spec.selector", found)
    policies = ("AlwaysAllow", "IfHealthyBudget")
    one_of(spec.get("unhealthyPodEvictionPolicy"), policies, "spec.unhealthyPodEvictionPolicy", found)
    return found


def with_fixed_selector(check: Callable[[Json], Errors]) -> Callable[[Json, Json], Errors]:
    """The update of a workload whose selector never changes."""

    def update(new: Json, old: Json) -> Errors:
        found = check(new)
        wanted, before = (new.get("spec") or {}).get("selector"), (old.get("spec") or {}).get("selector")
        immutable(wanted, before, "spec.selector", found)
        return found

    return update


_SET_CHANGEABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)  # fmt: skip


def stateful_set_update(new: Json, old: Json) -> Errors:
    found = stateful_set(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if any(spec.get(name) != before.get(name) for name in spec.keys() | before.keys() if name not in _SET_CHANGEABLE):
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


CREATE = {
    ("apps", "Deployment"): deployment,
    ("apps", "ReplicaSet"): replica_set,
    ("apps", "StatefulSet"): stateful_set,
    ("apps", "DaemonSet"): daemon_set,
    ("batch", "Job"): new_job,
    ("batch", "CronJob"): cron_job,
    ("", "ReplicationController"): replication_controller,
    ("", "PodTemplate"): pod_template,
    ("policy", "PodDisruptionBudget"): pod_disruption_budget,
}
UPDATE = {
    ("apps", "Deployment"): with_fixed_selector(deployment),
    ("apps", "ReplicaSet"): with_fixed_selector(replica_set),
    ("apps", "DaemonSet"): with_fixed_selector(daemon_set),
    ("apps", "StatefulSet"): stateful_set_update,
    ("batch", "Job"): job_update,
}
