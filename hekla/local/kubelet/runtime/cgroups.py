"""Where this user may make control groups, version 1 or 2, and the tree of groups that a kubelet
makes there: made, left to nobody, removed.

Everything of one kubelet lies below one group, whose path is the same in every hierarchy, so that
those who look for a pod's group find it as on any node: `<path>/kubepods/...`, with `<path>` as their
`--kube-cgroup-root`.  Version 1: below the deepest group that this process has in all hierarchies
alike.  Version 2: beside a leaf into which the processes of this one's group move, because a group
with processes cannot give its controllers to others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hekla.local.kubelet.records import name_of

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
CONTROLLERS = ("cpu", "memory")
BESIDE = ("cpuacct", "net_cls")
"""Controllers of version 1 that are used where they are: the time used, and the class of packets."""
LEAF = "hekla-kubelet"
"""Where the processes move that are in the group itself, version 2."""
MOST_TURNS = 100
"""In which the processes of a group are moved to the leaf."""
DELEGATE = "`systemd-run --user --scope -p Delegate=yes hekla up` gives one of your own"


@dataclass(frozen=True, slots=True)
class Base:
    """The group below which a kubelet's tree is made, in each hierarchy."""

    version: int
    path: str
    """From the root of each hierarchy; "/" for the root itself."""
    directories: Mapping[str, Path]
    """By controller; in version 2 the same for all.  Without those that share a hierarchy with an
    earlier one."""

    def tree(self, root: Path) -> dict[str, Path]:
        """The top of the tree of the kubelet with this directory, by controller."""
        return {name: place / name_of(root) for name, place in self.directories.items()}

    def cgroup_root(self, root: Path) -> str:
        """The path of that tree, as `--kube-cgroup-root` takes it."""
        return f"{self.path.rstrip('/')}/{name_of(root)}"


def find(root: Path = ROOT, own: Path = OWN) -> tuple[Base | None, str]:
    """Where groups can be made, or None and the reason.  Changes nothing."""
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
    path = place.removeprefix("0::").removesuffix(f"/{LEAF}") or "/"
    base = root / path.lstrip("/")
    try:
        controllers = (base / "cgroup.controllers").read_text().split()
    except OSError as error:
        return None, f"{base}: {error.strerror}"
    lacking = [name for name in CONTROLLERS if name not in controllers]
    if lacking:
        return None, f"{base} has no controller for {' and '.join(lacking)}"
    if not os.access(base, os.W_OK) or not os.access(base / "cgroup.procs", os.W_OK):
        return None, f"{base} belongs to another user; {DELEGATE}"
    return Base(2, path, dict.fromkeys(CONTROLLERS, base)), ""


def legacy(root: Path, lines: list[str]) -> tuple[Base | None, str]:
    """`find` for version 1."""
    places = {
        name: line.split(":", 2)[2] for line in lines for name in line.split(":", 2)[1].split(",")
    }
    used = [name for name in (*CONTROLLERS, *BESIDE) if name in places and (root / name).is_dir()]
    if not {*CONTROLLERS} <= {*used}:
        return None, "this machine has no control groups for memory and cpu"
    path = os.path.commonpath([places[name] for name in used])
    found: dict[str, Path] = {}
    for name in used:
        base = root / name / path.lstrip("/")
        if not base.is_dir():
            return None, "this machine has no control groups for memory and cpu"
        if not os.access(base, os.W_OK) or os.geteuid():
            return None, f"{base} belongs to another user"
        if not any(os.path.samefile(base, other) for other in found.values()):
            found[name] = base
    return Base(1, path, found), ""


def prepare(base: Base, root: Path) -> None:
    """Make the top of the kubelet's tree; version 2: able to give its controllers on.  Raises
    OSError if the kernel refuses."""
    if base.version == 2:
        (top,) = set(base.directories.values())
        vacate(top)
        give_on(top)
    for place in set(base.tree(root).values()):
        place.mkdir(exist_ok=True)
        if base.version == 2:
            give_on(place)


def vacate(group: Path) -> None:
    """Move the processes of a group into its leaf.  Raises OSError.

    The root of all groups may keep its own.  One that is being forked meanwhile is found in the
    next turn; one that ends meanwhile is gone anyway.  One of another process namespace cannot be
    named, is listed as 0 and stays.
    """
    if not (group / "cgroup.type").exists():
        return
    leaf = group / LEAF
    leaf.mkdir(exist_ok=True)
    for _ in range(MOST_TURNS):
        pids = (group / "cgroup.procs").read_text().split()
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (leaf / "cgroup.procs").write_text(pid)
    raise OSError(f"{group}: processes do not move to {LEAF}, left are {' '.join(pids)}")


def give_on(group: Path) -> None:
    """Let the groups below a group of version 2 have the controllers."""
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))


def sweep(root: Path) -> None:
    """Remove the tree of a kubelet that has ended, as far as no process is in it."""
    base, _ = find()
    for place in set(base.tree(root).values()) if base is not None else ():
        clear(place)
        with contextlib.suppress(OSError):
            place.rmdir()


def clear(group: Path) -> None:
    """Remove the groups below a group that have no processes."""
    for directory, below, _ in os.walk(group, topdown=False):
        for name in below:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(directory, name))
