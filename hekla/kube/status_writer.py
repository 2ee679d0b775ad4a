"""Writes that tell something and that nobody waits for: few on their way at a time, the newest of
each object.

A server that is slow makes a queue of whatever is sent at once, and what pods wait for, their
binds, would stand in it behind hundreds of reasons why they wait.  Here the rest stays at home,
where a newer text takes the place of an older one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

WIDTH = 2
"""Writes on their way: beside 64 creates or binds they are hardly felt, and a quick server answers
thousands a second."""

WIDER = 32
"""Waiting writes for each one more on its way: where a server stays slow, what waits may not wait
for ever."""

Write = Callable[[], asyncio.Task[None] | None]
"""Starts a write when its turn has come; None where there is nothing to tell any more."""


class StatusWriter:
    """For one event loop; `launch` starts a worker, which ends when nothing is left."""

    def __init__(
        self, launch: Callable[[Coroutine[Any, Any, None]], None], width: int = WIDTH
    ) -> None:
        self.launch = launch
        self.width = width
        self.writes: OrderedDict[str, Write] = OrderedDict()
        """By object, in the order in which the first write of each came."""
        self.workers = 0

    def put(self, name: str, write: Write) -> None:
        """In the place of an older write of the same object, else behind all others."""
        self.writes[name] = write
        if self.workers < self.room:
            self.workers += 1
            self.launch(self._work())

    @property
    def room(self) -> int:
        """How many may be on their way."""
        return self.width + len(self.writes) // WIDER

    def drop(self, name: str) -> None:
        """What was to be told of an object has been overtaken."""
        self.writes.pop(name, None)

    async def _work(self) -> None:
        try:
            while self.writes and self.workers <= self.room:
                _, write = self.writes.popitem(last=False)
                task = write()
                if task is not None:
                    await asyncio.wait([task])
        finally:
            self.workers -= 1
