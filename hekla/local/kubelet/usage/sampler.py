"""Measures the machine and its pods: every ten seconds, and when somebody asks and the last time was
longer ago than a second.

A node that has the machine to itself uses what the machine uses.  Of several on one machine each uses what
its own pods use, as if it were a machine of its size: else all would seem equally busy, whatever runs where.

Counters never go back: what the processes of a container have used may seem less for a moment, while
one is handed from parent to parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psutil

from hekla.api.text import quantity
from hekla.local.kubelet.pods.pod_worker import PodWorker
from hekla.local.kubelet.pods.pressure import size_of
from hekla.local.kubelet.runtime.pod_groups import PodGroups
from hekla.local.kubelet.usage import measures
from hekla.local.kubelet.usage.measures import PROC, Measure, Memory
from hekla.local.kubelet.usage.snapshot import (
    ContainerUsage,
    Disk,
    NodeUsage,
    PodUsage,
    Snapshot,
    Use,
)

log = logging.getLogger("kubelet.usage")

INTERVAL = 10.0
FRESH = 1.0
"""Seconds for which a measurement is as good as a new one."""
DISK_INTERVAL = 60.0
"""Seconds between looks at the disk, which cost most."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running container, as the measurement needs to know it."""

    name: str
    image: str
    attempt: int
    started: float
    pid: int
    groups: tuple[Path, ...]
    memory_limit: int
    places: tuple[Path, Path]
    """Where it writes outside of volumes, and its logs."""


@dataclass(frozen=True, slots=True)
class RunningPod:
    namespace: str
    name: str
    uid: str
    node: str
    started: float
    own_network: bool
    volumes: tuple[tuple[str, Path], ...]
    containers: tuple[Running, ...]


class NodeSize(NamedTuple):
    """What a node has: cores, and bytes of memory."""

    cores: float
    memory: int


class Sample(NamedTuple):
    """One measurement as a whole."""

    machine: Use
    shares: Mapping[str, Use]
    """By name, of the nodes that share the machine."""
    pods: Mapping[str, tuple[str, PodUsage]]
    """By uid, with its node."""


@dataclass(slots=True)
class Counter:
    """Processor time of one thing: at the last measurement, and how fast it grew."""

    at: float
    cpu: int
    rate: int | None = None

    def count(self, at: float, cpu: int) -> None:
        cpu = max(cpu, self.cpu)
        if at > self.at:
            self.rate = int((cpu - self.cpu) / (at - self.at))
        self.at, self.cpu = at, cpu


class UsageSampler:
    """What the nodes of one kubelet use, by name."""

    def __init__(
        self,
        root: Path,
        nodes: Callable[[], Mapping[str, NodeSize]],
        workers: Callable[[], Iterable[PodWorker]],
        groups: Callable[[], PodGroups | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._nodes = nodes
        self._workers = workers
        self._groups = groups
        self._clock = clock
        self._counters: dict[tuple[str, ...], Counter] = {}
        """Of the machine: (); of a pod: (uid,); of a container: (uid, name, attempt); of a node of
        several: ("", name)."""
        self._ended: dict[str, int] = {}
        """Nanoseconds of the containers of a pod that have ended, by its uid."""
        self._disk: dict[Path, int] = {}
        self._disk_at = -DISK_INTERVAL
        self._sample: Sample | None = None
        """The newest; it is replaced by a thread, and read meanwhile."""
        self._measuring = asyncio.Lock()

    async def run(self) -> None:
        """Measure for ever."""
        while True:
            try:
                await self.measure()
            except OSError as error:
                log.warning("what this machine uses is not known: %s", error)
            await asyncio.sleep(INTERVAL)

    async def snapshot(self, node: str) -> Snapshot:
        """What the node and its pods use, at most a second old.  Raises OSError."""
        if not self._is_fresh():
            await self.measure()
        sample = self._sample
        assert sample is not None
        pods = [pod for owner, pod in sample.pods.values() if owner == node]
        share, size = sample.shares.get(node), self._nodes().get(node)
        shown = await asyncio.to_thread(self._machine_as, node, sample.machine)
        return Snapshot(shown if share is None or size is None else part(shown, share, size), pods)

    async def measure(self) -> None:
        """Measure once.  Raises OSError."""
        async with self._measuring:
            if not self._is_fresh():
                running, nodes = self._running(), dict(self._nodes())
                await asyncio.to_thread(self._measure, running, nodes)

    def _is_fresh(self) -> bool:
        return self._sample is not None and self._clock() - self._sample.machine.at <= FRESH

    def _running(self) -> list[RunningPod]:
        groups = self._groups()
        return [_running(worker, groups) for worker in self._workers()]

    def _measure(self, pods: list[RunningPod], nodes: Mapping[str, NodeSize]) -> None:
        known = measures.processes()
        families = measures.families(known, [one.pid for pod in pods for one in pod.containers])
        at = self._clock()
        before = {key[0]: one.cpu for key, one in self._counters.items() if len(key) == 1}
        if at - self._disk_at >= DISK_INTERVAL:
            self._disk, self._disk_at = self._sizes(pods), at
        seen: dict[tuple[str, ...], Counter] = {}
        found: dict[str, tuple[str, PodUsage]] = {}
        for pod in pods:
            usages = []
            for one in pod.containers:
                family = measures.of_processes(
                    known[pid] for pid in families[one.pid] if pid in known
                )
                measure = measures.of_groups(one.groups, family)
                key = (pod.uid, one.name, str(one.attempt))
                usages.append(self._container(one, self._count(seen, key, at, measure)))
            inside = [families[one.pid][1] for one in pod.containers if families[one.pid][1:]]
            found[pod.uid] = pod.node, self._pod(pod, usages, inside, seen, at)
        machine = self._count(seen, (), at, measures.of_machine())
        shares = {}
        for name, size in nodes.items() if len(nodes) > 1 else ():
            own = {uid: pod for uid, (node, pod) in found.items() if node == name}
            since = sum(pod.use.cpu - before.get(uid, 0) for uid, pod in own.items())
            shares[name] = self._share(seen, name, size, list(own.values()), since, at)
        self._counters = seen
        self._ended = {uid: spent for uid, spent in self._ended.items() if uid in found}
        self._sample = Sample(machine, shares, found)

    def _count(
        self, seen: dict[tuple[str, ...], Counter], key: tuple[str, ...], at: float, now: Measure
    ) -> Use:
        counter = self._counters.get(key)
        if counter is None:
            counter = Counter(at, now.cpu)
        else:
            counter.count(at, now.cpu)
        seen[key] = counter
        return Use(at, counter.cpu, counter.rate, now.memory, now.processes)

    def _container(self, one: Running, use: Use) -> ContainerUsage:
        written, logs = one.places
        return ContainerUsage(
            one.name, one.image, one.attempt, one.started, use, one.memory_limit,
            self._disk.get(written, 0), self._disk.get(logs, 0),
        )  # fmt: skip

    def _pod(
        self,
        pod: RunningPod,
        containers: list[ContainerUsage],
        inside: list[int],
        seen: dict[tuple[str, ...], Counter],
        at: float,
    ) -> PodUsage:
        for key, counter in self._counters.items():
            if len(key) == 3 and key[0] == pod.uid and key not in seen:
                self._ended[pod.uid] = self._ended.get(pod.uid, 0) + counter.cpu
        memory = total(one.use.memory for one in containers)
        spent = self._ended.get(pod.uid, 0) + sum(one.use.cpu for one in containers)
        whole = Measure(spent, memory, sum(one.use.processes for one in containers))
        return PodUsage(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.started,
            self._count(seen, (pod.uid,), at, whole),
            containers,
            measures.networks(PROC / str(inside[0])) if pod.own_network and inside else (),
            {name: self._disk.get(place, 0) for name, place in pod.volumes},
        )

    def _share(
        self,
        seen: dict[tuple[str, ...], Counter],
        name: str,
        size: NodeSize,
        pods: list[PodUsage],
        since: int,
        at: float,
    ) -> Use:
        """What a node's pods use together, which is at most what it has.  `since`: nanoseconds of
        processor time since the last measurement."""
        key = ("", name)
        before = self._counters.get(key)
        if before is None:
            spent = sum(pod.use.cpu for pod in pods)
        else:
            spent = before.cpu + min(since, int(size.cores * 1e9 * (at - before.at)))
        memory = total(pod.use.memory for pod in pods)
        held = Memory(
            min(memory.usage, size.memory),
            min(memory.working_set, size.memory),
            memory.rss,
            memory.faults,
            memory.major_faults,
        )
        return self._count(
            seen, key, at, Measure(spent, held, sum(pod.use.processes for pod in pods))
        )

    def _sizes(self, pods: list[RunningPod]) -> dict[Path, int]:
        places = [place for pod in pods for _, place in pod.volumes]
        places += [place for pod in pods for one in pod.containers for place in one.places]
        return {place: size_of(place) for place in places}

    def _machine_as(self, name: str, use: Use) -> NodeUsage:
        disk, memory = os.statvfs(self._root), psutil.virtual_memory()
        size = disk.f_frsize
        return NodeUsage(
            name,
            psutil.boot_time(),
            use,
            Disk(
                disk.f_bavail * size,
                disk.f_blocks * size,
                (disk.f_blocks - disk.f_bfree) * size,
                disk.f_files,
                disk.f_ffree,
            ),
            measures.networks(PROC / "self"),
            measures.swap(),
            os.cpu_count() or 1,
            memory.total,
            memory.available,
            measures.number(PROC / "sys/kernel/pid_max") or 0,
            measures.pressure(),
        )


def total(parts: Iterable[Memory]) -> Memory:
    """The memory of several together."""
    all_parts = list(parts)
    return Memory(
        sum(one.usage for one in all_parts),
        sum(one.working_set for one in all_parts),
        sum(one.rss for one in all_parts),
        sum(one.faults for one in all_parts),
        sum(one.major_faults for one in all_parts),
    )


def part(machine: NodeUsage, use: Use, size: NodeSize) -> NodeUsage:
    """A node that is a part of a machine."""
    return replace(
        machine,
        use=use,
        cores=size.cores,
        memory_total=size.memory,
        memory_available=size.memory - use.memory.working_set,
    )


def _running(worker: PodWorker, groups: PodGroups | None) -> RunningPod:
    """What is to be measured of a pod."""
    pod, directory = worker.pod, worker.directory
    containers = []
    for one in worker.containers:
        since, instance = one.view.running_since, one.instance
        if since is None or instance is None:
            continue
        limit = one.spec.resources.limits.get("memory")
        containers.append(
            Running(
                one.spec.name,
                one.view.image,
                instance.slot.attempt,
                since,
                instance.claim.pid,
                groups.of(worker.uid, one.spec.name, instance.slot.attempt) if groups else (),
                quantity.whole(limit) if limit else 0,
                (directory.scratch / one.spec.name, directory.path / "containers" / one.spec.name),
            )
        )
    volumes = [
        (volume.name, worker.volumes.paths.get(volume.name, directory.volumes / volume.name))
        for volume in pod.spec.volumes
        if volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
    ]
    return RunningPod(
        pod.metadata.namespace,
        pod.metadata.name,
        worker.uid,
        pod.spec.node_name,
        worker.view.started,
        worker.own_network,
        tuple(volumes),
        tuple(containers),
    )
