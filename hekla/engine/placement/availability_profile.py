"""How much room each node has from moment to moment: as those that run leave, and as those that wait
have been given a time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hekla.engine.model.resources import EPSILON, Floats
from hekla.engine.model.time.reservations import Reservations
from hekla.engine.model.time.walltimes import SOON
from hekla.engine.placement.backfill_reservation import Part, fits, taken, unreserved
from hekla.engine.placement.releases import NEVER, Releases, coarse
from hekla.engine.placement.room_counts import MANY

SMALL = 1 << 14
"""Amounts of a table that are looked at together."""
OVERDUE = 1.0
"""Seconds from now at which what should have ended is taken to end."""


@dataclass(slots=True)
class Span:
    """Room on chosen nodes for a time."""

    start: float
    end: float
    held: Floats
    """`[resources, nodes]`."""


class AvailabilityProfile:
    """`room[k]`, `[resources, nodes]`, is free from `times[k]` until the next; the last for ever."""

    def __init__(self, now: float, releases: Releases, room: Floats) -> None:
        gone = np.flatnonzero(releases.ends < NEVER)
        ends = np.where(releases.ends[gone] <= now + SOON, now + OVERDUE, releases.later[gone])
        moments, places = np.unique(ends, return_inverse=True)
        self.times: list[float] = [now, *moments.tolist()]
        self.room: list[Floats] = [room.copy()]
        order = np.argsort(places, kind="stable")
        bounds = np.searchsorted(places[order], np.arange(len(moments) + 1)).tolist()
        width, count = min(room.shape[0], releases.amounts.shape[1]), room.shape[1]
        for number in range(len(moments)):
            which = gone[order[bounds[number] : bounds[number + 1]]]
            after = self.room[-1].copy()
            for resource in range(width):
                amounts = releases.amounts[which, resource]
                if amounts.any():
                    after[resource] += np.bincount(
                        releases.rows[which], weights=amounts, minlength=count
                    )
            self.room.append(after)

    def hold(self, span: Span) -> None:
        """Others have less room meanwhile."""
        for at in self._places(span):
            self.room[at] -= span.held

    def free(self, span: Span) -> None:
        """The opposite of `hold`."""
        for at in self._places(span):
            self.room[at] += span.held

    def holds(self, span: Span) -> bool:
        """Whether there is room for the span."""
        if span.start < self.times[0] - SOON:
            return False
        some = span.held > 0
        least = self._least(self._at(span.start), span.end)
        return bool((least[some] >= span.held[some] - EPSILON).all())

    def through(self, length: float) -> Floats:
        """`[resources, nodes]`: what is free from now on for so long."""
        return self._least(0, coarse(self.times[0] + length, length))

    def split_at(self, moments: Iterable[float]) -> None:
        """Spans may begin at these moments too."""
        for moment in moments:
            self._split(moment)

    def earliest(
        self, parts: Sequence[Part], length: float, reserved: Reservations | None = None
    ) -> Span | None:
        """The first moment from which the parts have room for so long, and their nodes; None where
        there is none."""
        enough = self._enough(parts)
        at = 0
        while at < len(self.times):
            end = coarse(self.times[at] + length, length)
            last = self._after(end)
            # Where a moment by itself has too little room, none before it will do either.
            lacking = next((one for one in range(last - 1, at - 1, -1) if not enough(one)), None)
            if lacking is not None:
                at = lacking + 1
                continue
            least = self._least(at, end)
            allowed = unreserved(parts, reserved, self.times[at])
            held = taken(allowed, least, self.room[0]) if fits(allowed, least) else None
            if held is not None:
                return Span(self.times[at], end, held)
            at += 1
        return None

    def _enough(self, parts: Sequence[Part]) -> Callable[[int], bool]:
        """Whether the parts have room at a place: asked one by one, or of all places at once where
        they are small."""
        if len(parts) == 1 and self.room[0].size * len(self.room) <= SMALL:
            (part,) = parts
            room = np.stack(self.room)
            most: Floats = np.full((len(room), room.shape[2]), MANY)
            for column, value in part.request:
                if value > 0:
                    np.minimum(most, (room[:, column] + EPSILON) / value, out=most)
            whole = (np.floor(np.maximum(most, 0.0)) * part.mask).sum(axis=1) >= part.tasks
            known: list[bool] = whole.tolist()
            return known.__getitem__
        return cache(lambda at: fits(parts, self.room[at]))

    def _least(self, at: int, end: float) -> Floats:
        least = self.room[at].copy()
        for later in range(at + 1, self._after(end)):
            np.minimum(least, self.room[later], out=least)
        return least

    def _after(self, end: float) -> int:
        """The first place that begins at this moment or later; at least 1."""
        return len(self.times) if math.isinf(end) else max(bisect_left(self.times, end - SOON), 1)

    def _at(self, moment: float) -> int:
        """The place in which a moment lies."""
        return max(bisect_left(self.times, moment + SOON) - 1, 0)

    def _split(self, moment: float) -> int:
        """The place that begins at a moment, made where there is none."""
        at = self._at(moment)
        if abs(self.times[at] - moment) <= SOON:
            return at
        self.times.insert(at + 1, moment)
        self.room.insert(at + 1, self.room[at].copy())
        return at + 1

    def _places(self, span: Span) -> range:
        first = self._split(max(span.start, self.times[0]))
        last = len(self.times) if math.isinf(span.end) else self._split(span.end)
        return range(first, last)
