"""What clients and the server itself can ask for: create, update, and changes of stored objects.

The stages that a write goes through are in creating.py and updating.py; the caches wrap these lists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hekla.api.text import fielderrors
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.objects.merging.ownership import Shares
from hekla.local.apiserver.request.call import Call, decode_body
from hekla.local.apiserver.request.status import (
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    not_found,
)
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.storage.store import Store
from hekla.local.apiserver.write import creating, partial_update
from hekla.local.apiserver.write.create_cache import REMAINING, CreateCache, KnownObject
from hekla.local.apiserver.write.creating import FROM_BODY, FROM_TREE, NewObject, place_in
from hekla.local.apiserver.write.partial_update import METADATA, STATUS, PartialUpdate
from hekla.local.apiserver.write.stages import Backend, NeedsFullPath, run_steps
from hekla.local.apiserver.write.status_patch_cache import StatusPatchCache
from hekla.local.apiserver.write.updating import (
    STORE_AND_ANSWER,
    WITHOUT_RESPONSE,
    Change,
    Update,
    run_update,
)


class Writer:
    """Carries out writes."""

    def __init__(self, store: Store, registry: Registry, admission: Admission) -> None:
        self.store = store
        self.registry = registry
        self.admission = admission
        self.backend = Backend(store, registry, admission)
        self.create_cache = CreateCache(self.backend)
        self.status_patch_cache = StatusPatchCache(self.backend)

    # --- create -----------------------------------------------------------------------------------

    async def create(self, call: Call) -> Response:
        """POST on a collection: all of `CREATE`, or what is left of it for a known spec."""
        route = call.route
        if route.kind.namespaced and not route.namespace:
            raise method_not_allowed()
        found = self.create_cache.find(call)
        if isinstance(found, KnownObject):
            try:
                await run_steps(REMAINING, found)
            except NeedsFullPath:
                found = None
            else:
                self.create_cache.hits += 1
                return found.response
        new = NewObject(self.backend, call, route.resource, route.namespace, {})
        await run_steps(FROM_BODY if found is None else found.steps(), new)
        return new.response

    async def create_tree(self, call: Call, tree: Json, shares: Shares | None = None) -> Response:
        """Create an object that was decoded before.  `shares` says who owns its fields, where a
        server-side apply creates it."""
        new = NewObject(self.backend, call, call.resource, call.route.namespace, tree)
        new.shares, new.decoded = shares, shares is None
        await run_steps(FROM_TREE, new)
        return new.response

    async def add(self, call: Call, resource: Resource, namespace: str, tree: Json) -> None:
        """Create an object of the server itself, for which the rules of its kind do not hold."""
        new = NewObject(self.backend, call, resource, namespace, tree)
        new.decoded = new.validated = False
        await run_steps(creating.WITHOUT_RESPONSE, new)

    # --- update -----------------------------------------------------------------------------------

    async def update(self, call: Call) -> Response:
        """PUT on an object or one of its subresources."""
        route = call.route
        tree = decode_body(call)
        metadata = tree["metadata"]
        if not metadata.get("name"):
            raise bad_request(
                f"the name of the object ({route.name} based on URL) was undeterminable: name must be provided"
            )
        if metadata["name"] != route.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({route.name})"
            )
        place_in(metadata, route.namespace)
        strategy = route.kind.strategy
        missing = route.resource.collection.newest(route.key) is None
        if missing and strategy.create_on_update and not route.subresource:
            if metadata.get("uid"):
                raise conflict(
                    route.kind,
                    route.name,
                    f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: ",
                )
            metadata.pop("resourceVersion", None)
            return await self.create_tree(call, tree)
        version = metadata.get("resourceVersion")
        if not version and not strategy.unconditional_update:
            if missing:
                raise not_found(route.kind, route.name)
            error = fielderrors.invalid(
                "metadata.resourceVersion", 0, "must be specified for an update"
            )
            # The one message of its form that names the resource, not the kind.
            raise invalid(replace(route.kind, kind=route.kind.plural), route.name, [error])
        if route.subresource == "status":
            metadata.pop("managedFields", None)  # nobody's owners change through a status
            partial = update_of(self.backend, call, None, retried=False)
            given: Json = {name: tree[name] for name in ("metadata", "status") if name in tree}
            partial.change, partial.touched = lambda _: given, STATUS | METADATA
            if partial_update.prepare(partial):
                await run_steps(STORE_AND_ANSWER, partial)
                return partial.response
            tree = decode_body(call)  # which the attempt has changed
            place_in(tree["metadata"], route.namespace)
        update = update_of(self.backend, call, lambda _: tree_copy(tree), retried=not version)
        await run_update(update)
        return update.response

    async def change(
        self,
        call: Call,
        resource: Resource,
        key: str,
        change: Change,
        *,
        retry: bool,
        subresource: str = "",
        admit: bool = True,
    ) -> tuple[Row | None, Json]:
        """Apply a change to the newest state of an object, again when another write came between.
        The row is None under dry run.  Raises Refusal."""
        update = Update(
            self.backend,
            call,
            resource,
            key,
            change,
            retried=retry,
            subresource=subresource,
            admitted=admit,
        )
        await run_update(update, WITHOUT_RESPONSE)
        return update.result, update.new


def update_of(
    backend: Backend, call: Call, change: Change | None, *, retried: bool
) -> PartialUpdate:
    """The update of the object that a request is about."""
    route = call.route
    return PartialUpdate(
        backend,
        call,
        route.resource,
        route.key,
        change,
        retried=retried,
        subresource=route.subresource,
    )


def tree_copy(tree: Any) -> Any:
    """A copy whose containers are all new."""
    if isinstance(tree, dict):
        return {key: tree_copy(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [tree_copy(value) for value in tree]
    return tree
