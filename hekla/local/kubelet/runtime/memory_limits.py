"""Enforces memory limits without control groups: checks containers that have a limit twice a
second.

A container over its limit is noticed a little late, but it does not exhaust the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from hekla.local.kubelet.runtime.runtime import Instance, Runtime, children_of

log = logging.getLogger("kubelet")

CHECK_INTERVAL = 0.5
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def process_tree(pid: int) -> list[int]:
    """A process and its descendants that can be found."""
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


def resident(pid: int) -> int:
    """The resident memory of a process in bytes; shared pages count in full."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * PAGE_SIZE
    except OSError:
        return 0


def proportional(pid: int) -> int:
    """The same with shared pages counted proportionally; slower."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
    except (OSError, StopIteration):
        return resident(pid)


def used(instance: Instance) -> int:
    """The memory of a running container in bytes."""
    return sum(resident(pid) for pid in process_tree(instance.claim.pid))


class MemoryLimits:
    """The containers that are watched, with their limits in bytes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._limits: dict[Instance, int] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, instance: Instance, limit: int) -> None:
        """Enforce a limit from now on."""
        self._limits[instance] = limit
        if self._task is None:
            self._task = asyncio.create_task(self._check_for_ever(), name="memory limits")

    async def close(self) -> None:
        """Stop watching."""
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
                    and sum(map(proportional, process_tree(instance.claim.pid))) > limit
                ):
                    del self._limits[instance]
                    instance.slot.give_up("OOMKilled", "")
                    await self._runtime.kill(instance)
            await asyncio.sleep(CHECK_INTERVAL)
        self._task = None
