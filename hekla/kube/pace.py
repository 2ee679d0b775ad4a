"""How long writes that nobody waits for may gather: the busier the server, the longer.

A status that changes several times while an object is on its way is worth one write, and how long
"on its way" takes depends on how busy everything is.  The time that answers take says that, whoever
else keeps the server at work; a fixed delay is too long for one and too short for the other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

WEIGHT = 1 / 16
"""Of the newest answer in the mean."""
ROUNDS = 40
"""Answers that gathering may last: an object is written about six times by three programs, and each
of them has many objects."""
QUIET = 0.01
"""Seconds that an answer may take without anything being busy."""


class Pace:
    """The mean time of answers, forgotten by half with each second of silence."""

    __slots__ = ("_at", "_clock", "_mean")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mean = 0.0
        self._at = 0.0

    def answered(self, began: float) -> None:
        """An answer has come to what was asked at `began` (of the clock), waiting for a connection
        included."""
        now = self._clock()
        self._mean += WEIGHT * (now - began - self._mean)
        self._at = now

    @property
    def answer(self) -> float:
        """Seconds that an answer takes at present."""
        return self._mean * math.exp2(self._at - self._clock())

    @property
    def busy(self) -> bool:
        """Whether what nobody waits for should wait."""
        return self.gather(0.0, 1.0) > 0.0

    def gather(self, shortest: float, longest: float) -> float:
        """Seconds for which to gather: `shortest` where nothing is busy, never more than `longest`."""
        answer = self.answer
        return (
            shortest
            if answer <= QUIET
            else min(max(shortest, ROUNDS * answer), max(shortest, longest))
        )
