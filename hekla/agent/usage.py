"""What the pods of a node and the node itself use, from control groups of version 1 or 2 and /proc.

Processor time is a counter, so what is used is the difference of two readings.  A file that vanishes,
a counter that goes back (its group was made anew) and one that grew faster than all processors could
leave that sample out: a wrong zero would lend memory that is in use.  Reference: agent 10.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hekla.agent.cgroups import CPU_USAGE, MEMORY_STAT, Cgroups
from hekla.agent.machine import Machine
from hekla.agent.pods import BEST_EFFORT, BURSTABLE

log = logging.getLogger(__name__)

TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of processor time in a tick of the kernel's clock."""
IDLE = (3, 4)
"""Columns of the line `cpu` of /proc/stat in which no processor works: idle and iowait."""
GUEST = 8
"""From this column on the line repeats what user and nice hold already."""
SLACK = 1.1
"""How much faster than its processors a machine may seem, besides ticks: clocks are read at
different moments."""
LEAST_SECONDS = 0.05
"""Between two readings of a counter whose difference says something."""
MEMORY_V1 = ("total_cache", "total_rss", "total_swap")
MEMORY_V2 = ("anon", "file", "kernel", "sock")
"""What `memory.current` is made of.  `file` has shmem in it, `kernel` has the kernel's stacks, page
tables, per-CPU data, slabs and vmalloc."""
KERNEL_PARTS = ("slab", "kernel_stack", "pagetables", "percpu", "vmalloc")
"""The parts of `kernel`, for kernels before 5.18, which do not tell the sum."""


class Scope(StrEnum):
    """Whose processor time a counter has."""

    PODS = "pods"
    BURSTABLE = "burstable"
    BEST_EFFORT = "besteffort"
    NODE = "node"


class UsageError(Exception):
    """A measurement that cannot be had or is not believed; the text says why."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The files that are read."""

    cpu: Mapping[Scope, Path]
    """`cpu.stat` under version 2, `cpuacct.usage` under version 1; for the node /proc/stat."""
    memory: Path
    """`memory.stat` of all pods."""
    meminfo: Path

    @classmethod
    def of(cls, cgroups: Cgroups, machine: Machine) -> Sources:
        def cpu(qos_class: str = "") -> Path:
            return cgroups.path(cgroups.qos_root(qos_class), CPU_USAGE)

        return cls(
            {
                Scope.PODS: cpu(),
                Scope.BURSTABLE: cpu(BURSTABLE),
                Scope.BEST_EFFORT: cpu(BEST_EFFORT),
                Scope.NODE: machine.proc_stat,
            },
            cgroups.path(cgroups.qos_root(), MEMORY_STAT),
            machine.meminfo,
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used; a kind that could not be measured is absent."""

    cpu: Mapping[Scope, int] = field(default_factory=dict)
    """Millicores since the last reading."""
    pods_memory: int | None = None
    node_memory: int | None = None
    """Bytes.  Pods: with the pages of files that they have read; the node: without."""

    def cpu_of(
        self, *, guaranteed: bool = True, offline: bool = True, system: bool = False
    ) -> int | None:
        """Millicores of all pods, without those of Kubernetes' class Guaranteed, without those of
        BestEffort, with what is no pod.  None where a part is not known."""
        cpu = self.cpu
        try:
            if guaranteed:
                used = cpu[Scope.PODS] - (0 if offline else cpu[Scope.BEST_EFFORT])
            else:
                used = cpu[Scope.BURSTABLE] + (cpu[Scope.BEST_EFFORT] if offline else 0)
            if system:
                used += max(cpu[Scope.NODE] - cpu[Scope.PODS], 0)
        except KeyError:
            return None
        return max(used, 0)

    def memory_of(self, *, system: bool = False) -> int | None:
        return self.node_memory if system else self.pods_memory


# reading


def group_time(file: Path) -> int:
    """Nanoseconds of processor time of a control group so far.  Raises UsageError."""
    if file.name == CPU_USAGE.v2:
        return _fields(file, ("usage_usec",))["usage_usec"] * 1000
    return _number(file)


def group_memory(file: Path) -> int:
    """Bytes of a control group and all below it, each of them once.  Raises UsageError."""
    found = _fields(file, (), (*MEMORY_V1, *MEMORY_V2, *KERNEL_PARTS))
    if MEMORY_V1[0] in found:
        return sum(found.get(name, 0) for name in MEMORY_V1)
    if "kernel" not in found:
        found["kernel"] = sum(found.get(name, 0) for name in KERNEL_PARTS)
    if "anon" not in found:
        raise UsageError(f"{file}: neither {MEMORY_V1[0]} nor anon")
    return sum(found.get(name, 0) for name in MEMORY_V2)


def node_time(stat: Path) -> int:
    """Nanoseconds in which the machine's processors have worked.  Raises UsageError."""
    for line in _text(stat).splitlines():
        name, *columns = line.split()
        if name == "cpu":
            try:
                ticks = [int(column) for column in columns[:GUEST]]
            except ValueError:
                break
            return sum(each for at, each in enumerate(ticks) if at not in IDLE) * TICK
    raise UsageError(f"{stat}: no line of all processors")


class NodeMemory(NamedTuple):
    """Bytes of the machine."""

    used: int
    """What cannot simply be taken back."""
    size: int
    """Swap space included."""


def node_memory(meminfo: Path) -> NodeMemory:
    """Raises UsageError."""
    total, available, swap = "MemTotal:", "MemAvailable:", "SwapTotal:"
    found = _fields(meminfo, (total, available), (total, available, swap))
    return NodeMemory(
        (found[total] - found[available]) * 1024, (found[total] + found.get(swap, 0)) * 1024
    )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from None


def _number(file: Path) -> int:
    text = _text(file).strip()
    if not text.isdigit():
        raise UsageError(f"{file}: {text[:40]!r} is no counter")
    return int(text)


def _fields(
    file: Path, needed: tuple[str, ...], wanted: tuple[str, ...] | None = None
) -> dict[str, int]:
    """Lines of a name and a number.  Raises UsageError where one of `needed` is not there."""
    names = frozenset(wanted or needed)
    found = {}
    for line in _text(file).splitlines():
        name, _, rest = line.partition(" ")
        value = rest.split()[:1]
        if name in names and value and value[0].isdigit():
            found[name] = int(value[0])
    for name in needed:
        if name not in found:
            raise UsageError(f"{file}: no number {name.rstrip(':')}")
    return found


# samples


@dataclass(frozen=True, slots=True)
class Reading:
    """A counter at a moment."""

    at: float
    nanoseconds: int


def millicores(before: Reading, now: Reading, processors: int) -> int:
    """What was used between two readings.  Raises UsageError for what cannot be."""
    spent, seconds = now.nanoseconds - before.nanoseconds, now.at - before.at
    if spent < 0:
        raise UsageError(f"the counter went back from {before.nanoseconds} to {now.nanoseconds} ns")
    used = spent / 1e6 / seconds
    if spent > processors * (seconds * 1e9 * SLACK + 2 * TICK):
        raise UsageError(
            f"{used / 1000:.1f} processors were used in {seconds:.1f} s, and there are {processors}"
        )
    return int(used)


class UsageCollector:
    """Measures again and again.  `left_out(what, why)` hears of each sample that is left out; the log
    says so once, and once more when it can be measured again."""

    def __init__(
        self,
        sources: Sources,
        left_out: Callable[[str, str], None] = lambda what, why: None,
        *,
        processors: int = os.cpu_count() or 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sources = sources
        self._left_out = left_out
        self._processors = processors
        self._clock = clock
        self._before: dict[Scope, Reading] = {}
        self._broken: set[str] = set()

    def measure(self) -> Usage:
        """What is used now; processor time is that since the last call, so the first one has none."""
        cpu: dict[Scope, int] = {}
        for scope, file in self.sources.cpu.items():
            self._count(scope, partial(node_time if scope is Scope.NODE else group_time, file), cpu)
        return Usage(
            cpu,
            self._amount("memory of pods", lambda node: group_memory(self.sources.memory)),
            self._amount("memory of node", lambda node: node.used),
        )

    def _count(self, scope: Scope, read: Callable[[], int], cpu: dict[Scope, int]) -> None:
        before, what = self._before.get(scope), f"cpu of {scope}"
        try:
            now = Reading(self._clock(), read())
            if before is not None and now.at - before.at < LEAST_SECONDS:
                return
            self._before[scope] = now
            if before is not None:
                cpu[scope] = millicores(before, now, self._processors)
                self._works(what)
        except UsageError as error:
            self._fails(what, str(error))

    def _amount(self, what: str, used: Callable[[NodeMemory], int]) -> int | None:
        try:
            node = node_memory(self.sources.meminfo)
            amount = used(node)
            if not 0 <= amount <= node.size * SLACK:
                raise UsageError(f"{amount} bytes are in use, and the machine has {node.size}")
        except UsageError as error:
            self._fails(what, str(error))
            return None
        self._works(what)
        return amount

    def _fails(self, what: str, why: str) -> None:
        if what not in self._broken:
            self._broken.add(what)
            log.warning("%s cannot be measured, its samples are left out: %s", what, why)
        self._left_out(what, why)

    def _works(self, what: str) -> None:
        if what in self._broken:
            self._broken.discard(what)
            log.info("%s is measured again", what)
