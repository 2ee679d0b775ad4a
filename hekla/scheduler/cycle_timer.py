"""When the next cycle of the scheduler starts: soon after a change, not once for each of many.

Much of a cycle costs the same for one pod as for a hundred, so the changes of a burst are gathered.
A change that comes alone after a pause has nothing to be gathered with.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce

GATHER, LONGEST_GATHER = 0.003, 0.025
"""Seconds between the first change and the cycle that it starts, so that a burst of events makes
one cycle; longer on a busy server."""
PAUSE = 0.1
"""Seconds without a change after which the next change starts its cycle at once.  If it is the
first of a burst after all, that burst makes one cycle more."""
SHORTEST_REST = 0.005
"""Least seconds between two cycles; after a longer cycle the rest is as long as the cycle."""


class CycleTimer:
    """Waits for the next cycle.  `changed` is set with every change, and cleared by the cycle."""

    def __init__(
        self,
        changed: asyncio.Event,
        debounce: AdaptiveDebounce,
        period: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = changed
        self.debounce = debounce
        self.period = period
        """The longest time between two cycles, in seconds."""
        self.clock = clock
        self.last_change = -math.inf

    async def next_cycle(self, took: float, due: float = math.inf) -> None:
        """Wait for a change and for those that come with it, or for the end of the period.  `took`:
        seconds of the last cycle; `due`: seconds after which a cycle has something to decide,
        changes or none."""
        rest = max(SHORTEST_REST, took)
        await asyncio.sleep(rest)
        try:
            # Not wait_for: until Python 3.12 it loses a cancellation that comes together with the
            # change.
            async with asyncio.timeout(min(self.period, max(due - rest, 0.0))):
                await self.changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self.gathering())

    def gathering(self) -> float:
        """Seconds to wait for what comes with a change that has just been seen."""
        now = self.clock()
        alone = now - self.last_change >= PAUSE
        self.last_change = now
        return self.debounce.delay(0.0 if alone else GATHER, LONGEST_GATHER)
