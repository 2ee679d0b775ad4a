"""Keeps the engine's state up to date with the API server, by one list and watch for each kind.

The engine reads an object into its tables (`State.upsert_pod` makes a pod a pending task of its job);
of the object itself the cache keeps the identity alone, so that a cluster of ten thousand pods is in
memory once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hekla.api import nodeinfo, reservation, scheduling, shard, topology
from hekla.api.kinds import Kind
from hekla.api.kubernetes import apps, claims, core, policy, priority, resource, services, storage
from hekla.engine.model.shards import NONE
from hekla.engine.model.state import State
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.identity import identified
from hekla.kube.objects import uid_of, version_of
from hekla.scheduler import partial_pods
from hekla.scheduler.devices import DEFAULT_MAP
from hekla.scheduler.hash_ring import Ring
from hekla.scheduler.metrics import WATCHED

log = logging.getLogger(__name__)

Tree = dict[str, Any]


class NodeSelector(NamedTuple):
    """Selects nodes that have one of these labels; without labels, every node.

    Unlike upstream, a node that no longer matches leaves the scheduler.  Reference: scheduler-core
    2.4.
    """

    labels: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> NodeSelector:
        """Read entries `key:value`; an entry without a value is ignored, as upstream does."""
        pairs = (
            (key.strip(), value.strip())
            for key, _, value in (entry.partition(":") for entry in entries)
        )
        return cls(tuple(pair for pair in pairs if all(pair)))

    def admits(self, node: Tree) -> bool:
        labels = node["metadata"].get("labels") or {}
        return not self.labels or any(labels.get(key) == value for key, value in self.labels)


EVERY_NODE = NodeSelector(())

PATIENCE = 5.0
"""Seconds that the first cycle waits for the kinds that are not needed."""


class Source(NamedTuple):
    """A kind, and the calls of the state when an object of it changes or goes."""

    kind: Kind[Any]
    upsert: Callable[[Any], None]
    remove: Callable[[Any], None]
    needed: bool = True
    """Whether the first cycle waits for it.  A cluster may not serve the kinds that only some
    plugins read."""
    namespace: str | None = None
    name: str = ""
    """Only the object of this name."""


def sources(
    state: State,
    selector: NodeSelector = EVERY_NODE,
    device_map: tuple[str, str] = DEFAULT_MAP,
    batch: bool = True,
    ring: Ring | None = None,
    taint_rules: bool = False,
) -> list[Source]:
    """All kinds that the engine reads.

    `device_map`: namespace and name of the ConfigMap of device models.  `batch`: read queues and
    PodGroups.  `ring`: take only what belongs to this member of it.  `taint_rules`: the server has
    DeviceTaintRules, which few have.
    """

    def other(kind: Kind[Any]) -> Source:
        return Source(
            kind,
            lambda tree: state.upsert_other(kind.kind, tree),
            lambda tree: state.remove_other(kind.kind, tree),
            needed=False,
        )

    def take_node(node: Tree) -> None:
        if selector.admits(node) and (ring is None or ring.owns_node(node["metadata"]["name"])):
            state.upsert_node(node)
        else:
            state.remove_node(node)

    def ours(
        take: Callable[[Tree], None],
        drop: Callable[[Tree], None],
        counts: Callable[[Ring, Tree], bool],
    ) -> Callable[[Tree], None]:
        """`take` for objects that belong to this scheduler, `drop` for others; without a ring, all
        belong to it."""
        if ring is None:
            return take
        return lambda tree: take(tree) if counts(ring, tree) else drop(tree)

    return [
        Source(priority.PRIORITY_CLASS, state.upsert_priority_class, state.remove_priority_class),
        Source(
            core.NAMESPACE,
            state.upsert_namespace,
            lambda tree: state.remove_other("Namespace", tree),
        ),
        Source(core.NODE, take_node, state.remove_node),
        *(
            [
                Source(scheduling.QUEUE, state.upsert_queue, state.remove_queue),
                Source(
                    scheduling.POD_GROUP,
                    ours(state.upsert_pod_group, state.remove_pod_group, Ring.owns),
                    state.remove_pod_group,
                ),
            ]
            if batch
            else ()
        ),
        Source(
            core.POD, ours(state.upsert_pod, state.remove_pod, Ring.has_business), state.remove_pod
        ),
        other(topology.HYPER_NODE),
        other(core.RESOURCE_QUOTA),
        other(policy.POD_DISRUPTION_BUDGET),
        other(claims.PERSISTENT_VOLUME),
        other(claims.PERSISTENT_VOLUME_CLAIM),
        other(storage.STORAGE_CLASS),
        other(storage.CSI_NODE),
        other(storage.CSI_DRIVER),
        other(storage.CSI_STORAGE_CAPACITY),
        other(nodeinfo.NUMATOPOLOGY),
        *([other(reservation.RESERVATION)] if batch else ()),
        other(services.SERVICE),
        other(apps.REPLICA_SET),
        other(apps.STATEFUL_SET),
        other(core.REPLICATION_CONTROLLER),
        other(resource.RESOURCE_CLAIM),
        other(resource.RESOURCE_SLICE),
        other(resource.DEVICE_CLASS),
        *([other(resource.DEVICE_TAINT_RULE)] if taint_rules else ()),
        other(core.CONFIG_MAP)._replace(namespace=device_map[0], name=device_map[1]),
        *([other(shard.NODE_SHARD)] if state.shard.mode != NONE else ()),
    ]


class RejectedObject(NamedTuple):
    """An object that the engine could not read, and why."""

    kind: str
    key: str
    uid: str
    reason: str


class Informers:
    """The caches behind the state.  Every event sets `changed`, which starts the scheduler's next cycle."""

    def __init__(
        self, client: Client, state: State, wanted: Iterable[Source], *, whole: bool = False
    ) -> None:
        """`wanted`: which kinds, and who takes their objects (`sources`).  `whole`: decode all
        fields of pods, as a recording needs them."""
        self.state = state
        self.changed = asyncio.Event()
        self.caches: list[Cache[Any]] = []
        self.needed: set[Cache[Any]] = set()
        self.reported: dict[tuple[str, str], str] = {}
        """(Kind, key) of rejected objects that were reported -> the reason."""
        self.uids: dict[tuple[str, str], str] = {}
        """(Kind, key) of rejected objects -> their uid."""
        for source in wanted:
            fields = f"metadata.name={source.name}" if source.name else ""
            kind: Kind[Any] = (
                partial_pods.POD if source.kind is core.POD and not whole else source.kind.untyped
            )
            cache = Cache(
                client,
                kind,
                namespace=source.namespace,
                fields=fields,
                streamed=source.needed,
                keep=identified,
            )
            cache.on_change(self.listener(source))
            self.caches.append(cache)
            if source.needed:
                self.needed.add(cache)

    async def start(self) -> None:
        """List every kind, so that the first cycle sees the whole cluster."""
        for cache in self.caches:
            await cache.start()
        for cache in self.caches:
            if cache in self.needed:
                await cache.synced()
        rest = [
            asyncio.ensure_future(cache.synced())
            for cache in self.caches
            if cache not in self.needed
        ]
        _, late = await asyncio.wait(rest, timeout=PATIENCE)
        for task in late:
            task.cancel()
        missing = [cache.kind.plural for cache in self.caches if not cache.has_synced]
        if missing:
            log.warning("%s cannot be listed yet; scheduling goes on without", ", ".join(missing))

    def cache_of(self, kind: Kind[Any]) -> Cache[Any]:
        """The cache of one kind.  Its objects have their identity alone."""
        return next(cache for cache in self.caches if cache.kind.plural == kind.plural)

    def versions_of(self, kind: Kind[Any]) -> Callable[[str], str]:
        """A function from an object's key to its newest resourceVersion that was seen; "" for an
        unknown object."""
        cache = self.cache_of(kind)

        def version(key: str) -> str:
            found = cache.get(key)
            return "" if found is None else version_of(found)

        return version

    def listener(self, source: Source) -> Callable[[Tree | None, Tree | None], None]:
        """The change listener for the cache of one kind."""
        is_pod = source.kind is core.POD

        def changed(old: Tree | None, new: Tree | None) -> None:
            if new is None:
                source.remove(old)
            else:
                if old is not None and uid_of(old) != uid_of(new):
                    source.remove(old)
                source.upsert(new)
                if old is None and is_pod and not (new.get("spec") or {}).get("nodeName"):
                    self.watched(new)
                if self.state.rejected:
                    self.remember(source.kind.kind, new["metadata"])
            self.changed.set()

        return changed

    def watched(self, pod: Tree) -> None:
        """Count how long a new pending pod took to get here."""
        metadata = pod["metadata"]
        task = self.state.tasks.get(f"{metadata.get('namespace', '')}/{metadata['name']}")
        if task is not None:
            WATCHED.observe(max(0.0, 1000 * (time.time() - task.creation)))

    def remember(self, kind: str, metadata: Tree) -> None:
        """Remember the uid of an object that the engine rejected, for the event about it."""
        key = (kind, "/".join(filter(None, (metadata.get("namespace"), metadata["name"]))))
        if key in self.state.rejected:
            self.uids[key] = metadata.get("uid", "")

    def newly_rejected(self) -> list[RejectedObject]:
        """The objects that were rejected, or rejected for another reason, since the last call."""
        known, self.reported = self.reported, dict(self.state.rejected)
        if not self.reported:
            self.uids.clear()
        return [
            RejectedObject(kind, key, self.uids.get((kind, key), ""), reason)
            for (kind, key), reason in self.reported.items()
            if known.get((kind, key)) != reason
        ]
