"""What parties have used of their budgets since these were last renewed: amounts times seconds.

Between two changes what a party holds is constant, so its use is a product and no sum over cycles.
What its running pods may still use, by their walltimes, is promised to them: a budget of which all is
promised is as good as used up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import NamedTuple

from hekla.api.text.schedule import Cron
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import Job, Status
from hekla.engine.model.time.walltimes import ENDLESS, walltime_of

RUNS = (Status.BINDING, Status.BOUND, Status.RUNNING)


class Period:
    """From one renewal to the next; without a schedule it has no end."""

    def __init__(self, schedule: Cron | None) -> None:
        self.schedule = schedule
        self.begin = -math.inf
        """The last renewal that was seen."""
        self.end = math.inf
        self._known = False

    def in_zone(self, zone: tzinfo) -> None:
        """In which zone a schedule is meant that names none."""
        if self.schedule is not None and self.schedule.zone is None:
            self.schedule = replace(self.schedule, zone=zone)

    def move_on(self, before: float, now: float) -> None:
        """Follow the time; `before` is a moment of the period that was current until now."""
        if self.schedule is None:
            return
        if not self._known:
            self._known, self.end = True, self.after(before)
        while self.end <= now:
            self.begin, self.end = self.end, self.after(self.end)

    def after(self, moment: float) -> float:
        """The first renewal after a moment; infinite where none comes."""
        found = None if self.schedule is None else self.schedule.next(moment)
        return math.inf if found is None else found


class Budget(NamedTuple):
    """Of one party."""

    amounts: Amounts
    """Amounts times seconds by resource."""
    period: Period

    def over(self, usual: Budget | None) -> Budget:
        """This one, and the usual one of resources of which it says nothing."""
        return self if usual is None else Budget({**usual.amounts, **self.amounts}, self.period)


class Lasting(NamedTuple):
    """What pods of one job hold until they end."""

    end: float
    """Seconds since 1970."""
    name: str
    amount: float


class Spending:
    """By party and resource, in the units of `Amounts` times seconds."""

    def __init__(self, by: str) -> None:
        self.by = by
        """What the parties are: users, namespaces or accounts."""
        self.at = 0.0
        """Seconds since 1970 up to which it is counted; 0 before the first cycle."""
        self.used: dict[str, Amounts] = {}
        self.budgets: dict[str, Budget] = {}
        """Of the parties that are held to one, by the last cycle."""
        self._lasting: dict[str, tuple[Lasting, ...]] = {}
        """By job, where walltimes are known."""
        self._since: dict[str, dict[str, float]] = {}
        """Job -> pod -> since when it runs."""

    def advance(
        self,
        now: float,
        held: Mapping[str, Amounts],
        budget_of: Callable[[str], Budget | None],
        periods: Iterable[Period],
    ) -> None:
        """Count up to now what is held; what was used before a renewal is forgotten."""
        before, self.at = self.at or now, max(self.at, now)
        for period in periods:
            period.move_on(before, self.at)
        for party in list(self.used):
            budget = budget_of(party)
            if budget is None or budget.period.begin > before:
                del self.used[party]
        for party, amounts in held.items():
            budget = budget_of(party)
            if budget is None:
                continue
            elapsed = self.at - max(before, budget.period.begin)
            for name in budget.amounts:
                if (amount := amounts.get(name, 0.0)) and elapsed > 0:
                    used = self.used.setdefault(party, {})
                    used[name] = used.get(name, 0.0) + amount * elapsed

    def follow(self, job: Job, there: bool, queue: Queue | None, now: float) -> None:
        """A job came, changed or left: when do its pods end?"""
        known = self._since.pop(job.key, {})
        self._lasting.pop(job.key, None)
        since: dict[str, float] = {}
        sums: dict[tuple[float, str], float] = {}
        for status in RUNS if there else ():
            for task in job.counts.statuses[status].values():
                length = walltime_of(task, job, queue)
                if length == ENDLESS:
                    continue
                began = task.start or task.scheduled or known.get(task.key, now)
                since[task.key] = began
                for name, amount in task.request.amounts.items():
                    if amount:
                        key = began + length, name
                        sums[key] = sums.get(key, 0.0) + amount
        if since:
            self._since[job.key] = since
            self._lasting[job.key] = tuple(
                Lasting(end, name, amount) for (end, name), amount in sums.items()
            )

    def promised(
        self, parties_of: Callable[[str], Iterable[str]], moment: float
    ) -> dict[str, Amounts]:
        """What those that run may still use from a moment on.  `parties_of`: of a job's key."""
        found: dict[str, Amounts] = {}
        for key, parts in self._lasting.items():
            for party in parties_of(key):
                amounts = found.setdefault(party, {})
                for end, name, amount in parts:
                    if end > moment:
                        amounts[name] = amounts.get(name, 0.0) + amount * (end - moment)
        return found
