"""Limits by cgroup v2, where this user may write below its own cgroup.

The agent moves itself into a leaf `agent` of the cgroup that it was started in, so that controllers may be enabled for its
siblings, and gives each pod a cgroup there.  Where any step is refused there are no limits, and the survey says why.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hekla.api import core, quantity

ROOT = Path("/sys/fs/cgroup")
NEEDED = ("cpu", "memory")
PERIOD = 100_000
"""Microseconds of one period of cpu.max."""


def find(root: Path = ROOT, own: Path = Path("/proc/self/cgroup")) -> tuple[Path | None, str]:
    """The cgroup below which pods may get theirs, or None and why not.  Changes nothing."""
    if not (root / "cgroup.controllers").is_file():
        return None, "this machine has no unified cgroup hierarchy (cgroup v2)"
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None, "this process has no cgroup of the unified hierarchy"
    base = root / line.removeprefix("0::").lstrip("/")
    try:
        controllers = (base / "cgroup.controllers").read_text().split()
    except OSError as error:
        return None, f"{base}: {error.strerror}"
    lacking = [name for name in NEEDED if name not in controllers]
    if lacking:
        return None, f"{base} has no controller for {' and '.join(lacking)}"
    if not os.access(base, os.W_OK) or not os.access(base / "cgroup.procs", os.W_OK):
        return None, f"{base} belongs to another user; `systemd-run --user --scope -p Delegate=yes hekla up` gives one of your own"
    return base, ""


def prepare(base: Path) -> Path | None:
    """Makes room for pods below the agent's cgroup; None when the kernel refuses."""
    pods = base / "hekla-pods"
    try:
        (base / "hekla-agent").mkdir(exist_ok=True)
        (base / "hekla-agent" / "cgroup.procs").write_text(str(os.getpid()))
        (base / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED))
        pods.mkdir(exist_ok=True)
        (pods / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED))
    except OSError:
        return None
    return pods


def settings(container: core.Container) -> dict[str, str]:
    """What to write into the cgroup of a container, by file name."""
    limits, requests = container.resources.limits, container.resources.requests
    found = {}
    if "cpu" in requests:
        shares = max(2, quantity.milli(requests["cpu"]) * 1024 // 1000)
        found["cpu.weight"] = str(min(10000, max(1, 1 + (shares - 2) * 9999 // 262142)))
    if "cpu" in limits:
        found["cpu.max"] = f"{max(1000, quantity.milli(limits['cpu']) * PERIOD // 1000)} {PERIOD}"
    if "memory" in limits:
        found["memory.max"] = str(quantity.whole(limits["memory"]))
        found["memory.oom.group"] = "1"
    return found


def make(pods: Path, uid: str, container: core.Container, attempt: int) -> str:
    """The cgroup of one container, with its limits; "" when the kernel refuses (it then runs unlimited)."""
    directory = pods / f"{uid}-{container.name}-{attempt}"
    try:
        directory.mkdir(exist_ok=True)
        for name, value in settings(container).items():
            (directory / name).write_text(value)
    except OSError:
        return ""
    return str(directory)


def out_of_memory(pods: Path | None, uid: str, container: str, attempt: int) -> bool:
    """Whether the kernel killed a process of the container for want of memory."""
    if pods is None:
        return False
    try:
        text = (pods / f"{uid}-{container}-{attempt}" / "memory.events").read_text()
    except OSError:
        return False
    return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in text.splitlines())


def remove(pods: Path, uid: str) -> None:
    """Removes a pod's cgroups, once they are empty."""
    for directory in pods.glob(f"{uid}-*"):
        with contextlib.suppress(OSError):
            directory.rmdir()
