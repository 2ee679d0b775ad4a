"""A token bucket: `qps` a second on average, `burst` at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class TokenBucket:
    def __init__(self, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.qps = qps
        self.burst = max(1, burst)
        self._clock = clock
        self._tokens = float(self.burst)
        self._at = clock()

    def try_take(self) -> bool:
        """Take a token if there is one; returns whether there was."""
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    async def take(self) -> None:
        """Take a token, waiting for it in the order of the calls."""
        self._fill()
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self.qps)

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self.burst), self._tokens + (now - self._at) * self.qps)
        self._at = now
