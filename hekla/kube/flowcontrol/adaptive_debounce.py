"""How long to collect writes that nobody waits for: the busier the server, the longer.

A status that changes several times while its object makes progress is worth one write, and how fast
objects make progress depends on the load of the whole cluster.  The server's response time shows
that load, whoever causes it; a fixed delay would be too long on an idle server and too short on a
busy one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

WEIGHT = 1 / 16
"""Weight of the newest response in the mean."""
ROUNDS = 40
"""Responses that a delay may last: an object is written about six times by three programs, and each
of them has many objects."""
QUIET = 0.01
"""Seconds that a response takes on a server that is not busy."""


class AdaptiveDebounce:
    """A client's mean response time, and the delays that follow from it.  The mean halves with each
    second in which nothing is asked."""

    __slots__ = ("_at", "_clock", "_mean")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mean = 0.0
        self._at = 0.0

    def observe(self, began: float) -> None:
        """Take in a response that has just come to a request of time `began` (by the clock);
        waiting for a connection is part of its time."""
        now = self._clock()
        self._mean += WEIGHT * (now - began - self._mean)
        self._at = now

    @property
    def response_time(self) -> float:
        """Seconds that a response takes at present."""
        return self._mean * math.exp2(self._at - self._clock())

    @property
    def busy(self) -> bool:
        """Whether writes that nobody waits for should wait."""
        return self.delay(0.0, 1.0) > 0.0

    def delay(self, shortest: float, longest: float) -> float:
        """Seconds for which to collect changes before they are written: `shortest` where the server
        is not busy, never more than `longest`."""
        response_time = self.response_time
        return (
            shortest
            if response_time <= QUIET
            else min(max(shortest, ROUNDS * response_time), max(shortest, longest))
        )
