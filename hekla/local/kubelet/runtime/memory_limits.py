"""Enforces memory limits where no control group does: checks, twice a second, the containers that
have a limit.

A runaway is noticed a little late, but it does not take the machine down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from hekla.local.kubelet.runtime.runtime import Instance, Runtime, children_of

log = logging.getLogger("agent")

CHECK_INTERVAL = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> list[int]:
    """A process and its descendants, as far as they can still be found."""
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


def resident(pid: int) -> int:
    """Bytes that a process has in memory, pages that it shares counted whole."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


def proportional(pid: int) -> int:
    """The same with shared pages counted in parts; slower."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
    except (OSError, StopIteration):
        return resident(pid)


def used(instance: Instance) -> int:
    """Bytes of memory that a running container has."""
    return sum(resident(pid) for pid in family(instance.claim.pid))


class MemoryLimits:
    """The containers that are watched, with their limits in bytes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._limits: dict[Instance, int] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, instance: Instance, limit: int) -> None:
        self._limits[instance] = limit
        if self._task is None:
            self._task = asyncio.create_task(self._check_for_ever(), name="memory limits")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _check_for_ever(self) -> None:
        while self._limits:
            for instance, limit in list(self._limits.items()):
                if instance.exit is not None:
                    del self._limits[instance]
                elif (
                    used(instance) > limit
                    and sum(map(proportional, family(instance.claim.pid))) > limit
                ):
                    del self._limits[instance]
                    instance.slot.give_up("OOMKilled", "")
                    await self._runtime.kill(instance)
            await asyncio.sleep(CHECK_INTERVAL)
        self._task = None
