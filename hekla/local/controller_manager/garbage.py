"""The garbage collector: deletes objects whose owners are gone.  Reference: local-cluster 10.2.

It watches every kind that can be listed and deleted (custom ones as they appear) and keeps only the
graph of ownership.  Work items are uids: each is checked as it is now, against the graph, and
against the API server where the graph does not know an owner yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import msgspec

from hekla.api.meta import OwnerReference
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.graph import FOREGROUND, ORPHAN, Graph, Record
from hekla.local.controller_manager.pods import Metadata, Pod
from hekla.local.controller_manager.resources import Resource, served

log = logging.getLogger("garbage-collector")

LEFT_ALONE = {("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")}
"""Kinds that are not watched, because they change all the time and are hardly ever owned: events
are deleted by age, a node's lease with its node."""

REMEMBERED = 100_000
"""How many uids of deleted owners are remembered, so that a thousand dependents of one owner cost
one request to the API server."""


class OwnedMetadata(msgspec.Struct, rename="camel", gc=False):
    """The metadata that ownership looks at."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Owned(msgspec.Struct, gc=False):
    """Any object, with the metadata that ownership needs."""

    metadata: OwnedMetadata


def same_ties(old: OwnedMetadata | Metadata, new: OwnedMetadata | Metadata) -> bool:
    """Whether two versions of an object are the same to the graph."""
    return (
        old.owner_references == new.owner_references
        and old.finalizers == new.finalizers
        and (old.deletion_timestamp is None) == (new.deletion_timestamp is None)
    )


def record_of(resource: Resource, meta: OwnedMetadata | Metadata) -> Record:
    """An object as the graph knows it."""
    return Record(
        resource,
        meta.namespace,
        meta.name,
        meta.uid,
        meta.owner_references,
        meta.finalizers,
        meta.deletion_timestamp is not None,
    )


class GarbageCollector(Controller):
    """Keeps the graph, and deletes objects without an owner and owners that wait for their
    dependents."""

    name = "garbage-collector"

    workers = 20

    def __init__(self, client: Client, recorder: Recorder) -> None:
        super().__init__()
        self.client = client
        self.recorder = recorder
        self.graph = Graph()
        self.gone: OrderedDict[str, None] = OrderedDict()
        self.watched: dict[Resource, Cache[Owned] | Cache[Pod]] = {}
        self.resources: dict[tuple[str, str], Resource] = {}
        self.synced = False

    def plural_of(self, api_version: str, kind: str) -> str:
        """The plural of a kind that is served; empty for any other."""
        resource = self.resources.get((api_version, kind))
        return resource.plural if resource is not None else ""

    async def follow_kinds(self, shared: Mapping[str, Cache[Pod]], changed: asyncio.Event) -> None:
        """Watches all kinds for ever; looks again at what is served whenever `changed` is set.

        `shared` holds caches that others keep already, by plural: their objects need no second
        watch.
        """
        while True:
            changed.clear()
            try:
                await self.watch_served(shared)
            except ApiError as error:
                log.warning("discovery: %s", error)
                changed.set()
                await asyncio.sleep(0.5)
            if not changed.is_set():
                await changed.wait()
                await asyncio.sleep(0.05)  # several definitions are usually made at once

    async def watch_served(self, shared: Mapping[str, Cache[Pod]]) -> None:
        """Starts to watch what is new, stops what is no longer served."""
        wanted = {
            r
            for r in await served(self.client)
            if {"list", "watch", "delete"} <= r.verbs and (r.group, r.plural) not in LEFT_ALONE
        }
        self.resources = {(r.api_version, r.kind): r for r in wanted}
        for resource in self.watched.keys() - wanted:
            await self.watched.pop(resource).stop()
        started = []
        for resource in wanted - self.watched.keys():
            cache = self.cache_of(resource, shared)
            self.watched[resource] = cache
            await cache.start()
            started.append(cache)
        await asyncio.gather(*(cache.synced() for cache in started))
        if not self.synced:
            self.synced = True
            for record in self.graph.records.values():
                if record.owners or record.held_by:
                    self.queue.add(record.uid)

    def cache_of(
        self, resource: Resource, shared: Mapping[str, Cache[Pod]]
    ) -> Cache[Owned] | Cache[Pod]:
        """A cache of the resource that tells this collector of every change."""
        if not resource.group and resource.plural in shared:
            pods = shared[resource.plural]
            pods.on_change(partial(self.observe, resource))
            return pods
        cache = Cache(self.client, resource.typed(Owned))
        cache.on_change(partial(self.observe, resource))
        return cache

    def observe(self, resource: Resource, old: Owned | Pod | None, new: Owned | Pod | None) -> None:
        """One event of any kind.  The same name with another uid is another object: the old one is
        gone."""
        if old is not None and new is not None:
            if old.metadata.uid != new.metadata.uid:
                self.observe(resource, old, None)
                old = None
            elif same_ties(old.metadata, new.metadata):
                return  # most events change only a status
        if new is None:
            assert old is not None
            uid = old.metadata.uid
            record = self.graph.remove(uid)
            self.remember_gone(uid)
            for dependent in self.graph.of(uid):
                self.queue.add(dependent.uid)
            for owner in record.owners if record else ():
                self.queue_waiting_owner(owner.uid)
            return
        meta = new.metadata
        record = record_of(resource, meta)
        before = self.graph.records.get(meta.uid)
        self.graph.put(record)
        if not self.synced:
            return
        if record.owners and (before is None or before.owners != record.owners):
            if record.deleting or not all(self.stands(record, owner) for owner in record.owners):
                self.queue.add(meta.uid)
            for reference in before.owners if before else ():
                self.queue_waiting_owner(reference.uid)
        if record.held_by and (before is None or not before.held_by):
            self.queue.add(meta.uid)

    def stands(self, record: Record, owner: OwnerReference) -> bool:
        """Whether the graph has an owner of the object that stays.  A new object all of whose
        owners do needs no reconcile."""
        known = self.graph.records.get(owner.uid)
        return (
            known is not None and not known.deleting and known.namespace in ("", record.namespace)
        )

    def queue_waiting_owner(self, uid: str) -> None:
        """Queue an owner that waits for its dependents, after one of them has gone or dropped its
        reference."""
        owner = self.graph.records.get(uid)
        if owner is not None and owner.held_by:
            self.queue.add(uid)

    def remember_gone(self, uid: str) -> None:
        self.gone[uid] = None
        while len(self.gone) > REMEMBERED:
            self.gone.popitem(last=False)

    async def reconcile(self, uid: str) -> float | None:
        """Reconcile one object, by its uid."""
        record = self.graph.records.get(uid)
        if record is None:
            return None
        if record.held_by == ORPHAN:
            await self.release_dependents(record)
        elif record.held_by == FOREGROUND:
            await self.delete_dependents(record)
        if record.owners and not record.deleting:
            await self.check_owners(record)
        return None

    async def check_owners(self, record: Record) -> None:
        """Delete an object whose owners are all gone; of one that has other owners remove the
        references to those that are gone."""
        solid: list[OwnerReference] = []
        waiting: list[OwnerReference] = []
        dangling: list[OwnerReference] = []
        for owner in record.owners:
            there = await self.find_owner(record, owner)
            if there is None:
                dangling.append(owner)
            elif there.held_by == FOREGROUND:
                waiting.append(owner)
            else:
                solid.append(owner)
        if solid:
            if dangling or waiting:
                await self.drop_owners(record, {owner.uid for owner in (*dangling, *waiting)})
        elif waiting and self.graph.dependents.get(record.uid):
            if any(dependent.held_by == FOREGROUND for dependent in self.graph.of(record.uid)):
                await self.unblock(record)  # owners in a circle would wait for each other for ever
            await self.delete(record, "Foreground")
        else:
            await self.delete(record, "Background")

    async def find_owner(self, record: Record, owner: OwnerReference) -> Record | None:
        """The owner as it is now; None when it is certain that no such object exists."""
        known = self.graph.records.get(owner.uid)
        if known is not None:
            if known.resource.namespaced and known.namespace != record.namespace:
                self.warn_of_namespace(record, owner)
            else:
                return known
        if owner.uid in self.gone:
            return None
        resource = self.resources.get((owner.api_version, owner.kind))
        if resource is None:
            raise NotFound(
                404,
                "NotFound",
                f"no kind {owner.kind} of {owner.api_version} is served; it may come yet",
            )
        if resource.namespaced and not record.namespace:
            self.warn_of_namespace(record, owner)
            return record  # an owner of an impossible kind never makes an object garbage
        try:
            found = await self.client.get(
                resource.typed(Owned), owner.name, record.namespace if resource.namespaced else None
            )
        except NotFound:
            self.remember_gone(owner.uid)
            return None
        meta = found.metadata
        if meta.uid != owner.uid:
            self.remember_gone(owner.uid)
            return None
        return record_of(resource, meta)

    def warn_of_namespace(self, record: Record, owner: OwnerReference) -> None:
        self.recorder.event(
            self.as_object(record),
            "Warning",
            "OwnerRefInvalidNamespace",
            f"ownerRef [{owner.api_version}/{owner.kind}, name: {owner.name}, uid: {owner.uid}] "
            f'does not exist in namespace "{record.namespace}"',
        )

    def as_object(self, record: Record) -> Json:
        return {
            "apiVersion": record.resource.api_version,
            "kind": record.resource.kind,
            "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid},
        }

    async def delete(self, record: Record, propagation: str) -> None:
        """Deletes one object, if it still is the one that was looked at.

        One that already waits for its own dependents or for somebody else's finalizer is left as it
        is.
        """
        if ORPHAN in record.finalizers:
            propagation = "Orphan"
        elif FOREGROUND in record.finalizers:
            propagation = "Foreground"
        with suppress(NotFound, Conflict):
            await self.client.delete(
                record.resource.typed(Owned),
                record.name,
                record.namespace or None,
                propagation=propagation,
                uid=record.uid,
            )

    async def drop_owners(self, record: Record, uids: set[str]) -> None:
        kept = [owner for owner in record.owners if owner.uid not in uids]
        patch: Json = {
            "metadata": {"uid": record.uid, "ownerReferences": msgspec.to_builtins(kept) or None}
        }
        await self.patch(record, patch)

    async def unblock(self, record: Record) -> None:
        """Clear blockOwnerDeletion in all owner references of an object."""
        owners: list[Json] = msgspec.to_builtins(record.owners)
        free = [
            {name: value for name, value in owner.items() if name != "blockOwnerDeletion"}
            for owner in owners
        ]
        await self.patch(record, {"metadata": {"uid": record.uid, "ownerReferences": free}})

    async def patch(self, record: Record, patch: Json) -> None:
        """Send a merge patch; an object that is gone or another one by now is no error."""
        try:
            await self.client.patch(
                record.resource.typed(Owned), record.name, patch, record.namespace or None
            )
        except (NotFound, Conflict):
            return
        except ApiError as error:
            if error.code != 422:  # an immutable uid: another object of that name
                raise

    async def release_dependents(self, record: Record) -> None:
        """Delete with policy Orphan: the dependents lose their reference, then the owner its
        finalizer."""
        await asyncio.gather(
            *(self.drop_owners(dependent, {record.uid}) for dependent in self.graph.of(record.uid))
        )
        await self.drop_finalizer(record, ORPHAN)

    async def delete_dependents(self, record: Record) -> None:
        """Delete in the foreground: the dependents are deleted first; those that block keep the
        owner."""
        for dependent in self.graph.of(record.uid):
            if not dependent.deleting:
                self.queue.add(dependent.uid)
        if not self.graph.blocking(record.uid):
            await self.drop_finalizer(record, FOREGROUND)

    async def drop_finalizer(self, record: Record, finalizer: str) -> None:
        kept = [name for name in record.finalizers if name != finalizer]
        await self.patch(record, {"metadata": {"uid": record.uid, "finalizers": kept or None}})
