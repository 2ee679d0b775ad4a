"""Jobs whose binds the API server refuses stand back for a while, so that they do not take every
cycle's room from the others.

The first refusal costs a second, each further one twice as much, at most a minute; a pod of the job
that was bound forgets it all.
"""

from __future__ import annotations

from typing import NamedTuple

FIRST = 1.0
LONGEST = 60.0
MOST_DOUBLINGS = 10
"""Of the first second: a float has no room for a thousand of them."""


class Wait(NamedTuple):
    """One job that stands back."""

    until: float
    """Seconds since 1970."""
    failures: int
    at: float
    """When it began."""


class BackOff:
    """Who stands back, by the job's key."""

    def __init__(self) -> None:
        self.waits: dict[str, Wait] = {}

    def failed(self, job: str, now: float) -> None:
        """A bind of the job was refused.  The binds of one gang fail together and count once."""
        known = self.waits.get(job)
        if known is not None and now < known.until:
            return
        failures = known.failures + 1 if known is not None else 1
        seconds = min(FIRST * 2.0 ** min(failures - 1, MOST_DOUBLINGS), LONGEST)
        self.waits[job] = Wait(now + seconds, failures, now)

    def succeeded(self, job: str) -> None:
        self.waits.pop(job, None)

    def left(self, job: str, now: float) -> float:
        """Seconds for which the job still stands back; 0 for most."""
        known = self.waits.get(job)
        return 0.0 if known is None else max(0.0, known.until - now)

    def any(self, now: float) -> bool:
        """Whether time alone will let somebody come again."""
        return any(one.until >= now for one in self.waits.values())
