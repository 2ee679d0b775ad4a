"""proportion: each queue deserves its weight's part of the cluster; what one does not ask for flows
to the others.

Reference: plugins-fairness 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING

from hekla.engine.explain.explanation import shortages
from hekla.engine.framework.plugin import (
    PERMIT,
    REJECT,
    NoArguments,
    Plugin,
    Reads,
    Source,
    Victims,
)
from hekla.engine.model.explanations import not_open
from hekla.engine.model.queues.queues import OPEN, Queue, held_by_queue
from hekla.engine.model.reasons import Ceiling, Shortage
from hekla.engine.model.resources import (
    CPU,
    EPSILON,
    MEMORY,
    PODS,
    UNLIMITED,
    Amounts,
    above,
    above_capability,
    add,
    dominant_share,
    empty,
    exceeding,
    exceeds,
    excess,
    is_empty,
    less_equal,
    maximum,
    minimum_present,
    plus,
    present,
    subtract,
)
from hekla.engine.model.tasks import Job, Task, requests_of
from hekla.engine.plugins.fairness.queuegauges import NOTHING, QueueGauges

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView


_NOTHING_YET = empty()
"""What all deserve before anything is shared out."""


@dataclass(slots=True)
class Account:
    """One queue within a cycle."""

    queue: Queue
    weight: int
    guarantee: Amounts
    real_capability: Amounts
    request: Amounts
    inqueue: Amounts
    elastic: Amounts
    allocated: Amounts
    deserved: Amounts = field(default_factory=lambda: _NOTHING_YET)
    """Replaced when it changes, never changed."""
    version: int = 0
    """Of its queue's sums, of which it was opened."""
    touched: bool = False
    """Whether a cycle has changed it since."""
    known_share: float | None = None
    """The share, until what it is made of changes."""
    first_given: tuple[Amounts, float, Amounts, bool] | None = None
    """What it was given last while it had nothing: of what, which part, and what came of it."""
    snapped: tuple[Amounts, Amounts] | None = None
    """What it was given in the end, and what it deserves by that."""
    ahead: str = ""
    """A resource of which it had less than it deserves when that was last asked; mostly it still
    has."""

    def overused(self) -> bool:
        """Whether it holds all that it deserves, of everything."""
        name = self.ahead
        if name and self.deserved.get(name, 0.0) - self.allocated.get(name, 0.0) >= EPSILON:
            return False
        self.ahead = above(self.deserved, self.allocated)
        return not self.ahead

    def given(self, remaining: Amounts, part: float) -> tuple[Amounts, bool]:
        """What it has with its part of what remains, within what it can use; and whether that is all
        it will get."""
        if self.deserved is not _NOTHING_YET:
            return self._given(remaining, part)
        known = self.first_given
        if known is None or known[1] != part or known[0] != remaining:
            known = self.first_given = remaining, part, *self._given(remaining, part)
        return known[2], known[3]

    def _given(self, remaining: Amounts, part: float) -> tuple[Amounts, bool]:
        previous, most, request = self.deserved, self.real_capability, self.request
        deserved = plus(previous, remaining, part)
        for name, value in deserved.items():
            deserved[name] = min(value, most.get(name, value), request.get(name, 0.0))
        deserved = maximum(deserved, self.guarantee)
        return deserved, less_equal(request, deserved) or deserved == previous

    def take_over(self, before: Account) -> None:
        """What it deserves is what it deserved: it asks for the same."""
        self.deserved = before.deserved
        self.first_given, self.snapped = before.first_given, before.snapped

    def share(self) -> float:
        if self.known_share is None:
            self.known_share = dominant_share(self.allocated, self.deserved)
        return self.known_share


def real_capability(queue: Queue, total: Amounts, guaranteed: Amounts) -> Amounts:
    """What a queue could hold at most: the cluster without the others' guarantees, within its own
    ceiling."""
    # What is guaranteed away to the last piece is 0 here, not absent: absent is without end to the
    # loop.
    real = {**dict.fromkeys(total, 0.0), **excess(total, guaranteed)}
    add(real, queue.guarantee)
    if queue.capability:
        ceiling = dict(queue.capability)
        for name in (CPU, MEMORY):
            if ceiling.get(name, 0.0) <= 0:
                ceiling[name] = UNLIMITED
        real = minimum_present(real, ceiling)
    return real


class Accounts:
    """The accounts of all queues that have jobs, kept from cycle to cycle: one is opened anew when
    the sums of its queue have changed, and what the queues deserve is worked out again when one of
    them asks for something else."""

    def __init__(self) -> None:
        self.open: dict[str, Account] = {}
        self.queues: list[Queue] = []
        self.total: Amounts = {}
        self.ceilings: dict[str, Amounts] = {}
        """Real capabilities, which follow the queues' objects and the cluster's size alone."""

    def renew(self, queues: Mapping[str, Queue], total: Amounts) -> dict[str, Account]:
        """One account for each queue that has jobs, as it is now.  They are the caller's until the
        next call."""
        known = self.open
        listed = list(queues.values())
        if total != self.total or not _identical(listed, self.queues):
            known = {}
            self._measure(listed, total)
        fresh: dict[str, Account] = {}
        moved = False
        for queue in listed:
            if not queue.jobs:
                continue
            name = queue.name
            account = before = known.get(name)
            if account is None or account.touched or account.version != queue.version:
                account = self._account(queue)
                if before is not None and before.request == account.request:
                    account.take_over(before)
                else:
                    moved = True
            fresh[name] = account
        if moved or len(fresh) != len(known):
            for account in fresh.values():
                account.deserved = _NOTHING_YET
            share_out(list(fresh.values()), self.total)
        self.open = fresh
        return fresh

    def _measure(self, queues: list[Queue], total: Amounts) -> None:
        guaranteed = empty()
        for queue in queues:
            add(guaranteed, queue.guarantee)
        self.queues, self.total = queues, dict(total)
        self.ceilings = {queue.name: real_capability(queue, total, guaranteed) for queue in queues}

    def _account(self, queue: Queue) -> Account:
        return Account(
            queue=queue,
            weight=queue.weight,
            guarantee=dict(queue.guarantee),
            real_capability=self.ceilings[queue.name],
            request=present(queue.request),
            inqueue=dict(queue.inqueue),
            elastic=dict(queue.elastic),
            allocated=present(queue.allocated),
            version=queue.version,
        )


def _identical(some: list[Queue], others: list[Queue]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def share_out(accounts: list[Account], total: Amounts) -> None:
    """Give every queue what it deserves, round by round.  Reference: plugins-fairness 5.2."""
    _share_out(accounts, total)
    for account in accounts:
        shared = account.deserved
        if account.snapped is None or account.snapped[0] is not shared:
            most = _snap(_snap(shared, account.request), account.real_capability)
            account.snapped = shared, most
        account.deserved = account.snapped[1]
        account.known_share = None


def _snap(deserved: Amounts, most: Amounts) -> Amounts:
    """What is short of the most that a queue can use by less than the tolerance is all of it: pods
    are measured against it strictly."""
    short = [
        name
        for name, value in deserved.items()
        if name != PODS and 0 < most.get(name, 0.0) - value < EPSILON
    ]
    return {**deserved, **{name: most[name] for name in short}} if short else deserved


def _share_out(accounts: list[Account], total: Amounts) -> None:
    remaining = dict(total)
    met: set[str] = set()
    while True:
        weights = sum(account.weight for account in accounts if account.queue.name not in met)
        if not weights:
            return
        before = dict(remaining)
        increased, decreased = empty(), empty()
        for account in accounts:
            if account.queue.name in met:
                continue
            previous = account.deserved
            deserved, is_met = account.given(remaining, account.weight / weights)
            account.deserved = deserved
            if is_met:
                met.add(account.queue.name)
            for name, value in deserved.items():
                more = value - previous.get(name, 0.0)
                if more > 0:
                    increased[name] = increased.get(name, 0.0) + more
                elif more < 0:
                    decreased[name] = decreased.get(name, 0.0) - more
        add(remaining, decreased)
        remaining = excess(remaining, increased)
        if is_empty(remaining) or remaining == before:
            return


class Proportion(Plugin):
    """Queues by weight."""

    name = "proportion"
    reads = Reads(
        victims=Source.PREEMPTOR, between_placements=Source.JOBS, queue_order=Source.OWN_JOBS
    )

    def __init__(self, arguments: NoArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.gauges = QueueGauges()
        self.kept = Accounts()

    def open(self, session: CycleView) -> None:
        self.session = session
        self.accounts = self.kept.renew(session.state.queues, session.total)
        self.overused_told: dict[str, bool] = {}
        """What the gauge of each queue says in this cycle: asked thousands of times, it is written
        when it changes."""
        for name in session.state.queues if session.state.metered else ():
            account = self.accounts.get(name)
            self.gauges.write(session, "request", name, account.request if account else NOTHING)
            self.gauges.write(session, "inqueue", name, account.inqueue if account else NOTHING)
            if account is not None:
                self.gauges.write(session, "deserved", name, account.deserved)
                session.metric("queue_weight", float(account.weight), queue_name=name)

    def close(self, session: CycleView) -> None:
        for name in session.state.queues if session.state.metered else ():
            account = self.accounts.get(name)
            self.gauges.write(session, "allocated", name, account.allocated if account else NOTHING)
            if account is not None:
                session.metric("queue_share", account.share(), queue_name=name)
        self.gauges.keep(session.state.queues)

    def queue_order(self, queue: Queue) -> tuple[int, float]:
        account = self.accounts.get(queue.name)
        return -queue.priority, 0.0 if account is None else account.share()

    def overused(self, queue: Queue) -> bool:
        account = self.accounts.get(queue.name)
        result = account is not None and account.overused()
        if self.overused_told.get(queue.name) is not result:
            self.overused_told[queue.name] = result
            self.session.metric("queue_overused", float(result), queue_name=queue.name)
        return result

    def allocatable(self, queue: Queue, task: Task) -> bool:
        return self._admits(queue, task.request.amounts)

    def preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        return self._admits(queue, requests_of(tasks))

    def quota_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]:
        """Where so much more would go past what the queue deserves now."""
        account = self.accounts.get(queue.name)
        return (
            []
            if account is None
            else shortages(queue.name, "deserved", asked, account.allocated, account.deserved)
        )

    reclaim_shortages = quota_shortages

    def quota_ceilings(self, queue: Queue) -> list[Ceiling]:
        """Its capability alone: what it deserves follows what others ask for."""
        account = self.accounts.get(queue.name)
        return (
            []
            if account is None
            else [Ceiling(queue.name, account.allocated, account.real_capability)]
        )

    def beyond_capability(self, queue: Queue, asked: Amounts, entering: bool) -> list[str]:
        """Where so much more goes past what the queue itself says that it may hold at most,
        whatever the cluster has."""
        account = self.accounts.get(queue.name)
        if account is None:
            return []
        return above_capability(queue.capability, asked, held_by_queue(account, entering))

    def _admits(self, queue: Queue, asked: Amounts) -> bool:
        if queue.state != OPEN:
            return False
        account = self.accounts.get(queue.name)
        if account is None:
            return False
        return not exceeds(account.deserved, asked, account.allocated)

    def allocatable_count(self, queue: Queue, task: Task, limit: int) -> int:
        """How many of the same request fit in a row; each takes the same, so it is a division,
        corrected for rounding."""
        account = self.accounts.get(queue.name)
        if account is None or queue.state != OPEN:
            return 0
        if limit == 1:
            return 0 if exceeds(account.deserved, task.request.amounts, account.allocated) else 1
        for name, asked in task.request.amounts.items():
            if asked <= 0 or name == PODS:
                continue
            held, deserved = account.allocated.get(name, 0.0), account.deserved.get(name, 0.0)
            count = max(int((deserved - held) // asked), 0)
            while count > 0 and held + asked * count > deserved:
                count -= 1
            limit = min(limit, count)
        return limit

    def job_enqueueable(self, job: Job) -> int:
        account = self.accounts.get(job.queue)
        if account is None or account.queue.state != OPEN:
            job.enqueue_block = not_open(self.session.queue_of(job))
            return REJECT
        if job.min_resources is None:
            return PERMIT
        return admit(self.session, job, account)

    def job_enqueued(self, job: Job) -> None:
        account = self.accounts.get(job.queue)
        if account is not None and job.min_resources is not None:
            account.touched = True
            add(account.inqueue, job.deduct_gated(job.min_resources))

    def reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        left: dict[str, Amounts] = {}
        chosen = []
        for task in candidates:
            job = task.job
            if not self.session.in_session(job) or job.queue not in self.accounts:
                continue
            account = self.accounts[job.queue]
            running = left.setdefault(job.queue, dict(account.allocated))
            if not less_equal(running, account.deserved):
                subtract(running, task.request.amounts)
                chosen.append(task)
        return Victims(chosen)

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        account = self.accounts.get(job.queue)
        if account is not None:
            account.known_share, account.touched = None, True
            add(account.allocated, total)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        account = self.accounts.get(job.queue)
        if account is not None:
            account.known_share, account.touched = None, True
            subtract(account.allocated, total)


def admit(session: CycleView, job: Job, account: Account) -> int:
    """Whether the job's minimum fits the queue's ceiling beside all that is held and promised."""
    minimum = job.min_resources or {}
    if not exceeds(
        account.real_capability, minimum, account.allocated, account.inqueue, account.elastic
    ):
        return PERMIT
    held = held_by_queue(account, entering=True)
    short = exceeding(plus(minimum, held), account.real_capability, minimum)
    message = "queue resource quota insufficient: " + ", ".join(
        f"insufficient {name}" for name in short
    )
    session.refuse(
        job, message, shortages(job.queue, "capability", minimum, held, account.real_capability)
    )
    return REJECT
