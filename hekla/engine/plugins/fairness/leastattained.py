"""least-attained-service: who has had little goes first, without anybody knowing how long jobs take.

A job's service is what it has held of a resource, times how long.  Compared exactly, two jobs would
take the room from each other for ever; so service has a few levels, within which who came first
goes first, as in Tiresias (Gu et al., NSDI 2019, section 3.1: discretized two-dimensional least
attained service).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Plugin, Reads, Source, Victims
from hekla.engine.model.queues.usage import Holding, Usage, amount_held
from hekla.engine.model.tasks import NOWHERE, Job, Task
from hekla.engine.model.time.durations import seconds

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

_THRESHOLDS = "least-attained-service.thresholds"
UNIT = 1000.0
"""One whole of a resource, in the units of `Amounts` (cpu too)."""


class LeastAttainedServiceArguments(Arguments, frozen=True):
    resource: str = msgspec.field(default="nvidia.com/gpu", name="least-attained-service.resource")
    thresholds: str = msgspec.field(default="16h", name=_THRESHOLDS)

    def extended(self, rest: Tree) -> LeastAttainedServiceArguments:
        levels(self.thresholds)
        if self.resource == "memory":
            raise ValueError(
                "least-attained-service.resource = 'memory': a resource that is counted in pieces, "
                "such as nvidia.com/gpu or cpu"
            )
        return self


def levels(text: str) -> list[float]:
    """The thresholds in seconds of one whole of the resource.  Raises ValueError."""
    found: list[float] = []
    for one in text.split(","):
        try:
            found.append(seconds(one.strip()))
        except ValueError as error:
            raise ValueError(f"{_THRESHOLDS} = {text!r}: {error}") from None
        if found[-1] <= 0 or found[-1] <= max(found[:-1], default=0.0):
            raise ValueError(
                f"{_THRESHOLDS} = {text!r}: durations above 0, each longer than the last"
            )
    return found


class LeastAttainedService(Plugin):
    """Orders jobs by the level of their service, and lets those of a lower level take from those of
    a higher one."""

    name = "least-attained-service"
    Arguments = LeastAttainedServiceArguments
    arguments: LeastAttainedServiceArguments
    reads = Reads(clock=True, between_placements=Source.JOBS, nodes=Source.NODES)

    def __init__(self, arguments: LeastAttainedServiceArguments, flags: dict[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.thresholds = levels(arguments.thresholds)

    def open(self, session: CycleView) -> None:
        """Count up to now; what a job held before this process saw it is read from its pods."""
        self.session = session
        state = session.state
        jobs = state.job_table
        usage = jobs.service
        if usage is None:
            usage = jobs.service = Usage()
            usage.changed.update(state.jobs)
        self.usage = usage
        usage.advance(session.now, math.inf)
        for key, job in usage.changed.items():
            used = usage.used.setdefault(job.queue, {})
            if state.jobs.get(key) is not job:
                used.pop(key, None)
            elif key not in usage.holdings and key not in used:
                used[key] = self._held_before(job)
        usage.look_again(state.jobs, self._holding)

    def close(self, session: CycleView) -> None:
        for job in session.touched.values():
            self.usage.look(job, self._holding(job))

    def _holding(self, job: Job) -> Holding | None:
        held = amount_held(job, self.arguments.resource)
        return Holding(job.queue, job.key, held) if held else None

    def _held_before(self, job: Job) -> float:
        """Since the starts of the pods that run."""
        name, now = self.arguments.resource, self.session.now
        return sum(
            task.request.amounts.get(name, 0.0) * max(0.0, now - task.start)
            for task in job.tasks.values()
            if task.start and task.row != NOWHERE
        )

    def service(self, job: Job) -> float:
        """Seconds of one whole of the resource."""
        return self.usage.used.get(job.queue, {}).get(job.key, 0.0) / UNIT

    def level(self, job: Job) -> int:
        """How many thresholds the job has passed."""
        return bisect_right(self.thresholds, self.service(job))

    def job_order(self, job: Job) -> int:
        return self.level(job)

    def lesser(self, victim: Job, job: Job) -> bool:
        return self.level(victim) > self.level(job)

    def victim_order(self, victim: Task) -> tuple[int, float]:
        """Of the highest level first, and who came last."""
        job = victim.job
        return (-self.level(job), -job.creation) if job is not None else (0, 0.0)

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return self._above(preemptor.job, candidates)

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims:
        return Victims(list(candidates)) if kind == "gangreclaim" else self._above(job, candidates)

    def _above(self, mine: Job | None, candidates: list[Task]) -> Victims:
        if mine is None:
            return Victims()
        level = self.level(mine)
        return Victims(
            [task for task in candidates if task.job is not None and self.level(task.job) > level]
        )
