"""drf: the job whose largest share of any resource is smallest goes first.  Reference:
plugins-fairness 4."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from hekla.engine.framework.heap import Comparable
from hekla.engine.framework.plugin import NoArguments, Plugin, Reads, Source, Victims
from hekla.engine.model.decisions import MOST_JOBS
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import Amounts, add, dominant_share, empty, plus, subtract
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.plugins.fairness.fairtree import FairOrder, FairTree

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

_TOLERANCE = 1e-6


class Drf(Plugin):
    """Dominant resource fairness between jobs.

    What a job holds is not copied: `job.allocated` is what its allocated tasks ask for.  What is
    promised to it counts too within a cycle, and is kept here.
    """

    name = "drf"
    reads = Reads(victims=Source.PREEMPTOR, between_placements=Source.JOBS, waiting_order=True)

    def __init__(self, arguments: NoArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.tree: FairTree | None = None
        self.told: dict[str, float] = {}
        """The cluster's total under which shares were last told."""
        if flags.get("enableHierarchy", False):
            # These two hooks exist only with the hierarchy: without it drf says nothing about
            # queues.
            self.queue_order = self._queue_order  # type: ignore[method-assign]  # see above
            self.reclaimable = self._reclaimable  # type: ignore[method-assign]  # see above

    def open(self, session: CycleView) -> None:
        self.session = session
        if self.flags.get("enableHierarchy", False):
            self.tree = _tree(session)
        self.total = {name: value for name, value in session.total.items() if value >= 0.1}
        self.extra: dict[str, Amounts] = {}

    def share(self, job: Job) -> float:
        """The largest fraction of the cluster that the job holds in any resource."""
        held = self._held(job)
        return dominant_share(held, self.total) if any(held.values()) else 0.0

    def _held(self, job: Job) -> Amounts:
        extra = self.extra.get(job.key) if self.extra else None
        return job.allocated if extra is None else extra

    def job_order(self, job: Job) -> float:
        if self.extra:
            return self.share(job)
        # Of what holds a place or has ended; where nothing does, nothing is held.
        return dominant_share(job.allocated, self.total) if job.counts.ready else 0.0

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        job = preemptor.job
        if not self.session.in_session(job):
            return Victims()
        mine = plus(self._held(job), preemptor.request.amounts)
        mine_share = dominant_share(mine, self.total)
        left: dict[str, Amounts] = {}
        chosen = []
        for task in candidates:
            theirs = task.job
            if not self.session.in_session(theirs):
                continue
            held = left.get(theirs.key)
            if held is None:
                held = left[theirs.key] = dict(self._held(theirs))
            subtract(held, task.request.amounts)
            share = dominant_share(held, self.total)
            if mine_share < share or abs(mine_share - share) <= _TOLERANCE:
                chosen.append(task)
        return Victims(chosen)

    def _queue_order(self, queue: Queue) -> Comparable:
        assert self.tree is not None
        return FairOrder(self.tree, queue)

    def _reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        """Whose queue would still stand behind the preemptor's, each candidate judged alone."""
        job = preemptor.job
        if self.tree is None or not self.session.in_session(job):
            return Victims()
        mine = self.session.queue_of(job)
        self.tree.follow(job.key, preemptor.request.amounts, 1.0)
        chosen = []
        for task in candidates:
            other = task.job
            if not self.session.in_session(other):
                continue
            self.tree.follow(other.key, task.request.amounts, -1.0)
            if self.tree.compare(mine, self.session.queue_of(other)) < 0:
                chosen.append(task)
            self.tree.follow(other.key, task.request.amounts, 1.0)
        self.tree.follow(job.key, preemptor.request.amounts, -1.0)
        return Victims(chosen)

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if self.extra or job.counts.statuses[Status.PIPELINED]:
            self._follow(job)
        if self.tree is not None:
            self.tree.follow(job.key, total, 1.0)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self._follow(job)
        if self.tree is not None:
            self.tree.follow(job.key, total, -1.0)

    def _follow(self, job: Job) -> None:
        """Within a cycle a job also holds what it was promised."""
        if not job.counts.statuses[Status.PIPELINED]:
            if self.extra:
                self.extra.pop(job.key, None)
            return
        held = dict(job.allocated)
        for task in job.counts.statuses[Status.PIPELINED].values():
            add(held, task.request.amounts)
        self.extra[job.key] = held

    def close(self, session: CycleView) -> None:
        # Of the other jobs neither what they hold nor what it is compared with has changed.
        jobs = (
            {**session.state.unreported, **session.touched}
            if self.told == self.total
            else session.state.jobs
        )
        self.told = self.total
        counted = (
            job
            for job in reversed(jobs.values())
            if job.contribution is not None and not session.rests(job)
        )
        newest = list(islice(counted, MOST_JOBS))
        session.decisions.metrics.extend(
            ("job_share", (("job_ns", job.namespace), ("job_id", job.name)), self.job_order(job))
            for job in reversed(newest)
        )


def _tree(session: CycleView) -> FairTree:
    jobs = list(session.jobs())
    held = empty()
    for job in jobs:
        add(held, job.allocated)
    tree = FairTree(session.total, held)
    for queue in session.state.queues.values():
        tree.path(queue)
    for job in jobs:
        tree.set_job(job.key, session.queue_of(job), job.allocated, job.total_request)
    tree.refresh()
    return tree
