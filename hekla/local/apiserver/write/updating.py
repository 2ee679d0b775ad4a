"""The stages of an update, in their order (`UPDATE`): PUT, PATCH, apply, and the server's own
changes.

The stages begin with the newest state of the object.  If another write has changed it when `store`
is reached, they begin again.  Between that look and the moment in which `store` accepts the new
state there is no await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from hekla.api.text import fielderrors
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.kind import FieldError, Kind
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.objects.merging.ownership import Owner, Shares
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.status import bad_request, conflict, invalid, not_found
from hekla.local.apiserver.storage.collection import NOTHING_KEPT
from hekla.local.apiserver.storage.managed_fields import NOBODY, Ownership, with_managed_fields
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.write.stages import Backend, On, Stage, Step, run_steps
from hekla.local.apiserver.write.subresource_strategies import NARROW

SERVER = "server"
"""The subresource of changes that the server makes itself: they may change every field."""
IMMUTABLE_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
ATTEMPTS = 5
U = TypeVar("U", bound="Update")
Change = Callable[[Json], Json]
"""(the object) -> what it is to be.  It may change what it is given."""
Merge = Callable[[Json, Ownership], tuple[Json, Shares]]
"""(the object, who owns its fields) -> both as a server-side apply wants them."""


class Outdated(Exception):
    """Another write has changed the object in the meantime."""


@dataclass(slots=True, eq=False)
class Update:
    """A change of a stored object on its way through the stages."""

    backend: Backend
    call: Call
    resource: Resource
    key: str
    change: Change | None
    retried: bool
    """Whether to begin again where another write came between; not if the client has named the
    version that it means."""
    subresource: str = ""
    admitted: bool = True
    """Whether admission sees the change."""
    merge: Merge | None = None
    """What a server-side apply has in the place of `change`."""
    shares: Shares | None = None
    """Who owns the fields, where an apply says it."""
    kept: Mapping[str, msgspec.Raw] | None = None
    """Top-level fields that keep their bytes."""
    fields: tuple[str, ...] | None = None
    """The selectable fields, where they are known."""
    counts: bool = True
    """Whether quotas may count the new state differently."""
    row: Row = field(init=False)
    """The newest state; from `read` on."""
    old: Json = field(init=False)
    """The same decoded, in the version of the request; from `change` on."""
    new: Json = field(init=False)
    """What the object becomes; from `change` on."""
    sent_managed_fields: Any = field(init=False)
    """The managedFields that the client has sent; from `keep_identity` on."""
    ownership: Ownership = field(init=False)
    """Who owns the fields; from `own` on."""
    attributes: Attributes = field(init=False)
    """From `run_mutating_plugins` on."""
    stored: Json = field(init=False)
    """The object in the version in which it is stored; from `convert` on."""
    result: Row | None = field(init=False)
    """The stored object, None under dry run; from `store` on."""
    response: Response = field(init=False)
    """From `answer` on."""


def read(update: Update) -> Awaitable[None] | None:
    """Look the newest state of the object up."""
    kind = update.resource.kind
    row = update.resource.collection.newest(update.key)
    if row is None:
        raise not_found(kind, update.key.rpartition("/")[2])
    update.row = row
    return kind.conversion.ready([row]) if kind.conversion is not None else None


def change(update: Update) -> None:
    """Let the client's change make the new state."""
    old = decoded(update)
    if update.merge is not None:
        update.new, update.shares = update.merge(old, update.row.held)
    else:
        assert update.change is not None
        update.new = update.change(old)
    update.old = decoded(update)  # the change may have worked on the other copy


def keep_identity(update: Update) -> None:
    """Restore the metadata that only the server sets."""
    update.sent_managed_fields = (update.new.get("metadata") or {}).get("managedFields")
    restore_identity(update, update.call.request.method)


def default(update: Update) -> None:
    """Fill in the defaults of the kind."""
    update.resource.kind.strategy.default(update.new)


def own(update: Update) -> None:
    """Make the client the owner of the fields that it has changed."""
    if update.shares is not None:
        update.ownership = update.backend.store.managed_fields.compact(update.shares)
    elif update.admitted or update.subresource == SERVER:
        update.ownership = owned(update, update.sent_managed_fields)
    else:
        update.ownership = update.row.held


def run_mutating_plugins(update: Update) -> None:
    """Let the built-in admission plugins change the object."""
    update.attributes = attributes_of(update)
    if update.admitted:
        update.backend.admission.run_mutating_plugins(update.attributes)


def call_mutating_webhooks(update: Update) -> Awaitable[None] | None:
    """Let the policies and webhooks change the object; where any did, fill in the defaults again."""
    if not update.admitted:
        return None
    calls = update.backend.admission.call_mutating(update.attributes)
    return _mutated(update, calls) if calls is not None else None


async def _mutated(update: Update, calls: Awaitable[None]) -> None:
    await calls
    assert update.attributes.object is not None
    update.new = update.attributes.object
    restore_identity(update, "")


def validate(update: Update) -> None:
    """Restore what the endpoint may not change, and check the new state against the rules of the
    kind."""
    strategy, subresource = update.resource.kind.strategy, update.subresource
    new, old = update.new, update.old
    errors: Sequence[FieldError] = ()
    if subresource == SERVER:
        pass
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
    count_generation(update)
    errors = [*errors, *new_finalizers(new["metadata"], old["metadata"])]
    if errors:
        raise invalid(update.resource.kind, update.row.name, errors)
    if strategy.warnings is not None and not subresource:
        for text in strategy.warnings(new, old):
            update.call.warn(text)
    update.attributes.object = new


def call_validating_webhooks(update: Update) -> Awaitable[None] | None:
    """Ask the policies and webhooks that may refuse the change."""
    if not update.admitted:
        return None
    return update.backend.admission.call_validating(update.attributes)


def admit(update: Update) -> None:
    """Ask the checks and quotas that may refuse the new state."""
    update.backend.admission.run_validating_plugins(update.attributes)


def convert(update: Update) -> Awaitable[None] | None:
    """Bring the new state into the version in which it is stored."""
    kind = update.resource.kind
    if kind.conversion is not None:
        return _convert(update)
    update.stored = kind.keep(update.new) if kind.keep is not None else update.new
    return None


async def _convert(update: Update) -> None:
    conversion = update.resource.kind.conversion
    assert conversion is not None
    update.stored = await conversion.kept(update.new)


def store(update: Update) -> Awaitable[Row] | None:
    """Accept the new state, and wait until it is on the disk.  An object that was only waiting for
    its last finalizer is deleted."""
    collection, row = update.resource.collection, update.row
    if collection.newest(update.key) is not row:
        raise Outdated
    update.result = row
    if changes_nothing(update):
        return earlier_write(update)
    if update.call.dry_run:
        update.result = None
        update.new = with_managed_fields(update.new, update.ownership)
        return None
    if may_go(collection.name, update.stored):
        write = collection.delete(update.stored, row, update.ownership)
        update.result = write.row
        return write.done
    return accept(update)


def earlier_write(update: Update) -> Awaitable[Row] | None:
    """The write on its way to the disk that has made the object what this one wants it to be."""
    pending = update.resource.collection.overlay.get(update.key)
    return pending.done if pending is not None else None


def accept(update: Update) -> Awaitable[Row]:
    """Hand the new state to the store: the end of every update, whichever stages it went through."""
    write = update.resource.collection.update(
        update.stored,
        update.row,
        update.ownership,
        kept=update.kept or NOTHING_KEPT,
        fields=update.fields,
        counts=update.counts,
    )
    update.result = write.row
    return write.done


def answer(update: Update) -> Awaitable[None] | None:
    """Show the client its object."""
    conversion = update.call.route.kind.conversion
    if update.result is not None and conversion is not None:
        return _answer_converted(update)
    update.response = update.call.respond_with(200, update.result, update.new)
    return None


async def _answer_converted(update: Update) -> None:
    conversion = update.call.route.kind.conversion
    assert conversion is not None and update.result is not None
    await conversion.ready([update.result])
    update.response = update.call.respond_with(200, update.result, update.new)


OBJECT = On.CONTENT | On.METADATA
UPDATE: tuple[Stage[Update], ...] = (
    Stage(read, On.MOMENT),
    Stage(change, OBJECT | On.REQUEST),
    Stage(keep_identity, On.METADATA | On.REQUEST),
    Stage(default, On.CONTENT),
    Stage(own, OBJECT | On.OWNERS | On.REQUEST | On.MOMENT),
    Stage(run_mutating_plugins, OBJECT | On.CLUSTER | On.REQUEST),
    Stage(call_mutating_webhooks, OBJECT | On.CLUSTER | On.REQUEST),
    Stage(validate, OBJECT),
    Stage(call_validating_webhooks, OBJECT | On.CLUSTER | On.REQUEST | On.MOMENT),
    Stage(admit, OBJECT | On.REQUEST | On.MOMENT),
    Stage(convert, OBJECT),
    Stage(store, OBJECT | On.REQUEST | On.MOMENT),
    Stage(answer, OBJECT | On.REQUEST),
)
"""From the newest state of the object to the response."""
WHOLE = tuple(stage.run for stage in UPDATE)
WITHOUT_RESPONSE = WHOLE[:-1]
"""For changes that the server makes itself, and for requests that are answered in another way."""
STORE_AND_ANSWER = WHOLE[-2:]


async def run_update(update: U, steps: Sequence[Step[U]] = WHOLE) -> None:
    """Run the steps, again where another write came between.  Raises Refusal."""
    for attempt in range(ATTEMPTS):
        try:
            await run_steps(steps, update)
            return
        except Outdated:
            if attempt == ATTEMPTS - 1 or not update.retried:
                name = update.key.rpartition("/")[2]
                raise conflict(update.resource.kind, name) from None


# --- rules that the stages and their shortened forms share ----------------------------------------


def decoded(update: Update) -> Json:
    """A fresh copy of the object in the version of the request."""
    tree, present = update.row.tree(), update.resource.kind.present
    return tree if present is None else present(tree)


def attributes_of(update: Update) -> Attributes:
    """The update as admission sees it."""
    row = update.row
    return Attributes(
        update.call,
        update.resource,
        "UPDATE",
        row.namespace,
        row.name,
        update.new,
        update.old,
        update.subresource,
    )


def count_generation(update: Update) -> None:
    """Count metadata.generation up where more than metadata and status has changed."""
    kind, new, old = update.resource.kind, update.new, update.old
    if kind.strategy.generation and update.subresource != "status" and differs_outside(new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def differs_outside(new: Json, old: Json) -> bool:
    """Whether anything but metadata and status changed."""
    for key, value in new.items():
        if key != "metadata" and key != "status" and value != old.get(key):
            return True
    return any(
        key not in new and key != "metadata" and key != "status" and value is not None
        for key, value in old.items()
    )


def new_finalizers(metadata: Json, before: Json) -> list[FieldError]:
    """While an object is being deleted, finalizers may only go."""
    if "deletionTimestamp" not in before:
        return []
    added = [
        name
        for name in metadata.get("finalizers") or []
        if name not in (before.get("finalizers") or [])
    ]
    if not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
    return [fielderrors.forbidden("metadata.finalizers", why)]


def changes_nothing(update: Update) -> bool:
    """Whether the object and its owners stay as they are.  The times of an apply do not count."""
    held = update.row.held
    return update.new == update.old and (
        update.ownership == held
        or (update.shares is not None and same_but_times(update.shares, held))
    )


def may_go(collection: str, tree: Json) -> bool:
    """Whether an object that is being deleted has nothing to wait for: no finalizers, a namespace
    that is empty, a pod whose kubelet is done with it."""
    metadata = tree.get("metadata")
    if metadata is None or "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if collection == "namespaces" and (tree.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def updater_of(update: Update) -> Owner:
    """Under which name managedFields record a change."""
    call = update.call
    endpoint = call.route.subresource or ("status" if update.subresource == SERVER else "")
    return Owner(call.manager, ownership.UPDATE, endpoint, update.resource.kind.api_version)


def owned(update: Update, sent: Any) -> Ownership:
    """Who owns what after a change that is no apply; `sent` are the managedFields of the client."""
    managed_fields, held = update.backend.store.managed_fields, update.row.held
    owner = updater_of(update)
    scope = update.resource.scope(owner.subresource)
    if sent is not None and not owner.subresource:
        if ownership.is_reset(sent):
            held = NOBODY
        else:
            read = managed_fields.read(sent)
            if read is not None and read[0] is not None:
                held = read
    new, old = update.new, update.old
    if scope.metadata:
        metadata = with_fields_of(new["metadata"], old["metadata"], scope.metadata)
        new = {**new, "metadata": metadata}
    # What comes in through scale has no time.
    timed = owner.subresource != "scale"
    return managed_fields.updated(scope, old, new, held, owner, timed=timed)


def with_fields_of(tree: Json, other: Json, names: Sequence[str]) -> Json:
    """A tree with some of its fields as another one has them."""
    return {name: value for name, value in tree.items() if name not in names} | {
        name: other[name] for name in names if name in other
    }


def same_but_times(shares: Shares, held: Ownership) -> bool:
    """Whether an apply leaves all owners what they had, apart from the times of their changes."""
    owners, stamps = held
    if owners is None:
        return not shares
    before = owners.shares(stamps)
    return before.keys() == shares.keys() and all(
        (share.version, share.fields) == (before[owner].version, before[owner].fields)
        for owner, share in shares.items()
    )


def restore_identity(update: Update, method: str) -> None:
    """Check that the client means this object in this version, and restore the metadata that only
    the server sets."""
    kind, row, old = update.resource.kind, update.row, update.old
    metadata, before = update.new.setdefault("metadata", {}), old["metadata"]
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
    check_uid(kind, row, metadata.get("uid"), method)
    version = metadata.get("resourceVersion")
    if version and str(version) != str(row.version):
        raise conflict(kind, row.name)
    metadata["name"] = row.name
    metadata["resourceVersion"] = before["resourceVersion"]
    if row.namespace:
        metadata["namespace"] = row.namespace
    for name in (*IMMUTABLE_METADATA, "generation"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    metadata.pop("selfLink", None)
    metadata.pop("managedFields", None)
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if name in metadata and not metadata[name]:
            del metadata[name]


def check_uid(kind: Kind, row: Row, uid: Any, method: str) -> None:
    """Refuse a request that means an earlier object of the same name."""
    if not uid or uid == row.uid:
        return
    if method == "PUT":
        raise conflict(
            kind,
            row.name,
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {row.uid}",
        )
    raise invalid(kind, row.name, [fielderrors.invalid("metadata.uid", uid, "field is immutable")])
