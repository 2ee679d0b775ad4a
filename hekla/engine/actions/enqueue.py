"""enqueue: lets pending PodGroups in, as far as queues and cluster have room for them.  Reference:
scheduler-core 6.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hekla.engine.framework.heap import Line
from hekla.engine.model.tasks import Job

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class Enqueue:
    """Queue by queue, job by job; each admission counts against the next."""

    name = "enqueue"
    arguments: Mapping[str, bool | int | str] = {}

    def run(self, session: Session) -> None:
        asking: dict[str, list[Job]] = {}
        for job in session.active_jobs():
            if job.is_pending:
                asking.setdefault(job.queue, []).append(job)
        waiting = {name: Line(session.order.job_key, jobs) for name, jobs in asking.items()}
        queues = session.order.queues_by_turn(waiting)
        strict = session.order.own.strict
        queue = queues.pop() if queues else None
        while queue is not None:
            jobs = waiting[queue.name]
            if not jobs:
                queue = queues.pop() if queues else None
                continue
            job = jobs.pop()
            waits = strict and session.order.own.held_back(job, entering=True)
            if not waits and (job.min_resources is None or session.votes.job_enqueueable(job)):
                session.votes.job_enqueued(job)
                session.let_in(job)
            queue = queues.push_pop(queue)
