"""Pods that nothing but the limits of their queue keep out: more nodes would not help them, so
autoscalers must not think so.

A queue's part of the cluster is no such limit: it grows with the cluster.  Decision 0104.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.engine.explain.upstream_texts import would_be
from hekla.engine.framework.plugin import defines
from hekla.engine.model.explanations import not_open
from hekla.engine.model.queues.queues import OPEN
from hekla.engine.model.resources import Amounts, ordered
from hekla.engine.model.tasks import Job, Status, Task, requests_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class QueueLimit:
    """Of one job: what its queue may not exceed, however many nodes there are; worked out once a
    pod asks."""

    def __init__(self, session: Session, job: Job) -> None:
        self.session = session
        self.job = job
        self._text: str | None = None

    def keeps_out(self, task: Task) -> str:
        """As a sentence, why the queue has no place for this pod; empty where something else keeps
        it out."""
        if task.key in self.job.fit_errors or would_be(task) is not Status.PENDING:
            return ""
        if self._text is None:
            self._text = self._why()
        return self._text

    def _why(self) -> str:
        session, job = self.session, self.job
        queue = session.queue_of(job)
        if queue.state != OPEN:
            return f"{not_open(queue)[0].upper()}{not_open(queue)[1:]}; more nodes would not help."
        entering = job.is_pending
        asked = job.min_resources if entering else _lacking(job)
        if not asked:
            return ""
        short = ordered(
            {
                name
                for plugin in session.hooks("job_enqueueable" if entering else "allocatable")
                if defines(plugin, "beyond_capability")
                for name in plugin.beyond_capability(queue, asked, entering)
            }
        )
        if not short:
            return ""
        return f"Queue {queue.name} has reached its capability of {', '.join(short)}; more nodes would not help."


def _lacking(job: Job) -> Amounts:
    """What the pods ask for without which the job does not start; of one that has started, its next
    pod."""
    pending = [
        task
        for task in job.pending()
        if not task.gated and not task.best_effort and task.key not in job.fit_errors
    ]
    wanted = max(job.min_available - job.counts.ready, 1)
    pending.sort(key=lambda task: (-task.priority, task.creation, task.key))
    return requests_of(pending[:wanted])
