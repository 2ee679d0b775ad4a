"""What each party has at once: jobs that were let in, jobs that run, and amounts of resources.

Counted from change to change, so a cycle costs what changed.  A party is a path: what a user has
counts for the accounts above as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from hekla.engine.model.queues.changedjobs import ChangedJobs
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import FINISHED, NOT_LET_IN, Job, Status


class Part(NamedTuple):
    """What one job adds to its parties."""

    parties: tuple[str, ...]
    runs: bool
    """Whether it holds room."""
    amounts: tuple[tuple[str, float], ...]


class PartyCounts:
    """Sums by party."""

    def __init__(self) -> None:
        self.submitted: dict[str, int] = {}
        """Jobs that were let in and have not ended."""
        self.running: dict[str, int] = {}
        self.held: dict[str, Amounts] = {}
        self.parts: dict[str, Part] = {}
        """By the job's key."""
        self.changed = ChangedJobs(self.parts)

    def look_again(
        self, jobs: Mapping[str, Job], parties_of: Callable[[Job], tuple[str, ...]]
    ) -> None:
        """Look at the jobs that changed; `jobs` are all that there are."""
        for job, there in self.changed.take(jobs):
            self.look(job.key, part_of(job, parties_of(job)) if there else None)

    def look(self, key: str, part: Part | None) -> None:
        """The job of this key adds this from now on."""
        old = self.parts.pop(key, None)
        if old is not None:
            self._add(old, -1)
        if part is not None:
            self._add(part, 1)
            self.parts[key] = part

    def runs(self, job: Job) -> bool:
        part = self.parts.get(job.key)
        return part is not None and part.runs

    def _add(self, part: Part, sign: int) -> None:
        for party in part.parties:
            self.submitted[party] = self.submitted.get(party, 0) + sign
            self.running[party] = self.running.get(party, 0) + sign * part.runs
            held = self.held.setdefault(party, {})
            for name, amount in part.amounts:
                held[name] = held.get(name, 0.0) + sign * amount
            if not self.submitted[party]:
                del self.submitted[party], self.running[party], self.held[party]


def part_of(job: Job, parties: tuple[str, ...]) -> Part | None:
    """What the job adds; None where it is yet to be let in, or all of it has ended.  Pods that are on
    their way out still hold what they have."""
    statuses = job.counts.statuses
    ended = sum(len(statuses[status]) for status in FINISHED)
    if job.phase in NOT_LET_IN or (job.tasks and ended == len(job.tasks)):
        return None
    amounts: Amounts = {}
    runs = False
    for status in (Status.BINDING, Status.BOUND, Status.RUNNING, Status.RELEASING):
        for task in statuses[status].values():
            runs = True
            for name, amount in task.request.amounts.items():
                if amount:
                    amounts[name] = amounts.get(name, 0.0) + amount
    return Part(parties, runs, tuple(sorted(amounts.items())))
