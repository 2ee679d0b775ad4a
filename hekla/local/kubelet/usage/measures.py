"""What one container, and the whole machine, has used: read from control groups where a container
has one, from /proc else.

Processor time is counted from the start of a container.  A shim adopts what its command leaves
behind and waits for it, so the time of processes that have ended is among their parents' waited-for
time.  Working set means memory that cannot simply be taken back: for a control group its usage
without inactive pages of files, for the machine what is not available, for processes without a group
their resident memory, in which shared pages count in full.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of processor time in a tick of the kernel's clock."""
BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of the line `cpu` of /proc/stat in which a processor works: user, nice, system, irq,
softirq, steal."""
PSI_RESOURCES = ("cpu", "memory", "io")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, and page faults so far."""

    usage: int = 0
    working_set: int = 0
    rss: int = 0
    faults: int = 0
    major_faults: int = 0


class Measure(NamedTuple):
    """What something has used by a moment."""

    cpu: int
    """Nanoseconds of processor time."""
    memory: Memory
    processes: int


class Stall(NamedTuple):
    """A line of pressure stall information."""

    avg10: float
    avg60: float
    avg300: float
    """Percent of the time in which tasks waited for the resource."""
    total: int
    """Microseconds in which they did."""


class Network(NamedTuple):
    """Bytes and errors of one interface, received and sent."""

    name: str
    received: int
    receive_errors: int
    sent: int
    send_errors: int


class Process(NamedTuple):
    parent: int
    ticks: int
    """Of processor time, its own and that of the children it has waited for."""
    pages: int
    faults: int
    major_faults: int


def processes(proc: Path = PROC) -> dict[int, Process]:
    """All processes of the machine by pid; those that end meanwhile are left out."""
    found = {}
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        try:
            with open(proc / entry / "stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()
        except OSError:
            continue
        found[int(entry)] = Process(
            parent=int(fields[1]),
            ticks=sum(map(int, fields[11:15])),
            pages=int(fields[21]),
            faults=int(fields[7]),
            major_faults=int(fields[9]),
        )
    return found


def families(known: Mapping[int, Process], heads: Iterable[int]) -> dict[int, list[int]]:
    """By head: it and all its descendants.  A head below another one belongs to itself alone."""
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    apart = set(heads)
    found = {}
    for head in apart:
        family = [head] if head in known else []
        for one in family:
            family += (child for child in children.get(one, ()) if child not in apart)
        found[head] = family
    return found


def of_processes(family: Iterable[Process]) -> Measure:
    """What these processes have used together."""
    members = list(family)
    resident = sum(one.pages for one in members) * PAGE_SIZE
    return Measure(
        sum(one.ticks for one in members) * TICK,
        Memory(
            resident,
            resident,
            resident,
            sum(one.faults for one in members),
            sum(one.major_faults for one in members),
        ),
        len(members),
    )


def of_groups(groups: Iterable[Path], family: Measure) -> Measure:
    """What a container has used by its control groups, version 1 or 2; what they do not count, by
    its processes."""
    cpu, memory = family.cpu, family.memory
    for group in groups:
        stat = fields(group / "cpu.stat")
        if "usage_usec" in stat:
            cpu = stat["usage_usec"] * 1000
        elif (spent := number(group / "cpuacct.usage")) is not None:
            cpu = spent
        if (usage := number(group / "memory.current")) is not None:
            memory = _group_memory(usage, fields(group / "memory.stat"), "", "anon")
        elif (usage := number(group / "memory.usage_in_bytes")) is not None:
            memory = _group_memory(usage, fields(group / "memory.stat"), "total_", "total_rss")
    return Measure(cpu, memory, family.processes)


def _group_memory(usage: int, stat: Mapping[str, int], prefix: str, rss: str) -> Memory:
    return Memory(
        usage,
        max(usage - stat.get(f"{prefix}inactive_file", 0), 0),
        stat.get(rss, 0),
        stat.get(f"{prefix}pgfault", 0),
        stat.get(f"{prefix}pgmajfault", 0),
    )


def of_machine(proc: Path = PROC) -> Measure:
    """What the whole machine has used.  Raises OSError."""
    with open(proc / "stat", "rb") as file:
        columns = [int(field) for field in file.readline().split()[1:]]
    memory = meminfo(proc)
    faults = fields(proc / "vmstat")
    total = memory["MemTotal"]
    return Measure(
        sum(columns[at] for at in BUSY if at < len(columns)) * TICK,
        Memory(
            total - memory["MemFree"],
            total - memory["MemAvailable"],
            memory.get("AnonPages", 0),
            faults.get("pgfault", 0),
            faults.get("pgmajfault", 0),
        ),
        sum(entry.isdigit() for entry in os.listdir(proc)),
    )


def swap(proc: Path = PROC) -> tuple[int, int]:
    """(used, free) bytes of swap space."""
    memory = meminfo(proc)
    free = memory.get("SwapFree", 0)
    return memory.get("SwapTotal", 0) - free, free


def meminfo(proc: Path) -> dict[str, int]:
    """Bytes of the machine's memory by what they are; empty where the kernel does not tell."""
    return {name.rstrip(":"): value * 1024 for name, value in fields(proc / "meminfo").items()}


def pressure(proc: Path = PROC) -> dict[str, dict[str, Stall]]:
    """Pressure stall information of the machine: resource -> some or full -> line; without the
    resources of which this kernel tells nothing."""
    found: dict[str, dict[str, Stall]] = {}
    for resource in PSI_RESOURCES:
        try:
            lines = (proc / "pressure" / resource).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            kind, *rest = line.split()
            given = dict(one.split("=", 1) for one in rest)
            found.setdefault(resource, {})[kind] = Stall(
                float(given["avg10"]),
                float(given["avg60"]),
                float(given["avg300"]),
                int(given["total"]),
            )
    return found


def networks(of: Path) -> list[Network]:
    """The interfaces that a process sees (`of`: its directory in /proc), without the loopback."""
    try:
        lines = (of / "net" / "dev").read_text().splitlines()[2:]
    except OSError:
        return []
    found = []
    for line in lines:
        name, _, rest = line.partition(":")
        counts = rest.split()
        if name.strip() != "lo":
            found.append(
                Network(
                    name.strip(), int(counts[0]), int(counts[2]), int(counts[8]), int(counts[10])
                )
            )
    return found


def fields(file: Path) -> dict[str, int]:
    """The numbers of a file of names and numbers; empty where it cannot be read."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        value = rest.split()[:1]
        if value and value[0].isdigit():
            found[name] = int(value[0])
    return found


def number(file: Path) -> int | None:
    """The number that a file holds; None where there is none."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
