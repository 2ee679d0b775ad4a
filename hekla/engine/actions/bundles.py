"""Victims by the bundle: what can be taken from a job without breaking its gang, and what only
breaks it whole.

Reference: scheduler-core 6.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TYPE_CHECKING

from hekla.engine.explain.no_victims import Search
from hekla.engine.framework.heap import OrderKey
from hekla.engine.framework.statement import Evicted
from hekla.engine.model.resources import EPSILON, Amounts, Floats, add, less_equal
from hekla.engine.model.tasks import Job, Task, requests_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


@dataclass(slots=True)
class Bundle:
    """Tasks of one job that go together."""

    job: Job
    tasks: list[Task]
    safe: bool
    """The gang of the job stays whole without them."""

    @property
    def local(self) -> Amounts:
        """What evicting it frees."""
        return requests_of(self.tasks)

    def worth(self, need: Amounts) -> float:
        """How much of the need it covers for what is lost in all; without end where nothing else is
        lost."""
        if self.safe:
            return math.inf
        wanted = {name: value for name, value in need.items() if value > 0}
        local, lost = self.local, requests_of(self.job.tasks.values())
        gain = sum(min(local.get(name, 0.0), value) / value for name, value in wanted.items())
        cost = sum(lost.get(name, 0.0) / value for name, value in wanted.items())
        return gain / cost if cost else math.inf


def bundles_of(
    job: Job, tasks: Iterable[Task], order: Callable[[Task], OrderKey] = lambda task: ()
) -> list[Bundle]:
    """Split candidates of one job into those it can spare and the rest; the first by `order` are
    spared first, then the lowest priority."""
    ordered = sorted(tasks, key=lambda task: (order(task), task.priority, task.uid))
    surplus = job.counts.ready - job.min_available
    if surplus < 0:
        return [Bundle(job, ordered, True)]
    roles: dict[str, int] = {}
    if job.min_available >= job.role_total:
        roles = {
            role: job.role_count(role) - minimum for role, minimum in job.role_minimums.items()
        }
    minimums = job.min_sub_jobs if any(job.min_sub_jobs.values()) else {}
    ready = [one for one in job.sub_jobs.values() if one.is_ready()] if minimums else []
    groups = {
        group: sum(1 for one in ready if one.group == group) - minimum
        for group, minimum in minimums.items()
    }
    whole_sub_jobs = {one.uid for one in ready}
    safe: list[Task] = []
    rest: list[Task] = []
    for task in ordered:
        part = task.subjob
        spare = surplus > 0 and roles.get(task.role, 1) > 0
        if spare and minimums:
            spare = part is not None and (
                part.uid not in whole_sub_jobs or groups.get(part.group, 0) > 0
            )
        if not spare:
            rest.append(task)
            continue
        safe.append(task)
        surplus -= 1
        if task.role in roles:
            roles[task.role] -= 1
        if minimums and part is not None and part.uid in whole_sub_jobs:
            whole_sub_jobs.discard(part.uid)
            if part.group in groups:
                groups[part.group] -= 1
    return [Bundle(job, part, is_safe) for part, is_safe in ((safe, True), (rest, False)) if part]


def approved(bundles: Iterable[Bundle], allowed: set[str]) -> list[Bundle]:
    """What plugins let go: safe bundles shrink to it, whole ones stay only if all of them may go."""
    result = []
    for bundle in bundles:
        kept = [task for task in bundle.tasks if task.key in allowed]
        if kept and (bundle.safe or len(kept) == len(bundle.tasks)):
            result.append(Bundle(bundle.job, kept, bundle.safe))
    return result


def at_their_turn(
    session: Session, preemptor: Job, bundles: list[Bundle], search: Search
) -> list[Bundle]:
    """What of the bundles nobody spares when those before it are on their way out: safe ones shrink
    to it, whole ones stay only if all of them may go."""
    if not session.votes.may_spare:
        return bundles
    trial = session.statement()
    kept = []
    for bundle in bundles:
        gone = session.statement()
        for task in bundle.tasks:
            reason = session.votes.spares(task, preemptor)
            search.spares(task, reason)
            if not reason:
                gone.evict(task, "trial")
        left = [one.task for one in gone.operations if isinstance(one, Evicted)]
        if left and (bundle.safe or len(left) == len(bundle.tasks)):
            kept.append(Bundle(bundle.job, left, bundle.safe))
            trial.merge(gone)
        else:
            gone.rollback()
    trial.rollback()
    return kept


def sufficient(bundles: Iterable[Bundle], need: Amounts, room: Amounts) -> Iterator[list[Bundle]]:
    """The first bundles that together with the room there is cover the need, then with one more
    each, to the last."""
    taken: list[Bundle] = []
    total = dict(room)
    for bundle in bundles:
        taken.append(bundle)
        add(total, bundle.local)
        if less_equal(need, total):
            yield list(taken)


def needed(session: Session, bundles: list[Bundle]) -> list[Bundle]:
    """Of bundles that are on their way out, those parts without which their nodes would be too
    full; the dearest are spared first.

    A gang that is broken stays so: a whole bundle is spared whole or not at all.
    """
    free: dict[int, Floats] = {}

    def fits(tasks: list[Task]) -> bool:
        tried: dict[int, Floats] = {}
        for task in tasks:
            row = task.row
            if row not in tried:
                tried[row] = (
                    free[row].copy() if row in free else session.state.nodes.future_idle_of(row)
                )
            for column, value in task.request:
                tried[row][column] -= value
                if tried[row][column] < -EPSILON:
                    return False
        free.update(tried)
        return True

    result: list[Bundle] = []
    for bundle in reversed(bundles):
        if not bundle.safe:
            kept = [] if fits(bundle.tasks) else bundle.tasks
        else:
            kept = [task for task in reversed(bundle.tasks) if not fits([task])][::-1]
        if kept:
            result.append(Bundle(bundle.job, kept, bundle.safe))
    return result[::-1]


def in_order(
    session: Session, bundles: Iterable[Bundle], preemptor: Job, need: Amounts, across_queues: bool
) -> list[Bundle]:
    """Who goes first."""

    def compare(left: Bundle, right: Bundle) -> int:
        if left.safe != right.safe:
            return -1 if left.safe else 1
        if across_queues:
            if left.job.queue != right.job.queue:
                own = session.queue_of(preemptor)
                one = session.order.victim_queue_key(session.queue_of(left.job), own)
                other = session.order.victim_queue_key(session.queue_of(right.job), own)
                if one < other:
                    return -1
                if other < one:
                    return 1
        elif left.job is not right.job:
            if session.votes.orders_victims:
                first, second = _dearest(session, left), _dearest(session, right)
                if first != second:
                    return -1 if first < second else 1
            return (
                1 if session.order.job_order(left.job) < session.order.job_order(right.job) else -1
            )
        return _compare(_last(left, need), _last(right, need))

    return sorted(bundles, key=cmp_to_key(compare))


def _dearest(session: Session, bundle: Bundle) -> OrderKey:
    """By which a bundle is compared with those of other jobs: the pod of it that would leave last."""
    return max(session.votes.victim_key(task) for task in bundle.tasks)


def _last(bundle: Bundle, need: Amounts) -> tuple[float, str, str, int]:
    return -bundle.worth(need), bundle.job.key, bundle.tasks[0].uid, len(bundle.tasks)


def _compare(left: tuple[float, str, str, int], right: tuple[float, str, str, int]) -> int:
    return (left > right) - (left < right)
