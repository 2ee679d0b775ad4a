"""Keeps the tables up to date with the API server.  Of a pod only what the tables say stays in memory."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

from hekla.api import scheduling
from hekla.api.kinds import Kind, read_as
from hekla.api.kubernetes import core, priority
from hekla.api.meta import key
from hekla.api.trees import Tree
from hekla.descheduler.reading import node_of, pod_of, wishes_of
from hekla.descheduler.tables import Tables
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.kube.identity import identified
from hekla.kube.objects import uid_of

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds that a cycle waits for the first list of PodGroups."""
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)


class Metadata(TypedDict, total=False):
    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    creationTimestamp: Any
    deletionTimestamp: Any


class Container(TypedDict, total=False):
    image: Any
    resources: Any
    restartPolicy: Any


class Spec(TypedDict, total=False):
    affinity: Any
    containers: list[Container]
    initContainers: list[Container]
    nodeName: Any
    nodeSelector: Any
    overhead: Any
    priority: Any
    priorityClassName: Any
    resources: Any
    tolerations: Any
    topologySpreadConstraints: Any
    volumes: Any


class ContainerStatus(TypedDict, total=False):
    restartCount: Any
    state: Any


class Status(TypedDict, total=False):
    containerStatuses: list[ContainerStatus]
    initContainerStatuses: list[ContainerStatus]
    phase: Any
    qosClass: Any
    reason: Any
    startTime: Any


class Pod(TypedDict, total=False):
    metadata: Metadata
    spec: Spec
    status: Status


class GroupSpec(TypedDict, total=False):
    minMember: Any


class Group(TypedDict, total=False):
    metadata: Metadata
    spec: GroupSpec


POD = cast("Kind[dict[str, Any]]", read_as(core.POD, Pod))
POD_GROUP = cast("Kind[dict[str, Any]]", read_as(scheduling.POD_GROUP, Group))


class Informers:
    """The caches behind the tables."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.time) -> None:
        self.tables = Tables()
        self.settling: dict[str, float] = {}
        """When a node last lost a pod to an eviction of ours."""
        self._client = client
        self._clock = clock
        self._leaving: dict[str, str] = {}
        """Evicted pods that are still there: uid -> node."""
        self._reported: set[str] = set()
        self._caches = [
            self._cache(client, core.NODE.untyped, self._node, self.tables.drop_node),
            self._cache(client, POD, self._pod, self.tables.drop_pod),
            self._cache(client, priority.PRIORITY_CLASS.untyped, self._priority, self._no_priority),
        ]
        self._groups = self._cache(client, POD_GROUP, self._group, self._no_group)

    def _cache(
        self,
        client: Client,
        kind: Kind[dict[str, Any]],
        put: Callable[[Tree], None],
        drop: Callable[[str], None],
    ) -> Cache[dict[str, Any]]:
        cache = Cache(client, kind, streamed=True, keep=identified)

        def changed(old: Tree | None, new: Tree | None) -> None:
            if new is None or (old is not None and uid_of(old) != uid_of(new)):
                drop(key(old))
                self._gone(uid_of(old))
            if new is None:
                return
            try:
                put(new)
            except UNREADABLE as error:
                name = f"{kind.kind} {key(new)}"
                drop(key(new))
                if name not in self._reported:
                    self._reported.add(name)
                    log.warning("%s cannot be read and is left out: %s", name, error)

        cache.on_change(changed)
        return cache

    async def start(self) -> None:
        """List every kind."""
        for cache in self._caches:
            await cache.start()
        for cache in self._caches:
            await cache.synced()
        await self.look_for_groups()

    async def look_for_groups(self) -> None:
        """Follow PodGroups once the cluster has them; without them there are no gangs to keep."""
        if self._groups.has_synced:
            return
        try:
            await self._client.request("GET", POD_GROUP.path(), {"limit": "1"})
            await self._groups.start()
            async with asyncio.timeout(PATIENCE):
                await self._groups.synced()
        except NotFound:
            log.debug("the cluster has no PodGroups, so there is no gang to keep")
        except (ApiError, TransportError, TimeoutError) as error:
            log.warning(
                "podgroups cannot be listed yet, no gang is known: %s", error or "it takes too long"
            )

    async def stop(self) -> None:
        for cache in (*self._caches, self._groups):
            await cache.stop()

    # what changes

    def _node(self, tree: Tree) -> None:
        self.tables.put_node(node_of(tree))

    def _pod(self, tree: Tree) -> None:
        self.tables.put_pod(pod_of(tree))

    def _priority(self, tree: Tree) -> None:
        name = tree["metadata"]["name"]
        self.tables.priorities[name] = int(tree.get("value") or 0)
        self.tables.wishes_of_classes[name] = wishes_of(tree["metadata"].get("annotations"))

    def _no_priority(self, name: str) -> None:
        self.tables.priorities.pop(name, None)
        self.tables.wishes_of_classes.pop(name, None)

    def _group(self, tree: Tree) -> None:
        self.tables.minimum[key(tree)] = int((tree.get("spec") or {}).get("minMember") or 0)
        self.tables.wishes_of_groups[key(tree)] = wishes_of(tree["metadata"].get("annotations"))

    def _no_group(self, name: str) -> None:
        self.tables.minimum.pop(name, None)
        self.tables.wishes_of_groups.pop(name, None)

    # what was evicted

    def evicted(self, uid: str, node: str) -> None:
        """The node uses less only when the pod has gone and somebody has measured again."""
        self._leaving[uid] = node
        self.settling[node] = self._clock()

    def take_over(self, settling: Mapping[str, float], all_of_them: bool) -> None:
        """After a process before this one: pods that are ending are waited for whoever evicted them; with
        `all_of_them`, any node may have lost one just now."""
        now = self._clock()
        self.settling.update(settling)
        if all_of_them:
            self.settling.update(dict.fromkeys(self.tables.nodes, now))
        for pod in self.tables.pods.values():
            if pod.terminating and not pod.ended:
                self._leaving[pod.uid] = pod.node

    def settle(self) -> None:
        """Before a cycle: nodes whose evicted pods are still ending have not settled."""
        now = self._clock()
        for node in self._leaving.values():
            self.settling[node] = now

    def _gone(self, uid: str) -> None:
        node = self._leaving.pop(uid, None)
        if node is not None:
            self.settling[node] = self._clock()
