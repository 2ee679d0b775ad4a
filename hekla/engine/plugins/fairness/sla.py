"""sla: nobody waits longer than promised.  Reference: plugins-fairness 8."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hekla.engine.framework.plugin import ABSTAIN, PERMIT, Arguments, Plugin, Reads
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.durations import seconds

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView


class SlaArguments(Arguments, frozen=True):
    waiting_time: str = msgspec.field(default="", name="sla-waiting-time")

    def __post_init__(self) -> None:
        if self.waiting_time and seconds(self.waiting_time) <= 0:
            raise ValueError(f"sla-waiting-time = {self.waiting_time!r}: a duration above 0")


class Sla(Plugin):
    """A limit on waiting, for all jobs or by annotation for one; past it a job is let in and its
    room is kept."""

    name = "sla"
    Arguments = SlaArguments
    arguments: SlaArguments
    reads = Reads(clock=True, waiting_order=True)

    def open(self, session: CycleView) -> None:
        self.now = session.now
        self.limit = seconds(self.arguments.waiting_time) if self.arguments.waiting_time else None

    def _limit(self, job: Job) -> float | None:
        return job.waiting_time if job.waiting_time is not None else self.limit

    def job_order(self, job: Job) -> float:
        """The nearest deadline first; without one, last."""
        limit = self._limit(job)
        return math.inf if limit is None else job.creation + limit

    def job_enqueueable(self, job: Job) -> int:
        limit = self._limit(job)
        return ABSTAIN if limit is None or self.now - job.creation < limit else PERMIT

    job_pipelined = job_enqueueable
