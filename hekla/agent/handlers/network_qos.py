"""NetworkQoS: the class of a pod's packets, where cgroup v1 has net_cls (reference: agent 6.7).

What limits offline pods does not need it (`hekla/agent/network`); programs of the user may match it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hekla.agent.cgroups import CLASS_ID, Version, Write
from hekla.agent.handlers.context import Context
from hekla.agent.pods import Pod, has_own_bandwidth, normalised_level

UNSIGNED_32 = 2**32


def writes(pod: Pod, context: Context) -> Iterator[Write]:
    cgroups = context.cgroups
    directory = cgroups.pod(pod)
    if (
        cgroups.version is Version.V2
        or has_own_bandwidth(pod)
        or not cgroups.there(directory, CLASS_ID)
    ):
        return
    level = str(normalised_level(pod) % UNSIGNED_32)
    for each in (directory, *cgroups.below(directory, CLASS_ID)):
        yield Write(cgroups.path(each, CLASS_ID), level, off="0")
