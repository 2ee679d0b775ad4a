"""How many requests may be in flight: never more than help.

What a server cannot work on at once it queues, and everybody's requests wait in that queue: more in
flight makes no request come back sooner, only those of others later.  Where that begins depends on
the server and on who else asks, and the response times show it.  So the limit falls by a part while
they are long and grows by steps while they are short and it is in the way, as a TCP connection finds
its share of a network (additive increase, multiplicative decrease).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

LEAST = 6
"""Requests that may be in flight however slow the server is: others who do not give way shall not
take everything."""
QUICK = 0.03
"""Seconds of a response that is not too slow on any server."""
PATIENCE = 3.0
"""Responses that take so many times as long as the quickest are too slow: a server that is far away,
or waits long for its disk, is not taken for a busy one."""
FORGOTTEN = 600.0
"""Seconds after which the quickest responses are looked for anew."""
ROUND = 8
"""Responses that decide together, or as many as may be in flight if that is more."""
LESS, MORE = 3 / 4, 1 / 8
"""What is left of the limit after a slow round; what a quick one adds, in parts of the limit."""


class ConcurrencyLimit:
    """Lets requests of one client pass, `most` at a time or fewer, the first first.

    `enter` before a request is sent, `leave` when it has ended, `observe` each write's response.
    For one event loop.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.allowed = most
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._clock = clock
        self._quickest = self._found_at = 0.0
        """Seconds of the quickest response, and when it came; 0.0 before the first."""
        self._begun = 0.0
        """Requests sent before are of earlier rounds: the limit was another one."""
        self._seconds = 0.0
        self._responses = 0
        self._in_the_way = False
        """Whether a request of this round has had to wait."""

    async def enter(self) -> None:
        """Wait until one more request may be sent."""
        if self.in_flight < self.allowed and not self._waiting:
            self.in_flight += 1
            return
        self._in_the_way = True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # its turn has just come
            raise

    def leave(self) -> None:
        """A request has ended, one way or another."""
        self.in_flight -= 1
        self._let_in()

    def observe(self, sent: float) -> None:
        """Take in a response that has just come to a write that was sent then (by the clock).  Reads
        do not wait for a disk, and the server may give more or less of itself for each."""
        now = self._clock()
        seconds = now - sent
        if not self._quickest or seconds < self._quickest or now - self._found_at > FORGOTTEN:
            self._quickest, self._found_at = seconds, now
        if sent < self._begun:
            return
        self._seconds += seconds
        self._responses += 1
        if self._responses >= max(ROUND, self.allowed):
            self._end_round(self._seconds / self._responses)

    def refused(self) -> None:
        """The server has answered that too much is asked of it (429)."""
        self._set(self.allowed * LESS)

    def _end_round(self, seconds: float) -> None:
        if seconds > max(QUICK, PATIENCE * self._quickest):
            self._set(self.allowed * LESS)
        else:
            self._set(self.allowed * (1 + MORE) + 1 if self._in_the_way else self.allowed)

    def _set(self, allowed: float) -> None:
        """Begin a round with so many requests."""
        self.allowed = min(self.most, max(LEAST, int(allowed)))
        self._begun = self._clock()
        self._seconds = 0.0
        self._responses = 0
        self._in_the_way = bool(self._waiting)
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self.in_flight < self.allowed:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.in_flight += 1
                waiter.set_result(None)
