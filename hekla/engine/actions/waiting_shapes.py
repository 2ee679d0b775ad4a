"""Waiting jobs by the shape of their pods, as arrays: for which of thousands may the nodes have room?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.engine.actions.one_pod_jobs import plain
from hekla.engine.model.arrays import Bools
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.placement.room_counts import RoomCounts

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

Slots = NDArray[np.intp]
MANY_SHAPES = 256


class WaitingShapes:
    """Slots of waiting jobs: the shape of the pods of each, and how many of them it needs at once.

    Only jobs whose pods are plain and alike (`waits_plainly`) have a shape.
    """

    def __init__(self) -> None:
        self.counts = RoomCounts()
        self.jobs: list[Job] = []
        """By slot, as the two arrays."""
        self.shape = np.zeros(64, dtype=np.intp)
        self.need: Floats = np.zeros(64)
        self.free: list[int] = []

    def put(self, session: Session, job: Job, need: int) -> int:
        """Give the job a slot."""
        slot = self._slot(job)
        self.shape[slot] = self.counts.row_of(session, first_task(job))
        self.need[slot] = need
        return slot

    def possible(self, slots: Slots, totals: Floats | None = None) -> Bools:
        """Which of these the nodes may have room for (`totals`: `[shapes]` pods that fit, else as
        things stand)."""
        totals = self.counts.totals if totals is None else totals
        found: Bools = totals[self.shape[slots]] >= self.need[slots]
        return found

    def forget_shapes(self, session: Session, taken: Iterable[int]) -> None:
        """Shapes of which nobody waits any more go once they are the larger part (`taken`: the slots
        in use)."""
        counts = self.counts
        if len(counts.classes) <= MANY_SHAPES:
            return
        slots = np.array(list(taken), dtype=np.intp)
        live = np.unique(self.shape[slots])
        if 2 * len(live) > len(counts.classes):
            return
        moved = counts.keep(session, live.tolist())
        for slot in slots.tolist():
            self.shape[slot] = moved[int(self.shape[slot])]

    def _slot(self, job: Job) -> int:
        if self.free:
            slot = self.free.pop()
            self.jobs[slot] = job
            return slot
        slot = len(self.jobs)
        self.jobs.append(job)
        if slot == len(self.shape):
            self._grow()
        return slot

    def _grow(self) -> None:
        self.shape = np.concatenate([self.shape, np.zeros_like(self.shape)])
        self.need = np.concatenate([self.need, np.zeros_like(self.need)])


def first_task(job: Job) -> Task:
    return next(iter(job.counts.statuses[Status.PENDING].values()))


def waits_plainly(job: Job) -> bool:
    """Whether all its pods wait and are alike, and nothing but room, filters and scores decides
    about them."""
    pending = job.counts.statuses[Status.PENDING]
    if not pending or len(pending) != len(job.tasks) or job.policies:
        return False
    sub_job = job.default_sub_job()
    kind = first_task(job).pods
    return not kind.request.best_effort and all(
        task.pods is kind and plain(job, sub_job, task) for task in pending.values()
    )
