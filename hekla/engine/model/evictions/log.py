"""The evictions of the last while: how many there were, and who takes room from whom again and
again.

`transfers` ends evictions as long as nothing outside changes.  On a busy cluster something changes
all the time, and then two parties may take the same room from each other as often as that.  So the
log looks at the clock instead: a circle that closes three times within a window is named, and for
as long again nobody in it takes from another of it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from hekla.engine.model.tasks import Job

MOST_ROUNDS = 3
"""How often a circle closes before those in it stand back."""
MOST_KEPT = 10_000
"""Evictions that are remembered, whatever the windows are."""


class Eviction(NamedTuple):
    """One decided eviction."""

    at: float
    """Seconds since 1970."""
    queue: str
    """Of the victim."""
    taker: str
    """The party for which it was evicted; empty where nobody in particular gets the room."""
    victim: str
    """The party that lost it."""


class Circle(NamedTuple):
    """Parties that took room from each other, and until when they leave each other alone."""

    parties: tuple[str, ...]
    until: float


def parties_of(preemptor: Job, victim: Job) -> tuple[str, str]:
    """Who takes from whom: queues where they are two, else jobs."""
    if preemptor.queue != victim.queue:
        return f"queue {preemptor.queue}", f"queue {victim.queue}"
    return f"job {preemptor.lineage}", f"job {victim.lineage}"


class EvictionLog:
    """Kept with the state, so that it outlives a change of the policy."""

    def __init__(self) -> None:
        self.kept: deque[Eviction] = deque(maxlen=MOST_KEPT)
        self.closed: dict[frozenset[str], list[float]] = {}
        """Circle -> when it closed."""
        self.apart: dict[tuple[str, str], float] = {}
        """Taker and victim -> until when the one leaves the other alone."""

    def forget_before(self, moment: float) -> None:
        """Drop what no window reaches back to."""
        kept = self.kept
        while kept and kept[0].at < moment:
            kept.popleft()
        if self.closed:
            self.closed = {
                circle: still
                for circle, times in self.closed.items()
                if (still := [at for at in times if at >= moment])
            }

    def count(self, since: float) -> tuple[int, dict[str, int]]:
        """Evictions after a moment: all, and by the victim's queue."""
        total, by_queue = 0, dict[str, int]()
        for one in reversed(self.kept):
            if one.at <= since:
                break
            total += 1
            by_queue[one.queue] = by_queue.get(one.queue, 0) + 1
        return total, by_queue

    def note(self, now: float, victim: Job, preemptor: Job | None, window: float) -> Circle | None:
        """A pod of `victim` is to be evicted.  Gives the circle that this closes once too often
        within so many seconds; a window of 0 looks for none."""
        taker, loser = "", f"job {victim.lineage}"
        if preemptor is not None and preemptor.lineage != victim.lineage:
            taker, loser = parties_of(preemptor, victim)
        circle = self._circle(taker, loser, now - window) if taker and window else ()
        self.kept.append(Eviction(now, victim.queue, taker, loser))
        if not circle:
            return None
        key = frozenset(circle)
        times = [at for at in self.closed.get(key, ()) if at > now - window]
        if now not in times:  # the victims of one cycle close it once
            times.append(now)
        self.closed[key] = times
        if len(times) < MOST_ROUNDS:
            return None
        del self.closed[key]
        until = now + window
        for one in circle:
            for other in circle:
                if one != other:
                    self.apart[one, other] = until
        return Circle(tuple(sorted(circle)), until)

    def apart_until(self, preemptor: Job, victim: Job, now: float) -> float:
        """Until when the one takes nothing from the other; 0 where it may."""
        if not self.apart:
            return 0.0
        until = self.apart.get(parties_of(preemptor, victim), 0.0)
        return until if until > now else 0.0

    def held_apart(self, preemptor: Job, now: float) -> tuple[str, ...]:
        """The parties from which a job takes nothing at present."""
        if not self.apart:
            return ()
        self.apart = {pair: until for pair, until in self.apart.items() if until > now}
        mine = f"queue {preemptor.queue}", f"job {preemptor.lineage}"
        return tuple(sorted(victim for taker, victim in self.apart if taker in mine))

    def _circle(self, taker: str, victim: str, since: float) -> tuple[str, ...]:
        """The parties on the way by which `victim` took from `taker` before, itself or through
        others; empty where there is none."""
        took: dict[str, dict[str, None]] = {}
        for one in self.kept:
            if one.taker and one.at > since:
                took.setdefault(one.taker, {})[one.victim] = None
        came_from: dict[str, str] = {victim: ""}
        left = deque([victim])
        while left:
            here = left.popleft()
            if here == taker:
                way = []
                while here:
                    way.append(here)
                    here = came_from[here]
                return tuple(way)
            for party in took.get(here, ()):
                if party not in came_from:
                    came_from[party] = here
                    left.append(party)
        return ()
