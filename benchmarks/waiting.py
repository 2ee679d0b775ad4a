"""Waiting for what a cluster comes to, and no longer than it may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(
    what: str, look: Callable[[], Awaitable[bool]], patience: float = 60.0, every: float = 0.1
) -> None:
    """Until it is so, by a look every so many seconds.  Raises TimeoutError."""
    deadline = time.monotonic() + patience
    while not await look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience:.0f} s: {what}")
        await asyncio.sleep(every)
