"""The job state machine as data: what an action does in a phase.  Reference: controllers 2.8.

`TABLE[phase][action]` is a `Transition`: whether the pods are brought to what the spec asks
(`SYNC`), all stopped (`KILL`) or some stopped (`KILL_TARGET`), and which phase follows.  The row
`ANY_OTHER` is for the actions that a phase does not name.  Nothing here touches a cluster, so the
table is tested row by row.

Two rows differ from Volcano on purpose: an Abort, Terminate or Complete that arrives while a job is
Restarting is carried out rather than turned into one more restart, because otherwise a suspend
would be consumed and forgotten (decision 0070).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from hekla.api import batch
from hekla.api.batch import JobPhase
from hekla.api.bus import Action
from hekla.controllers.job.counts import Counts

PENDING = JobPhase.PENDING
RUNNING = JobPhase.RUNNING
RESTARTING = JobPhase.RESTARTING
ABORTING = JobPhase.ABORTING
ABORTED = JobPhase.ABORTED
COMPLETING = JobPhase.COMPLETING
COMPLETED = JobPhase.COMPLETED
TERMINATING = JobPhase.TERMINATING
TERMINATED = JobPhase.TERMINATED
FAILED = JobPhase.FAILED

AT_WORK = frozenset({"", PENDING, RUNNING, RESTARTING})
"""Phases in which the job is to have pods; in all others every pod that still runs is deleted."""

SYNC_JOB = Action.SYNC_JOB
RESTART_JOB = Action.RESTART_JOB
RESTART_TASK = Action.RESTART_TASK
RESTART_POD = Action.RESTART_POD
RESTART_PARTITION = Action.RESTART_PARTITION
ABORT_JOB = Action.ABORT_JOB
COMPLETE_JOB = Action.COMPLETE_JOB
TERMINATE_JOB = Action.TERMINATE_JOB
RESUME_JOB = Action.RESUME_JOB
TARGETED = frozenset({RESTART_TASK, RESTART_POD, RESTART_PARTITION})
INTERNAL = frozenset(
    {SYNC_JOB, Action.ENQUEUE_JOB, Action.SYNC_QUEUE, Action.OPEN_QUEUE, Action.CLOSE_QUEUE}
)
ANY_OTHER = "*"


class Verb(Enum):
    """What is done to the pods before the next phase is chosen."""

    SYNC = "sync"
    KILL = "kill"
    KILL_TARGET = "kill target"


@dataclass(slots=True)
class Situation:
    """What an outcome may look at: the spec, the pods as they will be after the transition, and
    two stored numbers."""

    spec: batch.JobSpec
    counts: Counts
    retry_count: int
    min_available: int

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.spec.tasks)


Outcome = Callable[[Situation], str | None]
"""The phase that follows, or None when it stays."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One cell of the table.  `soft` keeps pods that Succeeded or Failed; `retry` counts one
    restart."""

    verb: Verb
    outcome: Outcome
    soft: bool = False
    retry: bool = False


def to(phase: str) -> Outcome:
    """An outcome that is always this phase."""
    return lambda situation: phase


def stay(situation: Situation) -> str | None:
    return None


def started(now: Situation) -> str | None:
    """Pending: the gang is there once enough pods run or have run."""
    counts = now.counts
    enough = counts.running + counts.succeeded + counts.failed >= now.spec.min_available
    return RUNNING if enough else None


def restarted(now: Situation) -> str | None:
    """Restarting: give up when the retries are used, else wait until enough of the old pods are
    gone."""
    if now.retry_count >= now.spec.max_retry:
        return FAILED
    if now.replicas - now.counts.terminating >= now.min_available:
        return PENDING
    return None


def progressed(now: Situation) -> str | None:
    """Running: the five rules of the reference, in its order."""
    spec, counts, replicas = now.spec, now.counts, now.replicas
    min_available = spec.min_available
    if replicas == 0:
        return None
    if spec.min_success and counts.succeeded >= spec.min_success:
        return COMPLETED
    if counts.succeeded + counts.failed == replicas:
        return _ended(spec, counts, min_available)
    if counts.pending + counts.held > replicas - min_available:
        return PENDING
    return None


def _ended(spec: batch.JobSpec, counts: Counts, min_available: int) -> str:
    needed_by_tasks = sum(
        task.replicas if task.min_available is None else task.min_available for task in spec.tasks
    )
    if min_available >= needed_by_tasks:
        for task in spec.tasks:
            succeeded = counts.succeeded_of(task.name)
            if (
                task.min_available is not None
                and succeeded is not None
                and succeeded < task.min_available
            ):
                return FAILED
    if spec.min_success and counts.succeeded < spec.min_success:
        return FAILED
    return COMPLETED if counts.succeeded >= min_available else FAILED


def stopped(phase: str) -> Outcome:
    """The outcome of a stopping phase: `phase` once no pod is alive."""
    return lambda now: phase if now.counts.alive == 0 else None


def _kill(phase: str) -> Transition:
    return Transition(Verb.KILL, to(phase), soft=True)


_RESUME = Transition(Verb.KILL, to(RESTARTING), soft=True, retry=True)
_AT_WORK: dict[str, Transition] = {
    RESTART_JOB: Transition(Verb.KILL, to(RESTARTING), retry=True),
    RESTART_TASK: Transition(Verb.KILL_TARGET, to(RESTARTING), retry=True),
    RESTART_POD: Transition(Verb.KILL_TARGET, to(RESTARTING), retry=True),
    RESTART_PARTITION: Transition(Verb.KILL_TARGET, to(RESTARTING), retry=True),
    ABORT_JOB: _kill(ABORTING),
    COMPLETE_JOB: _kill(COMPLETING),
    TERMINATE_JOB: _kill(TERMINATING),
}
_FINISHED: dict[str, Transition] = {ANY_OTHER: Transition(Verb.KILL, stay, soft=True)}

TABLE: dict[str, dict[str, Transition]] = {
    PENDING: {**_AT_WORK, ANY_OTHER: Transition(Verb.SYNC, started)},
    RUNNING: {**_AT_WORK, ANY_OTHER: Transition(Verb.SYNC, progressed)},
    RESTARTING: {
        SYNC_JOB: Transition(Verb.SYNC, restarted),
        RESTART_TASK: Transition(Verb.KILL_TARGET, restarted),
        RESTART_POD: Transition(Verb.KILL_TARGET, restarted),
        RESTART_PARTITION: Transition(Verb.KILL_TARGET, restarted),
        ABORT_JOB: _kill(ABORTING),
        COMPLETE_JOB: _kill(COMPLETING),
        TERMINATE_JOB: _kill(TERMINATING),
        ANY_OTHER: Transition(Verb.KILL, restarted),
    },
    ABORTING: {RESUME_JOB: _RESUME, ANY_OTHER: Transition(Verb.KILL, stopped(ABORTED), soft=True)},
    ABORTED: {RESUME_JOB: _RESUME, ANY_OTHER: Transition(Verb.KILL, stay, soft=True)},
    COMPLETING: {ANY_OTHER: Transition(Verb.KILL, stopped(COMPLETED), soft=True)},
    TERMINATING: {ANY_OTHER: Transition(Verb.KILL, stopped(TERMINATED), soft=True)},
    COMPLETED: _FINISHED,
    FAILED: _FINISHED,
    TERMINATED: _FINISHED,
}


def transition(phase: str, action: str) -> Transition:
    """The cell for an action in a phase; an empty or unknown phase is Pending."""
    row = TABLE.get(phase, TABLE[PENDING])
    return row.get(action) or row[ANY_OTHER]
