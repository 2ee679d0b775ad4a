"""The status of a flow, from its jobs as they are (reference: controllers 7.3, 7.4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from hekla.api import batch, flow
from hekla.api.batch import JobPhase
from hekla.api.flow import JobFlowPhase
from hekla.api.text.durations import seconds
from hekla.api.text.times import instant, stamp
from hekla.controllers.jobflow.steps import attempt_of

_LISTS = {
    JobPhase.PENDING: "pending_jobs",
    JobPhase.RUNNING: "running_jobs",
    JobPhase.FAILED: "failed_jobs",
    JobPhase.COMPLETED: "completed_jobs",
    JobPhase.TERMINATED: "terminated_jobs",
    JobPhase.COMPLETING: "",
    JobPhase.TERMINATING: "",
}
"""Phase -> the status list that names its jobs.  A job that is ending is in none of them; every
other phase counts as unknown."""


def next_phase(
    phase: str, status: flow.JobFlowStatus, flows: int, forgiven: Collection[str] = ()
) -> str:
    """The phase that follows for a flow.  `flows` steps have to complete; failures of `forgiven`
    jobs do not fail the flow.  Raises ValueError for an unknown phase."""
    failed = [name for name in status.failed_jobs if name not in forgiven]
    broken = bool(failed or [name for name in status.terminated_jobs if name not in forgiven])
    if phase in ("", JobFlowPhase.PENDING):
        if (
            status.running_jobs or status.completed_jobs or (forgiven and not broken)
        ) and not failed:
            return JobFlowPhase.RUNNING
        return JobFlowPhase.FAILED if broken else JobFlowPhase.PENDING
    if phase == JobFlowPhase.RUNNING:
        if len(status.completed_jobs) == flows:
            return JobFlowPhase.SUCCEED
        return JobFlowPhase.FAILED if broken else JobFlowPhase.RUNNING
    if phase in tuple(JobFlowPhase):
        return phase
    raise ValueError(f"jobflow state {phase} is invalid")


def status_of(owner: flow.JobFlow, jobs: Sequence[batch.Job], now: float) -> flow.JobFlowStatus:
    """The status of a flow from its jobs; its phase is left as it is."""
    status = flow.JobFlowStatus(state=owner.status.state)
    known = {entry.name: entry for entry in owner.status.job_status_list}
    for job in sorted(jobs, key=lambda job: job.metadata.name):
        name, phase = job.metadata.name, job.status.state.phase
        column = (
            _LISTS.get(JobPhase(phase), "un_know_jobs")
            if phase in tuple(JobPhase)
            else "un_know_jobs"
        )
        if column:
            setattr(status, column, [*getattr(status, column), name])
        status.conditions[name] = flow.FlowCondition(
            phase=phase,
            create_time=job.metadata.creation_timestamp or "",
            running_duration=job.status.running_duration,
            task_status_count=job.status.task_status_count,
        )
        known[name] = _entry(job, known.get(name), now)
    status.job_status_list = list(known.values())
    return status


def _entry(job: batch.Job, before: flow.FlowJobStatus | None, now: float) -> flow.FlowJobStatus:
    duration = job.status.running_duration
    created = job.metadata.creation_timestamp or ""
    phase = job.status.state.phase
    return flow.FlowJobStatus(
        name=job.metadata.name,
        state=phase,
        start_timestamp=created,
        end_timestamp=_end(created, duration),
        restart_count=job.status.retry_count,
        attempt=max(before.attempt if before else 0, attempt)
        if (attempt := attempt_of(job)) > 1 or (before and before.attempt)
        else 0,
        running_histories=_histories(before.running_histories if before else [], phase, now),
    )


def _end(created: str, duration: str) -> str:
    """When a job ended.  Anybody may have written its status; a time that cannot be read counts as
    none."""
    try:
        return stamp(instant(created) + seconds(duration)) if duration else ""
    except (ValueError, OverflowError):
        return ""


def _histories(
    before: list[flow.RunningHistory], phase: str, now: float
) -> list[flow.RunningHistory]:
    """One entry for each phase that was seen, the last of them open."""
    if not phase or (before and before[-1].state == phase):
        return before
    closed = (
        [*before[:-1], msgspec.structs.replace(before[-1], end_timestamp=stamp(now))]
        if before
        else []
    )
    return [*closed, flow.RunningHistory(start_timestamp=stamp(now), state=phase)]
