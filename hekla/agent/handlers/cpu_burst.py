"""CPUBurst: a container may use in one period what it left over in others (reference: agent 6.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hekla.agent.cgroups import CPU_BURST, CPU_QUOTA, UNLIMITED, Write
from hekla.agent.handlers.context import Context
from hekla.agent.pods import Pod, is_true
from hekla.api import names

MICROSECONDS = re.compile(r"[+]?[0-9]{1,18}")


def writes(pod: Pod, context: Context) -> Iterator[Write]:
    """Containers, then the pod, which has the sum.  Raises CgroupError where a quota cannot be
    read."""
    if not is_true(pod.metadata.annotations.get(names.ENABLE_QUOTA_BURST)):
        return
    cgroups, most = context.cgroups, budget(pod)
    total = 0
    directory = cgroups.pod(pod)
    for each in cgroups.below(directory, CPU_QUOTA):
        quota = cgroups.quota(each)
        if quota == UNLIMITED:
            continue
        burst = min(most, quota) if most else quota
        total += burst
        yield Write(cgroups.path(each, CPU_BURST), str(burst), off="0")
    if cgroups.quota(directory) != UNLIMITED:
        yield Write(cgroups.path(directory, CPU_BURST), str(total), off="0")


def budget(pod: Pod) -> int:
    """Microseconds that a container may burst by; 0: its quota."""
    text = pod.metadata.annotations.get(names.QUOTA_BURST_TIME, "")
    return int(text) if MICROSECONDS.fullmatch(text) else 0
