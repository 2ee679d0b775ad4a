"""What to do about a Job now: a pure function of the Job and its pods.

A pod carries a finalizer until it has been counted: its uid is written into the status first, then
the finalizer goes, then the uid becomes a number.  Whatever breaks in between, no end of a pod is
lost and none is counted twice.  Reference: local-cluster 10.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hekla.api.sizes import room
from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.local.controller_manager.pods import Pod, waiting
from hekla.local.controller_manager.workloads.job import backoff
from hekla.local.controller_manager.workloads.job.indexes import (
    failures_of,
    first_free,
    index_of,
    parse,
    text_of,
)
from hekla.local.controller_manager.workloads.job.policies import Action, judge, success_rule
from hekla.local.controller_manager.workloads.replicas import order_of_removal

TRACKING = "batch.kubernetes.io/job-tracking"
MOST_UNCOUNTED = 500
"""Pods counted in one write of the status."""
BURST = 500
"""Pods created or deleted in one reconcile."""

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
FAILURE_TARGET, SUCCESS_MET = "FailureTarget", "SuccessCriteriaMet"


class Verdict(NamedTuple):
    """How the Job ends: FailureTarget or SuccessCriteriaMet, which comes before Failed or Complete."""

    type: str
    reason: str
    message: str


@dataclass(slots=True)
class Plan:
    """Steps, in the order in which they are carried out; `status` is what the caller writes after
    making and removing pods."""

    status: Json
    create: list[int | None] = field(default_factory=list)
    """Indexes of pods to make; None for pods without."""
    replaced: dict[int, Pod] = field(default_factory=dict)
    """For jobs that count failures by index: the failed pod that the next pod of an index follows.
    """
    delete: list[Pod] = field(default_factory=list)
    release: list[Pod] = field(default_factory=list)
    """Pods whose finalizer goes once the status is written."""
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """(type, reason, message)."""
    wait: float | None = None


def condition(job: Json, kind: str) -> Json | None:
    """The Job's condition of this type, if it is true."""
    found = job.get("status", {}).get("conditions") or ()
    return next((c for c in found if c["type"] == kind and c["status"] == "True"), None)


def finished(job: Json) -> Json | None:
    """The condition that ended the Job."""
    return condition(job, COMPLETE) or condition(job, FAILED)


def indexed(job: Json) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def tracked(pod: Pod) -> bool:
    return TRACKING in pod.metadata.finalizers


def replaces_only_failed(job: Json) -> bool:
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def terminating(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.deleting and not pod.finished]


@dataclass(slots=True)
class Tally:
    """The counts that pods and status give together, whether already counted in the status or not."""

    active: list[Pod]
    succeeded: int
    failed: int
    succeeded_indexes: set[int]
    failed_indexes: set[int]
    fail_job: str = ""
    """The message of a pod for which the policy fails the whole Job."""


def counts_as_failed(job: Json, pod: Pod, *, failing: bool) -> bool:
    """A pod on its way out has failed too, unless only pods that ended are replaced.

    For a failing job, and for a pod that was on no node, waiting for the end is no use.
    """
    if pod.status.phase == "Failed":
        return True
    at_once = failing or not pod.spec.node_name or not replaces_only_failed(job)
    return pod.deleting and pod.status.phase != "Succeeded" and at_once


def in_range(job: Json, pod: Pod) -> bool:
    """Whether the pod counts: it has no index, or one below the job's completions."""
    index = index_of(pod)
    return not indexed(job) or (index is not None and index < job["spec"].get("completions", 0))


def tally(job: Json, pods: list[Pod], *, failing: bool) -> Tally:
    spec, status = job["spec"], job.get("status", {})
    uncounted = status.get("uncountedTerminatedPods") or {}
    known_ok, known_bad = set(uncounted.get("succeeded") or ()), set(uncounted.get("failed") or ())
    active = [pod for pod in pods if pod.active]
    completions = spec.get("completions")
    done = parse(status.get("completedIndexes", ""), completions) if indexed(job) else set()
    lost = (
        parse(status.get("failedIndexes", ""), completions)
        if spec.get("backoffLimitPerIndex") is not None
        else set()
    )
    succeeded = status.get("succeeded", 0) + len(known_ok)
    failed = status.get("failed", 0) + len(known_bad)
    found = Tally(active, succeeded, failed, done, lost)
    for pod in pods:
        uid = pod.metadata.uid
        if not tracked(pod) or uid in known_ok or uid in known_bad or not in_range(job, pod):
            continue
        if pod.status.phase == "Succeeded":
            found.succeeded += 1
            if (index := index_of(pod)) is not None:
                done.add(index)
        elif counts_as_failed(job, pod, failing=failing):
            _tally_failure(job, pod, found)
    if indexed(job):
        found.succeeded = len(done)
        lost -= done
    return found


def _tally_failure(job: Json, pod: Pod, found: Tally) -> None:
    verdict = judge(job, pod) if pod.status.phase == "Failed" else None
    if verdict is not None and verdict.action is Action.IGNORE:
        return
    found.failed += 1
    if verdict is not None and verdict.action is Action.FAIL_JOB:
        found.fail_job = found.fail_job or verdict.message
    limit, index = job["spec"].get("backoffLimitPerIndex"), index_of(pod)
    if limit is None or index is None:
        return
    if failures_of(pod) >= limit or (verdict is not None and verdict.action is Action.FAIL_INDEX):
        found.failed_indexes.add(index)


def verdict_of(job: Json, pods: list[Pod], found: Tally, now: float) -> Verdict | None:
    """How the Job ends, if that is decided; a decision in the status stands."""
    for kind in (FAILURE_TARGET, SUCCESS_MET):
        written = condition(job, kind)
        if written is not None:
            return Verdict(kind, written.get("reason", ""), written.get("message", ""))
    spec = job["spec"]
    if found.fail_job:
        return Verdict(FAILURE_TARGET, "PodFailurePolicy", found.fail_job)
    if found.failed > spec.get("backoffLimit", 6) or _restarted_too_often(job, pods):
        return Verdict(
            FAILURE_TARGET, "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        )
    left = until_deadline(job, now)
    if left is not None and left <= 0:
        return Verdict(
            FAILURE_TARGET, "DeadlineExceeded", "Job was active longer than specified deadline"
        )
    if spec.get("backoffLimitPerIndex") is not None and found.failed_indexes:
        most = spec.get("maxFailedIndexes")
        if most is not None and len(found.failed_indexes) > most:
            why = "Job has exceeded the specified maximal number of failed indexes"
            return Verdict(FAILURE_TARGET, "MaxFailedIndexesExceeded", why)
        if len(found.failed_indexes) + len(found.succeeded_indexes) >= spec.get("completions", 0):
            return Verdict(FAILURE_TARGET, "FailedIndexes", "Job has failed indexes")
    if spec.get("successPolicy") and indexed(job):
        rule = success_rule(job, found.succeeded_indexes)
        if rule is not None:
            return Verdict(SUCCESS_MET, "SuccessPolicy", f"Matched rules at index {rule}")
    completions = spec.get("completions")
    enough = found.succeeded > 0 if completions is None else found.succeeded >= completions
    if enough and not found.active and not spec.get("suspend"):
        return Verdict(
            SUCCESS_MET, "CompletionsReached", "Reached expected number of succeeded pods"
        )
    return None


def _restarted_too_often(job: Json, pods: list[Pod]) -> bool:
    """Whether restarts of containers, which count as tries, exceed the limit."""
    spec = job["spec"]
    if (spec["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(pod.restarts for pod in pods if pod.status.phase in ("Pending", "Running"))
    limit: int = spec.get("backoffLimit", 6)
    return restarts > 0 if limit == 0 else restarts >= limit


def until_deadline(job: Json, now: float) -> float | None:
    """Seconds that the Job may still be active; None without a limit or while it is suspended."""
    limit, since = job["spec"].get("activeDeadlineSeconds"), job.get("status", {}).get("startTime")
    if limit is None or not since or job["spec"].get("suspend"):
        return None
    return instant(since) + float(limit) - now


def plan(job: Json, pods: list[Pod], now: float, *, may_scale: bool = True) -> Plan:
    """The next steps of a Job that has not finished.  Without `may_scale` no pods are created or
    deleted, because earlier writes have not been seen."""
    spec, status = job["spec"], dict(job.get("status", {}))
    made = Plan(status)
    suspended = bool(spec.get("suspend"))
    if not status.get("startTime") and not suspended:
        status["startTime"] = stamp(now)
    job = {**job, "status": status}
    failing = condition(job, FAILURE_TARGET) is not None
    if not failing and condition(job, SUCCESS_MET) is None:
        # Before any deadline is checked: resuming restarts it.
        note_suspension(made, status, suspended, now)
    found = tally(job, pods, failing=failing)
    verdict = verdict_of(job, pods, found, now)
    if verdict is not None and verdict.type == FAILURE_TARGET and not failing:
        found = tally(job, pods, failing=True)
    delayed = {} if verdict is not None else failed_and_not_replaced(job, pods, found)
    made.replaced = delayed
    if may_scale:
        if verdict is not None or suspended:
            made.delete = found.active
        else:
            size(made, job, pods, found, delayed, now)
    count(
        made,
        job,
        pods,
        found,
        delayed,
        failing=verdict is not None and verdict.type == FAILURE_TARGET,
    )
    left = len(found.active) - len(made.delete) + len(made.create)
    number(status, "active", left)
    gone = {pod.metadata.uid for pod in made.delete}
    status["ready"] = sum(pod.ready for pod in found.active if pod.metadata.uid not in gone)
    status["terminating"] = len(terminating(pods)) + len(made.delete)
    if verdict is not None:
        end(made, pods, verdict, now)
    deadline = until_deadline(job, now)
    if deadline is not None and deadline > 0:
        made.wait = deadline if made.wait is None else min(made.wait, deadline)
    return made


def number(status: Json, name: str, value: int) -> None:
    """A number as the status has it: 0 is left out."""
    if value:
        status[name] = value
    else:
        status.pop(name, None)


def failed_and_not_replaced(job: Json, pods: list[Pod], found: Tally) -> dict[int, Pod]:
    """By index the last failed pod that no pod has followed yet.  It keeps its finalizer: it alone
    says how often the index failed."""
    if job["spec"].get("backoffLimitPerIndex") is None:
        return {}
    last: dict[int, Pod] = {}
    settled = (
        found.succeeded_indexes
        | found.failed_indexes
        | {i for pod in found.active if (i := index_of(pod)) is not None}
    )
    for pod in pods:
        index = index_of(pod)
        if index is None or index in settled or not tracked(pod) or not in_range(job, pod):
            continue
        if counts_as_failed(job, pod, failing=False):
            known = last.get(index)
            if known is None or backoff.ended_at(known) <= backoff.ended_at(pod):
                last[index] = pod
    return last


def size(
    made: Plan, job: Json, pods: list[Pod], found: Tally, delayed: dict[int, Pod], now: float
) -> None:
    """Plan how many pods there should be, and which indexes they have."""
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    active = list(found.active)
    if indexed(job):
        active, useless = sort_out(active, spec.get("completions", 0), found)
        made.delete += useless
    if completions is None:
        wanted = len(active) if found.succeeded else parallelism
    else:
        settled = found.succeeded + len(found.failed_indexes)
        wanted = max(0, min(parallelism, completions - settled))
    if len(active) > wanted:
        surplus = order_of_removal(active, now)[: min(len(active) - wanted, BURST)]
        made.delete += surplus
        return
    leaving = terminating(pods) if replaces_only_failed(job) else []
    lacking = min(wanted - len(active) - len(leaving), BURST, room(wanted, waiting(active)))
    if lacking <= 0:
        return
    if not indexed(job):
        left = backoff.of_job(pods, now)
        if left > 0:
            made.wait = left
            return
        made.create = [None] * lacking
        return
    taken = (
        {i for pod in (*active, *leaving) if (i := index_of(pod)) is not None}
        | found.succeeded_indexes
        | found.failed_indexes
    )
    if spec.get("backoffLimitPerIndex") is None:
        left = backoff.of_job(pods, now)
        if left > 0:
            made.wait = left
            return
    else:
        resting = {
            index: left for index, pod in delayed.items() if (left := rest(job, pod, now)) > 0
        }
        taken |= resting.keys()
        made.wait = min(resting.values(), default=None)
    made.create = list(first_free(lacking, spec.get("completions", 0), taken))


def rest(job: Json, pod: Pod, now: float) -> float:
    """Seconds until an index whose pod failed is tried again."""
    ignored = pod.status.phase == "Failed" and judge(job, pod).action is Action.IGNORE
    return backoff.remaining(failures_of(pod) + (not ignored), backoff.ended_at(pod), now)


def sort_out(active: list[Pod], completions: int, found: Tally) -> tuple[list[Pod], list[Pod]]:
    """Split the active pods: one for each open index, and those that are not needed."""
    seen: set[int] = set()
    kept, useless = [], []
    for pod in sorted(
        active,
        key=lambda p: (
            not p.ready,
            p.status.phase != "Running",
            p.metadata.creation_timestamp,
            p.metadata.name,
        ),
    ):
        index = index_of(pod)
        if index is None or index >= completions or index in seen or index in found.failed_indexes:
            useless.append(pod)
        else:
            seen.add(index)
            kept.append(pod)
    return kept, useless


def note_suspension(made: Plan, status: Json, suspended: bool, now: float) -> None:
    conditions = [dict(c) for c in status.get("conditions") or ()]
    known = next((c for c in conditions if c["type"] == SUSPENDED), None)
    was = known is not None and known["status"] == "True"
    if suspended == was:
        return
    reason, message = (
        ("JobSuspended", "Job suspended") if suspended else ("JobResumed", "Job resumed")
    )
    fresh = made_condition(SUSPENDED, reason, message, now, "True" if suspended else "False")
    status["conditions"] = [fresh if c["type"] == SUSPENDED else c for c in conditions] + (
        [] if known else [fresh]
    )
    made.events.append(("Normal", "Suspended" if suspended else "Resumed", message))
    if not suspended:
        status["startTime"] = stamp(now)


def made_condition(kind: str, reason: str, message: str, now: float, status: str = "True") -> Json:
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": stamp(now),
        "lastTransitionTime": stamp(now),
        "reason": reason,
        "message": message,
    }


def count(
    made: Plan, job: Json, pods: list[Pod], found: Tally, delayed: dict[int, Pod], *, failing: bool
) -> None:
    """Move ended pods one step further: into `uncountedTerminatedPods`, or, once their finalizer is
    gone, into the counts."""
    status, spec = made.status, job["spec"]
    uncounted = status.get("uncountedTerminatedPods") or {}
    held = {pod.metadata.uid for pod in pods if tracked(pod)}
    good, bad = uncounted.get("succeeded") or [], uncounted.get("failed") or []
    if not indexed(job):
        number(
            status, "succeeded", status.get("succeeded", 0) + sum(uid not in held for uid in good)
        )
    number(status, "failed", status.get("failed", 0) + sum(uid not in held for uid in bad))
    good, bad = [uid for uid in good if uid in held], [uid for uid in bad if uid in held]
    counted = (
        parse(status.get("completedIndexes", ""), spec.get("completions"))
        if indexed(job)
        else set()
    )
    waiting = {pod.metadata.uid for pod in delayed.values()}
    for pod in pods:
        uid = pod.metadata.uid
        if not tracked(pod) or uid in waiting:
            continue
        if uid in good or uid in bad:
            made.release.append(pod)
            continue
        if len(good) + len(bad) >= MOST_UNCOUNTED:
            break
        if pod.status.phase == "Succeeded":
            if not indexed(job):
                good.append(uid)
            elif in_range(job, pod) and (index := index_of(pod)) is not None:
                counted.add(index)
            made.release.append(pod)
        elif counts_as_failed(job, pod, failing=failing):
            ignored = pod.status.phase == "Failed" and judge(job, pod).action is Action.IGNORE
            if in_range(job, pod) and not ignored:
                bad.append(uid)
            made.release.append(pod)
    if indexed(job):
        number(status, "succeeded", len(counted))
        status["completedIndexes"] = text_of(counted)
        if not counted:
            del status["completedIndexes"]
    if spec.get("backoffLimitPerIndex") is not None:
        status["failedIndexes"] = text_of(found.failed_indexes)
    status["uncountedTerminatedPods"] = {
        **({"succeeded": good} if good else {}),
        **({"failed": bad} if bad else {}),
    }


def end(made: Plan, pods: list[Pod], verdict: Verdict, now: float) -> None:
    """Write the decision, and, once every pod has ended and is counted, the end."""
    status = made.status
    conditions = list(status.get("conditions") or ())
    if not any(c["type"] == verdict.type for c in conditions):
        conditions.append(made_condition(verdict.type, verdict.reason, verdict.message, now))
    held = [pod for pod in pods if tracked(pod)]
    if not (
        held
        or made.delete
        or terminating(pods)
        or status["uncountedTerminatedPods"]
        or any(pod.active for pod in pods)
    ):
        failed = verdict.type == FAILURE_TARGET
        conditions.append(
            made_condition(FAILED if failed else COMPLETE, verdict.reason, verdict.message, now)
        )
        if failed:
            made.events.append(("Warning", verdict.reason, verdict.message))
        else:
            status["completionTime"] = stamp(now)
            made.events.append(("Normal", "Completed", "Job completed"))
        made.wait = 0.0
    status["conditions"] = conditions
