"""CPUThrottle: how much CPU all best-effort pods of the node may use together (reference: agent
6.4).  How much that is follows from what online pods use, which is measured elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from hekla.agent.cgroups import (
    CPU_BURST,
    CPU_QUOTA,
    LEAST_QUOTA,
    PERIOD,
    CgroupError,
    Version,
    Write,
)
from hekla.agent.handlers.context import Context
from hekla.agent.pods import BEST_EFFORT

UNLIMITED_MILLI = -1


def writes(milli: int, context: Context) -> Iterator[Write]:
    """The quota for so many millicores; a negative number lifts it."""
    cgroups = context.cgroups
    root = cgroups.qos_root(BEST_EFFORT)
    quota = max(milli * PERIOD // 1000, LEAST_QUOTA) if milli >= 0 else -1
    if milli >= 0 and cgroups.version is Version.V1:
        yield from _make_room(quota, root, context)
    yield Write(cgroups.path(root, CPU_QUOTA), cgroups.quota_text(quota), required=True)


def _make_room(quota: int, root: str, context: Context) -> Iterator[Write]:
    """v1 refuses a quota that is below that of a directory further down, and one below its own burst:
    these are lowered first, the deepest before all.  Resources raises them again afterwards."""
    cgroups = context.cgroups
    for directory in sorted(cgroups.below(root, CPU_QUOTA), key=lambda one: -one.count("/")):
        try:
            if cgroups.quota(directory) <= quota:
                continue
            if cgroups.there(directory, CPU_BURST):
                burst = int(cgroups.read(directory, CPU_BURST))
                yield Write(cgroups.path(directory, CPU_BURST), str(min(burst, quota)))
        except CgroupError:
            continue  # it is going
        yield Write(cgroups.path(directory, CPU_QUOTA), cgroups.quota_text(quota))
