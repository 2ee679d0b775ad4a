"""The kubelet of the nodes of this machine: which pods are its own, and a worker for each that is not
over."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

from hekla.api import meta
from hekla.api.kubernetes import core
from hekla.api.text import quantity
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.events import Recorder
from hekla.kube.http.client import TransportError
from hekla.local.kubelet.background_tasks import BackgroundTasks
from hekla.local.kubelet.environment import references
from hekla.local.kubelet.host import Host
from hekla.local.kubelet.naming import ports_of
from hekla.local.kubelet.network.policies import Endpoint
from hekla.local.kubelet.network_policies import NetworkPolicies
from hekla.local.kubelet.nodes.node import RegisteredNode
from hekla.local.kubelet.objects import Objects
from hekla.local.kubelet.pods.admit import refusal
from hekla.local.kubelet.pods.images import Images
from hekla.local.kubelet.pods.pod_worker import PodWorker
from hekla.local.kubelet.pods.pressure import Pressure, Threshold
from hekla.local.kubelet.pods.statuses import FINAL
from hekla.local.kubelet.records import PodDirectory, pod_directories
from hekla.local.kubelet.runtime.isolation import Isolation
from hekla.local.kubelet.runtime.pod_groups import PodGroups
from hekla.local.kubelet.usage import own_metrics
from hekla.local.kubelet.usage.sampler import NodeSize, UsageSampler

log = logging.getLogger("kubelet")

ORPHAN_GRACE = 2.0
SHUT_DOWN_GRACE = 10.0
"""Seconds that pods get when the node goes down with its machine."""


class Kubelet:
    """All real nodes of this kubelet and the pods on them."""

    def __init__(
        self,
        client: Client,
        root: Path,
        isolation: Isolation,
        images: Images,
        recorder: Recorder,
        api: tuple[str, str],
        thresholds: list[Threshold] | None = None,
        groups_for_every_pod: bool = False,
    ) -> None:
        self.client = client
        self.root = root
        self.objects = Objects(client)
        self.host = Host(root, client, self.objects, isolation, images, recorder, api=api)
        self.policies = NetworkPolicies(
            client, recorder, self.host.network, self._endpoints, isolation.unenforced
        )
        self.nodes: dict[str, RegisteredNode] = {}
        self.pods: dict[str, Cache[core.Pod]] = {}
        self.workers: dict[str, PodWorker] = {}
        self.finished: set[str] = set()
        """Pods that are over while their objects still exist: only their logs are kept."""
        self.holding: dict[str, dict[str, core.Pod]] = defaultdict(dict)
        """By node and uid: the pods that count against the node's size."""
        self._referers: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        self._tasks = BackgroundTasks()
        self.usage = UsageSampler(
            root, self._node_sizes, self.workers.values, lambda: self.host.groups
        )
        self.pressure = Pressure(
            root, thresholds or [], lambda: list(self.workers.values()), self._pressed
        )
        if isolation.cgroup is not None:
            self.host.groups = PodGroups.prepare(
                isolation.cgroup, root, os.cpu_count() or 1, groups_for_every_pod
            )

    # --- running ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a worker for every pod of the nodes.  Returns when each has one."""
        self.host.on_new_network = self._network_is_new
        for name, node in self.nodes.items():
            self._tasks.start(node.run(), f"node {name}")
        for name in self.nodes:
            self.pods[name] = Cache(self.client, core.POD, fields=f"spec.nodeName={name}")
        caches = [*self.objects.caches, *self.policies.caches, *self.pods.values()]
        await asyncio.gather(*(cache.start() for cache in caches))
        await asyncio.gather(
            *(cache.synced() for cache in caches if cache not in self.policies.caches)
        )
        await self.policies.synced()
        await asyncio.gather(*(node.registered.wait() for node in self.nodes.values()))
        await self.host.start()
        for cache in self.pods.values():
            cache.on_change(self._pod_changed)
        self.objects.config_maps.on_change(
            lambda old, new: self._object_changed("ConfigMap", old, new)
        )
        self.objects.secrets.on_change(lambda old, new: self._object_changed("Secret", old, new))
        self.objects.service_cache.on_change(self._service_changed)
        self.objects.on_endpoints = self.host.names.refresh
        self.policies.start()
        self.host.isolated = self.policies.settled
        self.policies.changed()
        known = {pod.metadata.uid for cache in self.pods.values() for pod in cache.all()}
        if self.host.network is not None:
            self.host.network.tell({"do": "keep", "uids": list(self.workers)})
        self._tasks.start(self.pressure.run(), "pressure")
        self._tasks.start(self.usage.run(), "usage")
        for directory in pod_directories(self.root):
            if directory.path.name not in known:
                self._tasks.start(self.end_orphan(directory), f"orphan {directory.path.name}")

    async def shut_down(self) -> None:
        """Shut down with the machine: the nodes say so, and every pod is ended, with the grace that
        there is time for."""
        for node in self.nodes.values():
            try:
                await node.stop()
            except (ApiError, TransportError) as error:
                log.info("node %s: %s", node.name, error)
        for worker in self.workers.values():
            worker.shut_down()
        deadline = asyncio.get_running_loop().time() + SHUT_DOWN_GRACE
        while self.workers and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Close the kubelet; containers run on and are adopted by the next one."""
        await self._tasks.cancel(
            *(worker.task for worker in self.workers.values() if worker.task is not None)
        )
        for worker in self.workers.values():
            worker.containers.forget_tasks()
        await self.policies.close()
        for cache in [*self.objects.caches, *self.policies.caches, *self.pods.values()]:
            await cache.stop()
        await self.host.close()

    # --- pods -------------------------------------------------------------------------------------

    def _pod_changed(self, old: core.Pod | None, new: core.Pod | None) -> None:
        if new is None:
            assert old is not None
            self._pod_gone(old)
            return
        uid = new.metadata.uid
        worker = self.workers.get(uid)
        if worker is not None:
            worker.update(new)
            if old is not None and old.metadata.labels != new.metadata.labels:
                self.policies.changed()
        elif uid in self.finished or (
            new.status.phase in FINAL and not new.metadata.deletion_timestamp
        ):
            self.finished.add(uid)
            if new.metadata.deletion_timestamp and new.status.phase not in FINAL:
                self._tasks.start(self.delete(new), f"deletion of {meta.key(new)}")
        else:
            self.take(new)

    def take(self, pod: core.Pod) -> None:
        """Start a worker for a pod."""
        node = self.nodes[pod.spec.node_name]
        worker = PodWorker(self.host, pod, self.admit, node.allocatable, self._closed)
        self.workers[pod.metadata.uid] = worker
        maps, secrets = references(pod)
        namespace = pod.metadata.namespace
        for kind, found in (("ConfigMap", maps), ("Secret", secrets)):
            for name in found:
                self._referers[kind, namespace, name].add(pod.metadata.uid)
        worker.restore()
        if worker.admitted:
            self.holding[pod.spec.node_name][pod.metadata.uid] = pod
            if self.host.groups is not None:
                self.host.groups.adopt(pod)
        worker.start()

    def _node_sizes(self) -> dict[str, NodeSize]:
        return {
            name: NodeSize(
                quantity.milli(node.capacity["cpu"]) / 1000, quantity.whole(node.capacity["memory"])
            )
            for name, node in self.nodes.items()
        }

    def _pressed(self, conditions: set[str]) -> None:
        for node in self.nodes.values():
            node.press(conditions)

    def admit(self, pod: core.Pod) -> tuple[str, str] | None:
        """Admit a pod to its node, or give (reason, message) of why not.  An admitted pod counts
        against the node from then on."""
        name = pod.spec.node_name
        node = self.nodes[name].node
        own = pod.metadata.uid  # it may be counted already, and now ask for another size
        holding = (
            held
            for uid, held in self.holding[name].items()
            if uid != own and (uid not in self.workers or not self.workers[uid].vacated)
        )
        refused = None if node is None else refusal(pod, node, holding)
        if refused is None:
            self.holding[name][pod.metadata.uid] = pod
        return refused

    def _closed(self, worker: PodWorker) -> None:
        """The pod holds nothing of the node any more."""
        pod = worker.pod
        self.workers.pop(worker.uid, None)
        self.policies.changed()
        self.holding[pod.spec.node_name].pop(worker.uid, None)
        if self.host.groups is not None:
            self.host.groups.forget_pod(worker.uid)
        maps, secrets = references(pod)
        for kind, found in (("ConfigMap", maps), ("Secret", secrets)):
            for name in found:
                self._referers[kind, pod.metadata.namespace, name].discard(worker.uid)
        if not worker.deleted:
            self.finished.add(worker.uid)

    def _pod_gone(self, pod: core.Pod) -> None:
        uid = pod.metadata.uid
        worker = self.workers.get(uid)
        if worker is not None:
            worker.gone()
            return
        self.finished.discard(uid)
        self.host.addresses.give_back(uid)
        PodDirectory(self.root, uid).remove()

    async def delete(self, pod: core.Pod) -> None:
        """Finish a deletion that came while the pod's last status was being sent."""
        own = pod.metadata
        await self.host.reporter.flush(own.uid)
        while not await self.host.reporter.delete(own.uid, own.namespace, own.name):
            await asyncio.sleep(1.0)

    async def end_orphan(self, directory: PodDirectory) -> None:
        """End what is left of a pod whose object was deleted while no kubelet ran."""
        uid = directory.path.name
        running = [
            instance
            for slot in directory.slots()
            if (instance := self.host.runtime.adopt(slot, lambda _: None)) is not None
            and instance.exit is None
        ]
        if running:
            log.info("pod %s is gone; ending %d containers of it", uid, len(running))
        for instance in running:
            await self.host.runtime.signal(instance, signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + ORPHAN_GRACE
        while any(i.exit is None for i in running) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        for instance in running:
            await self.host.runtime.kill(instance)
        if self.host.groups is not None:
            self.host.groups.forget_orphan(uid)
        self.host.addresses.give_back(uid)
        directory.remove()

    def _endpoints(self) -> list[Endpoint]:
        """The pods that have an address of their own, as network policies see them."""
        taken = self.host.addresses.taken
        return [
            Endpoint(pod.metadata.namespace, worker.view.pod_ip, pod.metadata.labels, ports_of(pod))
            for uid, worker in self.workers.items()
            if not (pod := worker.pod).spec.host_network
            and worker.view.pod_ip
            and taken.get(uid) == worker.view.pod_ip
        ]

    # --- what pods refer to -----------------------------------------------------------------------

    def _service_changed(self, old: core.Service | None, new: core.Service | None) -> None:
        found = new or old
        assert found is not None
        if self.host.network is not None:
            self.objects.follow_endpoints(found, new is not None and not new.spec.selector)
        self.host.names.refresh(found.metadata.namespace)

    def _network_is_new(self) -> None:
        for worker in self.workers.values():
            worker.reconnect()

    def _object_changed(self, kind: str, old: Any, new: Any) -> None:
        found = new if new is not None else old
        key = (kind, found.metadata.namespace, found.metadata.name)
        for uid in self._referers.get(key, ()):
            if (worker := self.workers.get(uid)) is not None:
                worker.wake()

    # --- for the endpoint -------------------------------------------------------------------------

    def find(self, node: str, namespace: str, name: str) -> core.Pod | None:
        cache = self.pods.get(node)
        return None if cache is None else cache.get(f"{namespace}/{name}")

    def metrics(self, node: str) -> bytes:
        """What this kubelet tells of itself, as that of one node."""
        return own_metrics.kubelet(node, len(self.pods_of(node)), self._workers_of(node))

    def probes(self, node: str) -> bytes:
        """How the probes of a node's pods went."""
        return own_metrics.probes(self._workers_of(node))

    def _workers_of(self, node: str) -> list[PodWorker]:
        return [worker for worker in self.workers.values() if worker.pod.spec.node_name == node]

    def pods_of(self, node: str) -> list[core.Pod]:
        cache = self.pods.get(node)
        return [] if cache is None else list(cache.all())
