"""Waiting jobs that no node has room for are not asked again until one may have.

A cycle of `allocate` looks at every job that waits, finds out anew that it does not fit, and says so.
Where thousands wait that is most of what a cycle costs.  A job that had its turn and found no room
rests: it has another one when it changes, when the nodes may have room for it at its turn, or when what it
was told has become old.  Few jobs are all looked at in each cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.actions.waiting_shapes import WaitingShapes, waits_plainly
from hekla.engine.framework.hooks import Hooks
from hekla.engine.model.tasks import Job

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

MANY = 500
"""So many jobs must have something to decide before any of them rests."""
TOLD_ANEW = 50
"""How many unschedulable jobs a cycle looks at all the same, those that have rested longest: what they are
told stays true."""
_EVICTS_NOBODY = {"enqueue", "allocate", "backfill"}


class UnschedulableJobs(WaitingShapes):
    """What is kept for one policy on one state."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self.allowed = (
            _EVICTS_NOBODY.issuperset(hooks.policy.actions)
            and not hooks.read_clock
            and hooks.queues_keep_their_place
        )
        """Whether a turn that finds no room leaves everything as it was: nobody is evicted for the
        job, time changes no answer, and no queue's place depends on when another was asked."""
        self.gangs_are_whole = all(
            [plugin.name for plugin in hooks.flat[hook]] == ["gang"]
            for hook in ("job_ready", "job_pipelined")
        )
        self.slot_of: dict[str, int] = {}
        """Job -> its slot, those that have rested longest first."""
        self._seen: tuple[int, ...] = ()
        """The nodes that the verdicts of the unschedulable jobs are about."""
        self._counted_at = -1
        """Version of the nodes whose room was counted last."""
        self._in_vain = False
        """Whether the last that had a turn found no room, so that it is worth counting again."""

    def wake(self, session: Session) -> None:
        """Say to the session which jobs this cycle looks at: `session.awake`."""
        table = session.state.job_table
        if not self.allowed or len(session.state.active) < MANY:
            self._leave(list(self.slot_of))
            table.changed = None
            return
        changed, table.changed = table.changed, {}
        nodes = session.state.nodes
        seen = id(nodes.rows), len(nodes), nodes.static_version
        if changed is None or seen != self._seen:
            self._seen = seen
            self._leave(list(self.slot_of))
        else:
            self._leave([key for key in (*changed, *session.touched) if key in self.slot_of])
        if not self.slot_of:
            return
        self.forget_shapes(session, self.slot_of.values())
        self._leave(list(islice(self.slot_of, TOLD_ANEW)))
        self._count(session)
        session.awake = {
            key: job for key, job in session.state.active.items() if key not in self.slot_of
        }

    def roomy(self) -> list[Job]:
        """The unschedulable jobs for which the nodes may have room as the cycle begins."""
        slots = np.fromiter(self.slot_of.values(), dtype=np.intp, count=len(self.slot_of))
        return [self.jobs[slot] for slot in slots[self.possible(slots)].tolist()]

    def rouse(self, session: Session, job: Job) -> bool:
        """It is the job's turn: whether it may have room now, after those before it.  It rests no
        longer then."""
        slot = self.slot_of[job.key]
        if self._in_vain and session.state.nodes.version != self._counted_at:
            self._count(session)
        if self.counts.totals[self.shape[slot]] < self.need[slot]:
            return False
        self._leave([job.key])
        job.clear_fit_errors()
        assert session.awake is not None
        session.awake[job.key] = job
        return True

    def served(self, job: Job) -> None:
        """The job had its turn: where it found no room, others may find none either."""
        self._in_vain = bool(job.fit_errors)

    def rest(self, session: Session, jobs: Iterable[Job]) -> None:
        """These had a turn: those that found no room need none until there may be some."""
        if session.state.job_table.changed is None:
            return
        for job in jobs:
            if job.fit_errors and job.key not in self.slot_of and waits_plainly(job):
                need = max(job.min_available, 1) if self.gangs_are_whole else 1
                self.slot_of[job.key] = self.put(session, job, need)

    def settle(self, session: Session) -> None:
        """What the cycle itself has changed wakes nobody."""
        table = session.state.job_table
        if table.changed is not None:
            table.changed = {}

    def _count(self, session: Session) -> None:
        self.counts.refresh(session)
        self._counted_at = session.state.nodes.version

    def _leave(self, keys: list[str]) -> None:
        for key in dict.fromkeys(keys):
            self.free.append(self.slot_of.pop(key))
