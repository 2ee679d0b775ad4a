"""Status writes that nobody waits for: few in flight at a time, the newest one of each object.

A slow server queues everything that is sent at once, and urgent writes, such as binds, would wait
behind hundreds of status messages.  So the messages wait here, where a newer one replaces an older
one of the same object.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

WIDTH = 2
"""Writes in flight: few beside 64 creates or binds, and enough for thousands a second on a quick
server."""

WIDER = 32
"""So many waiting writes allow one more in flight, so that none waits for ever on a slow server."""

Write = Callable[[], asyncio.Task[None] | None]
"""Starts a write in its turn; returns None if it is no longer needed."""


class StatusWriter:
    """Writes the newest status of each object in turn.  For one event loop.

    `launch` starts a worker, which ends when no write is left.
    """

    def __init__(
        self, launch: Callable[[Coroutine[Any, Any, None]], None], width: int = WIDTH
    ) -> None:
        self.launch = launch
        self.width = width
        self.writes: OrderedDict[str, Write] = OrderedDict()
        """Object -> its newest write, in the order of each object's first one."""
        self.workers = 0

    def put(self, name: str, write: Write) -> None:
        """Queue a write, in the place of an older one of the same object if there is one."""
        self.writes[name] = write
        if self.workers < self.room:
            self.workers += 1
            self.launch(self._work())

    @property
    def room(self) -> int:
        """How many writes may be in flight."""
        return self.width + len(self.writes) // WIDER

    def drop(self, name: str) -> None:
        """Remove the waiting write of an object, if there is one."""
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
