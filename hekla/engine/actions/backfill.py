"""backfill: places best-effort tasks, which ask for nothing and so fit anywhere.  Reference:
scheduler-core 6.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hekla.engine.actions.learning import LEAST, QUANTILE, SOURCES
from hekla.engine.actions.timed_backfill import DEPTH, MODES
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.placement.placer import Room, placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class Backfill:
    """No quota is asked: a best-effort task takes nothing but a pod's place."""

    name = "backfill"
    arguments: Mapping[str, bool | int | str] = {
        "predicateErrorCacheEnable": True,
        "mode": MODES,
        "depth": DEPTH,
        "walltimes": SOURCES,
        "quantile": QUANTILE,
        "leastRuns": LEAST,
    }

    def run(self, session: Session) -> None:
        if session.timed is not None:
            session.timed.pass_by()
        for task in pick(session):
            job = task.job
            assert job is not None
            for placement in placer_of(session).place(session, [task], room=Room.NOW):
                if placement.why_not is not None:
                    job.fit_errors[task.key] = placement.why_not()
                else:
                    session.allocate_now(task, int(placement.rows[0]))


def pick(session: Session) -> list[Task]:
    """The best-effort tasks that wait, in the order in which they are served; promises made to them
    are taken back."""
    jobs: dict[str, list[Job]] = {}
    for job in list(session.looked_at.values()):
        if not session.order.own.strict and not _has_best_effort(job):
            continue
        stands_back = session.state.back_off.left(job.key, session.now) > 0
        if not job.is_pending and not stands_back and session.votes.job_valid(job) is None:
            jobs.setdefault(job.queue, []).append(job)
    queues = session.order.queues_as_they_stand(jobs)
    result: list[Task] = []
    while queues:
        waiting = session.order.jobs_as_they_stand(jobs[queues.pop().name])
        while waiting:
            job = waiting.pop()
            if session.order.own.held_back(job):
                continue
            promised = [
                task for task in job.counts.statuses[Status.PIPELINED].values() if task.best_effort
            ]
            for task in promised:
                session.unpromise(task)
            if job.counts.pending_best_effort:
                result.extend(
                    session.order.sorted_tasks(
                        task for task in job.pending() if task.best_effort and not task.gated
                    )
                )
    return result


def _has_best_effort(job: Job) -> bool:
    """Whether backfill has anything to do for the job; in a strict queue it is asked in any case,
    for others wait behind it."""
    counts = job.counts
    promised = counts.statuses[Status.PIPELINED]
    return bool(counts.pending_best_effort) or (
        bool(promised) and any(task.best_effort for task in promised.values())
    )
