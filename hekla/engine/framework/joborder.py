"""A queue's own order of its jobs, by the annotation `hekla.io/job-order` on the Queue.

Without it the plugins of the policy decide, as upstream.  With it the queue's order takes the place
of theirs, for this queue alone: who is admitted, placed and makes room by eviction first.  Who may
be evicted stays with the plugins.

strict-fifo adds a promise: a later job never passes an earlier one that waits, whatever would fit.
A job waits until its minimum has a place; what it asks for beyond its minimum keeps nobody waiting.
"""

from __future__ import annotations

import difflib
import math
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hekla.engine.framework.heap import OrderKey
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import dominant_share
from hekla.engine.model.tasks import FINISHED, SCHEDULED, Job
from hekla.engine.model.time.durations import seconds
from hekla.engine.model.time.walltimes import job_walltime

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

ANNOTATION = "hekla.io/job-order"
STRICT = "strict-fifo"
Key = Callable[["Session", Job], OrderKey]


def _deadline(session: Session, job: Job) -> tuple[float, ...]:
    limit = job.waiting_time
    if limit is None:
        for plugin in session.hooks.plugins:
            if plugin.name == "sla" and plugin.arguments.waiting_time:
                limit = seconds(plugin.arguments.waiting_time)
    return (math.inf if limit is None else job.creation + limit,)


ORDERS: Mapping[str, Key] = {
    STRICT: lambda session, job: (),
    "fifo": lambda session, job: (),
    "priority": lambda session, job: (-job.priority,),
    "fair-share": lambda session, job: (dominant_share(job.allocated, session.total),),
    "sla": _deadline,
    "shortest-first": lambda session, job: (job_walltime(job, session.state.queues[job.queue]),),
}
"""What comes before the age of a job, by the annotation's value."""


def order_of(queue: Queue) -> str:
    """The queue's own order; empty where the plugins decide, also because the annotation says
    nothing known."""
    stated = queue.annotations.get(ANNOTATION, "")
    return stated if stated in ORDERS else ""


def problem_of(queue: Queue) -> str:
    """What is wrong with the queue's annotation, in words for whoever wrote it."""
    stated = queue.annotations.get(ANNOTATION)
    if stated is None or stated in ORDERS:
        return ""
    near = difflib.get_close_matches(str(stated).lower(), ORDERS, n=1, cutoff=0.4)
    known = f'did you mean "{near[0]}"?' if near else "known are " + ", ".join(ORDERS)
    return f'{ANNOTATION}: "{stated}" is no order of jobs; {known} Until then the policy\'s plugins decide.'


class OwnOrders:
    """The orders of all queues in one session."""

    def __init__(self, session: Session) -> None:
        self.session: Session = weakref.proxy(session)
        """Which holds this one: held in turn, each session would stay, with all it decided, until
        Python searches for garbage."""
        self.of: dict[str, str] = {
            name: own for name, queue in session.state.queues.items() if (own := order_of(queue))
        }
        """Queue -> its own order."""
        self.strict = any(own == STRICT for own in self.of.values())
        self.lines: dict[tuple[str, bool], list[Job]] = {}
        """For each strict queue, its jobs that wait (True: to be let in), the first to be served
        last."""
        self.behind: dict[str, str] = {}
        """Job -> the earlier job that it was held back for in this cycle."""

    def key(self, job: Job) -> OrderKey | None:
        own = self.of.get(job.queue) if self.of else None
        return None if own is None else ORDERS[own](self.session, job)

    def held_back(self, job: Job, *, entering: bool = False) -> bool:
        """Whether the job has to let an earlier one of its strict queue go first; if so, it says
        so.

        `entering`: for being let in it is enough that all earlier ones are in.
        """
        if not self.strict or self.of.get(job.queue) != STRICT:
            return False
        first = self._first(job.queue, entering)
        if first is None or first is job or _age(job) < _age(first):
            self.behind.pop(job.key, None)
            return False
        self.behind[job.key] = first.key
        message = f"waits behind {first.title} in queue {job.queue}, whose order is {STRICT}"
        if entering:
            self.session.refuse(job, message)
        else:
            job.fit_message = message
        return True

    def _first(self, queue: str, entering: bool) -> Job | None:
        line = self.lines.get((queue, entering))
        if line is None:
            jobs = (
                job for job in self.session.jobs() if job.queue == queue and _stands(job, entering)
            )
            line = self.lines[queue, entering] = sorted(jobs, key=_age, reverse=True)
        while line and not _stands(line[-1], entering):
            line.pop()
        return line[-1] if line else None


def waits(job: Job) -> bool:
    """Whether the job's minimum has no place yet."""
    if job.phase in ("Completed", "Running") or job.counts.of(*FINISHED) >= max(
        job.min_available, 1
    ):
        return False
    if job.is_pending:
        return True
    return not job.is_ready() and job.counts.of(*SCHEDULED) < job.min_available


def _stands(job: Job, entering: bool) -> bool:
    return job.is_pending if entering else waits(job)


def report_unknown_orders(session: Session) -> None:
    """An event on each queue whose annotation means nothing, once for the same words."""
    for name, queue in session.state.queues.items():
        session.warn_once("Queue", name, "UnknownJobOrder", problem_of(queue))


def _age(job: Job) -> tuple[float, str]:
    return job.creation, job.key
