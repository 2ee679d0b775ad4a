"""CustomResourceDefinitions: a stored definition becomes served kinds, and when it is deleted its
objects are deleted too.

The kinds are served in the same step in which the definition is committed, before its creator has
the response, so a client that creates a definition and then an object never gets a 404. Conditions
follow a moment later, as clients expect (local-cluster 4.1).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from hekla.api.trees import Json
from hekla.kube.http.server import Peer, Request
from hekla.local.apiserver.admission.hook import HookClients
from hekla.local.apiserver.auth.user import User
from hekla.local.apiserver.discovery.conversion import Conversion, converting
from hekla.local.apiserver.objects.conditions import set_condition
from hekla.local.apiserver.objects.custom import custom
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import DELETED, Event, Row, encode
from hekla.local.apiserver.watch.watch import end_watches
from hekla.local.apiserver.write.delete_options import DeleteOptions
from hekla.local.apiserver.write.deletion import Deleter
from hekla.local.apiserver.write.writing import Writer

log = logging.getLogger("hekla.apiserver")

GROUP, VERSION, PLURAL = "apiextensions.k8s.io", "v1", "customresourcedefinitions"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
SERVER = User("system:apiserver", ("system:masters", "system:authenticated"))


class Definitions:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, registry: Registry, writer: Writer, deleter: Deleter) -> None:
        self.registry = registry
        self.writer = writer
        self.deleter = deleter
        resource = registry.get(GROUP, VERSION, PLURAL)
        if resource is None:
            raise LookupError("this server does not serve CustomResourceDefinitions")
        self.resource: Resource = resource
        deleter.beginnings[resource.collection.name] = begin_deletion
        self.clients = HookClients(registry)
        self.served: dict[str, list[Kind]] = {}
        self._states: dict[str, tuple[str, int]] = {}
        """Name -> uid and generation of the served definition."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def start(self) -> None:
        """Serve the stored definitions, and follow changes."""
        self.resource.collection.listeners.add(self.on_events)
        for key in self.resource.collection.ordered():
            self._serve(self.resource.collection.rows[key])
            self._update_status_soon(key)

    def stop(self) -> None:
        """Stop following."""
        self.resource.collection.listeners.discard(self.on_events)
        for task in self._tasks.values():
            task.cancel()

    def on_events(self, events: list[Event]) -> None:
        """Serve new and changed definitions, and withdraw deleted ones."""
        for event in events:
            name = event.row.name
            if event.type is DELETED:
                self._withdraw(name)
                for other in self.resource.collection.ordered():
                    if other not in self.served:  # names may have become free for other definitions
                        self._serve(self.resource.collection.rows[other])
                        self._update_status_soon(other)
            else:
                self._serve(event.row)
                self._update_status_soon(name)

    # --- serving ----------------------------------------------------------------------------------

    def _serve(self, row: Row) -> None:
        tree = row.tree()
        state = (row.uid, tree["metadata"].get("generation", 0))
        if self._states.get(row.name) == state or self.conflict_of(tree):
            return  # only status or metadata changed, or its names are taken
        try:
            kinds = custom.kinds_of(self.resource.typed(tree))
        except (
            Exception
        ) as error:  # perhaps stored by an older version; the server must start nevertheless
            log.error("the definition %s cannot be served: %s", row.name, error)
            return
        if (tree["spec"].get("conversion") or {}).get("strategy") == "Webhook":
            kinds = converting(kinds, Conversion(tree, self.clients))
        old = {(kind.group, kind.version, kind.plural) for kind in self.served.get(row.name, ())}
        for kind in kinds:
            self.registry.add(kind)
            old.discard((kind.group, kind.version, kind.plural))
        for group, version, plural in old:
            self.registry.remove(group, version, plural)
        if kinds and kinds[0].conversion is None:
            self._fill_defaults(kinds, tree["spec"]["versions"])
            if len(tree["spec"]["versions"]) > 1:
                self._drop_stored_version(kinds[0])
        self.served[row.name] = kinds
        self._states[row.name] = state

    def _fill_defaults(self, kinds: list[Kind], versions: list[Json]) -> None:
        """Show the defaults of a new schema in objects that were stored under an older one. The
        next write stores them."""
        storage = next((version for version in versions if version.get("storage")), None)
        kind = next(
            (kind for kind in kinds if storage is not None and kind.version == storage["name"]),
            None,
        )
        if kind is None or b'"default"' not in encode(storage):
            return
        resource = self.registry.get(kind.group, kind.version, kind.plural)
        assert resource is not None
        for row in resource.collection.accepted():
            filled = row.tree()
            kind.strategy.default(filled)
            row.data = encode(filled)

    def _drop_stored_version(self, kind: Kind) -> None:
        """Without a webhook all versions have the same form, so the version that a webhook's
        objects name is dropped."""
        resource = self.registry.get(kind.group, kind.version, kind.plural)
        assert resource is not None
        stored_version = f'"apiVersion":"{kind.group}/'.encode()
        for row in resource.collection.accepted():
            if stored_version in row.data and "apiVersion" in (tree := row.tree()):
                del tree["apiVersion"]
                row.data = encode(tree)

    def _withdraw(self, name: str) -> None:
        self._states.pop(name, None)
        for kind in self.served.pop(name, ()):
            resource = self.registry.get(kind.group, kind.version, kind.plural)
            self.registry.remove(kind.group, kind.version, kind.plural)
            if resource is not None:
                end_watches(self.registry.store, resource.collection)
                # If somebody removed the finalizer by hand, objects are left that nothing
                # serves any more.
                for row in list(resource.collection.accepted()):
                    resource.collection.delete(row.tree(), row)
                self.registry.store.drop(resource.collection.name)

    def conflict_of(self, tree: Json) -> tuple[str, str] | None:
        """Why the names of a definition are not accepted, as (reason, message): another definition
        of its group has them."""
        name, spec = tree["metadata"]["name"], tree["spec"]
        names = spec["names"]
        for other, kinds in self.served.items():
            if other == name or not kinds or kinds[0].group != spec["group"]:
                continue
            kind = kinds[0]
            if names["kind"] in (kind.kind, kind.list_kind):
                return "KindConflict", f'"{names["kind"]}" is already in use'
            if names.get("listKind") in (kind.kind, kind.list_kind):
                return "ListKindConflict", f'"{names.get("listKind")}" is already in use'
            taken = {kind.plural, kind.singular, *kind.short_names}
            if names.get("singular") in taken:
                return "SingularConflict", f'"{names.get("singular")}" is already in use'
            for short in names.get("shortNames") or ():
                if short in taken:
                    return "ShortNamesConflict", f'"{short}" is already in use'
        return None

    # --- status and deletion ----------------------------------------------------------------------

    def _update_status_soon(self, name: str) -> None:
        if name in self._tasks:
            self._again.add(name)
            return
        self._tasks[name] = asyncio.get_running_loop().create_task(self._update_status(name))

    async def _update_status(self, name: str) -> None:
        try:
            while True:
                self._again.discard(name)
                row = self.resource.collection.newest(name)
                if row is None:
                    return
                try:
                    if "deletionTimestamp" in row.tree()["metadata"]:
                        await self._clean_up(name)
                    else:
                        await self._change(name, self._established)
                except Refusal as refusal:
                    if refusal.code not in (404, 409):
                        log.warning("the definition %s: %s", name, refusal)
                if name not in self._again:
                    return
        finally:
            self._tasks.pop(name, None)
            if name in self._again:
                self._update_status_soon(name)

    async def _change(self, name: str, change: Any) -> None:
        await self.writer.change(
            self._call(name),
            self.resource,
            name,
            change,
            retry=True,
            subresource="server",
            admit=False,
        )

    def _call(self, name: str, resource: Resource | None = None) -> Call:
        route = Route(resource or self.resource, "", name, "")
        return Call(
            Request("PUT", "/definitions", "", {"user-agent": "kube-apiserver"}, b"", Peer()),
            route,
            SERVER,
            "update",
        )

    def _established(self, tree: Json) -> Json:
        spec, status = tree["spec"], tree.setdefault("status", {})
        names = spec["names"]
        conflict = self.conflict_of(tree)
        if conflict is None:
            set_condition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
            text = "the initial names have been accepted"
            set_condition(status, "Established", "True", "InitialNamesAccepted", text)
            status["acceptedNames"] = {key: value for key, value in names.items() if value}
        else:
            set_condition(status, "NamesAccepted", "False", *conflict)
            text = "not all names are accepted"
            set_condition(status, "Established", "False", "NotAccepted", text)
        stored = status.setdefault("storedVersions", [])
        for version in spec.get("versions") or []:
            if version.get("storage") and version["name"] not in stored:
                stored.append(version["name"])
        return tree

    async def _clean_up(self, name: str) -> None:
        """Delete the objects of a definition that is being deleted, and then its finalizer."""

        def terminating(tree: Json) -> Json:
            text = "CustomResource deletion is in progress"
            set_terminating(tree, "True", "InstanceDeletionInProgress", text)
            return tree

        await self._change(name, terminating)
        kinds = self.served.get(name, [])
        resource = (
            self.registry.get(kinds[0].group, kinds[0].version, kinds[0].plural) if kinds else None
        )
        while resource is not None and (left := list(resource.collection.accepted())):
            await self.deleter.remove_all(
                self._call(name, resource), resource, left, DeleteOptions()
            )
            await changed(resource)

        def finished(tree: Json) -> Json:
            set_terminating(tree, "False", "InstanceDeletionCompleted", "removed all instances")
            finalizers = [
                finalizer
                for finalizer in tree["metadata"].get("finalizers") or []
                if finalizer != CLEANUP
            ]
            tree["metadata"]["finalizers"] = finalizers
            return tree

        await self._change(name, finished)


def begin_deletion(tree: Json) -> None:
    """Set the Terminating condition and the cleanup finalizer of a definition that is being
    deleted."""
    metadata = tree["metadata"]
    if CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    set_terminating(tree, "True", "InstanceDeletionPending", text)


def set_terminating(tree: Json, value: str, reason: str, text: str) -> None:
    set_condition(tree.setdefault("status", {}), "Terminating", value, reason, text)


async def changed(resource: Resource) -> None:
    """Wait until objects with finalizers are removed; checks at least once a second."""
    if not list(resource.collection.accepted()):
        return
    woken = asyncio.get_running_loop().create_future()

    def wake(events: list[Event]) -> None:
        if not woken.done():
            woken.set_result(None)

    resource.collection.listeners.add(wake)
    try:
        await asyncio.wait([woken], timeout=1.0)
    finally:
        resource.collection.listeners.discard(wake)
