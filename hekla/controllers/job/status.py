"""The status of a job: pod counts, phase history and how long it ran (reference: controllers 2.16).

Where Volcano's counts disagree with the pods, these follow the pods (decision 0070): pods that a
kill leaves alone stay counted, and the transition time moves when the phase does.
"""

from __future__ import annotations

import msgspec

from hekla.api import batch
from hekla.api.text.durations import duration_text
from hekla.api.text.times import instant, stamp
from hekla.controllers.job.counts import Counts


def counted(status: batch.JobStatus, counts: Counts) -> batch.JobStatus:
    """The status with these pod counts."""
    return msgspec.structs.replace(
        status,
        pending=counts.pending,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        unknown=counts.unknown,
        terminating=counts.terminating,
        task_status_count={
            task: batch.TaskState(phase=dict(phases))
            for task, phases in sorted(counts.tasks.items())
        },
    )


def entered(
    status: batch.JobStatus, phase: str, now: float, *, reason: str = "", message: str = ""
) -> batch.JobStatus:
    """The status after the job has entered a phase.  A phase has one condition; entering it again
    moves that to the end."""
    time = stamp(now)
    history = [condition for condition in status.conditions if condition.status != phase]
    return msgspec.structs.replace(
        status,
        state=batch.JobState(
            phase=phase, reason=reason, message=message, last_transition_time=time
        ),
        conditions=[*history, batch.JobCondition(status=phase, last_transition_time=time)],
    )


def first_phase(status: batch.JobStatus) -> batch.JobStatus:
    """The same status as it was in the first phase of its history."""
    first = status.conditions[0]
    state = batch.JobState(phase=first.status, last_transition_time=first.last_transition_time)
    return msgspec.structs.replace(status, state=state, conditions=[first])


def dated(status: batch.JobStatus, earlier: batch.JobStatus) -> batch.JobStatus:
    """The status of a further step, after an earlier one that was decided and has not been written:
    the earlier phases keep their times, and none is left out."""
    known = {condition.status: condition for condition in earlier.conditions}
    *before, last = [known.get(condition.status, condition) for condition in status.conditions]
    said = {condition.status for condition in status.conditions}
    unsaid = [condition for condition in earlier.conditions if condition.status not in said]
    return msgspec.structs.replace(
        status,
        state=earlier.state if earlier.state.phase == status.state.phase else status.state,
        conditions=[*before, *unsaid, last],
    )


def phase_before(status: batch.JobStatus) -> str:
    """The phase that the job was in before the one it is in."""
    earlier = [
        condition.status
        for condition in status.conditions
        if condition.status != status.state.phase
    ]
    return earlier[-1] if earlier else ""


def running_duration(job: batch.Job, status: batch.JobStatus) -> str:
    """From the job's creation to its last change of phase, which is how Volcano measures it."""
    return duration_text(
        max(
            0.0,
            instant(status.state.last_transition_time) - instant(job.metadata.creation_timestamp),
        )
    )
