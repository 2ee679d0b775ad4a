"""What directories of several containers protect of memory.

The kernel protects a cgroup no further than the directories above it are protected, so memory.low
and memory.min of a container are nothing without those of its pod and of all pods.  These have the
sums here: of the ratios (MemoryQoSV2), and of what online pods request (MemoryQoS).  Somebody else,
as a kubelet with its own feature MemoryQoS, may protect more; that is kept, and comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from hekla.agent.cgroups import MEMORY_LOW, MEMORY_MIN, MEMORY_QOS, CgroupError, File, Write
from hekla.agent.features import Feature
from hekla.agent.handlers.context import Context
from hekla.agent.handlers.memory_qos_v2 import AnnotationError, protections
from hekla.agent.pods import BEST_EFFORT, BURSTABLE, GUARANTEED, Pod, is_offline


def writes(pods: Iterable[Pod], context: Context) -> Iterator[Write]:
    """For all pods of the node at once."""
    cgroups, originals = context.cgroups, context.originals
    if not cgroups.has(MEMORY_LOW):
        return
    wanted: Counter[tuple[str, File]] = Counter()
    classes = [(cgroups.qos_root(one), 0, 0) for one in (BEST_EFFORT, BURSTABLE, GUARANTEED)]
    for leaf, low, least in (
        *classes,
        *((cgroups.pod(one), *protected(one, context)) for one in pods),
    ):
        for directory in _upwards(leaf):
            wanted[directory, MEMORY_LOW] += low
            wanted[directory, MEMORY_MIN] += least
    for (directory, file), amount in wanted.items():
        path = cgroups.path(directory, file)
        before = originals.get(path)
        if amount and before is None:
            try:
                before = cgroups.read(directory, file)
            except CgroupError:
                continue  # the pod has none yet, or is going
            originals.remember(path, before)
        if before is None:
            continue
        if amount:
            own = int(before) if before.isdigit() else 0
            yield Write(path, before if before == "max" else str(max(amount, own)))
        else:
            yield Write(path, before, restores=True)


def protected(pod: Pod, context: Context) -> tuple[int, int]:
    """(low, min) of a pod in bytes."""
    low = least = 0
    if context.is_active(Feature.MEMORY_QOS_V2):
        try:
            for amounts in protections(pod, context):
                low, least = low + amounts.low, least + amounts.min
        except AnnotationError:
            pass  # the handler says so
    if context.is_active(Feature.MEMORY_QOS) and not is_offline(pod) and _is_emulated(pod, context):
        requests = (context.memory_of(pod, one.resources.requests) for one in pod.spec.containers)
        low = max(low, sum(requests))
    return low, least


def _is_emulated(pod: Pod, context: Context) -> bool:
    """Whether the kernel knows no levels of memory."""
    return not context.cgroups.there(context.cgroups.pod(pod), MEMORY_QOS)


def _upwards(directory: str) -> Iterator[str]:
    """A directory and those above it, but not the root."""
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]
