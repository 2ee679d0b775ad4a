"""party-limits: how much one user, namespace or account may have at once, and use over time."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hekla.engine.explain.amounts import amount
from hekla.engine.framework.plugin import ABSTAIN, REJECT, Answer, Plugin, Reads, Source
from hekla.engine.model.annotations import ACCOUNT
from hekla.engine.model.queues.parties import account_of, marks_of, namespace_of, paths, user_of
from hekla.engine.model.queues.partycounts import PartyCounts, part_of
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.queues.spending import RUNS, Budget
from hekla.engine.model.reasons import Ceiling
from hekla.engine.model.resources import EPSILON, Amounts
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.model.time.walltimes import job_walltime
from hekla.engine.plugins.fairness.budgetplan import AT_ONCE, Waiting
from hekla.engine.plugins.fairness.budgets import (
    SAVED,
    Ledger,
    in_hours,
    restored,
)
from hekla.engine.plugins.fairness.limits import PartyLimit, PartyLimitsArguments, read_limits

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView


PLACED = (Status.PENDING, Status.ALLOCATED, Status.PIPELINED)
"""Of pods that a cycle places, or takes back.  Whoever is evicted holds his room until he has gone, and
has held it all along where that is undone."""


class PartyLimits(Plugin):
    """Jobs beyond a limit wait, and say whose limit it is.

    How many may be submitted is asked where a job is let in, so its pods are not made; how many run,
    what they hold and what they use of a budget, where it is placed, because a job that waits for
    room holds none.
    """

    name = "party-limits"
    Arguments = PartyLimitsArguments
    arguments: PartyLimitsArguments
    reads = Reads(victims=Source.PREEMPTOR)

    def __init__(self, arguments: PartyLimitsArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.usual, self.stated, periods = read_limits(arguments)
        self.periods = list(periods.of.values())
        self.ledger: Ledger | None = None
        """Where there are budgets, what is used of them."""
        if arguments.has_budgets:
            self.reads = Reads(victims=Source.PREEMPTOR, clock=True)
        self.accounts: dict[str, str | None] | None = None
        """What namespaces say of their accounts, when the jobs were last looked at."""

    def open(self, session: CycleView) -> None:
        self.session = session
        state = session.state
        jobs = state.job_table
        counts = jobs.parties
        if counts is None:
            counts = jobs.parties = PartyCounts()
            counts.changed.update(state.jobs)
        self.namespaces = state.others.get("Namespace", {})
        accounts = (
            {name: marks_of(tree).get(ACCOUNT) for name, tree in self.namespaces.items()}
            if self.arguments.by == "account"
            else {}
        )
        first = self.accounts is None
        if accounts != self.accounts:
            self.accounts = accounts
            counts.changed.update(state.jobs)
        self.counts = counts
        self.lengths: dict[str, float] = {}
        """Job -> its walltime."""
        if self.arguments.has_budgets:
            self._open_budgets(first)
        counts.look_again(state.jobs, self.parties)
        self.entered: dict[str, int] = {}
        """Party -> jobs that this cycle has let in."""
        self.placed: dict[str, int] = {}
        """Job -> pods that this cycle has placed."""
        self.started: dict[str, int] = {}
        """Party -> jobs that held nothing before."""
        self.taken: dict[str, Amounts] = {}
        self.is_counted = False
        """What this cycle has placed is among what is held; what it has only promised is not, and is
        undone after that."""

    def _open_budgets(self, first: bool) -> None:
        """Count up to now what was held until now."""
        session, state, counts = self.session, self.session.state, self.counts
        spending = state.job_table.spending
        if spending is None or spending.by != self.arguments.by:
            saved = state.others.get(SAVED, {}).values()
            spending = state.job_table.spending = restored(self.arguments.by, saved)
        for key, job in counts.changed.items():
            there = state.jobs.get(key) is job
            spending.follow(job, there, state.queues.get(job.queue), session.now)
        if first:  # What runs ran on while nobody was counting.
            counts.look_again(state.jobs, self.parties)
            for period in self.periods:
                period.in_zone(state.zone)
        spending.advance(session.now, counts.held, self._budget_of, self.periods)
        parts = counts.parts
        self.ledger = Ledger(
            spending,
            lambda key: parts[key].parties if key in parts else (),
            self.arguments.count_walltimes,
        )

    def close(self, session: CycleView) -> None:
        ledger, counts, queues = self.ledger, self.counts, session.state.queues
        if ledger is None:
            return
        for key, job in session.touched.items():
            ledger.spending.follow(job, True, queues.get(job.queue), session.now)
            counts.look(key, part_of(job, self.parties(job)))
        ledger.close()
        self.is_counted = True
        for placed in (self.placed, self.started, self.taken):
            placed.clear()
        if ledger.spending.used or any(counts.held.values()):
            for period in self.periods:
                session.ask_again(period.end)
        used = ledger.spending.used
        ledger.spending.budgets = self._held_to(used)
        for party, budget in ledger.spending.budgets.items():
            for name, most in budget.amounts.items():
                labels = {"party": party, "resource": name}
                session.metric("party_budget_hours", in_hours(name, most), **labels)
                now = in_hours(name, used.get(party, {}).get(name, 0.0))
                session.metric("party_budget_used_hours", now, **labels)

    def _held_to(self, used: Mapping[str, Amounts]) -> dict[str, Budget]:
        """The budgets that are stated by name, and those of whoever else has used something.  Accounts
        are held to none but their own."""
        accounts = {path for party in used for path in list(paths(party))[:-1]}
        if self.arguments.by == "account":  # Of whom nothing is known, that may be one.
            accounts |= self.stated.keys() - used.keys()
        found: dict[str, Budget] = {}
        for party in sorted(used.keys() | self.stated.keys()):
            stated = self.stated.get(party)
            budget = self._budget_of(party)
            if party in accounts:
                budget = None if stated is None else stated.budget
            if budget is not None and budget.amounts:
                found[party] = budget
        return found

    def _budget_of(self, party: str) -> Budget | None:
        """What is counted of a party; for an account that may be more than what it is held to."""
        stated = self.stated.get(party)
        return (self.usual if stated is None else stated.over(self.usual)).budget

    # ------------------------------------------------------------------------------------- who it is

    def parties(self, job: Job) -> tuple[str, ...]:
        """The job's party, and the accounts above it."""
        by = self.arguments.by
        if by == "namespace":
            return (namespace_of(job),)
        if by == "user":
            return (user_of(job),)
        account = account_of(job, self.namespaces)
        return tuple(paths(f"{account}/{user_of(job)}" if account else user_of(job)))

    def _limits(self, job: Job) -> Iterator[tuple[str, PartyLimit]]:
        """By party; accounts have those that are stated for them alone."""
        parties = self.parties(job)
        for party in parties:
            found = self.stated.get(party)
            if party == parties[-1]:
                found = self.usual if found is None else found.over(self.usual)
            if found is not None:
                yield party, found

    def _called(self, party: str, job: Job) -> str:
        by = self.arguments.by
        if by == "account" and party == self.parties(job)[-1]:
            by = "user"
        return f"{by} {party}"

    # ------------------------------------------------------------------------------------- who enters

    def job_enqueueable(self, job: Job) -> int:
        for party, limits in self._limits(job):
            there = self.counts.submitted.get(party, 0) + self.entered.get(party, 0)
            if limits.submitted is not None and there >= limits.submitted:
                who = self._called(party, job)
                self.session.refuse(job, f"{who} has {there} of {limits.submitted} jobs submitted")
                return REJECT
        return ABSTAIN

    def job_enqueued(self, job: Job) -> None:
        for party in self.parties(job):
            self.entered[party] = self.entered.get(party, 0) + 1

    # ------------------------------------------------------------------------------------- who starts

    def job_valid(self, job: Job) -> Answer | None:
        if self._holds(job):
            return None
        said = self._beyond_limits(job)
        if said:
            return Answer("PartyLimit", said)
        for party, limits in self._limits(job):
            if limits.budget is not None and (said := self._beyond(party, limits.budget, job)):
                return Answer("PartyBudget", said)
        return None

    def _beyond_limits(self, job: Job) -> str:
        """Whose limit of what he has at once does not let the job start; empty where none does."""
        for party, limits in self._limits(job):
            running = self._running(party)
            if limits.running is not None and running >= limits.running:
                return f"{self._called(party, job)} runs {running} of {limits.running} jobs"
            for name, most in limits.amounts.items():
                held = self._held(party, name)
                asked = self._asked(job, name)
                if asked and held + asked > most + EPSILON:
                    return (
                        f"{self._called(party, job)} holds {amount(name, held)} of {amount(name, most)} {name}, "
                        f"and the job's minimum takes {amount(name, asked)}"
                    )
        return ""

    def party_ceilings(self, job: Job) -> list[Ceiling]:
        """What its user and accounts may hold and run, as the last cycle has left it."""
        found = []
        for party, limits in self._limits(job):
            who = self._called(party, job)
            if limits.amounts:
                held = {name: self._held(party, name) for name in limits.amounts}
                found.append(Ceiling(who, held, limits.amounts))
            if limits.running is not None:
                found.append(Ceiling(who, {}, {}, limits.running - self._running(party)))
        return found

    def foresee(self, jobs: Sequence[Job]) -> Generator[None, None, dict[str, float]]:
        """When budgets will let waiting jobs start; the other limits are ceilings."""
        ledger = self.ledger
        if ledger is None:
            return dict.fromkeys((job.key for job in jobs), -math.inf)
        waiting: list[Waiting] = []
        for number, job in enumerate(jobs):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            if self._holds(job):
                waiting.append(Waiting(job.key, [], 0.0))
            else:
                length = self._length(job)
                needs = [
                    ledger.need(limits.budget, party, name, asked, length)
                    for party, limits in self._limits(job)
                    if limits.budget is not None
                    for name in limits.budget.amounts
                    if (asked := self._asked(job, name))
                ]
                waiting.append(Waiting(job.key, needs, length))
        return (yield from ledger.plan(self.session.now).begins(waiting))

    def _beyond(self, party: str, budget: Budget, job: Job) -> str:
        """Why the budget does not let the job start; empty where it does."""
        assert self.ledger is not None
        for name in budget.amounts:
            asked = self._asked(job, name)
            refused = self.ledger.refused(budget, party, name, asked, self._length(job))
            if refused is not None:
                return refused.words(self._called(party, job))
        return ""

    @staticmethod
    def _asked(job: Job, name: str) -> float:
        """What the job's minimum holds, as its PodGroup says it or its pods do."""
        stated = (job.min_resources or {}).get(name, 0.0)
        if stated:
            return stated
        each = [amount for one in job.pending() if (amount := one.request.amounts.get(name, 0.0))]
        return sum(sorted(each)[: max(job.min_available, 1)])

    def _length(self, job: Job) -> float:
        known = self.lengths.get(job.key)
        if known is None:
            queue = self.session.state.queues.get(job.queue)
            known = self.lengths[job.key] = job_walltime(job, queue)
        return known

    def allocatable(self, queue: Queue, task: Task) -> bool:
        return self.allocatable_count(queue, task, 1) == 1

    def allocatable_count(self, queue: Queue, task: Task, limit: int) -> int:
        job = task.job
        if job is None:
            return limit
        holds = self._holds(job)
        for party, limits in self._limits(job):
            if not holds and limits.running is not None and self._running(party) >= limits.running:
                return 0
            for name, most in limits.amounts.items():
                each = task.request.amounts.get(name, 0.0)
                if each > 0:
                    left = most - self._held(party, name) + EPSILON
                    limit = min(limit, max(int(left // each), 0))
            if limits.budget is not None and not _lacks_its_minimum(job):
                limit = self._affordable(party, limits.budget, task, self._length(job), limit)
        return limit

    def _affordable(self, party: str, budget: Budget, task: Task, length: float, limit: int) -> int:
        assert self.ledger is not None
        for name in budget.amounts:
            each = task.request.amounts.get(name, 0.0)
            if each > 0:
                limit = self.ledger.count(budget, party, name, each, length, limit)
        return limit

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status in PLACED:
            self._count(job, total, count)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status in PLACED:
            self._count(job, total, -count)

    def _count(self, job: Job, total: Amounts, count: int) -> None:
        if self.is_counted:
            return
        sign = 1 if count > 0 else -1
        before = self.placed.get(job.key, 0)
        self.placed[job.key] = after = before + count
        change = 0 if self.counts.runs(job) else (after > 0) - (before > 0)
        length = math.inf if self.ledger is None else self._length(job)
        for party in self.parties(job):
            if self.ledger is not None and length < math.inf:
                self.ledger.take(party, total, sign * length)
            self.started[party] = self.started.get(party, 0) + change
            taken = self.taken.setdefault(party, {})
            for name, value in total.items():
                taken[name] = taken.get(name, 0.0) + sign * value

    def _holds(self, job: Job) -> bool:
        return self.counts.runs(job) or self.placed.get(job.key, 0) > 0

    def _running(self, party: str) -> int:
        return self.counts.running.get(party, 0) + self.started.get(party, 0)

    def _held(self, party: str, name: str) -> float:
        held = self.counts.held.get(party, {}).get(name, 0.0)
        return held + self.taken.get(party, {}).get(name, 0.0)


def _lacks_its_minimum(job: Job) -> bool:
    """Whether it runs, and has lost pods without which the others are of no use."""
    counts = job.counts
    runs = any(counts.statuses[status] for status in RUNS)
    return runs and counts.ready < job.min_available
