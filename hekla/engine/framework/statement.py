"""Tentative work as a journal: it takes effect at once, and undoing it costs what was done, no
more.

Reference: scheduler-core 5.5.  Unlike upstream, an undone eviction gives a pod back the status that
it had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from hekla.engine.model.arrays import Rows
from hekla.engine.model.decisions import Bind, Evict
from hekla.engine.model.evictions.notices import Notice
from hekla.engine.model.explanations import purpose_of
from hekla.engine.model.reasons import FitErrors
from hekla.engine.model.tasks import NOWHERE, Job, Status, Task

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class Placement(NamedTuple):
    """Nodes for tasks, or the reason why the first of the tasks has none."""

    tasks: Sequence[Task]
    rows: Rows
    """`[tasks]`: the node of each; empty where the first has none."""
    pipelined: bool = False
    """Whether the room is there only once releasing pods have gone."""
    why_not: Callable[[], FitErrors] | None = None
    """Computes why the first of the tasks has no node; None where there are nodes."""


@dataclass(slots=True)
class Placed:
    """Tasks of one class, role and sub-job on their nodes; allocated, or promised once room is
    freed."""

    tasks: list[Task]
    rows: Rows
    status: Status
    evicted_for: bool = False


@dataclass(slots=True)
class Evicted:
    """One task on its way out."""

    task: Task
    before: Status
    reason: str
    purpose: str = ""
    """What it is for, where it is for nobody's room."""
    claimant: str = ""
    """Who gets the room, where that is no job: see `Notice.claimant`."""


Operation = Placed | Evicted


class Statement:
    """Operations of which either all hold or none."""

    __slots__ = ("operations", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.operations: list[Operation] = []

    def __bool__(self) -> bool:
        return bool(self.operations)

    @property
    def evicts(self) -> bool:
        return any(isinstance(operation, Evicted) for operation in self.operations)

    def place(
        self, tasks: Sequence[Task], rows: Rows, status: Status, evicted_for: bool = False
    ) -> None:
        """Give pending tasks of one class, role and sub-job their nodes."""
        if not len(tasks):
            return
        operation = Placed(list(tasks), rows, status, evicted_for)
        self._do(operation)
        self.operations.append(operation)

    def carry_out(self, placement: Placement) -> None:
        """Carry out what a placer has chosen."""
        status = Status.PIPELINED if placement.pipelined else Status.ALLOCATED
        self.place(placement.tasks, placement.rows, status)

    def allocate(self, task: Task, row: int) -> None:
        self.place([task], np.array([row]), Status.ALLOCATED)

    def pipeline(self, task: Task, row: int, evicted_for: bool = False) -> None:
        self.place([task], np.array([row]), Status.PIPELINED, evicted_for)

    def evict(self, task: Task, reason: str, purpose: str = "", claimant: str = "") -> None:
        operation = Evicted(task, task.status, reason, purpose, claimant)
        self._do(operation)
        self.operations.append(operation)

    def spare(self, task: Task) -> None:
        """Take back the eviction of one task."""
        for operation in self.operations:
            if isinstance(operation, Evicted) and operation.task is task:
                self._undo(operation)
                self.operations.remove(operation)
                return

    def unplace(self, task: Task) -> None:
        """Take one promised task out again, for good."""
        for operation in self.operations:
            if isinstance(operation, Placed) and task in operation.tasks:
                at = operation.tasks.index(task)
                self._undo(Placed([task], operation.rows[at : at + 1], operation.status))
                del operation.tasks[at]
                operation.rows = np.delete(operation.rows, at)
        self.operations = [one for one in self.operations if isinstance(one, Evicted) or one.tasks]

    def discard(self) -> None:
        """Undo everything, in reverse; each task remembers what it had."""
        for operation in reversed(self.operations):
            if isinstance(operation, Placed):
                for task in operation.tasks:
                    task.last = (operation.status, task.row, operation.evicted_for)
            self._undo(operation)
        self.operations.clear()

    def rollback(self, quietly: bool = False) -> None:
        """Undo everything and remember nothing: for what was promised only within this cycle.

        `quietly`: without telling plugins, one of which has just failed.
        """
        for operation in reversed(self.operations):
            self._undo(operation, quietly)
        self.operations.clear()

    def commit(self) -> None:
        """Make it the cycle's decision.  What is only promised stays here until the cycle ends."""
        session = self.session
        kept: list[Placed] = []
        preemptor = next(
            (one.tasks[0].job for one in self.operations if isinstance(one, Placed)), None
        )
        for operation in self.operations:
            if isinstance(operation, Evicted):
                self._decide_evict(operation, preemptor)
                continue
            for task in operation.tasks:
                task.last = None
            if operation.status is Status.PIPELINED:
                kept.append(operation)
            else:
                self._decide_binds(operation.tasks, operation.rows)
        if kept and self.evicts:
            session.evicted_for.update(operation.tasks[0].job.key for operation in kept)  # type: ignore[union-attr]  # what was placed has a job
            for operation in kept:
                for task in operation.tasks if operation.evicted_for else ():
                    session.state.transfers.claimed(task)
        self.operations = list(kept)
        if kept:
            session.promised.append(self)

    def _decide_binds(self, tasks: Sequence[Task], rows: Rows) -> None:
        """Allocated tasks of one class become binds."""
        session, state, pods, job = self.session, self.session.state, tasks[0].pods, tasks[0].job
        assert job is not None
        job.set_status_many(tasks, Status.BINDING)
        state.transfers.forget_in_vain(tasks)
        names = state.nodes.names
        binds = [
            Bind(task.key, task.uid, names[row], job.key, task.annotations)
            for task, row in zip(tasks, rows.tolist())
        ]
        if pods.volumes or pods.claims:
            binds = [
                msgspec.structs.replace(
                    bind,
                    volumes=state.volumes.promised_to(task),
                    claims=state.claims.given_to(task),
                    implied=state.claims.implied_by(task),
                )
                for bind, task in zip(binds, tasks)
            ]
        session.decisions.binds.extend(binds)

    def _decide_evict(self, operation: Evicted, preemptor: Job | None) -> None:
        """A task that is on its way out is to be evicted, for `preemptor` if it is for somebody."""
        session, task, reason = self.session, operation.task, operation.reason
        job, votes = task.job, session.votes
        node = session.state.nodes.names[task.row]
        purpose = operation.purpose if preemptor is None else purpose_of(preemptor, job)
        notice = votes.eviction_notice(task) if operation.before is Status.RUNNING else 0.0
        if notice > 0:
            at = math.ceil(session.now + notice)
            claimant = operation.claimant if preemptor is None else preemptor.key
            pods = self._claim_of(task.row)
            given = Notice(task.uid, at, reason, purpose, claimant, pods)
            session.state.eviction_notices.given[task.key] = given
            session.tell(task, given)
        else:
            session.decisions.evictions.append(
                Evict(
                    task.key,
                    task.uid,
                    node,
                    job.key if job is not None else "",
                    reason,
                    purpose,
                    votes.eviction_grace(task),
                )
            )
        session.evicted.append(task)
        votes.eviction_decided(task, preemptor)
        session.state.transfers.evicted(task, preemptor)

    def _claim_of(self, row: int) -> tuple[str, ...]:
        """The pods that wait for room on a node; all that the statement places where none of them
        is on that one."""
        placed = [one for one in self.operations if isinstance(one, Placed)]
        here = [
            task.key
            for one in placed
            for task, at in zip(one.tasks, one.rows.tolist())
            if at == row
        ]
        return tuple(here or (task.key for one in placed for task in one.tasks))

    def merge(self, other: Statement) -> None:
        self.operations.extend(other.operations)
        other.operations = []

    def save(self) -> list[Operation]:
        """The operations, to be replayed after a discard."""
        return list(self.operations)

    def replay(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self._do(operation)
            self.operations.append(operation)

    # -------------------------------------------------------------------------------------- effects

    def _do(self, operation: Operation) -> None:
        """Carry out; when a plugin refuses to follow, nothing has happened."""
        told = False
        try:
            self._apply(operation)
            told = True
        finally:
            if not told:
                self._undo(operation, quietly=True)

    def _apply(self, operation: Operation) -> None:
        session = self.session
        nodes = session.state.nodes
        if isinstance(operation, Evicted):
            task = operation.task
            nodes.change(task, task.row, task.status, Status.RELEASING)
            nodes.vanish(task, task.row)
            task.job.set_status(task, Status.RELEASING)  # type: ignore[union-attr]  # as above
            session.tell_deallocated([task])
            return
        tasks, rows = operation.tasks, operation.rows
        nodes.hold_many(tasks, rows, operation.status)
        for task, row in zip(tasks, rows.tolist()):
            task.row = row
            task.evicted_for = operation.evicted_for
        tasks[0].job.set_status_many(tasks, operation.status)  # type: ignore[union-attr]  # as above
        session.tell_allocated(tasks)

    def _undo(self, operation: Operation, quietly: bool = False) -> None:
        session = self.session
        nodes = session.state.nodes
        if isinstance(operation, Evicted):
            task = operation.task
            nodes.change(task, task.row, Status.RELEASING, operation.before)
            nodes.appear(task, task.row)
            task.job.set_status(task, operation.before)  # type: ignore[union-attr]  # as above
            if not quietly:
                session.tell_allocated([task])
            return
        tasks, rows = operation.tasks, operation.rows
        nodes.release_many(tasks, rows, operation.status)
        tasks[0].job.set_status_many(tasks, Status.PENDING)  # type: ignore[union-attr]  # as above
        if not quietly:
            session.tell_deallocated(tasks)
        for task in tasks:
            task.row = NOWHERE
            task.evicted_for = False
