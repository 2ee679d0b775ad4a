"""When jobs that wait for a budget may start: at which renewal it is enough for each, after those
before it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NamedTuple

from hekla.engine.model.queues.spending import Budget, Period, Spending
from hekla.engine.model.resources import Amounts

MOST_RENEWALS = 60
"""So many are foreseen."""
AT_ONCE = 64
"""Jobs that are looked at between two pauses."""
LEAST = 1.0
"""A thousandth of a resource for a second: what is less is nothing."""


class Need(NamedTuple):
    """What a job takes of one budget."""

    party: str
    name: str
    budget: Budget
    amount: float
    """Amount times seconds until its end; infinite where that is not known."""
    held: float


class Waiting(NamedTuple):
    """A job that waits for budgets."""

    key: str
    needs: list[Need]
    length: float
    """Seconds that it runs; infinite where that is not known."""


class BudgetPlan:
    """What is left of budgets from now on, if everybody runs as long as he says.

    What jobs without a walltime use is not known: who would start behind one waits for the next
    renewal.
    """

    def __init__(
        self,
        now: float,
        left: Callable[[str, Budget, str], float],
        spending: Spending,
        parties_of: Callable[[str], Iterable[str]],
    ) -> None:
        self.now = now
        self._left_now = left
        self._spending = spending
        self._parties_of = parties_of
        self._promised: dict[float, Mapping[str, Amounts]] = {}
        """Renewal -> what those that run now may still use then."""
        self._left: dict[tuple[str, str, float], float] = {}
        """Party, resource and renewal (or now) -> what is left."""
        self._ahead: dict[Period, list[float]] = {}
        """The renewals to come, as far as anybody asked."""

    def begins(self, jobs: Iterable[Waiting]) -> Generator[None, None, dict[str, float]]:
        """By job, the renewal (or now) at which there is enough for it, as they have their turns at
        each; those for which there never is are left out.  It pauses now and then."""
        found: dict[str, float] = {}
        waiting = [job for job in jobs if all(map(_ever_enough, job.needs))]
        periods = {need.budget.period for job in waiting for need in job.needs}
        moment = self.now
        for _ in range(MOST_RENEWALS):
            rest: list[Waiting] = []
            for number, job in enumerate(waiting):
                if number % AT_ONCE == AT_ONCE - 1:
                    yield
                if all(self._enough(need, moment) for need in job.needs):
                    found[job.key] = moment
                    for need in job.needs:
                        self._take(need, moment, job.length)
                else:
                    rest.append(job)
            waiting = rest
            moment = min((self._after(one, moment) for one in periods), default=math.inf)
            if not waiting or moment == math.inf:
                break
        return found

    def _enough(self, need: Need, moment: float) -> bool:
        left = self._left_at(need, self._begin(need.budget.period, moment))
        return left > LEAST if need.amount == math.inf else left + LEAST >= need.amount

    def _take(self, need: Need, moment: float, length: float) -> None:
        party, name, period = need.party, need.name, need.budget.period
        begin = self._begin(period, moment)
        self._left[party, name, begin] = self._left_at(need, begin) - need.amount
        for _ in range(MOST_RENEWALS):  # It holds what it has over the next renewals.
            begin = self._after(period, begin)
            if not begin < moment + length < math.inf:
                return
            more = need.held * (moment + length - begin)
            self._left[party, name, begin] = self._left_at(need, begin) - more

    def _left_at(self, need: Need, begin: float) -> float:
        """What is left from a renewal on, or from now."""
        known = self._left.get((need.party, need.name, begin))
        if known is not None:
            return known
        if begin == self.now:
            return self._left_now(need.party, need.budget, need.name)
        if begin not in self._promised:
            self._promised[begin] = self._spending.promised(self._parties_of, begin)
        promised = self._promised[begin].get(need.party, {}).get(need.name, 0.0)
        return need.budget.amounts[need.name] - promised

    # --------------------------------------------------------------------------------------- renewals

    def _after(self, period: Period, moment: float) -> float:
        """The next renewal after a moment."""
        ahead = self._ahead.setdefault(period, [])
        while not ahead or ahead[-1] <= moment:
            ahead.append(period.after(ahead[-1] if ahead else self.now))
        return ahead[bisect_right(ahead, moment)]

    def _begin(self, period: Period, moment: float) -> float:
        """The last renewal up to a moment; now where there is none."""
        self._after(period, moment)
        at = bisect_right(self._ahead[period], moment)
        return self.now if not at else self._ahead[period][at - 1]


def _ever_enough(need: Need) -> bool:
    return need.amount == math.inf or need.amount <= need.budget.amounts[need.name]
