"""Resources: batch resources as cgroup values, which the kubelet does not make of extended resources
(reference: agent 6.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hekla.agent.cgroups import (
    CPU_QOS,
    CPU_QUOTA,
    CPU_SHARE,
    LEAST_QUOTA,
    MEMORY_LIMIT,
    PERIOD,
    UNLIMITED,
    CgroupError,
    Cgroups,
    Version,
    Write,
)
from hekla.agent.features import Feature
from hekla.agent.handlers.context import Context
from hekla.agent.pods import BEST_EFFORT, Pod, container_id, count, may_use_batch

DEFAULT_SHARE = {Version.V1: 2, Version.V2: 100}
"""A pod's share when none of its containers requests batch cpu."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one container, or the pod, has of batch resources, in the units of its files.  None: not stated, or, on
    v1, zero; 0 on v2: no limit."""

    name: str
    share: int | None
    quota: int | None
    memory: int | None

    @property
    def is_empty(self) -> bool:
        return self.share is None and self.quota is None and self.memory is None


def writes(pod: Pod, context: Context) -> Iterator[Write]:
    """Containers first, then the pod, which has the sums."""
    cgroups = context.cgroups
    containers = batches(pod, context)
    if all(one.is_empty for one in containers):
        return
    ceiling = _ceiling(pod, cgroups)
    directory = cgroups.pod(pod)
    is_ranked = context.is_active(Feature.CPU_QOS) and not cgroups.there(directory, CPU_QOS)
    total = Batch(
        "",
        None if is_ranked else pod_share(pod, context),
        _sum(one.quota for one in containers),
        _sum(one.memory for one in containers),
    )
    inner = [
        write
        for one in containers
        if container_id(pod, one.name)[1]
        for write in _writes(cgroups, cgroups.container(pod, one.name), one, ceiling)
    ]
    outer = _writes(cgroups, directory, total, ceiling)
    if cgroups.version is Version.V1 and 0 <= _quota(cgroups, directory) < (total.quota or 0):
        yield from outer  # v1 refuses a quota above the one that is still here
        yield from inner
    else:
        yield from inner
        yield from outer


def batches(pod: Pod, context: Context) -> list[Batch]:
    """Each container's batch resources; none for pods that may not use any."""
    if not may_use_batch(pod):
        return []
    cgroups = context.cgroups
    found = []
    for container in pod.spec.containers:
        requests, limits = container.resources.requests, container.resources.limits
        request = count(requests, context.batch_cpu)
        cpu, memory = count(limits, context.batch_cpu), count(limits, context.batch_memory)
        if cgroups.version is Version.V1:
            cpu, memory = cpu or None, memory or None
        quota = cpu and max(cpu * PERIOD // 1000, LEAST_QUOTA)
        share = cgroups.share(request) if request else None
        found.append(Batch(container.name, share, quota, memory))
    return found


def pod_share(pod: Pod, context: Context) -> int | None:
    """The share of the pod's directory by its batch requests; None for a pod without batch
    resources."""
    containers = batches(pod, context)
    if all(one.is_empty for one in containers):
        return None
    return sum(one.share or 0 for one in containers) or DEFAULT_SHARE[context.cgroups.version]


def _sum(values: Iterable[int | None]) -> int | None:
    """None when one of them is not stated."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _ceiling(pod: Pod, cgroups: Cgroups) -> int:
    """On v1 no quota may be above that of a directory further up, and CPUThrottle sets one there."""
    if cgroups.version is Version.V2 or pod.status.qos_class != BEST_EFFORT:
        return UNLIMITED
    return _quota(cgroups, cgroups.qos_root(BEST_EFFORT))


def _quota(cgroups: Cgroups, directory: str) -> int:
    try:
        return cgroups.quota(directory)
    except CgroupError:
        return UNLIMITED


def _writes(cgroups: Cgroups, directory: str, batch: Batch, ceiling: int) -> Iterator[Write]:
    if batch.share is not None:
        yield Write(cgroups.path(directory, CPU_SHARE), str(batch.share))
    if batch.quota is not None:
        if batch.quota == 0:
            text = f"max {PERIOD}"
        else:
            text = cgroups.quota_text(batch.quota if ceiling < 0 else min(batch.quota, ceiling))
        yield Write(cgroups.path(directory, CPU_QUOTA), text)
    if batch.memory is not None:
        text = str(batch.memory) if batch.memory else "max"
        yield Write(cgroups.path(directory, MEMORY_LIMIT), text)
