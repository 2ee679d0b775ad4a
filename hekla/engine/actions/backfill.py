"""backfill: places best-effort tasks, which ask for nothing and so fit anywhere.  Reference:
scheduler-core 6.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hekla.engine.model.arrays import Rows
from hekla.engine.model.nodes import NodeView
from hekla.engine.model.reasons import UNSCORED, FitErrors, Reason
from hekla.engine.model.tasks import NOWHERE, Job, Status, Task
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class Backfill:
    """No quota is asked: a best-effort task takes nothing but a pod's place."""

    name = "backfill"
    arguments: Mapping[str, Any] = {"predicateErrorCacheEnable": True}

    def run(self, session: Session) -> None:
        pipeline = placer_of(session)
        for task in pick(session):
            job = task.job
            assert job is not None
            blocked = session.prefilter(task)
            if blocked:
                ready = session.state.nodes.ready
                job.fit_errors[task.key] = FitErrors(
                    int(ready.sum()), [Reason(blocked, int(ready.sum()), ready)]
                )
                continue
            rows = np.flatnonzero(pipeline.feasible(session, task))
            if not len(rows):
                job.fit_errors[task.key] = pipeline.explain(session, task, room=False)
                continue
            free = rows[NodeView(session.state.nodes, rows).fits(task.request, future=False)]
            if not len(free):
                job.fit_errors[task.key] = _slots_being_left(session, rows)
                continue
            best = pipeline.best(session, task, pipeline.preferred(session, free))
            if best == NOWHERE:
                job.fit_errors[task.key] = FitErrors(len(rows), base=UNSCORED)
            else:
                session.allocate_now(task, best)


def pick(session: Session) -> list[Task]:
    """The best-effort tasks that wait, in the order in which they are served; promises made to them
    are taken back."""
    jobs: dict[str, list[Job]] = {}
    for job in session.active_jobs():
        if not session.orders.strict and not _has_best_effort(job):
            continue
        stands_back = session.state.back_off.left(job.key, session.now) > 0
        if not job.is_pending and not stands_back and session.job_valid(job) is None:
            jobs.setdefault(job.queue, []).append(job)
    queues = session.queues_as_they_stand(jobs)
    result: list[Task] = []
    while queues:
        waiting = session.jobs_as_they_stand(jobs[queues.pop().name])
        while waiting:
            job = waiting.pop()
            if session.orders.held_back(job):
                continue
            promised = [
                task for task in job.counts.statuses[Status.PIPELINED].values() if task.best_effort
            ]
            for task in promised:
                session.unpromise(task)
            if job.counts.pending_best_effort:
                result.extend(
                    session.sorted_tasks(
                        task for task in job.pending() if task.best_effort and not task.gated
                    )
                )
    return result


def _slots_being_left(session: Session, rows: Rows) -> FitErrors:
    """Every node that would do has the pods that it may have, until some that leave it are gone: a
    kubelet refuses one more."""
    mask = np.zeros(len(session.state.nodes), dtype=np.bool_)
    mask[rows] = True
    leaving = Reason("Too many pods until those that leave are gone", len(rows), mask, "leaving")
    return FitErrors(int(session.state.nodes.ready.sum()), [leaving])


def _has_best_effort(job: Job) -> bool:
    """Whether backfill has anything to do for the job; in a strict queue it is asked in any case,
    for others wait behind it."""
    counts = job.counts
    promised = counts.statuses[Status.PIPELINED]
    return bool(counts.pending_best_effort) or (
        bool(promised) and any(task.best_effort for task in promised.values())
    )
