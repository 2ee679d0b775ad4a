"""Work that runs beside what its starter does: nobody waits for it, so it says itself when it has
failed, and it ends with its starter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("agent")


class BackgroundTasks:
    """The tasks of one starter; they are kept here, because asyncio keeps no task for whom nobody
    waits."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def cancel(self, *others: asyncio.Task[None]) -> None:
        """Ends them, and others with them; returns when they have ended."""
        tasks = [*self.tasks, *others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
