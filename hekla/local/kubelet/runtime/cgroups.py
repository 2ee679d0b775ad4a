"""Limits by control groups, version 1 or 2, where this user may create them.

Version 2: the kubelet moves into a leaf of the group that it was started in, so that controllers can
be enabled for its siblings, and creates a group there for each container. Version 1: a group in
each of the hierarchies `memory` and `cpu`, below the kubelet's own. A container without limits and
requests gets no group. If the kernel refuses, the survey says why, and `memory_limits.py` watches
memory instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hekla.api.text import quantity
from hekla.local.kubelet.records import name_of

if TYPE_CHECKING:  # `hekla down` imports this without the API types
    from hekla.api.kubernetes import core

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
CONTROLLERS = ("cpu", "memory")
CPU_PERIOD = 100_000
"""The period of a cpu limit, in microseconds."""
REMOVAL_ATTEMPTS, REMOVAL_RETRY_INTERVAL = 100, 0.1
"""Seconds between attempts to remove a group."""


@dataclass(frozen=True, slots=True)
class Base:
    """The groups below which containers get theirs."""

    version: int
    directories: tuple[Path, ...]
    """One for version 2; for version 1 one of each hierarchy, in the order of CONTROLLERS."""


def find(root: Path = ROOT, own: Path = OWN) -> tuple[Base | None, str]:
    """Where groups can be created, or None and the reason. Changes nothing."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None, "this process has no control group"
    if (root / "cgroup.controllers").is_file():
        return unified(root, lines)
    return legacy(root, lines)


def unified(root: Path, lines: list[str]) -> tuple[Base | None, str]:
    """`find` for version 2."""
    place = next((line for line in lines if line.startswith("0::")), None)
    if place is None:
        return None, "this process has no cgroup of the unified hierarchy"
    base = root / place.removeprefix("0::").lstrip("/")
    try:
        controllers = (base / "cgroup.controllers").read_text().split()
    except OSError as error:
        return None, f"{base}: {error.strerror}"
    lacking = [name for name in CONTROLLERS if name not in controllers]
    if lacking:
        return None, f"{base} has no controller for {' and '.join(lacking)}"
    if not os.access(base, os.W_OK) or not os.access(base / "cgroup.procs", os.W_OK):
        return (
            None,
            f"{base} belongs to another user; `systemd-run --user --scope -p Delegate=yes hekla up` gives one of your own",
        )
    return Base(2, (base,)), ""


def legacy(root: Path, lines: list[str]) -> tuple[Base | None, str]:
    """`find` for version 1."""
    places = {
        name: line.split(":", 2)[2].lstrip("/")
        for line in lines
        for name in line.split(":", 2)[1].split(",")
    }
    found = []
    for name in CONTROLLERS:
        base = root / name / places.get(name, "")
        if name not in places or not base.is_dir():
            return None, "this machine has no control groups for memory and cpu"
        if not os.access(base, os.W_OK) or os.geteuid():
            return None, f"{base} belongs to another user"
        found.append(base)
    return Base(1, tuple(found)), ""


class Groups:
    """The groups of a kubelet's containers."""

    def __init__(self, version: int, directories: tuple[Path, ...]) -> None:
        self.version = version
        self.directories = directories

    @classmethod
    def prepare(cls, base: Base, root: Path) -> Groups | None:
        """Prepare the base groups; None if the kernel refuses."""
        places = tuple(directory / name_of(root) for directory in base.directories)
        try:
            if base.version == 2:
                top = base.directories[0]
                (top / "hekla-kubelet").mkdir(exist_ok=True)
                (top / "hekla-kubelet" / "cgroup.procs").write_text(str(os.getpid()))
                (top / "cgroup.subtree_control").write_text(
                    " ".join(f"+{name}" for name in CONTROLLERS)
                )
            for place in places:
                place.mkdir(exist_ok=True)
                empty(place)
            if base.version == 2:
                (places[0] / "cgroup.subtree_control").write_text(
                    " ".join(f"+{name}" for name in CONTROLLERS)
                )
        except OSError:
            return None
        return cls(base.version, places)

    def make(self, uid: str, container: core.Container, attempt: int) -> str:
        """Create the groups of a container with its limits; returns their paths joined by ":", ""
        if it needs none or the kernel refuses."""
        made = []
        try:
            for directory, values in zip(self.directories, settings(self.version, container)):
                if values:
                    group = directory / f"{uid}-{container.name}-{attempt}"
                    group.mkdir(exist_ok=True)
                    for name, value in values.items():
                        (group / name).write_text(value)
                    made.append(str(group))
        except OSError:
            return ""
        return ":".join(made)

    def change(self, uid: str, container: core.Container, attempt: int, pids: list[int]) -> str:
        """Change the limits of a running container; returns why the kernel refuses, "" if it does
        not."""
        try:
            for directory, values in zip(self.directories, settings(self.version, container)):
                group = directory / f"{uid}-{container.name}-{attempt}"
                joins = bool(values) and not group.is_dir()
                if joins:
                    group.mkdir()
                for name, value in values.items():
                    (group / name).write_text(value)
                for pid in pids if joins else ():
                    with contextlib.suppress(ProcessLookupError):
                        (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def of(self, uid: str, container: str, attempt: int) -> tuple[Path, ...]:
        """The groups of a container that there are, for those who measure it."""
        groups = (directory / f"{uid}-{container}-{attempt}" for directory in self.directories)
        return tuple(group for group in groups if group.is_dir())

    def out_of_memory(self, uid: str, container: str, attempt: int) -> bool:
        """Whether the kernel killed a process of the container because it was out of memory."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        place = self.directories[0 if self.version == 2 else CONTROLLERS.index("memory")]
        try:
            text = (place / f"{uid}-{container}-{attempt}" / file).read_text()
        except OSError:
            return False
        return any(
            line.startswith("oom_kill ") and line.split()[1] != "0" for line in text.splitlines()
        )

    def forget(self, uid: str, container: str, attempt: int) -> None:
        """Remove the groups of a container that has ended, once the kernel has released its last
        process. The next kubelet removes those that are left after `REMOVAL_ATTEMPTS`. Needs a
        running event loop."""
        for directory in self.directories:
            _remove(directory / f"{uid}-{container}-{attempt}", REMOVAL_ATTEMPTS)


def _remove(group: Path, tries: int) -> None:
    try:
        group.rmdir()
    except FileNotFoundError:  # the container had no group
        return
    except OSError:
        if tries > 1:
            asyncio.get_running_loop().call_later(REMOVAL_RETRY_INTERVAL, _remove, group, tries - 1)


def settings(version: int, container: core.Container) -> Iterator[dict[str, str]]:
    """The files to write into a container's groups, name -> content: one dict for each directory."""
    limits, requests = container.resources.limits, container.resources.requests
    shares = max(2, quantity.milli(requests["cpu"]) * 1024 // 1000) if "cpu" in requests else 0
    quota = max(1000, quantity.milli(limits["cpu"]) * CPU_PERIOD // 1000) if "cpu" in limits else 0
    memory = quantity.whole(limits["memory"]) if "memory" in limits else 0
    if version == 2:
        found = (
            {"cpu.weight": str(min(10000, max(1, 1 + (shares - 2) * 9999 // 262142)))}
            if shares
            else {}
        )
        found |= {"cpu.max": f"{quota} {CPU_PERIOD}"} if quota else {}
        yield found | ({"memory.max": str(memory), "memory.oom.group": "1"} if memory else {})
        return
    yield ({"cpu.shares": str(shares)} if shares else {}) | (
        {"cpu.cfs_period_us": str(CPU_PERIOD), "cpu.cfs_quota_us": str(quota)} if quota else {}
    )
    yield {"memory.limit_in_bytes": str(memory)} if memory else {}


def sweep(root: Path) -> None:
    """Remove empty groups that a kubelet of this directory has left."""
    base, _ = find()
    for directory in base.directories if base is not None else ():
        place = directory / name_of(root)
        if place.is_dir():
            empty(place)
            with contextlib.suppress(OSError):
                place.rmdir()


def empty(directory: Path) -> None:
    """Remove groups without processes."""
    for group in directory.glob("*-*"):
        with contextlib.suppress(OSError):
            group.rmdir()
