"""Budgets of party-limits: so many hours of a resource until the next renewal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from hekla.api.text.schedule import Cron, ScheduleError, parse
from hekla.api.text.times import stamp
from hekla.api.trees import Json, Tree
from hekla.engine.explain.amounts import amount
from hekla.engine.model import resources
from hekla.engine.model.queues.spending import Budget, Period, Spending
from hekla.engine.model.resources import MEMORY, Amounts
from hekla.engine.model.time.durations import instant
from hekla.engine.plugins.fairness.budgetplan import LEAST, BudgetPlan, Need

HOUR = 3600.0
NEVER = "never"
SAVED = "BudgetUsage"
"""As which kind of object the state is told what was written down."""
GRAIN = 0.01
"""Of a budget, the finest part of use in a reason: a figure that changes each second would be written
each second."""


class BudgetArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resources: dict[str, str | int | float] = {}
    renew: str | None = None
    time_zone: str | None = msgspec.field(default=None, name="timeZone")


class UsageArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where what was used is written down, and how often at most."""

    namespace: str = ""
    """Empty: that of the scheduler's lease."""
    config_map: str = msgspec.field(default="party-limits-usage", name="configMap")
    file: str = ""
    seconds: int = 30


class Periods:
    """Those of one policy: who is renewed at the same times has the same one."""

    def __init__(self) -> None:
        self.of: dict[tuple[str | None, str | None], Period] = {}

    def read(
        self, path: str, stated: BudgetArguments | None, usual: Budget | None
    ) -> Budget | None:
        """The budget; `usual` is that of everybody, which says when this one is renewed if it says
        nothing.  `path`: where it stands, for errors.  Raises ValueError."""
        if stated is None:
            return None
        amounts = {name: _seconds(path, name, value) for name, value in stated.resources.items()}
        if stated.renew is None and stated.time_zone is None and usual is not None:
            return Budget(amounts, usual.period)
        key = stated.renew, stated.time_zone
        if key not in self.of:
            self.of[key] = Period(_schedule(path, stated))
        return Budget(amounts, self.of[key])


def _seconds(path: str, name: str, value: str | int | float) -> float:
    """Hours of a resource as amount times seconds.  Raises ValueError."""
    text = str(value).strip()
    hours = text.removesuffix("h").rstrip()
    try:
        if isinstance(value, str) and hours == text:
            raise ValueError("the unit is missing")
        found = resources.amounts({name: hours}).get(name)
    except ValueError as error:
        raise ValueError(
            f"{path}resources.{name} = {value!r}: hours of the resource from 0 up, such as 1000h: {error}"
        ) from None
    if found is None:
        raise ValueError(f"{path}resources.{name} = {value!r}: no resource that pods ask for")
    return found * HOUR


def _schedule(path: str, stated: BudgetArguments) -> Cron | None:
    if stated.renew in (None, NEVER):
        if stated.time_zone is not None:
            raise ValueError(
                f"{path}timeZone = {stated.time_zone!r}: it is that of renew, which is missing"
            )
        return None
    assert stated.renew is not None
    try:
        read = parse(stated.renew, stated.time_zone)
    except ScheduleError as error:
        field = "timeZone" if "time zone" in str(error) and stated.time_zone else "renew"
        value = stated.time_zone if field == "timeZone" else stated.renew
        raise ValueError(f"{path}{field} = {value!r}: {error}") from None
    if not isinstance(read, Cron) or read.next(0.0) is None:
        raise ValueError(
            f'{path}renew = {stated.renew!r}: a budget is renewed by the clock: five cron fields such as "0 0 1 * *", '
            f"@weekly, or {NEVER}"
        )
    return read


class Refused(msgspec.Struct, frozen=True):
    """What a party would need and has not."""

    name: str
    budget: float
    used: float
    promised: float
    asked: float
    """What the job may use until its end; infinite where that is not known, or does not count."""
    renewed: float

    def words(self, who: str) -> str:
        used = self._hours(self.used)
        text = f"{who} has used {used} of {_hours(self.name, self.budget)} {self.name} hours"
        if self.promised > 0:
            text += f", what runs may use {self._hours(self.promised)} more by its walltime"
        if math.isfinite(self.asked):
            text += f", and the job may use {_hours(self.name, self.asked)} by its own"
        if math.isfinite(self.asked) and self.asked > self.budget:
            return f"{text}, more than the whole budget"
        when = (
            "is never renewed"
            if math.isinf(self.renewed)
            else f"is renewed at {stamp(self.renewed)}"
        )
        return f"{text}; the budget {when}"

    def _hours(self, value: float) -> str:
        """Rounded down to a part of the budget."""
        grain = 10.0 ** math.floor(math.log10(GRAIN * self.budget)) if self.budget else 1.0
        return _hours(self.name, math.floor(value / grain + 1e-6) * grain)


def _hours(name: str, value: float) -> str:
    if name == MEMORY:
        return amount(name, value / HOUR)
    return f"{in_hours(name, value):.6g}"


def in_hours(name: str, value: float) -> float:
    """Hours of whole ones; of memory of bytes."""
    return value / HOUR / (1.0 if name == MEMORY else 1000.0)


class Ledger:
    """What is used of the budgets of one policy, in one cycle."""

    def __init__(
        self,
        spending: Spending,
        parties_of: Callable[[str], Iterable[str]],
        count_walltimes: bool,
    ) -> None:
        self.spending = spending
        self.parties_of = parties_of
        """Of a job, by its key."""
        self.count_walltimes = count_walltimes
        self.taken: dict[str, Amounts] = {}
        """What the pods that this cycle has placed may use, by party."""
        self._promised: Mapping[str, Amounts] | None = None

    def promised(self, party: str, name: str) -> float:
        """What those that run may still use."""
        if not self.count_walltimes:
            return 0.0
        if self._promised is None:
            self._promised = self.spending.promised(self.parties_of, self.spending.at)
        held = self._promised.get(party, {}).get(name, 0.0)
        return held + self.taken.get(party, {}).get(name, 0.0)

    def close(self) -> None:
        """What this cycle has placed is among those that run now."""
        self.taken.clear()
        self._promised = None

    def take(self, party: str, total: Amounts, seconds: float) -> None:
        """Pods of the party were placed that run so long; less than 0: they were not, after all."""
        taken = self.taken.setdefault(party, {})
        for name, value in total.items():
            taken[name] = taken.get(name, 0.0) + value * seconds

    def left(self, party: str, budget: Budget, name: str) -> float:
        used = self.spending.used.get(party, {}).get(name, 0.0)
        return budget.amounts[name] - used - self.promised(party, name)

    def count(
        self, budget: Budget, party: str, name: str, each: float, length: float, limit: int
    ) -> int:
        """How many pods may start that hold `each` for so many seconds; without a known length all
        or none."""
        left = self.left(party, budget, name)
        if not self.count_walltimes or math.isinf(length):
            return limit if left > LEAST else 0
        return min(limit, max(int((left + LEAST) // (each * length)), 0)) if length else limit

    def refused(
        self, budget: Budget, party: str, name: str, asked: float, length: float
    ) -> Refused | None:
        """Why a job may not start whose minimum holds `asked` for so many seconds."""
        if not asked or self.count(budget, party, name, asked, length, 1):
            return None
        return Refused(
            name,
            budget.amounts[name],
            self.spending.used.get(party, {}).get(name, 0.0),
            self.promised(party, name),
            self.need(budget, party, name, asked, length).amount,
            budget.period.end,
        )

    def need(self, budget: Budget, party: str, name: str, asked: float, length: float) -> Need:
        known = self.count_walltimes and math.isfinite(length)
        return Need(party, name, budget, asked * length if known else math.inf, asked)

    def plan(self, now: float) -> BudgetPlan:
        """For those that wait."""
        return BudgetPlan(now, self.left, self.spending, self.parties_of)


def written(spending: Spending) -> Json:
    """What is written down, which `restored` reads; the budgets are for `vcctl top`."""
    budgets: Json = {}
    for party, budget in sorted(spending.budgets.items()):
        budgets[party] = {"resources": dict(sorted(budget.amounts.items()))}
        if budget.period.end < math.inf:
            budgets[party]["renewed"] = stamp(budget.period.end)
    used = {
        party: dict(sorted(amounts.items())) for party, amounts in sorted(spending.used.items())
    }
    return {
        "lastCycle": stamp(spending.at),
        "by": spending.by,
        "used": used,
        "budgets": budgets,
    }


def restored(by: str, trees: Iterable[Tree]) -> Spending:
    """Go on from what was written down; what cannot be understood of it is left out."""
    found = Spending(by)
    for tree in trees:
        parties, at = tree.get("used"), instant(str(tree.get("lastCycle", "")))
        if tree.get("by") != by or not at or not isinstance(parties, Mapping):
            continue
        found.at = at
        for party, amounts in parties.items():
            kept = {
                str(name): float(used)
                for name, used in (amounts.items() if isinstance(amounts, Mapping) else ())
                if isinstance(used, int | float) and math.isfinite(used) and used > 0
            }
            if kept:
                found.used[str(party)] = kept
    return found
