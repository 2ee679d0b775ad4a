"""The rules of jobs and cron jobs (local-cluster 5.8)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hekla.api.names import JOB_CONTROLLER_UID
from hekla.api.text import addresses
from hekla.api.text.fielderrors import required
from hekla.api.text.fieldrules import Errors, label_key, not_negative, one_of, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.kind import FieldError
from hekla.local.apiserver.objects.validation import pod as pods
from hekla.local.apiserver.objects.validation.metadata import (
    counts,
    immutable,
    matches,
    metadata,
    status_counts,
)
from hekla.local.apiserver.objects.validation.workloads import unmatched

ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
MAX_MANAGED_BY_LENGTH = 63
MAX_FAILURE_POLICY_RULES, MAX_SUCCESS_POLICY_RULES = 20, 20
MAX_EXIT_CODES, MAX_CONDITION_PATTERNS = 255, 20
MAX_INDEXED_PARALLELISM = 100_000
COMPLETIONS_SOFT_LIMIT = 100_000
PARALLELISM_LIMIT_FOR_HIGH_COMPLETIONS = 10_000
FAILED_INDEXES_LIMIT_FOR_HIGH_COMPLETIONS = 10_000


# --- a job's spec ---------------------------------------------------------------------------------


def _job_spec(spec: Json, path: str, errors: Errors) -> None:
    amounts = (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    counts(spec, amounts, errors, path)
    mode = spec.get("completionMode")
    per_index = spec.get("backoffLimitPerIndex")
    most_failed = spec.get("maxFailedIndexes")
    if most_failed is not None and per_index is None:
        errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if spec.get("managedBy") is not None:
        addresses.domain_path(spec["managedBy"], f"{path}.managedBy", errors)
        if len(spec["managedBy"].encode()) > MAX_MANAGED_BY_LENGTH:
            errors.too_long(f"{path}.managedBy", MAX_MANAGED_BY_LENGTH)
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        errors.not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        _indexed(spec, path, errors)
    elif mode in (None, "NonIndexed"):
        for name, value in (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", most_failed)):
            if value is not None:
                errors.invalid(f"{path}.{name}", value, "requires indexed completion mode")
    if spec.get("podFailurePolicy") is not None:
        _failure_policy(spec, f"{path}.podFailurePolicy.rules", errors)
    if spec.get("successPolicy") is not None:
        if mode != "Indexed":
            errors.invalid(
                f"{path}.successPolicy", spec["successPolicy"], "requires indexed completion mode"
            )
        else:
            _success_policy(spec, f"{path}.successPolicy.rules", errors)
    replaced = spec.get("podReplacementPolicy")
    ways = (
        ("Failed",)
        if spec.get("podFailurePolicy") is not None
        else ("Failed", "TerminatingOrFailed")
    )
    if replaced is not None and replaced not in ways:
        errors.not_supported(f"{path}.podReplacementPolicy", replaced, ways)
    template = spec.get("template") or {}
    pods.template(template, f"{path}.template", errors)
    policy = (template.get("spec") or {}).get("restartPolicy")
    where = f"{path}.template.spec.restartPolicy"
    if not policy or policy == "Always":
        errors.required(where, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        errors.not_supported(where, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        errors.invalid(
            where, policy, 'only "Never" is supported when podFailurePolicy is specified'
        )


def _indexed(spec: Json, path: str, errors: Errors) -> None:
    completions = spec.get("completions")
    parallelism = spec.get("parallelism")
    failed = spec.get("maxFailedIndexes")
    if completions is None:
        errors.required(f"{path}.completions", "when completion mode is Indexed")
    if parallelism is not None and parallelism > MAX_INDEXED_PARALLELISM:
        why = f"must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
        errors.invalid(f"{path}.parallelism", parallelism, why)
    if completions is not None and failed is not None and failed > completions:
        errors.invalid(
            f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"
        )
    if failed is not None and failed > MAX_INDEXED_PARALLELISM:
        why = f"must be less than or equal to {MAX_INDEXED_PARALLELISM}"
        errors.invalid(f"{path}.maxFailedIndexes", failed, why)
    if (
        completions is None
        or completions <= COMPLETIONS_SOFT_LIMIT
        or spec.get("backoffLimitPerIndex") is None
    ):
        return
    when = (
        f"when completions are above {COMPLETIONS_SOFT_LIMIT} and used with backoff limit per index"
    )
    if failed is None:
        why = f"must be specified when completions is above {COMPLETIONS_SOFT_LIMIT}"
        errors.required(f"{path}.maxFailedIndexes", why)
    if parallelism is not None and parallelism > PARALLELISM_LIMIT_FOR_HIGH_COMPLETIONS:
        why = f"must be less than or equal to {PARALLELISM_LIMIT_FOR_HIGH_COMPLETIONS} {when}"
        errors.invalid(f"{path}.parallelism", parallelism, why)
    if failed is not None and failed > FAILED_INDEXES_LIMIT_FOR_HIGH_COMPLETIONS:
        why = f"must be less than or equal to {FAILED_INDEXES_LIMIT_FOR_HIGH_COMPLETIONS} {when}"
        errors.invalid(f"{path}.maxFailedIndexes", failed, why)


def _quoted(values: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(f'"{value}"' for value in values) + "]"


def _failure_policy(spec: Json, path: str, errors: Errors) -> None:
    rules = spec["podFailurePolicy"].get("rules") or ()
    if len(rules) > MAX_FAILURE_POLICY_RULES:
        errors.too_many(path, len(rules), MAX_FAILURE_POLICY_RULES)
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {
        container.get("name") or ""
        for name in ("containers", "initContainers")
        for container in pod.get(name) or ()
    }
    for position, rule in enumerate(rules):
        where, action = f"{path}[{position}]", rule.get("action") or ""
        if not action:
            errors.required(f"{where}.action", _quoted(ACTIONS))
        elif action == "FailIndex":
            if spec.get("backoffLimitPerIndex") is None:
                errors.invalid(
                    f"{where}.action", action, "requires the backoffLimitPerIndex to be set"
                )
        elif action not in ACTIONS:
            errors.not_supported(f"{where}.action", action, ACTIONS)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            _exit_codes(codes, f"{where}.onExitCodes", containers, errors)
        if conditions:
            _pod_conditions(conditions, f"{where}.onPodConditions", errors)
        if (codes is not None) == bool(conditions):
            why = (
                "specifying both OnExitCodes and OnPodConditions is not supported"
                if conditions
                else ("specifying one of OnExitCodes and OnPodConditions is required")
            )
            errors.append(FieldError(where, "FieldValueInvalid", f"Invalid value: {why}"))


def _exit_codes(codes: Json, path: str, containers: set[str], errors: Errors) -> None:
    operator = codes.get("operator") or ""
    values = codes.get("values") or []
    name = codes.get("containerName")
    if not operator:
        errors.required(f"{path}.operator", _quoted(("In", "NotIn")))
    elif operator not in ("In", "NotIn"):
        errors.not_supported(f"{path}.operator", operator, ("In", "NotIn"))
    if name is not None and name not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        errors.invalid(f"{path}.containerName", name, why)
    if not values:
        errors.invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    elif len(values) > MAX_EXIT_CODES:
        errors.too_many(f"{path}.values", len(values), MAX_EXIT_CODES)
    seen: set[int] = set()
    for position, value in enumerate(values):
        where = f"{path}.values[{position}]"
        if operator == "In" and value == 0:
            errors.invalid(where, value, "must not be 0 for the In operator")
        if value in seen:
            errors.duplicate(where, value)
        seen.add(value)
    if values != sorted(values):
        errors.invalid(f"{path}.values", values, "must be ordered")


def _pod_conditions(conditions: Any, path: str, errors: Errors) -> None:
    if len(conditions) > MAX_CONDITION_PATTERNS:
        errors.too_many(path, len(conditions), MAX_CONDITION_PATTERNS)
    states = ("False", "True", "Unknown")
    for position, pattern in enumerate(conditions):
        where = f"{path}[{position}]"
        kind = pattern.get("type") or ""
        status = pattern.get("status") or ""
        errors.malformed(f"{where}.type", kind, label_key(kind))
        if not status:
            errors.required(f"{where}.status", _quoted(states))
        elif status not in states:
            errors.not_supported(f"{where}.status", status, states)


def _success_policy(spec: Json, path: str, errors: Errors) -> None:
    rules, completions = spec["successPolicy"].get("rules") or (), spec.get("completions") or 0
    if not rules:
        errors.required(
            path, "at least one rules must be specified when the successPolicy is specified"
        )
    if len(rules) > MAX_SUCCESS_POLICY_RULES:
        errors.too_many(path, len(rules), MAX_SUCCESS_POLICY_RULES)
    for position, rule in enumerate(rules):
        where = f"{path}[{position}]"
        count = rule.get("succeededCount")
        indexes = rule.get("succeededIndexes")
        if count is None and indexes is None:
            errors.required(
                where, "at least one of succeededCount or succeededIndexes must be specified"
            )
        total, why = _indexes(indexes, completions) if indexes is not None else (0, "")
        if why:
            errors.invalid(
                f"{where}.succeededIndexes", indexes, f"error parsing succeededIndexes: {why}"
            )
        if count is None:
            continue
        not_negative(count, f"{where}.succeededCount", errors)
        if count > completions:
            why = (
                f"must be less than or equal to {completions} (the number of specified completions)"
            )
            errors.invalid(f"{where}.succeededCount", count, why)
        if indexes is not None and count > total:
            why = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            errors.invalid(f"{where}.succeededCount", count, why)


def _indexes(text: str, completions: int) -> tuple[int, str]:
    """(how many indexes a list like `1,3-5` holds, why it cannot be parsed)."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            return (
                0,
                f"the fragment \"{part}\" violates the requirement that an index interval can have at most two parts separated by '-'",
            )
        numbers = []
        for end in ends:
            if re.fullmatch("[+-]?[0-9]+", end) is None:
                return 0, f'cannot convert string to integer for index: "{end}"'
            numbers.append(int(end))
            if numbers[-1] >= completions:
                return 0, f'too large index: "{end}"'
        if last >= numbers[0]:
            return 0, f"non-increasing order, previous: {last}, current: {numbers[0]}"
        if len(numbers) == 2 and numbers[0] >= numbers[1]:
            return 0, f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}"
        last = numbers[-1]
        total += numbers[-1] - numbers[0] + 1
    return total, ""


# --- jobs -----------------------------------------------------------------------------------------

_OWNER_LABELS = (
    ("controller-uid", "uid"),
    ("job-name", "name"),
    (JOB_CONTROLLER_UID, "uid"),
    ("batch.kubernetes.io/job-name", "name"),
)
"""The labels that the server gives the pods of a job: label -> field of the job's metadata."""


def new_job(tree: Json) -> Errors:
    meta, spec = tree["metadata"], tree.get("spec") or {}
    template = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    errors = metadata(tree)
    if meta.get("labels") == template:
        # What a job is called for want of a name of its own it is called once it stands: only the
        # template is asked about that.
        errors = Errors(error for error in errors if error.field != "metadata.labels")
    _generated(tree, errors)
    _whole_spec(spec, errors)
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and completions:
        last = f"{meta.get('name') or ''}-{completions - 1}"
        if names.dns_label(last):
            why = f"will not able to create pod with invalid DNS label: {last}"
            errors.invalid("metadata.name", meta.get("name") or "", why)
    return errors


def _generated(tree: Json, errors: Errors) -> None:
    """The selector and labels of a job's pods are those that the server generates."""
    meta, spec = tree["metadata"], tree.get("spec") or {}
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    generated = {label: meta.get(name) or "" for label, name in _OWNER_LABELS}
    for label, wanted in generated.items():
        path = f"spec.template.metadata.labels[{label}]"
        if label not in labels:
            errors.required(path, f"must be '{wanted}'")
        elif labels[label] != wanted:
            errors.invalid(path, labels, f"must be '{wanted}'")
    if not matches(spec["selector"], generated):
        errors.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _whole_spec(spec: Json, errors: Errors) -> None:
    _job_spec(spec, "spec", errors)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if spec.get("selector") is None:
        errors += [required("spec.selector"), unmatched(labels)]
        return
    before = len(errors)
    selector(spec["selector"], "spec.selector", errors)
    if len(errors) == before and not matches(spec["selector"], labels):
        errors.append(unmatched(labels))


_FREE_PLACEMENT = ("affinity", "nodeSelector", "tolerations", "schedulingGates")
"""May change in the pod template as long as the job has not started."""


def job_update(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    _generated(new, errors)
    _whole_spec(spec, errors)
    _completions(spec, before, errors)
    immutable(spec.get("selector"), before.get("selector"), "spec.selector", errors)
    _template_change(new, old, errors)
    for name in (
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ):
        immutable(spec.get(name), before.get(name), f"spec.{name}", errors)
    return errors


def _completions(spec: Json, before: Json, errors: Errors) -> None:
    wanted = spec.get("completions")
    if spec.get("completionMode") != "Indexed":
        immutable(wanted, before.get("completions"), "spec.completions", errors)
    elif wanted not in (None, before.get("completions")) and wanted != spec.get("parallelism"):
        errors.invalid(
            "spec.completions", wanted, "can only be modified in tandem with spec.parallelism"
        )


def _template_change(new: Json, old: Json, errors: Errors) -> None:
    template, before = ((tree.get("spec") or {}).get("template") or {} for tree in (new, old))
    if template == before:
        return
    waits = bool((old.get("spec") or {}).get("suspend")) and not (old.get("status") or {}).get(
        "startTime"
    )
    if waits:
        pod = dict(template.get("spec") or {})
        for name in _FREE_PLACEMENT:
            pod.pop(name, None)
            if name in (before.get("spec") or {}):
                pod[name] = before["spec"][name]
        meta = {**(template.get("metadata") or {})}
        for name in ("labels", "annotations"):
            meta.pop(name, None)
            if name in (before.get("metadata") or {}):
                meta[name] = before["metadata"][name]
        template = {**template, "spec": pod, **({"metadata": meta} if meta else {})}
    immutable(template, before, "spec.template", errors)


# --- cron jobs ------------------------------------------------------------------------------------

_CRON_FIELD = re.compile(
    r"(\*|\?|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?(,(\*|\?|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?)*"
).fullmatch
_CRON_NAMES = {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}").fullmatch


def cron_reason(schedule: str) -> str:
    """Why a text is not a cron schedule; empty if it is one."""
    if schedule in _CRON_NAMES or schedule.startswith("@every "):
        return ""
    parts = schedule.split()
    if len(parts) != 5:
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    for part in parts:
        if _CRON_FIELD(part) is None:
            return f"failed to parse field {part}"
    limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    for part, (low, high) in zip(parts, limits, strict=True):
        for number in re.findall(r"(?<![/\d])\d+", part):
            if not low <= int(number) <= high:
                side = f"above maximum ({high})" if int(number) > high else f"below minimum ({low})"
                return f"end of range ({number}) {side}: {part}"
    return ""


def _zone_reason(name: str) -> str:
    if not name:
        return "timeZone must be nil or non-empty string"
    for part in name.split("/"):
        if part in (".", "..") or part.startswith("-") or _ZONE_PART(part) is None:
            return f"unknown time zone {name}"
    if name.lower() == "local":
        return (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {name}"
    return ""


def new_cron_job(tree: Json) -> Errors:
    errors = cron_job(tree)
    name = (tree.get("metadata") or {}).get("name") or ""
    if len(name) > 52:
        errors.invalid("metadata.name", name, "must be no more than 52 characters")
    return errors


def cron_job(tree: Json, old: Json | None = None) -> Errors:
    errors = metadata(tree)
    spec, before = tree.get("spec") or {}, (old or {}).get("spec") or {}
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        errors.required("spec.schedule")
    else:
        zoned = "TZ=" in schedule
        why = "" if zoned else cron_reason(schedule)
        if why:
            errors.invalid("spec.schedule", schedule, why)
        if "TZ" in schedule and "TZ" not in (before.get("schedule") or ""):
            why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.invalid("spec.schedule", schedule, why)
        elif "TZ" in schedule and zone is not None:
            why = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            errors.invalid("spec.schedule", schedule, why)
    not_negative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds", errors)
    if zone is not None and (old is None or zone != before.get("timeZone")):
        why = _zone_reason(zone)
        if why:
            errors.invalid("spec.timeZone", zone, why)
    one_of(
        spec.get("concurrencyPolicy"),
        ("Allow", "Forbid", "Replace"),
        "spec.concurrencyPolicy",
        errors,
        needed=True,
    )
    job, path = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    _job_spec(job, path, errors)
    if job.get("selector") is not None:
        errors.invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        errors.not_supported(f"{path}.manualSelector", True, ("nil", "false"))
    counts(spec, ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), errors, "spec")
    return errors


CREATE = {("batch", "Job"): new_job, ("batch", "CronJob"): new_cron_job}
UPDATE: dict[tuple[str, str], Callable[[Json, Json], Errors]] = {
    ("batch", "Job"): job_update,
    ("batch", "CronJob"): cron_job,
}
STATUS = {
    ("batch", "Job"): status_counts("active", "succeeded", "failed", "ready", "terminating"),
}
