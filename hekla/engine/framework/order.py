"""Whose turn it is: the plugins' orders of queues, jobs and tasks with their tie-breaks.

Reference: scheduler-core 5.3, 5.4; plugins-fairness 0.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hekla.engine.framework.heap import AsThingsStand, Comparable, Heap, LiveHeap, OrderKey
from hekla.engine.framework.hooks import Hooks
from hekla.engine.framework.joborder import OwnOrders
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.tasks import Job, SubJob, Task

if TYPE_CHECKING:
    from hekla.engine.model.state import State


class Order:
    """The orders of one cycle.  Keys are tuples; the smaller goes first."""

    def __init__(self, state: State, hooks: Hooks, own: OwnOrders) -> None:
        self.state = state
        self.hooks = hooks
        self.own = own
        """What queues say themselves about the order of their jobs."""
        self._job_orders = [plugin.job_order for plugin in hooks("job_order")]
        self._queue_orders = [plugin.queue_order for plugin in hooks("queue_order")]
        self._task_keys = hooks("task_order")
        self._sub_keys = hooks("sub_job_order")

    def job_rank(self, job: Job) -> OrderKey:
        """The plugins' order of jobs alone, without the tie-break by age."""
        return tuple([order(job) for order in self._job_orders])

    def job_order(self, job: Job) -> OrderKey:
        """The plugins' order of jobs with its tie-break; a queue's own order is not asked, as
        whenever somebody is to be evicted."""
        return (*self.job_rank(job), job.creation, job.key)

    def job_key(self, job: Job) -> OrderKey:
        """The order of a queue's jobs: its own where it names one, else the plugins'."""
        own = self.own.key(job) if self.own.of else None
        if own is not None:
            return (*own, job.creation, job.key)
        if len(self._job_orders) == 3:  # as in the policies that most have: asked of every job
            first, second, third = self._job_orders
            return first(job), second(job), third(job), job.creation, job.key
        return (*[order(job) for order in self._job_orders], job.creation, job.key)

    def queue_key(self, queue: Queue) -> OrderKey:
        if len(self._queue_orders) == 1:  # asked at every turn
            return self._queue_orders[0](queue), queue.creation, queue.uid
        return (*[order(queue) for order in self._queue_orders], queue.creation, queue.uid)

    def queues_by_turn(self, names: Iterable[str]) -> Heap[Queue] | LiveHeap[Queue]:
        """The queues, whose turn it is first; for actions that serve one queue at a time and evict
        nobody."""
        queues = (self.state.queues[name] for name in names)
        if self.hooks.queues_keep_their_place:
            return Heap(self.queue_key, queues)
        return LiveHeap(
            lambda one, other: bool(self.queue_key(one) < self.queue_key(other)), queues
        )

    def queues_as_they_stand(self, names: Iterable[str]) -> LiveHeap[Queue]:
        """The queues, whose turn it is first, for actions that evict: what one takes changes where
        another stands."""
        return LiveHeap(
            AsThingsStand(self.queue_key, self._changes),
            (self.state.queues[name] for name in names),
        )

    def jobs_as_they_stand(self, jobs: Iterable[Job] = ()) -> LiveHeap[Job]:
        """Jobs of a queue in the same way: one that waits may be another's victim meanwhile."""
        return LiveHeap(AsThingsStand(self.job_key, self._changes), jobs)

    def _changes(self) -> int:
        return self.state.nodes.version

    def task_key(self, task: Task) -> OrderKey:
        return (*(plugin.task_order(task) for plugin in self._task_keys), _TaskAge(task))

    def sub_job_key(self, sub_job: SubJob) -> OrderKey:
        return (
            *(plugin.sub_job_order(sub_job) for plugin in self._sub_keys),
            sub_job.match_index,
            sub_job.uid,
        )

    def sorted_tasks(self, tasks: Iterable[Task]) -> list[Task]:
        """Tasks in the order in which they are served."""
        result = list(tasks)
        if len(result) < 2:
            return result
        if all(task.index is not None for task in result):
            result.sort(key=_index_and_age)
        elif any(task.index is not None for task in result):
            # With and without an index the order can go in a circle, so what plugins tell apart is
            # not compared by it.
            result.sort(key=self.task_key)
            return result
        else:
            result.sort(key=_age)
        for plugin in reversed(self._task_keys):
            result.sort(key=plugin.task_order)
        return result

    def victim_queue_key(self, queue: Queue, preemptor: Queue) -> OrderKey:
        """Smaller is evicted from first."""
        own = tuple(
            plugin.victim_queue_order(queue, preemptor)
            for plugin in self.hooks("victim_queue_order")
        )
        return (*own, _Reversed(self.queue_key(queue)))


def _age(task: Task) -> tuple[float, str]:
    return task.creation, task.uid


def _index_and_age(task: Task) -> tuple[int, float, str]:
    return task.index or 0, task.creation, task.uid


class _Reversed:
    """A key that sorts the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: Comparable) -> None:
        self.key = key

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.key == other.key)


class _TaskAge:
    """Ties between tasks: by index where both have one, else by creation time, then UID.
    Reference: scheduler-core 5.4."""

    __slots__ = ("task",)

    def __init__(self, task: Task) -> None:
        self.task = task

    def __lt__(self, other: _TaskAge) -> bool:
        mine, theirs = self.task, other.task
        if mine.index is not None and theirs.index is not None and mine.index != theirs.index:
            return mine.index < theirs.index
        return _age(mine) < _age(theirs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TaskAge) and self.task is other.task
