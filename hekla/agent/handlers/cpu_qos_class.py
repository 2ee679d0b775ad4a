"""CPUQoS of the directory of best-effort pods as a whole: idle while only offline pods are in it.

That an offline pod is idle counts among the pods of its directory.  Online pods with requests are
beside that directory, and there its weight of 2 gives them the CPU, but not at once: whoever runs
finishes its slice first, milliseconds at every request.  Only an idle directory gives way when
somebody beside it wakes up.

A kubelet writes the share of that directory every minute.  With the systemd driver that ends the
idleness, until the agent looks again; with cgroupfs the kernel refuses it, and the kubelet leaves its
other classes as they are.  So there somebody has to ask for this (--idle-best-effort).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hekla.agent.cgroups import CPU_IDLE, CPU_QOS, CPU_SHARE, CgroupError, Write
from hekla.agent.handlers.context import Context
from hekla.agent.handlers.cpu_qos import LEAST
from hekla.agent.pods import BEST_EFFORT, FINISHED, Pod, is_offline


def writes(pods: Iterable[Pod], context: Context) -> Iterator[Write]:
    """`pods`: all of the node.  One that is online counts before it runs."""
    cgroups = context.cgroups
    root = cgroups.qos_root(BEST_EFFORT)
    if cgroups.there(root, CPU_QOS) or not cgroups.there(root, CPU_IDLE):
        return
    inside = [
        pod
        for pod in pods
        if pod.status.qos_class == BEST_EFFORT and pod.status.phase not in FINISHED
    ]
    if inside and all(is_offline(pod) for pod in inside):
        yield Write(cgroups.path(root, CPU_IDLE), "1")
    else:
        yield from undo(context)


def undo(context: Context) -> Iterator[Write]:
    """The kernel forgets the share of an idle directory: it is a kubelet's again."""
    cgroups = context.cgroups
    root = cgroups.qos_root(BEST_EFFORT)
    try:
        idle = cgroups.has(CPU_IDLE) and cgroups.read(root, CPU_IDLE) == "1"
    except CgroupError:
        return
    if idle:
        yield Write(cgroups.path(root, CPU_IDLE), "0")
        yield Write(cgroups.path(root, CPU_SHARE), str(LEAST[cgroups.version]))
