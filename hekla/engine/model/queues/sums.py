"""What each job adds to the sums of its queue, counted again for jobs that changed.

Thousands of jobs of one pod change alike in one cycle: what such a job adds is worked out once for
those that are the same in all that matters, and the sums change once for all of them.  Amounts are
whole numbers in their units, so many times one is one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hekla.api.bounded import BoundedCache
from hekla.engine.model.queues.queues import Contribution, Queue
from hekla.engine.model.resources import Amounts, Request, add
from hekla.engine.model.tasks import Job, Status, is_allocated

_NOTHING: Amounts = {}
"""What a contribution has none of; shared, so nobody may change it."""
_NO_PART = Contribution("", _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)


class _Alike(NamedTuple):
    """What jobs of one key add that have this minimum and hold this much."""

    minimum: Amounts | None
    allocated: Amounts
    contribution: Contribution


@dataclass(slots=True)
class _Change:
    """From what to what, of jobs that change alike, and how often; not counted yet."""

    old: Contribution | None = None
    new: Contribution | None = None
    times: int = 0


_Key = tuple[str, str, Request | None, bool, bool]
"""Queue, phase, and of the only pod what it asks for (None without a pod), whether it waits, and
whether what holds a place is enough."""
MOST_ALIKE = 1024


class Sums:
    """The sums of all queues, and `reserved`, what overcommit counts as promised: both are changed
    in place."""

    def __init__(self, queues: dict[str, Queue], reserved: Amounts) -> None:
        self.queues = queues
        self.reserved = reserved
        self.changes: dict[tuple[int, int], _Change] = {}
        """By the identity of both sides."""
        self._last = _Change()
        """The entry of `changes` that the last change came to: the next is most often such another.
        """
        self.alike: BoundedCache[_Key, _Alike] = BoundedCache(MOST_ALIKE)
        """Of each kind of jobs of one pod, or of none yet, the last that was worked out."""

    def look(self, job: Job) -> None:
        """Work out what the job adds from now on; `count` brings it into the sums."""
        new = self._contribution(job)
        if job.contribution is not new:
            self.change(job, new)

    def leave(self, job: Job) -> None:
        """The job adds nothing any more."""
        self.change(job, None)

    def change(self, job: Job, new: Contribution | None) -> None:
        old: Contribution | None = job.contribution
        if old is new:
            return
        job.contribution = new
        last = self._last
        if last.old is old and last.new is new:
            last.times += 1
            return
        key = id(old), id(new)
        known = self.changes.get(key)
        if known is None:
            known = self.changes[key] = _Change(old, new)
        known.times += 1
        self._last = known

    def count(self) -> None:
        """Bring what changed into the sums."""
        for change in self.changes.values():
            old, new, times = change.old, change.new, change.times
            _exchange(self.reserved, (old or _NO_PART).reserved, (new or _NO_PART).reserved, times)
            if old is not None and new is not None and old.queue == new.queue:
                self._count_in_queue(old.queue, old, new, times)
                continue
            if old is not None:
                self._count_in_queue(old.queue, old, None, times)
            if new is not None:
                self._count_in_queue(new.queue, None, new, times)
        self.changes.clear()
        self._last = _Change()

    def _count_in_queue(
        self, name: str, old: Contribution | None, new: Contribution | None, times: int
    ) -> None:
        queue = self.queues.get(name)
        if queue is None:
            return
        queue.version += 1
        queue.jobs += times * ((new is not None) - (old is not None))
        old, new = old or _NO_PART, new or _NO_PART
        _exchange(queue.request, old.request, new.request, times)
        _exchange(queue.allocated, old.allocated, new.allocated, times)
        _exchange(queue.elastic, old.elastic, new.elastic, times)
        _exchange(queue.inqueue, old.inqueue, new.inqueue, times)

    def _contribution(self, job: Job) -> Contribution:
        """That of another job where they are alike in all that `contribution` asks."""
        tasks = job.tasks
        if not tasks:
            key: _Key = job.queue, job.phase, None, False, job.min_available <= 0
        elif len(tasks) > 1:
            return contribution(job)
        else:
            (task,) = tasks.values()
            if task.gated:
                return contribution(job)
            status = task.status
            key = (
                job.queue,
                job.phase,
                task.pods.request,
                status is Status.PENDING,
                is_allocated(status) >= job.min_available,
            )
        known = self.alike.get(key)
        if known is None or known.minimum != job.min_resources or known.allocated != job.allocated:
            known = self.alike[key] = _Alike(
                job.min_resources, dict(job.allocated), contribution(job)
            )
        return known.contribution


def contribution(job: Job) -> Contribution:
    """What one job adds.  Its parts may be those of others: nobody may change them."""
    pending = job.counts.statuses[Status.PENDING]
    allocated = {name: value for name, value in job.allocated.items() if value}
    if not pending:
        request = allocated
    elif not allocated and len(pending) == 1:
        (only,) = pending.values()
        request = only.request.significant
    else:
        request = dict(allocated)
        for task in pending.values():
            add(request, task.request.amounts)
        request = _significant(request)
    inqueue = reserved = _NOTHING
    if job.min_resources is not None:
        if job.phase == "Inqueue":
            inqueue = _significant(job.deduct_gated(job.remaining_minimum()))
            reserved = _significant(job.deduct_gated(job.min_resources))
        elif job.phase == "Running" and job.allocated_count() >= job.min_available:
            inqueue = reserved = _significant(job.deduct_gated(job.remaining_minimum()))
    elastic = _significant(job.elastic()) if allocated else _NOTHING
    return Contribution(job.queue, allocated, request, inqueue, elastic, reserved)


def _exchange(total: Amounts, old: Amounts, new: Amounts, times: int) -> None:
    """Within a sum, so many times one part for another."""
    if old != new:
        add(total, old, -times)
        add(total, new, times)


def _significant(of: Amounts) -> Amounts:
    """Without what is zero."""
    return of if all(of.values()) else {name: value for name, value in of.items() if value}
