"""A lookup for rules that is kept up to date by watches: queues by name and parent, namespaces by
name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hekla.admission.review import Tree, spec_of
from hekla.api import reservation, scheduling, topology
from hekla.api.kubernetes import core
from hekla.kube.cache import Cache
from hekla.kube.client import Client


class CachedLookup:
    """A lookup over caches, which may be late by as long as a watch event takes."""

    def __init__(
        self, client: Client, *, topologies: bool = False, reservations: bool = False
    ) -> None:
        """`topologies`, `reservations`: watch HyperNodes, Reservations too."""
        self._queues: Cache[dict[str, Any]] = Cache(
            client, scheduling.QUEUE.untyped, indexes={"parent": _parent}
        )
        self._namespaces: Cache[dict[str, Any]] = Cache(client, core.NAMESPACE.untyped)
        self._hypernodes: Cache[dict[str, Any]] | None = (
            Cache(client, topology.HYPER_NODE.untyped) if topologies else None
        )
        self._reservations: Cache[dict[str, Any]] | None = (
            Cache(client, reservation.RESERVATION.untyped) if reservations else None
        )

    async def start(self) -> None:
        """Start to watch, and wait until all objects are listed."""
        for cache in (self._queues, self._namespaces):
            await cache.start()
        for cache in self._optional():
            # Not waited for: the kind may be missing, or an account of old may not list it.
            await cache.start()
        for cache in (self._queues, self._namespaces):
            await cache.synced()

    async def stop(self) -> None:
        for cache in (
            self._queues,
            self._namespaces,
            *self._optional(),
        ):
            await cache.stop()

    def _optional(self) -> list[Cache[dict[str, Any]]]:
        return [cache for cache in (self._hypernodes, self._reservations) if cache is not None]

    def queue(self, name: str) -> Tree | None:
        return self._queues.get(name)

    def queues(self) -> Iterable[Tree]:
        return self._queues.all()

    def children(self, parent: str) -> Sequence[Tree]:
        return self._queues.by("parent", parent)

    def namespace(self, name: str) -> Tree | None:
        return self._namespaces.get(name)

    def reservations(self) -> Iterable[Tree]:
        return self._reservations.all() if self._reservations is not None else ()

    def hypernode(self, name: str) -> Tree | None:
        return self._hypernodes.get(name) if self._hypernodes is not None else None


def _parent(queue: dict[str, Any]) -> Iterable[str]:
    parent = spec_of(queue).get("parent")
    return (parent,) if parent else ()
