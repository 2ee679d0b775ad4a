"""`/stats/summary`: usage as a kubelet's JSON.  Reference: local-cluster 8.9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.local.kubelet.usage.measures import Network, Stall
from hekla.local.kubelet.usage.snapshot import (
    ContainerUsage,
    Disk,
    NodeUsage,
    PodUsage,
    Snapshot,
    Use,
)


def summary(found: Snapshot, only_cpu_and_memory: bool = False) -> Json:
    """The node and its pods; without disks, networks and pressure where only the two are asked for."""
    whole = not only_cpu_and_memory
    node = found.node
    shown: Json = {
        "nodeName": node.name,
        "startTime": stamp(node.started),
        **_use(node.use, node.memory_available),
    }
    if whole:
        disk = _disk(node.disk, node.use.at)
        shown |= {
            "network": _network(node.networks, node.use.at),
            "fs": disk,
            "runtime": {"imageFs": disk, "containerFs": disk},
            "rlimit": {
                "time": stamp(node.use.at),
                "maxpid": node.pid_limit,
                "curproc": node.use.processes,
            },
            "swap": {
                "time": stamp(node.use.at),
                "swapUsageBytes": node.swap[0],
                "swapAvailableBytes": node.swap[1],
            },
        }
        for resource, lines in node.pressure.items():
            shown.setdefault(resource, {})["psi"] = _stalls(lines)
    return {"node": shown, "pods": [_pod(pod, node, whole) for pod in found.pods]}


def _pod(pod: PodUsage, node: NodeUsage, whole: bool) -> Json:
    shown: Json = {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": stamp(pod.started),
        "containers": [_container(one, node, whole) for one in pod.containers],
        **_use(pod.use),
    }
    if not whole:
        return shown
    if pod.networks:
        shown["network"] = _network(pod.networks, pod.use.at)
    shown["volume"] = [
        {"name": name, **_disk(node.disk, pod.use.at, used)} for name, used in pod.volumes.items()
    ]
    used = sum(pod.volumes.values()) + sum(one.disk + one.logs for one in pod.containers)
    shown["ephemeral-storage"] = _disk(node.disk, pod.use.at, used)
    shown["process_stats"] = {"process_count": pod.use.processes}
    return shown


def _container(one: ContainerUsage, node: NodeUsage, whole: bool) -> Json:
    left = max(one.memory_limit - one.use.memory.working_set, 0) if one.memory_limit else None
    shown: Json = {
        "name": one.name,
        "startTime": stamp(one.started),
        **_use(one.use, left),
    }
    if whole:
        shown["rootfs"] = _disk(node.disk, one.use.at, one.disk)
        shown["logs"] = _disk(node.disk, one.use.at, one.logs)
    return shown


def _use(use: Use, available: int | None = None) -> Json:
    cpu: Json = {"time": stamp(use.at), "usageCoreNanoSeconds": use.cpu}
    if use.rate is not None:
        cpu["usageNanoCores"] = use.rate
    memory: Json = {
        "time": stamp(use.at),
        "usageBytes": use.memory.usage,
        "workingSetBytes": use.memory.working_set,
        "rssBytes": use.memory.rss,
        "pageFaults": use.memory.faults,
        "majorPageFaults": use.memory.major_faults,
    }
    if available is not None:
        memory["availableBytes"] = available
    return {"cpu": cpu, "memory": memory}


def _disk(disk: Disk, at: float, used: int | None = None) -> Json:
    return {
        "time": stamp(at),
        "availableBytes": disk.available,
        "capacityBytes": disk.capacity,
        "usedBytes": disk.used if used is None else used,
        "inodes": disk.inodes,
        "inodesFree": disk.inodes_free,
    }


def _network(networks: Sequence[Network], at: float) -> Json:
    """The first interface speaks for all, as in a kubelet's answer; each has its line."""
    lines = [
        {
            "name": one.name,
            "rxBytes": one.received,
            "rxErrors": one.receive_errors,
            "txBytes": one.sent,
            "txErrors": one.send_errors,
        }
        for one in networks
    ]
    return {"time": stamp(at), **(lines[0] if lines else {"name": ""}), "interfaces": lines}


def _stalls(lines: Mapping[str, Stall]) -> Json:
    return {
        kind: {
            "total": stall.total * 1000,
            "avg10": stall.avg10,
            "avg60": stall.avg60,
            "avg300": stall.avg300,
        }
        for kind, stall in lines.items()
    }
