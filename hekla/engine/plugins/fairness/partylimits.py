"""party-limits: how much one user, namespace or account may have at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from hekla.api.trees import Tree
from hekla.engine.explain.amounts import amount
from hekla.engine.framework.plugin import ABSTAIN, REJECT, Answer, Arguments, Plugin, Reads, Source
from hekla.engine.model import resources
from hekla.engine.model.annotations import ACCOUNT
from hekla.engine.model.queues.parties import account_of, marks_of, namespace_of, paths, user_of
from hekla.engine.model.queues.partycounts import PartyCounts
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import EPSILON, Amounts
from hekla.engine.model.tasks import Job, Status, Task

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

IDENTITIES = ("user", "namespace", "account")


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one party; what is absent is not limited."""

    submitted: int | None = None
    running: int | None = None
    resources: dict[str, str | int | float] = {}


class PartyLimitsArguments(Arguments, frozen=True):
    by: str = "user"
    submitted: int | None = None
    running: int | None = None
    resources: dict[str, str | int | float] = {}
    of: dict[str, Limits] = {}

    def extended(self, rest: Tree) -> PartyLimitsArguments:
        if self.by not in IDENTITIES:
            raise ValueError(f"by = {self.by!r}: one of {', '.join(IDENTITIES)}")
        _check("", self)
        for party, limits in self.of.items():
            _check(f"of.{party}.", limits)
        return self


def _check(path: str, limits: Limits | PartyLimitsArguments) -> None:
    """Raises ValueError."""
    for name in ("submitted", "running"):
        value = getattr(limits, name)
        if value is not None and value < 0:
            raise ValueError(f"{path}{name} = {value}: a whole number from 0 up")
    for name, value in limits.resources.items():
        try:
            found = resources.amounts({name: value}).get(name)
        except ValueError as error:
            raise ValueError(f"{path}resources.{name} = {value!r}: {error}") from None
        if found is None or found < 0:
            raise ValueError(f"{path}resources.{name} = {value!r}: an amount from 0 up")


class PartyLimits(Plugin):
    """Jobs beyond a limit wait, and say whose limit it is.

    How many may be submitted is asked where a job is let in, so its pods are not made; how many run
    and what they hold, where it is placed, because a job that waits for room holds none.
    """

    name = "party-limits"
    Arguments = PartyLimitsArguments
    arguments: PartyLimitsArguments
    reads = Reads(victims=Source.PREEMPTOR)

    def __init__(self, arguments: PartyLimitsArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.usual = _read(arguments)
        self.stated = {party: _read(limits) for party, limits in arguments.of.items()}
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
        if accounts != self.accounts:  # as in the plugin's first cycle
            self.accounts = accounts
            counts.changed.update(state.jobs)
        counts.look_again(state.jobs, self.parties)
        self.counts = counts
        self.entered: dict[str, int] = {}
        """Party -> jobs that this cycle has let in."""
        self.placed: dict[str, int] = {}
        """Job -> pods that this cycle has placed."""
        self.started: dict[str, int] = {}
        """Party -> jobs that held nothing before."""
        self.taken: dict[str, Amounts] = {}

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

    def _limits(self, job: Job) -> Iterator[tuple[str, _Read]]:
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
        for party, limits in self._limits(job):
            running = self._running(party)
            if limits.running is not None and running >= limits.running:
                said = f"{self._called(party, job)} runs {running} of {limits.running} jobs"
                return Answer("PartyLimit", said)
            for name, most in limits.amounts.items():
                held = self._held(party, name)
                asked = (job.min_resources or {}).get(name, 0.0)
                if asked and held + asked > most + EPSILON:
                    said = (
                        f"{self._called(party, job)} holds {amount(name, held)} of {amount(name, most)} {name}, "
                        f"and the job's minimum takes {amount(name, asked)}"
                    )
                    return Answer("PartyLimit", said)
        return None

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
        return limit

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self._count(job, total, count)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status is not Status.RELEASING:  # What leaves holds its room until it has gone.
            self._count(job, total, -count)

    def _count(self, job: Job, total: Amounts, count: int) -> None:
        sign = 1 if count > 0 else -1
        before = self.placed.get(job.key, 0)
        self.placed[job.key] = after = before + count
        change = 0 if self.counts.runs(job) else (after > 0) - (before > 0)
        for party in self.parties(job):
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


class _Read(msgspec.Struct, frozen=True):
    """Limits in the engine's units."""

    submitted: int | None
    running: int | None
    amounts: Amounts

    def over(self, usual: _Read) -> _Read:
        """These, and the usual ones where these say nothing."""
        return _Read(
            usual.submitted if self.submitted is None else self.submitted,
            usual.running if self.running is None else self.running,
            {**usual.amounts, **self.amounts},
        )


def _read(limits: Limits | PartyLimitsArguments) -> _Read:
    found = resources.amounts(limits.resources)
    return _Read(limits.submitted, limits.running, {name: found[name] for name in limits.resources})
