"""Printer columns of workloads (local-cluster 1.10)."""

from __future__ import annotations

from typing import Any

from hekla.api.text.ages import age, human
from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.local.apiserver.objects.columns.cells import (
    AGE,
    NAME,
    NONE,
    at,
    cell,
    column,
    containers,
    labels,
    number,
    selector,
    wide,
)

_TEMPLATE = ("spec", "template", "spec")
_SELECTOR = wide(
    "Selector",
    lambda tree, _now: selector(at(tree, "spec", "selector")),
    "Which pods belong to it.",
)


def _ready(tree: Json, _now: float) -> str:
    return f"{at(tree, 'status', 'readyReplicas') or 0}/{at(tree, 'spec', 'replicas') or 0}"


def _status_of_job(job: Json, _now: float) -> str:
    conditions = {
        c.get("type") for c in at(job, "status", "conditions") or () if c.get("status") == "True"
    }
    if "Complete" in conditions:
        return "Complete"
    if "Failed" in conditions:
        return "Failed"
    if at(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if name in conditions:
            return name
    return "Running"


def _completions(job: Json, _now: float) -> str:
    done = at(job, "status", "succeeded") or 0
    wanted = at(job, "spec", "completions")
    width = at(job, "spec", "parallelism") or 0
    if wanted is not None:
        return f"{done}/{wanted}"
    return f"{done}/1 of {width}" if width > 1 else f"{done}/1"


def _duration(job: Json, now: float) -> str:
    start, end = at(job, "status", "startTime"), at(job, "status", "completionTime")
    if not start:
        return ""
    return human((instant(end) if end else now) - instant(start))


def _count(name: str, *path: str, description: str = "") -> Any:
    return number(name, cell(*path, absent=0), description)


def _last_schedule(tree: Json, now: float) -> str:
    moment = at(tree, "status", "lastScheduleTime")
    return age(moment, now) if moment else NONE


_REPLICAS = (
    NAME,
    _count("Desired", "spec", "replicas", description="How many pods there should be."),
    _count("Current", "status", "replicas", description="How many pods there are."),
    _count("Ready", "status", "readyReplicas", description="How many of them are ready."),
    AGE,
    *containers(*_TEMPLATE),
)

COLUMNS = {
    ("apps", "Deployment"): (
        NAME,
        column("Ready", _ready, "How many of the desired pods are ready."),
        _count("Up-to-date", "status", "updatedReplicas", description="How many pods have the newest template.")._replace(type="string"),
        _count("Available", "status", "availableReplicas", description="How many pods are ready for long enough.")._replace(type="string"),
        AGE,
        *containers(*_TEMPLATE),
        _SELECTOR,
    ),
    ("apps", "ReplicaSet"): (*_REPLICAS, _SELECTOR),
    ("", "ReplicationController"): (
        *_REPLICAS,
        wide("Selector", lambda tree, _now: labels(at(tree, "spec", "selector")), "Which pods belong to it."),
    ),
    ("apps", "StatefulSet"): (NAME, column("Ready", _ready, "How many of the desired pods are ready."), AGE, *containers(*_TEMPLATE)),
    ("apps", "DaemonSet"): (
        NAME,
        _count("Desired", "status", "desiredNumberScheduled"),
        _count("Current", "status", "currentNumberScheduled"),
        _count("Ready", "status", "numberReady"),
        _count("Up-to-date", "status", "updatedNumberScheduled"),
        _count("Available", "status", "numberAvailable"),
        column("Node Selector", lambda tree, _now: labels(at(tree, *_TEMPLATE, "nodeSelector")), "Which nodes it runs on."),
        AGE,
        *containers(*_TEMPLATE),
        _SELECTOR,
    ),
    ("apps", "ControllerRevision"): (
        NAME,
        column("Controller", lambda tree, _now: _controller(tree), "Whose revision it is."),
        column("Revision", cell("revision", absent=0)),
        AGE,
    ),
    ("batch", "Job"): (
        NAME,
        column("Status", _status_of_job, "How the job is doing."),
        column("Completions", _completions, "How many pods have succeeded, of how many."),
        column("Duration", _duration, "How long it ran, or has been running."),
        AGE,
        *containers(*_TEMPLATE),
        _SELECTOR,
    ),
    ("batch", "CronJob"): (
        NAME,
        column("Schedule", cell("spec", "schedule")),
        column("Timezone", cell("spec", "timeZone", absent=NONE)),
        column("Suspend", lambda tree, _now: "True" if at(tree, "spec", "suspend") else "False", type="boolean"),
        number("Active", lambda tree, _now: len(at(tree, "status", "active") or ())),
        column("Last Schedule", _last_schedule),
        AGE,
        *containers("spec", "jobTemplate", "spec", "template", "spec"),
        wide("Selector", lambda tree, _now: selector(at(tree, "spec", "jobTemplate", "spec", "selector"))),
    ),
    ("policy", "PodDisruptionBudget"): (
        NAME,
        column("Min Available", lambda tree, _now: _or_na(at(tree, "spec", "minAvailable")), "How many pods must stay."),
        column("Max Unavailable", lambda tree, _now: _or_na(at(tree, "spec", "maxUnavailable")), "How many pods may go."),
        _count("Allowed Disruptions", "status", "disruptionsAllowed", description="How many may go right now."),
        AGE,
    ),
}  # fmt: skip


def _or_na(value: Any) -> str:
    return "N/A" if value is None else str(value)


def _controller(tree: Json) -> str:
    for owner in at(tree, "metadata", "ownerReferences") or ():
        if owner.get("controller"):
            group = owner.get("apiVersion", "").rpartition("/")[0]
            kind = (
                f"{owner.get('kind', '').lower()}.{group}"
                if group
                else owner.get("kind", "").lower()
            )
            return f"{kind}/{owner.get('name', '')}"
    return NONE
