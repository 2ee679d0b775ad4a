"""Eviction under pressure: a node that runs short says so in its conditions, and ends the pods that
use more than they requested.  Also enforces the limits of scratch space, which no kernel does.
Reference: local-cluster 8.13."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from hekla.api.text import quantity
from hekla.local.kubelet.pods.pod_worker import PodWorker
from hekla.local.kubelet.runtime import memory_limits

log = logging.getLogger("kubelet.pressure")

CHECK_INTERVAL = 2.0
CLEARED_AFTER = 10.0
"""Seconds for which a resource must be sufficient before the condition is cleared."""
CRITICAL = 2_000_000_000
"""Priority from which a pod is never evicted."""
DEFAULT = "memory.available<100Mi,nodefs.available<256Mi,pid.available<200"

CONDITIONS = {"memory": "MemoryPressure", "nodefs": "DiskPressure", "pid": "PIDPressure"}
RESOURCES = {"memory": "memory", "nodefs": "ephemeral-storage", "pid": "pids"}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold: the amount of a resource below which the node is under pressure."""

    signal: str
    """memory, nodefs or pid."""
    amount: float
    share: bool
    """The amount is a part of the whole."""
    text: str

    def of(self, total: int) -> int:
        return int(self.amount * total) if self.share else int(self.amount)


def parse(text: str) -> list[Threshold]:
    """Raises ValueError, whose text says what is wrong."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, less, amount = part.partition("<")
        signal, _, what = name.partition(".")
        if not less or what != "available" or signal not in CONDITIONS:
            raise ValueError(
                f'"{part}" is no threshold; write memory.available<100Mi, nodefs.available<5% or pid.available<200'
            )
        try:
            share = amount.endswith("%")
            number = float(amount[:-1]) / 100 if share else float(quantity.whole(amount))
        except (ValueError, quantity.QuantityError):
            raise ValueError(
                f'"{part}": "{amount}" is neither an amount nor a percentage'
            ) from None
        found.append(Threshold(signal, number, share, amount))
    return found


def measure(signal: str, root: Path) -> tuple[int, int]:
    """(available, total) of a resource of this machine."""
    if signal == "memory":
        memory = psutil.virtual_memory()
        return memory.available, memory.total
    if signal == "nodefs":
        disk = shutil.disk_usage(root)
        return disk.free, disk.total
    try:
        with open("/proc/loadavg") as file:
            tasks = int(file.read().split()[3].partition("/")[2])
        with open("/proc/sys/kernel/pid_max") as file:
            total = int(file.read())
    except (OSError, ValueError, IndexError):
        return 1 << 22, 1 << 22
    return total - tasks, total


def size_of(directory: Path) -> int:
    """Bytes on disk below a directory."""
    total = 0
    for where, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
            except OSError:
                continue
    return total


def amount(value: int) -> str:
    """Bytes as a quantity in Ki, as a kubelet words them."""
    return f"{value // 1024}Ki"


@dataclass(slots=True)
class Use:
    """What a pod has of the scarce resource, and what it asked for."""

    worker: PodWorker
    used: int
    requested: int
    by_container: list[tuple[str, int, int]]
    """(name, used, requested)."""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Lowest is evicted first: above its request, then of low priority, then the furthest
        above."""
        return (
            self.used <= self.requested,
            self.worker.pod.spec.priority or 0,
            self.requested - self.used,
        )


def use(worker: PodWorker, signal: str) -> Use:
    resource = RESOURCES[signal]
    parts = []
    for container in worker.containers:
        asked = container.spec.resources.requests.get(resource, 0)
        requested = quantity.whole(asked) if asked else 0
        used = 0
        if container.instance is not None and container.instance.exit is None:
            family = memory_limits.process_tree(container.instance.claim.pid)
            used = (
                len(family)
                if signal == "pid"
                else sum(map(memory_limits.resident, family))
                if signal == "memory"
                else 0
            )
        if signal == "nodefs":
            used = size_of(worker.directory.scratch / container.spec.name) + size_of(
                worker.directory.path / "containers" / container.spec.name
            )
        if used:
            parts.append((container.spec.name, used, requested))
    more = size_of(worker.directory.volumes) if signal == "nodefs" else 0
    return Use(worker, sum(part[1] for part in parts) + more, sum(part[2] for part in parts), parts)


def message(threshold: Threshold, available: int, victim: Use) -> str:
    resource = RESOURCES[threshold.signal]
    counted = threshold.signal == "pid"
    text = f"The node was low on resource: {resource}. Threshold quantity: {threshold.text}, "
    text += f"available: {available if counted else amount(available)}. "
    for name, used, requested in victim.by_container:
        if used > requested:
            asked = requested if counted or not requested else amount(requested)
            has = used if counted else amount(used)
            text += f"Container {name} was using {has}, request is {asked}, has larger consumption of {resource}. "
    return text


class Pressure:
    """Watches one machine for the nodes on it.  `on_change` hears of each change of the set of
    conditions."""

    def __init__(
        self,
        root: Path,
        thresholds: list[Threshold],
        workers: Callable[[], Iterable[PodWorker]],
        on_change: Callable[[set[str]], None],
    ) -> None:
        self._root = root
        self._thresholds = thresholds
        self._workers = workers
        self._on_change = on_change
        self._last: dict[str, float] = {}
        """By condition: when it was last seen."""
        self.conditions: set[str] = set()

    async def run(self) -> None:
        """Measure for ever."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            try:
                await self.check(time.monotonic())
                await self.check_scratch()
            except OSError as error:
                log.warning("the node's resources are not known: %s", error)

    async def check(self, now: float) -> None:
        short: list[tuple[Threshold, int]] = []
        for threshold in self._thresholds:
            available, total = measure(threshold.signal, self._root)
            if available < threshold.of(total):
                short.append((threshold, available))
                self._last[CONDITIONS[threshold.signal]] = now
        conditions = {
            condition
            for condition, seen in self._last.items()
            if now - seen < CLEARED_AFTER or seen == now
        }
        if conditions != self.conditions:
            self.conditions = conditions
            self._on_change(conditions)
        for threshold, available in short[:1]:  # one victim, then measure again
            await self.evict(threshold, available)

    async def evict(self, threshold: Threshold, available: int) -> None:
        candidates = [
            worker
            for worker in self._workers()
            if not worker.over
            and (worker.pod.spec.priority or 0) < CRITICAL
            and worker.containers.running
        ]
        if not candidates:
            return
        uses = await asyncio.to_thread(
            lambda: [use(worker, threshold.signal) for worker in candidates]
        )
        victim = min(uses, key=lambda one: one.rank)
        if not victim.worker.over:
            victim.worker.evict(message(threshold, available, victim))

    # --- scratch space ----------------------------------------------------------------------------

    async def check_scratch(self) -> None:
        """Ends pods whose emptyDirs or containers hold more than their limits allow.  Costs nothing
        where nobody set one."""
        for worker in [
            worker for worker in self._workers() if worker.scratch_limits and not worker.over
        ]:
            why = await asyncio.to_thread(too_much, worker)
            if why and not worker.over:
                worker.evict(why)


def too_much(worker: PodWorker) -> str:
    """Which limit of scratch space the pod has broken, in a kubelet's words; "" when none."""
    total, allowed = 0, 0
    for volume in worker.pod.spec.volumes:
        if volume.empty_dir is None:
            continue
        size = size_of(
            worker.volumes.paths.get(volume.name, worker.directory.volumes / volume.name)
        )
        limit = volume.empty_dir.size_limit
        if limit and size > quantity.whole(limit):
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
        if volume.empty_dir.medium != "Memory":
            total += size
    for container in worker.containers:
        size = size_of(worker.directory.scratch / container.spec.name) + size_of(
            worker.directory.path / "containers" / container.spec.name
        )
        limit = container.spec.resources.limits.get("ephemeral-storage", "")
        if limit and size > quantity.whole(limit):
            return f'Container {container.spec.name} exceeded its local ephemeral storage limit "{limit}". '
        total += size
        allowed += quantity.whole(limit) if limit else 1 << 62
    if total > allowed:
        return (
            f"Pod ephemeral local storage usage exceeds the total limit of containers {allowed}. "
        )
    return ""
