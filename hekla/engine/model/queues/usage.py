"""What parties have used of a queue's resource, older use counting for less.

A use counts half after each half-life.  Between two changes what a party holds is constant, so its
part is a formula and no sum over cycles: how often cycles run makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hekla.engine.model.queues.changedjobs import ChangedJobs
from hekla.engine.model.tasks import Job, Status

LEAST = 0.01
"""What is less is forgotten."""


class Holding(NamedTuple):
    """What one job holds of its queue's resource."""

    queue: str
    party: str
    amount: float


class Usage:
    """Amounts times seconds by queue and party, in the units of `Amounts`."""

    def __init__(self) -> None:
        self.at = 0.0
        """Seconds since 1970 up to which it is counted; 0 before the first cycle."""
        self.used: dict[str, dict[str, float]] = {}
        self.held: dict[str, dict[str, float]] = {}
        self.holdings: dict[str, Holding] = {}
        """By the job's key."""
        self.changed = ChangedJobs(self.holdings)
        self.version = 0
        """Another one whenever there is more to write down than time has passed."""

    def restore(self, at: float, used: Mapping[str, Mapping[str, float]]) -> None:
        """Go on from what was written down."""
        self.at = at
        self.used = {queue: dict(parties) for queue, parties in used.items()}

    def advance(self, now: float, half_life: float) -> None:
        """Count up to now what is held.  With an endless half-life nothing is forgotten."""
        elapsed = now - self.at if self.at else 0.0
        if elapsed > 0:
            left = 2.0 ** (-elapsed / half_life)
            for queue, parties in list(self.used.items()):
                kept = {party: one * left for party, one in parties.items() if one * left >= LEAST}
                if kept:
                    self.used[queue] = kept
                else:
                    del self.used[queue]
            endless = math.isinf(half_life)
            seconds = elapsed if endless else half_life / math.log(2.0) * (1.0 - left)
            for queue, parties in self.held.items():
                used = self.used.setdefault(queue, {}) if parties else {}
                for party, amount in parties.items():
                    used[party] = used.get(party, 0.0) + amount * seconds
        self.at = max(self.at, now)

    def look(self, job: Job, holding: Holding | None) -> None:
        """The job holds this from now on."""
        old = self.holdings.get(job.key)
        if old == holding:
            return
        if old is not None:
            self._add(old, -old.amount)
            del self.holdings[job.key]
        if holding is not None:
            self._add(holding, holding.amount)
            self.holdings[job.key] = holding
        self.version += 1

    def look_again(
        self, jobs: Mapping[str, Job], holding_of: Callable[[Job], Holding | None]
    ) -> None:
        """Look at the jobs that changed; `jobs` are all that there are."""
        for job, there in self.changed.take(jobs):
            self.look(job, holding_of(job) if there else None)

    def _add(self, holding: Holding, amount: float) -> None:
        parties = self.held.setdefault(holding.queue, {})
        left = parties.get(holding.party, 0.0) + amount
        if left:
            parties[holding.party] = left
        else:
            parties.pop(holding.party, None)


def amount_held(job: Job, resource: str) -> float:
    """What the job's pods hold of a resource, those left out that a cycle has only tried."""
    held = job.allocated.get(resource, 0.0)
    tried = job.counts.statuses[Status.ALLOCATED]
    if tried:
        held -= sum(task.request.amounts.get(resource, 0.0) for task in tried.values())
    return held


def amount_asked(job: Job, resource: str) -> float:
    """What its waiting pods ask for."""
    return sum(task.request.amounts.get(resource, 0.0) for task in job.pending())
