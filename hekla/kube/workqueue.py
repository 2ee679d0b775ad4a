"""A queue of keys for controllers.  A key is in the queue at most once, and one worker at most has
it.

A key that is added while a worker has it is queued again when that worker is done.  So no two
workers ever reconcile the same object, and a hundred events for one object cost one reconcile.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable

BASE_DELAY = 0.005
TOGETHER = 0.005
"""Least seconds between two timers: of hundreds of keys a second, those of a few milliseconds are
queued together."""
ROUNDING = 0.0005
"""Seconds before its time at which a key counts as due: timers have whole milliseconds, and one
that fires too early would fire again at once, many times."""
LONGEST_DELAY = 60.0
"""Longest back-off in seconds.  client-go has 1000 s; here a failing key is tried once a minute."""


class ShutDown(Exception):
    """The queue is closed and empty."""


class Delays:
    """Keys that become due after a delay, each once: of several delays of a key the earliest
    counts. For one event loop."""

    def __init__(self, fall_due: Callable[[str], None]) -> None:
        self._fall_due = fall_due
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = self._not_before = 0.0

    def after(self, key: str, seconds: float) -> None:
        """Make the key due in so many seconds."""
        due = asyncio.get_running_loop().time() + seconds
        known = self._due.get(key)
        if known is not None and known <= due + TOGETHER:
            return  # equal delays that are set in one step of the loop differ by microseconds
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        self._set_timer()

    def close(self) -> None:
        """Cancel all delays."""
        if self._timer is not None:
            self._timer.cancel()

    def __len__(self) -> int:
        return len(self._due)

    def _set_timer(self) -> None:
        at = max(self._heap[0][0], self._not_before)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._not_before = now + TOGETHER
        while self._heap and self._heap[0][0] <= now + ROUNDING:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:  # else the key has become due earlier
                del self._due[key]
                self._fall_due(key)
        if self._heap:
            self._set_timer()


class WorkQueue:
    """Keyed, deduplicating, delaying and rate limited.  For one event loop; not thread safe."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._ready: deque[str] = deque()
        self._urgent: deque[str] = deque()
        """Ready too, before all of those."""
        self._wanted: set[str] = set()
        """Keys that are ready, and keys that were added again while a worker has them."""
        self._working: set[str] = set()
        self._failures: dict[str, int] = {}
        self._delays = Delays(self.add)
        self._other_delays: list[Delays] = []
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.added = 0

    def add(self, key: str, *, urgent: bool = False) -> None:
        """Queue the key for the next free worker; with `urgent`, before all keys that are not.

        `urgent` is for objects that others wait for: while new objects come faster than workers
        take them, an object that is half done would wait behind them all.  A key that is queued
        already keeps its place.
        """
        if self._closed or key in self._wanted:
            return
        self._wanted.add(key)
        self.added += 1
        if key not in self._working:
            (self._urgent if urgent else self._ready).append(key)
            self._wake()

    def add_after(self, key: str, seconds: float) -> None:
        """Queue the key in so many seconds; of several delays of a key the earliest counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        self._delays.after(key, seconds)

    def delays_for(self, fall_due: Callable[[str], None]) -> Delays:
        """Delays after which `fall_due` is called with the key, instead of queueing it.  They end
        with the queue."""
        self._other_delays.append(Delays(fall_due))
        return self._other_delays[-1]

    def add_rate_limited(self, key: str) -> float:
        """Queue the key again after a failure: in 5 ms, 10 ms, 20 ms, ... until `forget`.  Returns
        the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(LONGEST_DELAY, BASE_DELAY * 2.0 ** min(failures, 60))
        self.add_after(key, delay)
        return delay

    def forget(self, key: str) -> None:
        """Reset the failures of a key, after a success."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """How often the key has failed in a row."""
        return self._failures.get(key, 0)

    async def get(self) -> str:
        """Wait for the next key; the worker has it until `done`.  Raises ShutDown when the queue is
        closed and empty."""
        while not (self._urgent or self._ready):
            if self._closed:
                raise ShutDown(self.name)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and len(self):
                    self._wake()  # another worker takes the key
                raise
        key = (self._urgent or self._ready).popleft()
        self._wanted.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """The worker no longer has the key; it is queued again if it was added meanwhile."""
        self._working.discard(key)
        if key in self._wanted:
            self._ready.append(key)
            self._wake()

    def close(self) -> None:
        """Accept no more keys; `get` returns the ready ones, then raises ShutDown."""
        self._closed = True
        for delays in (self._delays, *self._other_delays):
            delays.close()
        while self._waiters:
            self._wake()

    def __len__(self) -> int:
        """Number of ready keys."""
        return len(self._urgent) + len(self._ready)

    @property
    def delayed(self) -> int:
        """Number of delayed keys."""
        return len(self._delays)

    @property
    def idle(self) -> bool:
        """Whether no key is ready and no worker has one; delayed keys do not count."""
        return not self._urgent and not self._ready and not self._working

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
