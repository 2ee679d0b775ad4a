"""In-process webhooks: functions of this process answer for the cluster's own webhooks (decision
0230).

The webhook configurations decide, as always, which webhook is called in which order and what
follows from a refusal or a failure.  Only the transport is shorter, for configurations with a URL
below the one that the server was started with.  The functions are imported by name, because this
package must not depend on the packages that define the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import TreeCache, remembered
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import DELETED, Event, Row


class Reviewer(Protocol):
    """The rules of one webhook."""

    def __call__(
        self,
        resource: tuple[str, str, str],
        operation: str,
        object: Json | None,
        old: Json | None,
        name: str,
        namespace: str,
        /,
    ) -> tuple[bool, str, list[Any] | None]:
        """Review one request.  Returns (allowed, message of a refusal, operations of a JSON patch).
        Does not change its arguments."""
        ...

    def settled(self, object: Json) -> bool:
        """Whether the answer for a new object depends only on its spec, its namespace and the
        cluster: the metadata that the rules read is valid."""
        ...


QUEUES = ("scheduling.volcano.sh", "v1beta1", "queues")


def reviewers(registry: Registry, named: str, minor: int) -> dict[str, Reviewer]:
    """The reviewers by URL, from `URL=module:function`.  Raises ValueError if there is no such
    function."""
    url, _, entry = named.rpartition("=")
    module, _, function = entry.partition(":")
    if not url or not module or not function:
        raise ValueError(f'"{named}" is not of the form URL=module:function')
    try:
        made = getattr(import_module(module), function)(Cluster(registry), minor)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{entry} is not there: {error}") from error
    return {url.rstrip("/") + path: reviewer for path, reviewer in made.items()}


class Cluster:
    """What rules can look up in the cluster, in its newest state."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._trees = TreeCache()
        """Decoded queues."""
        self._followed: Collection | None = None
        self._parents: dict[str, str] = {}
        """Queue -> its parent."""
        self._children: dict[str, dict[str, None]] = {}

    def namespace(self, name: str) -> Json | None:
        row = self.registry["namespaces"].collection.newest(name)
        return None if row is None else row.tree()

    def queue(self, name: str) -> Json | None:
        resource = self._queues()
        row = resource.collection.newest(name) if resource is not None else None
        return None if row is None else remembered(self._trees, name, row)

    def queues(self) -> Iterable[Json]:
        resource = self._queues()
        return [] if resource is None else [row.tree() for row in resource.collection.accepted()]

    def children(self, parent: str) -> Sequence[Json]:
        """The child queues of a queue, in the order in which they became its children."""
        self._queues()
        found = [self.queue(name) for name in self._children.get(parent, ())]
        return [tree for tree in found if tree is not None]

    def _queues(self) -> Resource | None:
        """The served queues; keeps the tree of queues up to date."""
        resource = self.registry.get(*QUEUES)
        collection = resource.collection if resource is not None else None
        if collection is not self._followed:
            if self._followed is not None:
                self._followed.listeners.discard(self._changed)
            self._followed = collection
            self._parents, self._children = {}, {}
            if collection is not None:
                collection.listeners.add(self._changed)
                for row in collection.rows.values():
                    self._place(row.key, row)
        return resource

    def _changed(self, events: list[Event]) -> None:
        for event in events:
            self._place(event.row.key, None if event.type is DELETED else event.row)

    def _place(self, name: str, row: Row | None) -> None:
        parent = "" if row is None else (row.tree().get("spec") or {}).get("parent") or ""
        before = self._parents.get(name, "")
        if parent == before:
            return
        if before:
            del self._parents[name], self._children[before][name]
        if parent:
            self._parents[name] = parent
            self._children.setdefault(parent, {})[name] = None
