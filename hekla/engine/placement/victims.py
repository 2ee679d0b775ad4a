"""Who is evicted first, and whether what they free is enough.  Reference: scheduler-core 5.4,
6.0.6."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cmp_to_key
from typing import TYPE_CHECKING

from hekla.engine.framework.heap import LiveHeap, OrderKey
from hekla.engine.model.resources import EPSILON
from hekla.engine.model.tasks import Job, Task

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class _Order:
    """Which of two victims goes first, as things stand: what is known of jobs and queues is worked
    out anew once something happened."""

    def __init__(self, session: Session, preemptor: Task) -> None:
        self.session = session
        self.claiming = preemptor.job if session.in_session(preemptor.job) else None
        self.ranks: dict[str, OrderKey] = {}
        self.queues: dict[str, OrderKey] = {}
        self.keys: dict[str, OrderKey] = {}
        self.orders = session.votes.orders_victims
        self.at = len(session.state.nodes.log)

    def __call__(self, left: Task, right: Task) -> int:
        """Below 0 where the left one goes first."""
        session, claiming = self.session, self.claiming
        mine = left.job if session.in_session(left.job) else None
        theirs = right.job if session.in_session(right.job) else None
        if self.orders and mine is not None and theirs is not None and mine.queue == theirs.queue:
            votes = session.votes
            first, second = votes.victim_key(left), votes.victim_key(right)
            if first != second:
                return -1 if first < second else 1
        if mine is theirs:
            return self._later_first(left, right)
        if mine is None or theirs is None:
            return -1 if mine is None else 1
        if self.at != len(session.state.nodes.log):
            self.at = len(session.state.nodes.log)
            self.ranks.clear()
            self.queues.clear()
        if claiming is None or mine.queue == theirs.queue:
            one, other = self._rank(mine), self._rank(theirs)
            if one != other:
                return 1 if one < other else -1
            return self._later_first(left, right)
        one, other = self._of_queue(mine, claiming), self._of_queue(theirs, claiming)
        if one < other:
            return -1
        return 1 if other < one else 0

    def before(self, left: Task, right: Task) -> bool:
        return self(left, right) < 0

    def _later_first(self, left: Task, right: Task) -> int:
        one, other = self._key(left), self._key(right)
        if one < other:
            return 1
        return -1 if other < one else 0

    def _key(self, task: Task) -> OrderKey:
        known = self.keys.get(task.key)
        if known is None:
            known = self.keys[task.key] = self.session.order.task_key(task)
        return known

    def _rank(self, job: Job) -> OrderKey:
        known = self.ranks.get(job.key)
        if known is None:
            known = self.ranks[job.key] = self.session.order.job_rank(job)
        return known

    def _of_queue(self, job: Job, claiming: Job) -> OrderKey:
        known = self.queues.get(job.queue)
        if known is None:
            queues = self.session.state.queues
            known = self.queues[job.queue] = self.session.order.victim_queue_key(
                queues[job.queue], queues[claiming.queue]
            )
        return known


def in_order(session: Session, victims: Iterable[Task], preemptor: Task) -> list[Task]:
    """Victims, the first to go first, as things stand."""
    return sorted(victims, key=cmp_to_key(_Order(session, preemptor)))


def leaving(session: Session, victims: Iterable[Task], preemptor: Task) -> LiveHeap[Task]:
    """Victims to be evicted one after the other: who went changes who goes next, because jobs and
    queues then hold less."""
    return LiveHeap(_Order(session, preemptor).before, victims)


def agreed(
    session: Session,
    task: Task,
    row: int,
    candidates: list[Task],
    ask: Callable[[list[Task]], list[Task]],
) -> tuple[list[Task], bool]:
    """Whom the plugins let go on a node for a task, and whether that makes room.

    Plugins that count (so many of a gang, so much of a queue) take the first that they are shown.
    Where they count in different orders, their lists may miss each other; shown the victims in the
    order in which these would go, they mean the same ones.
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
