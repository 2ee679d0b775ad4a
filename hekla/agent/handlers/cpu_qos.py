"""CPUQoS: who gets the CPU first (reference: agent 6.1, 13).

openEuler's kernel has `cpu.qos_level`.  Any other has weights: an offline pod is idle, which is to
say that it runs when nobody else of its class wants to; an online pod has more weight, the higher
its level is.  Only the pod's own directory is ranked: within it the containers keep their shares.

The kernel refuses a share for an idle directory and forgets the one that it had, so Resources leaves
the share of a pod's directory to this handler while it is active.
"""

from __future__ import annotations

from collections.abc import Iterator

from hekla.agent.cgroups import (
    CPU_IDLE,
    CPU_QOS,
    CPU_SHARE,
    CgroupError,
    Version,
    Write,
    taken_back,
)
from hekla.agent.handlers.context import Context
from hekla.agent.handlers.resources import pod_share
from hekla.agent.pods import Pod, milli_cpu, qos_level

FACTORS = {0: 1, 1: 2, 2: 4}
"""Level of an online pod -> how many times the share that it asked for it has."""
LEAST = {Version.V1: 2, Version.V2: 1}
MOST = {Version.V1: 262_144, Version.V2: 10_000}


def writes(pod: Pod, context: Context) -> Iterator[Write]:
    cgroups, level = context.cgroups, qos_level(pod)
    directory = cgroups.pod(pod)
    if cgroups.there(directory, CPU_QOS):
        for each in (directory, *cgroups.below(directory, CPU_QOS)):
            yield Write(cgroups.path(each, CPU_QOS), str(level), off="0")
        return
    share = base_share(pod, context)
    if level < 0 and cgroups.there(directory, CPU_IDLE):
        yield Write(cgroups.path(directory, CPU_IDLE), "1")
        return
    if _is_idle(directory, context):
        yield Write(cgroups.path(directory, CPU_IDLE), "0")
    yield Write(cgroups.path(directory, CPU_SHARE), str(ranked(share, level, cgroups.version)))


def undo(pod: Pod, context: Context) -> Iterator[Write]:
    """An idle pod has its share again, and so has one with another rank."""
    cgroups = context.cgroups
    directory = cgroups.pod(pod)
    if cgroups.there(directory, CPU_QOS):
        yield from taken_back(writes(pod, context))
        return
    path = cgroups.path(directory, CPU_SHARE)
    if _is_idle(directory, context):
        yield Write(cgroups.path(directory, CPU_IDLE), "0")
    elif context.originals.get(path) is None and pod_share(pod, context) is None:
        return
    yield Write(path, str(base_share(pod, context)), restores=True)


def ranked(share: int, level: int, version: Version) -> int:
    """The share of a pod that would have this one without a rank."""
    return LEAST[version] if level < 0 else min(share * FACTORS[level], MOST[version])


def base_share(pod: Pod, context: Context) -> int:
    """The share without a rank: by batch requests, else the one that the pod had before it was ranked,
    else the one that a kubelet gives."""
    batch = pod_share(pod, context)
    if batch is not None:
        return batch
    cgroups, originals, level = context.cgroups, context.originals, qos_level(pod)
    directory = cgroups.pod(pod)
    path = cgroups.path(directory, CPU_SHARE)
    try:
        now = int(cgroups.read(directory, CPU_SHARE))
    except (CgroupError, ValueError):
        return kubelet_share(pod, cgroups.version)
    known = int(originals.get(path) or 0)
    if _is_idle(directory, context):
        return known or kubelet_share(pod, cgroups.version)
    if not known or now not in {ranked(known, one, cgroups.version) for one in (-1, 0, 1, 2)}:
        known = now  # somebody else has set it since, as when a pod is resized
    if level == 0 and now == known:
        originals.forget(path)
    else:
        originals.remember(path, str(known))
    return known


def kubelet_share(pod: Pod, version: Version) -> int:
    """By the containers' requests, as kubelets up to 1.34 have it."""
    milli = sum(milli_cpu(one.resources.requests) for one in pod.spec.containers)
    shares = min(max(milli * 1024 // 1000, 2), 262_144)
    return shares if version is Version.V1 else 1 + (shares - 2) * 9999 // 262_142


def _is_idle(directory: str, context: Context) -> bool:
    try:
        return context.cgroups.read(directory, CPU_IDLE) == "1"
    except CgroupError:
        return False
