"""What a policy says of the limits of parties, and the same in the engine's units."""

from __future__ import annotations

import msgspec

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments
from hekla.engine.model import resources
from hekla.engine.model.queues.spending import Budget
from hekla.engine.model.resources import Amounts
from hekla.engine.plugins.fairness.budgets import BudgetArguments, Periods, UsageArguments

IDENTITIES = ("user", "namespace", "account")


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one party; what is absent is not limited."""

    submitted: int | None = None
    running: int | None = None
    resources: dict[str, str | int | float] = {}
    budget: BudgetArguments | None = None


class PartyLimitsArguments(Arguments, frozen=True):
    by: str = "user"
    submitted: int | None = None
    running: int | None = None
    resources: dict[str, str | int | float] = {}
    budget: BudgetArguments | None = None
    of: dict[str, Limits] = {}
    count_walltimes: bool = msgspec.field(default=True, name="countWalltimes")
    usage: UsageArguments = UsageArguments()

    @property
    def has_budgets(self) -> bool:
        return self.budget is not None or any(one.budget for one in self.of.values())

    def extended(self, rest: Tree) -> PartyLimitsArguments:
        if self.by not in IDENTITIES:
            raise ValueError(f"by = {self.by!r}: one of {', '.join(IDENTITIES)}")
        _check("", self)
        for party, limits in self.of.items():
            _check(f"of.{party}.", limits)
        if self.usage.seconds < 1:
            raise ValueError(f"usage.seconds = {self.usage.seconds}: a whole number from 1 up")
        read_limits(self)
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


class PartyLimit(msgspec.Struct, frozen=True):
    """Limits in the engine's units."""

    submitted: int | None
    running: int | None
    amounts: Amounts
    budget: Budget | None = None

    def over(self, usual: PartyLimit) -> PartyLimit:
        """These, and the usual ones where these say nothing."""
        return PartyLimit(
            usual.submitted if self.submitted is None else self.submitted,
            usual.running if self.running is None else self.running,
            {**usual.amounts, **self.amounts},
            usual.budget if self.budget is None else self.budget.over(usual.budget),
        )


def read_limits(
    arguments: PartyLimitsArguments,
) -> tuple[PartyLimit, dict[str, PartyLimit], Periods]:
    """The limits of everybody, and those that are stated by party.  Raises ValueError."""
    periods = Periods()
    usual = _read(arguments, periods.read("budget.", arguments.budget, None))
    stated = {
        party: _read(limits, periods.read(f"of.{party}.budget.", limits.budget, usual.budget))
        for party, limits in arguments.of.items()
    }
    return usual, stated, periods


def _read(limits: Limits | PartyLimitsArguments, budget: Budget | None) -> PartyLimit:
    found = resources.amounts(limits.resources)
    amounts = {name: found[name] for name in limits.resources}
    return PartyLimit(limits.submitted, limits.running, amounts, budget)
