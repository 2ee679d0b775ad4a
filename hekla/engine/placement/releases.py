"""When running tasks leave, by their walltimes: arrays that follow the jobs, a row a task on a node."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.model.arrays import Ints
from hekla.engine.model.resources import Floats, Request
from hekla.engine.model.tasks import HOLDS, NOWHERE, Job, Status
from hekla.engine.model.time.walltimes import SOON, walltime_of

if TYPE_CHECKING:
    from hekla.engine.model.state import State

NEVER = math.inf
SHORT = 64.0
"""Seconds: up to this length nothing is put off."""
MOST = 1 << 16
"""Amounts in a course at most."""


def coarse(moment: float, length: float) -> float:
    """A moment, put off by at most a sixtieth of the length that led to it.

    Ends that lie close to each other become one, always the same one, so that thousands of running
    pods make some hundred moments.
    """
    if not SHORT < length < math.inf:
        return moment
    grain = 2.0 ** math.floor(math.log2(length / SHORT))
    return math.ceil(moment / grain - SOON) * grain


class Releases:
    """`ends` in seconds since 1970, with the node and the amounts that are free then."""

    def __init__(self, capacity: int = 64) -> None:
        self.ends: Floats = np.full(capacity, NEVER)
        self.later: Floats = np.full(capacity, NEVER)
        """The same, put off a little, so that there are fewer of them."""
        self.rows: Ints = np.zeros(capacity, dtype=np.int32)
        self.amounts: Floats = np.zeros((capacity, 4))
        self.by_job: dict[str, dict[str, tuple[int, float]]] = {}
        """Job -> task -> its row here, and since when it runs."""
        self.free: list[int] = list(range(capacity - 1, -1, -1))

    def follow(self, state: State, job: Job, now: float) -> bool:
        """What is known of the job's tasks on nodes, after it came, changed or left: whether one that
        was known ends at another time now."""
        known = self.by_job.pop(job.key, {})
        fresh: dict[str, tuple[int, float]] = {}
        queue = state.queues.get(job.queue)
        moved = False
        present = state.jobs.get(job.key) is job
        for status in (*HOLDS, Status.ALLOCATED, Status.RELEASING) if present else ():
            for task in job.counts.statuses[status].values():
                if task.row == NOWHERE:
                    continue
                before = known.pop(task.key, None)
                since = task.start or task.scheduled or (now if before is None else before[1])
                row = self._row() if before is None else before[0]
                leaving = status is Status.RELEASING
                length = 0.0 if leaving else walltime_of(task, job, queue)
                end = now if leaving else since + length
                moved |= before is not None and end != self.ends[row]
                self.ends[row], self.later[row] = end, coarse(end, length)
                self.rows[row] = task.row
                self._fill(row, task.request)
                fresh[task.key] = row, since
        for row, _ in known.values():
            self.ends[row] = NEVER
            self.free.append(row)
        if fresh:
            self.by_job[job.key] = fresh
        return moved

    def moments(self, now: float) -> Floats:
        """The moments at which something leaves, ascending; what is overdue may leave at once."""
        known = self.ends[self.ends < NEVER]
        return np.unique(np.maximum(known, now))

    def course(self, now: float, room: Floats) -> tuple[Floats, Floats] | None:
        """The moments at which something leaves, and `[moments, resources, nodes]` how much room
        there is then; None where that would be too much to write down."""
        gone = np.flatnonzero(self.ends < NEVER)
        if len(gone) * room.size > MOST:
            return None
        moments, places = np.unique(np.maximum(self.ends[gone], now), return_inverse=True)
        course = np.zeros((len(moments), *room.shape))
        rows, amounts = self.rows[gone], self.amounts[gone]
        for resource in range(min(room.shape[0], amounts.shape[1])):
            np.add.at(course[:, resource], (places, rows), amounts[:, resource])
        np.cumsum(course, axis=0, out=course)
        course += room
        return moments, course

    def left_by(self, moment: float, room: Floats) -> Floats:
        """`[resources, nodes]`, fresh: this room with what has left by then."""
        result = room.copy()
        gone = np.flatnonzero(self.ends <= moment)
        if len(gone):
            rows, count = self.rows[gone], result.shape[1]
            for resource in range(min(result.shape[0], self.amounts.shape[1])):
                amounts = self.amounts[gone, resource]
                if amounts.any():
                    result[resource] += np.bincount(rows, weights=amounts, minlength=count)
        return result

    def _row(self) -> int:
        if not self.free:
            size = len(self.ends)
            self.ends = np.concatenate([self.ends, np.full(size, NEVER)])
            self.later = np.concatenate([self.later, np.full(size, NEVER)])
            self.rows = np.concatenate([self.rows, np.zeros(size, dtype=np.int32)])
            self.amounts = np.concatenate([self.amounts, np.zeros_like(self.amounts)])
            self.free = list(range(2 * size - 1, size - 1, -1))
        return self.free.pop()

    def _fill(self, row: int, request: Request) -> None:
        self.amounts[row] = 0.0
        for column, value in request:
            if column >= self.amounts.shape[1]:
                wider = np.zeros((len(self.amounts), 2 * column))
                wider[:, : self.amounts.shape[1]] = self.amounts
                self.amounts = wider
            self.amounts[row, column] = value
