"""Create, update and patch, one way through for every kind; a create's stages are in creating.py.

Between the last look at the newest state and the moment in which an update is accepted there is no
await, so what that look found still holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.kind import FieldError, Kind
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.objects.merging.ownership import Owner, Shares
from hekla.local.apiserver.request.call import Call, read_body
from hekla.local.apiserver.request.status import (
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    not_found,
)
from hekla.local.apiserver.storage.managed_fields import NOBODY, Ownership
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.store import Row, Store
from hekla.local.apiserver.write import partial_update as parts
from hekla.local.apiserver.write.create_cache import CreateCache
from hekla.local.apiserver.write.creating import FROM_TREE, WITHOUT_RESPONSE, NewObject, place_in
from hekla.local.apiserver.write.outcome import committed, response_with, with_managed_fields
from hekla.local.apiserver.write.restrictions import differs_outside, new_finalizers
from hekla.local.apiserver.write.scopes import scope_of
from hekla.local.apiserver.write.stages import Backend, run
from hekla.local.apiserver.write.status_patch_cache import StatusPatchCache
from hekla.local.apiserver.write.subresource_scopes import NARROW

SERVER_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
RETRIES = 5
Change = Callable[[Json], Json]
Merge = Callable[[Json, Ownership], tuple[Json, Shares]]


class Writer:
    """Carries out writes."""

    def __init__(self, store: Store, registry: Registry, admission: Admission) -> None:
        self.store = store
        self.registry = registry
        self.admission = admission
        self.backend = Backend(store, registry, admission)
        self.create_cache = CreateCache(self.backend)
        self.status_patch_cache = StatusPatchCache(self)

    # --- create -----------------------------------------------------------------------------------

    async def create(self, call: Call) -> Response:
        """POST on a collection."""
        route = call.route
        if route.kind.namespaced and not route.namespace:
            raise method_not_allowed()
        return (await self.create_cache.create(call)).response

    async def create_tree(self, call: Call, tree: Json, shares: Shares | None = None) -> Response:
        """Create an object that was decoded before.  `shares` says who owns its fields, where a
        server-side apply creates it."""
        new = NewObject(self.backend, call, call.resource, call.route.namespace, tree)
        new.shares, new.decoded = shares, shares is None
        await run(FROM_TREE, new)
        return new.response

    async def add(self, call: Call, resource: Resource, namespace: str, tree: Json) -> None:
        """Create an object of the server itself, for which the rules of its kind do not hold."""
        new = NewObject(self.backend, call, resource, namespace, tree)
        new.decoded = new.validated = False
        await run(WITHOUT_RESPONSE, new)

    # --- update and patch -------------------------------------------------------------------------

    async def update(self, call: Call) -> Response:
        """PUT on an object or its status."""
        route = call.route
        tree = read_body(call)
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
        if (
            route.resource.collection.newest(route.key) is None
            and route.kind.strategy.create_on_update
            and not route.subresource
        ):
            if metadata.get("uid"):
                raise conflict(
                    route.kind,
                    route.name,
                    f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: ",
                )
            metadata.pop("resourceVersion", None)
            return await self.create_tree(call, tree)
        if not metadata.get("resourceVersion") and not route.kind.strategy.unconditional_update:
            if route.resource.collection.newest(route.key) is None:
                raise not_found(route.kind, route.name)
            error = FieldError(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )
            # The one message of its form that names the resource, not the kind.
            raise invalid(replace(route.kind, kind=route.kind.plural), route.name, [error])
        if route.subresource == "status":
            metadata.pop("managedFields", None)  # nobody's owners change through a status
            given: Json = {name: tree[name] for name in ("metadata", "status") if name in tree}
            row = await parts.modify(self, call, lambda old: given, parts.STATUS | parts.METADATA)
            if row is not None:
                return response_with(call, 200, row, {})
            tree = read_body(call)  # which the attempt has changed
            place_in(tree["metadata"], route.namespace)
        return await self.modify(
            call, lambda old: tree_copy(tree), retry=not metadata.get("resourceVersion")
        )

    async def modify(self, call: Call, change: Change, *, retry: bool) -> Response:
        row, tree = await self.change(
            call,
            call.resource,
            call.route.key,
            change,
            retry=retry,
            subresource=call.route.subresource,
        )
        return await self.shown(call, 200, row, tree)

    async def shown(self, call: Call, status: int, row: Row | None, tree: Json) -> Response:
        """As `answer`, where the stored object may have to be converted."""
        if row is not None and call.route.kind.conversion is not None:
            await call.route.kind.conversion.ready([row])
        return response_with(call, status, row, tree)

    async def change(
        self,
        call: Call,
        resource: Resource,
        key: str,
        change: Change | None,
        *,
        retry: bool,
        subresource: str = "",
        admit: bool = True,
        merge: Merge | None = None,
    ) -> tuple[Row | None, Json]:
        """Applies a change to the newest state, again when another write came between; the row is
        None under dry run.

        An apply comes as `merge` in the place of a change, and says itself who owns what.
        """
        kind = resource.kind
        collection = resource.collection
        name = key.rpartition("/")[2]
        for attempt in range(RETRIES):
            row = collection.newest(key)
            if row is None:
                raise not_found(kind, name)
            if kind.conversion is not None:
                await kind.conversion.ready([row])
            stored = row.tree()
            old = kind.present(stored) if kind.present is not None else stored
            claimed: Shares | None = None
            if merge is not None:
                new, claimed = merge(old, row.held)
            else:
                assert change is not None
                new = change(old)
            old = row.tree()
            if kind.present is not None:
                old = kind.present(old)
            new, held = await self._changed(
                call, resource, row, old, new, subresource, admit, claimed
            )
            kept = new if kind.conversion is None else await kind.conversion.kept(new)
            if collection.newest(key) is not row:
                if attempt == RETRIES - 1 or not retry:
                    raise conflict(kind, name)
                continue
            if new == old and (
                held == row.held or (claimed is not None and same_but_times(claimed, row.held))
            ):
                pending = collection.overlay.get(key)
                if pending is not None:
                    await committed(pending)
                return row, new
            if call.dry_run:
                return None, with_managed_fields(new, held)
            if kind.keep is not None:
                kept = kind.keep(new)
            metadata = kept["metadata"]
            if (
                "deletionTimestamp" in metadata
                and not metadata.get("finalizers")
                and self._may_go(collection.name, kept)
            ):
                return await committed(collection.delete(kept, row, held)), new
            return await committed(collection.update(kept, row, held)), new
        raise AssertionError("the loop above ends by return or raise")

    @staticmethod
    def _may_go(collection: str, tree: Json) -> bool:
        """The last finalizer is gone; a pod in its grace period stays until its node agent deletes
        it, a namespace until its controller has emptied it.
        """
        if collection == "namespaces" and (tree.get("spec") or {}).get("finalizers"):
            return False
        return not tree["metadata"].get("deletionGracePeriodSeconds")

    async def _changed(
        self,
        call: Call,
        resource: Resource,
        row: Row,
        old: Json,
        new: Json,
        subresource: str,
        admit: bool,
        claimed: Shares | None,
    ) -> tuple[Json, Ownership]:
        kind, strategy = resource.kind, resource.kind.strategy
        given = (new.get("metadata") or {}).get("managedFields")
        self.keep_identity(kind, row, old, new, call.request.method)
        strategy.default(new)
        if claimed is not None:
            held = self.store.managed_fields.compact(claimed)
        elif admit or subresource == "server":
            held = self.owned(call, resource, row, old, new, given, subresource)
        else:
            held = row.held
        operation = Attributes(
            call, resource, "UPDATE", row.namespace, row.name, new, old, subresource
        )
        if admit:
            new = self.admission.mutate(operation)
            if self.admission.mutating_webhooks(operation):
                new = await self.admission.call_mutating(operation)
                self.keep_identity(kind, row, old, new, "")
        errors: Sequence[FieldError] = ()
        if subresource == "server":
            pass  # the server's own hand, which may change every part
        elif subresource in ("status", "approval"):
            strategy.prepare_status(new, old)
            if strategy.prepare_decision is not None:
                strategy.prepare_decision(new, old, subresource)
            errors = strategy.validate_status(new, old)
        elif subresource in NARROW:
            errors = NARROW[subresource](new, old)
        else:
            strategy.prepare_update(new, old)
            errors = strategy.validate_update(new, old)
        metadata, before = new["metadata"], old["metadata"]
        if strategy.generation and subresource != "status" and differs_outside(new, old):
            metadata["generation"] = before.get("generation", 0) + 1
        errors = list(errors) + new_finalizers(metadata, before)
        if errors:
            raise invalid(kind, row.name, errors)
        if strategy.warnings is not None and not subresource:
            for text in strategy.warnings(new, old):
                call.warn(text)
        operation.object = new
        if admit and self.admission.validating_webhooks(operation):
            await self.admission.call_validating(operation)
        self.admission.last_look(operation)
        return new, held

    def owned(
        self,
        call: Call,
        resource: Resource,
        row: Row,
        old: Json,
        new: Json,
        given: Any,
        subresource: str,
    ) -> Ownership:
        """Who owns what after a change that is no apply; `given` are the managedFields that the
        client sent."""
        managed_fields, held = self.store.managed_fields, row.held
        endpoint = call.route.subresource or ("status" if subresource == "server" else "")
        if given is not None and not endpoint:
            if ownership.is_reset(given):
                held = NOBODY
            else:
                read = managed_fields.read(given)
                if read is not None and read[0] is not None:
                    held = read
        scope = scope_of(self.registry, resource, endpoint)
        if scope.metadata:
            new = {
                **new,
                "metadata": with_fields_of(new["metadata"], old["metadata"], scope.metadata),
            }
        # What comes in through scale has no time.
        timed = endpoint != "scale"
        return managed_fields.updated(
            scope,
            old,
            new,
            held,
            Owner(call.manager, ownership.UPDATE, endpoint, scope.version),
            timed=timed,
        )

    def keep_identity(self, kind: Kind, row: Row, old: Json, new: Json, method: str) -> None:
        """Restores what the server owns, and checks what the client believes it changes."""
        metadata, before = new.setdefault("metadata", {}), old["metadata"]
        if not isinstance(metadata, dict):
            raise bad_request("metadata must be an object")
        if (metadata.get("name") or row.name) != row.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({row.name})"
            )
        if (metadata.get("namespace") or row.namespace) != row.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        uid = metadata.get("uid")
        if uid and uid != row.uid:
            if method == "PUT":
                raise conflict(
                    kind,
                    row.name,
                    f"Precondition failed: UID in precondition: {uid}, UID in object meta: {row.uid}",
                )
            error = FieldError(
                "metadata.uid", "FieldValueInvalid", f'Invalid value: "{uid}": field is immutable'
            )
            raise invalid(kind, row.name, [error])
        version = metadata.get("resourceVersion")
        if version and str(version) != str(row.version):
            raise conflict(kind, row.name)
        metadata["name"] = row.name
        metadata["resourceVersion"] = before["resourceVersion"]
        if row.namespace:
            metadata["namespace"] = row.namespace
        for name in (*SERVER_METADATA, "generation"):
            if name in before:
                metadata[name] = before[name]
            else:
                metadata.pop(name, None)
        metadata.pop("selfLink", None)
        metadata.pop("managedFields", None)
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            if name in metadata and not metadata[name]:
                del metadata[name]


def seconds_now() -> int:
    return int(time.time())


def same_but_times(claimed: Shares, held: Ownership) -> bool:
    """Whether an apply leaves all owners what they had; when they last changed something does not
    count."""
    owners, stamps = held
    if owners is None:
        return not claimed
    before = owners.shares(stamps)
    return before.keys() == claimed.keys() and all(
        (share.version, share.fields) == (before[owner].version, before[owner].fields)
        for owner, share in claimed.items()
    )


def with_fields_of(tree: Json, other: Json, names: Sequence[str]) -> Json:
    """A tree with some of its fields as another one has them."""
    return {name: value for name, value in tree.items() if name not in names} | {
        name: other[name] for name in names if name in other
    }


def tree_copy(tree: Any) -> Any:
    """A copy whose containers are all new."""
    if isinstance(tree, dict):
        return {key: tree_copy(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [tree_copy(value) for value in tree]
    return tree
