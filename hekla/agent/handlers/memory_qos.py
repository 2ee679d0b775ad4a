"""MemoryQoS: whose memory goes first (reference: agent 6.2, 13).

openEuler's kernel has `memory.qos_level`.  Elsewhere an offline pod's memory is reclaimed before it
reaches its limit (v2) or before anybody else's (v1, by the soft limit), its processes are the first
to go when there is none left.  What online pods request is protected in `memory_protection`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hekla.agent.cgroups import (
    MEMORY_HIGH,
    MEMORY_QOS,
    MEMORY_SOFT,
    PROCESSES,
    UNLIMITED,
    CgroupError,
    Cgroups,
    Version,
    Write,
)
from hekla.agent.handlers.context import Context
from hekla.agent.pods import (
    BEST_EFFORT,
    GUARANTEED,
    Container,
    Pod,
    is_offline,
    memory,
    normalised_level,
)

HIGH_PERCENT = 90
"""Of an offline pod's limit: where reclaim begins."""
FIRST_TO_GO = 1000
"""The oom_score_adj of pods that are the first to go."""
ELSEWHERE = "0"
"""How the kernel lists a process that this process's namespace does not have."""


def writes(pod: Pod, context: Context) -> Iterator[Write]:
    cgroups = context.cgroups
    directory = cgroups.pod(pod)
    if cgroups.there(directory, MEMORY_QOS):
        level = str(normalised_level(pod))
        for each in (directory, *cgroups.below(directory, MEMORY_QOS)):
            yield Write(cgroups.path(each, MEMORY_QOS), level, off="0")
        return
    yield from _limits(pod, directory, context)
    if is_offline(pod) and pod.status.qos_class != BEST_EFFORT:
        yield from _oom_scores(pod, context)


def _limits(pod: Pod, directory: str, context: Context) -> Iterator[Write]:
    cgroups = context.cgroups
    if cgroups.version is Version.V1:
        soft = "0" if is_offline(pod) else str(UNLIMITED)
        yield Write(cgroups.path(directory, MEMORY_SOFT), soft, off=str(UNLIMITED))
        return
    limits = [context.memory_of(pod, one.resources.limits) for one in pod.spec.containers]
    high = sum(limits) * HIGH_PERCENT // 100 if is_offline(pod) and all(limits) else 0
    yield Write(cgroups.path(directory, MEMORY_HIGH), str(high) if high else "max", off="max")


def _oom_scores(pod: Pod, context: Context) -> Iterator[Write]:
    """Of the processes that can be seen from here; new ones inherit from theirs."""
    cgroups = context.cgroups
    for container in pod.spec.containers:
        before = str(kubelet_oom_score(pod, container, context.memory))
        for process in _processes(cgroups.container(pod, container.name), cgroups):
            path = context.proc / process / "oom_score_adj"
            yield Write(path, str(FIRST_TO_GO), off=before)


def _processes(directory: str, cgroups: Cgroups) -> list[str]:
    try:
        listed = cgroups.read(directory, PROCESSES).split()
    except CgroupError:
        return []
    return [process for process in listed if process != ELSEWHERE]


def kubelet_oom_score(pod: Pod, container: Container, capacity: int) -> int:
    """The oom_score_adj that a kubelet gives to a container with requests."""
    if pod.status.qos_class == GUARANTEED:
        return -997
    if not capacity:
        return 999
    return min(max(1000 - 1000 * memory(container.resources.requests) // capacity, 3), 999)
