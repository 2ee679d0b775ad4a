"""Brings what the API server says into the engine's state.

One list-and-watch a kind.  An object is read into the engine's tables when it comes and then let go
but for its identity, so that a cluster of ten thousand pods is held once, in the tables.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hekla.api import nodeinfo, scheduling, shard, topology
from hekla.api.kinds import Kind
from hekla.api.kubernetes import apps, claims, core, policy, priority, resource, services, storage
from hekla.engine.model.shards import NONE
from hekla.engine.model.state import State
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.objects import version_of
from hekla.scheduler import partial_pods
from hekla.scheduler.devices import DEFAULT_MAP
from hekla.scheduler.hash_ring import Ring
from hekla.scheduler.metrics import WATCHED

log = logging.getLogger(__name__)

Tree = dict[str, Any]
IDENTITY = ("name", "namespace", "uid", "resourceVersion")


class NodeSelector(NamedTuple):
    """The nodes that are used: those with one of these labels; without labels, all.  Reference:
    scheduler-core 2.4.

    Unlike upstream, a node that no longer matches leaves.
    """

    labels: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> NodeSelector:
        """Entries `key:value`; one without a value is left out, as upstream does."""
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
"""Seconds that the first cycle waits for a kind that it could do without."""


class Source(NamedTuple):
    """A kind, and what the state does when an object of it comes or goes."""

    kind: Kind[Any]
    upsert: Callable[[Any], None]
    remove: Callable[[Any], None]
    needed: bool = True
    """Nothing can be decided without it.  What only some plugins read may belong to a kind that the
    cluster does not serve."""
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
    """Everything that the engine wants to know of.  Without `batch` there are neither queues nor
    groups.

    `taint_rules`: the server has DeviceTaintRules, which few do.
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
        """Takes what belongs to this scheduler of several; without a ring, everything."""
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
    """An object that the engine could not take."""

    kind: str
    key: str
    uid: str
    reason: str


class Informers:
    """The caches behind the state; `changed` is set by every event."""

    def __init__(
        self,
        client: Client,
        state: State,
        selector: NodeSelector = EVERY_NODE,
        device_map: tuple[str, str] = DEFAULT_MAP,
        *,
        batch: bool = True,
        ring: Ring | None = None,
        taint_rules: bool = False,
        whole: bool = False,
    ) -> None:
        """`whole`: objects are read with all that they say, as a recording keeps them."""
        self.state = state
        self.changed = asyncio.Event()
        self.caches: list[Cache[Tree]] = []
        self.needed: set[Cache[Tree]] = set()
        self.told: dict[tuple[str, str], str] = {}
        """What was left out and why, as far as it has been said."""
        self.uids: dict[tuple[str, str], str] = {}
        """Which objects these are."""
        for source in sources(state, selector, device_map, batch, ring, taint_rules):
            fields = f"metadata.name={source.name}" if source.name else ""
            kind = (
                partial_pods.POD if source.kind is core.POD and not whole else source.kind.untyped
            )
            cache = Cache(client, kind, namespace=source.namespace, fields=fields)
            cache.on_change(self.listener(source))
            self.caches.append(cache)
            if source.needed:
                self.needed.add(cache)

    async def start(self) -> None:
        """Lists everything, so that the first cycle sees the whole cluster."""
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

    def cache_of(self, kind: Kind[Any]) -> Cache[Tree]:
        """The cache behind one kind; of its objects only the identity is left."""
        return next(cache for cache in self.caches if cache.kind.plural == kind.plural)

    def versions_of(self, kind: Kind[Any]) -> Callable[[str], str]:
        """What gives the version in which an object of a kind was seen last, by its key; "" for one
        that was not."""
        cache = self.cache_of(kind)

        def version(key: str) -> str:
            found = cache.get(key)
            return "" if found is None else version_of(found)

        return version

    def listener(self, source: Source) -> Callable[[Tree | None, Tree | None], None]:
        """What the cache of one kind calls."""
        is_pod = source.kind is core.POD

        def changed(old: Tree | None, new: Tree | None) -> None:
            if new is None:
                source.remove(old)
            else:
                if old is not None and old["metadata"].get("uid") != new["metadata"].get("uid"):
                    source.remove(old)
                source.upsert(new)
                if old is None and is_pod and not (new.get("spec") or {}).get("nodeName"):
                    self.watched(new)
                if self.state.rejected:
                    self.remember(source.kind.kind, new["metadata"])
                keep_identity(new)
            self.changed.set()

        return changed

    def watched(self, pod: Tree) -> None:
        """A pod that waits was seen for the first time."""
        metadata = pod["metadata"]
        task = self.state.tasks.get(f"{metadata.get('namespace', '')}/{metadata['name']}")
        if task is not None:
            WATCHED.observe(max(0.0, 1000 * (time.time() - task.creation)))

    def remember(self, kind: str, metadata: Tree) -> None:
        """Notes which object it is that was left out, so that it can be told."""
        key = (kind, "/".join(filter(None, (metadata.get("namespace"), metadata["name"]))))
        if key in self.state.rejected:
            self.uids[key] = metadata.get("uid", "")

    def newly_rejected(self) -> list[RejectedObject]:
        """The objects that the engine could not take, or not for the reason of before, since the
        last call."""
        known, self.told = self.told, dict(self.state.rejected)
        if not self.told:
            self.uids.clear()
        return [
            RejectedObject(kind, key, self.uids.get((kind, key), ""), reason)
            for (kind, key), reason in self.told.items()
            if known.get((kind, key)) != reason
        ]


def keep_identity(tree: Tree) -> None:
    """Lets go of everything in an object but what tells it from others."""
    metadata = tree["metadata"]
    tree.clear()
    tree["metadata"] = {name: metadata[name] for name in IDENTITY if name in metadata}
