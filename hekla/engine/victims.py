"""Who is evicted first, and whether what they free is enough.  Reference: scheduler-core 5.4, 6.0.6."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from hekla.engine.resources import EPSILON
from hekla.engine.tasks import PREEMPTABLE, Job, Task

if TYPE_CHECKING:
    from hekla.engine.session import Session

__all__ = ["PREEMPTABLE", "agreed", "in_order", "make_room"]


def in_order(session: Session, victims: Iterable[Task], claimer: Task) -> list[Task]:
    """Victims, the first to go first."""
    claiming = claimer.job if session.in_session(claimer.job) else None
    ranks: dict[str, tuple[Any, ...]] = {}
    keys: dict[str, tuple[Any, ...]] = {}

    def rank(job: Job) -> tuple[Any, ...]:
        known = ranks.get(job.key)
        if known is None:
            known = ranks[job.key] = session.job_rank(job)
        return known

    def key(task: Task) -> tuple[Any, ...]:
        known = keys.get(task.key)
        if known is None:
            known = keys[task.key] = session.task_key(task)
        return known

    def later_first(left: Task, right: Task) -> int:
        one, other = key(left), key(right)
        if one < other:
            return 1
        return -1 if other < one else 0

    def compare(left: Task, right: Task) -> int:
        mine = left.job if session.in_session(left.job) else None
        theirs = right.job if session.in_session(right.job) else None
        if mine is theirs:
            return later_first(left, right)
        if mine is None or theirs is None:
            return -1 if mine is None else 1
        if claiming is None or mine.queue == theirs.queue:
            one, other = rank(mine), rank(theirs)
            if one != other:
                return 1 if one < other else -1
            return later_first(left, right)
        claimer_queue = session.queue_of(claiming)
        first = session.victim_queue_key(session.queue_of(mine), claimer_queue)
        second = session.victim_queue_key(session.queue_of(theirs), claimer_queue)
        if first < second:
            return -1
        return 1 if second < first else 0

    return sorted(victims, key=cmp_to_key(compare))


def agreed(
    session: Session, task: Task, row: int, candidates: list[Task], ask: Callable[[list[Task]], list[Task]]
) -> tuple[list[Task], bool]:
    """Whom the plugins let go on a node for a task, and whether that makes room.

    Plugins that count (so many of a gang, so much of a queue) take the first that they are shown.  Where they count in different orders,
    their lists may miss each other; shown the victims in the order in which these would go, they mean the same ones.
    """
    victims = ask(candidates)
    if make_room(session, task, row, victims):
        return victims, True
    if len(candidates) > 1:
        again = in_order(session, candidates, task)
        if again != candidates:
            found = ask(again)
            if make_room(session, task, row, found):
                return found, True
    return victims, False


def make_room(session: Session, task: Task, row: int, victims: Iterable[Task]) -> bool:
    """Whether the node would have room for the task once all victims had left."""
    free = session.state.nodes.future_idle_of(row)
    for victim in victims:
        for column, value in victim.request:
            free[column] += value
    return all(value < free[column] + EPSILON for column, value in task.request)
