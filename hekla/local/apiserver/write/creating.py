"""The stages of a create, in their order (`CREATE`).

What a kind does at a stage (`decode`, `default`, `validate_create`) is in objects/builtin.py, and for
custom kinds, such as Job, in objects/custom/custom.py.

Everything up to `admit` can be thrown away and done again.  Between the last look at the newest
state in `admit` and the moment in which `store` accepts the object there is no await, so what that
look found still holds.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field

from hekla.api.text import fielderrors
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.kind import FieldError, Kind
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.objects.merging.ownership import Owner, Shares
from hekla.local.apiserver.objects.new_objects import generated_name, new_uid, now
from hekla.local.apiserver.request.call import Call, decode_body
from hekla.local.apiserver.request.status import Refusal, already_exists, bad_request, invalid
from hekla.local.apiserver.storage.managed_fields import Ownership, with_managed_fields
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.write.stages import Backend, On, Stage

NAMELESS = fielderrors.required("metadata.name", "name or generateName is required")
NOT_FOR_CLIENTS = ("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that is dropped from the body of a create."""
NOT_OF_NEW_OBJECTS = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "resourceVersion",
)
"""Metadata that no new object has, whatever a webhook says."""
NAME_ATTEMPTS = 8
"""Names that are generated for an object before a create gives up."""


@dataclass(slots=True, eq=False)
class NewObject:
    """An object on its way through the stages of a create."""

    backend: Backend
    call: Call
    resource: Resource
    namespace: str
    tree: Json
    decoded: bool = True
    """Whether the tree was read by the kind's decoder, so that it has no unknown fields."""
    validated: bool = True
    """Whether the rules of the kind apply.  The server's own first objects have names and values
    that nobody else may use."""
    shares: Shares | None = None
    """Who owns the fields, where a server-side apply creates the object."""
    nameless: bool = False
    """Whether the object came without a name and without a prefix for one."""
    generated: bool = False
    """Whether the server made up the name."""
    row: Row | None = None
    """The stored object; None under dry run."""
    rest: bytes = b""
    """The stored bytes behind metadata, where the create cache has them."""
    attributes: Attributes = field(init=False)
    """From `run_mutating_plugins` on."""
    ownership: Ownership = field(init=False)
    """Who owns the fields; from `own` on."""
    stored: Json = field(init=False)
    """The object in the version in which it is stored; from `convert` on."""
    response: Response = field(init=False)
    """From `answer` on."""


def decode(new: NewObject) -> None:
    """Read the request's body."""
    new.tree = decode_body(new.call)


def default(new: NewObject) -> None:
    """Fill in the defaults of the kind."""
    strategy = new.resource.kind.strategy
    default_decoded = strategy.default_decoded if new.decoded else None
    (default_decoded or strategy.default)(new.tree)


def place(new: NewObject) -> None:
    """Take the namespace from the URL, and drop what a client cannot set."""
    metadata = new.tree["metadata"]
    if metadata.get("resourceVersion"):
        raise Refusal(
            500,
            "resourceVersion should not be set on objects to be created",
            reason="",
            details=None,
        )
    place_in(metadata, new.namespace)
    for name in NOT_FOR_CLIENTS:
        metadata.pop(name, None)


def own(new: NewObject) -> None:
    """Make the client the owner of the fields that it has set.  Nobody owns what admission adds
    after this."""
    managed_fields = new.backend.store.managed_fields
    if new.shares is not None:
        new.ownership = managed_fields.compact(new.shares)
    else:
        new.ownership = managed_fields.created(new.resource.scope(), new.tree, creator_of(new))


def run_mutating_plugins(new: NewObject) -> None:
    """Let the built-in admission plugins change the object, after a check that its namespace lives."""
    new.attributes = attributes_of(new)
    new.backend.admission.run_mutating_plugins(new.attributes)


def call_mutating_webhooks(new: NewObject) -> Awaitable[None] | None:
    """Let the policies and webhooks change the object; where any did, fill in the defaults again."""
    return new.backend.admission.call_mutating(new.attributes)


def identify(new: NewObject) -> None:
    """Take the object as admission has made it, and give it its name, uid and time of creation."""
    assert new.attributes.object is not None
    new.tree = new.attributes.object
    kind, metadata = new.resource.kind, new.tree["metadata"]
    if not metadata.get("name"):
        prefix = metadata.get("generateName")
        if prefix:
            metadata["name"] = generated_name(prefix)
            new.generated = True
        elif kind.kind == "LimitRange":
            metadata["name"] = new_uid()
        else:
            metadata["name"] = ""
            new.nameless = True
    place_in(metadata, new.namespace)
    new.attributes.name = metadata["name"]
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now()
    for name in NOT_OF_NEW_OBJECTS:
        metadata.pop(name, None)
    if kind.strategy.generation:
        metadata["generation"] = 1


def validate(new: NewObject) -> None:
    """Set the first status, and check the object against the rules of its kind."""
    strategy = new.resource.kind.strategy
    strategy.prepare_create(new.tree)
    refuse_invalid(new, list(strategy.validate_create(new.tree)) if new.validated else [])


def call_validating_webhooks(new: NewObject) -> Awaitable[None] | None:
    """Ask the policies and webhooks that may refuse the object."""
    return new.backend.admission.call_validating(new.attributes)


def convert(new: NewObject) -> Awaitable[None] | None:
    """Bring the object into the version in which it is stored."""
    kind = new.resource.kind
    if kind.conversion is not None:
        return _convert(new)
    new.stored = kind.keep(new.tree) if kind.keep is not None else new.tree
    return None


async def _convert(new: NewObject) -> None:
    conversion = new.resource.kind.conversion
    assert conversion is not None
    new.stored = await conversion.kept(new.tree)


def admit(new: NewObject) -> None:
    """Check what must still hold in the step in which the object is stored: its name is free, its
    namespace lives, quotas allow it."""
    kind, collection = new.resource.kind, new.resource.collection
    metadata, namespace = new.tree["metadata"], new.namespace
    attempts = NAME_ATTEMPTS
    while True:
        name = metadata["name"]
        taken = collection.newest(f"{namespace}/{name}" if namespace else name)
        if taken is None:
            break
        attempts -= 1
        if not new.generated or attempts == 0:
            raise already_exists(kind, name, going=b'"deletionTimestamp":' in taken.data)
        metadata["name"] = new.stored["metadata"]["name"] = generated_name(metadata["generateName"])
    new.backend.admission.run_validating_plugins(new.attributes)


def store(new: NewObject) -> Awaitable[Row] | None:
    """Accept the object, and wait until it is on the disk."""
    if new.call.dry_run:
        new.tree = with_managed_fields(new.tree, new.ownership)
        return None
    write = new.resource.collection.create(new.stored, new.ownership, new.rest)
    new.row = write.row
    return write.done


def answer(new: NewObject) -> Awaitable[None] | None:
    """Show the client its object."""
    conversion = new.call.route.kind.conversion
    if new.row is not None and conversion is not None:
        return _answer_converted(new)
    new.response = new.call.respond_with(201, new.row, new.tree)
    return None


async def _answer_converted(new: NewObject) -> None:
    conversion = new.call.route.kind.conversion
    assert conversion is not None and new.row is not None
    await conversion.ready([new.row])
    new.response = new.call.respond_with(201, new.row, new.tree)


OBJECT = On.CONTENT | On.METADATA
CREATE: tuple[Stage[NewObject], ...] = (
    Stage(decode, OBJECT | On.REQUEST),
    Stage(default, On.CONTENT),
    Stage(place, On.METADATA | On.REQUEST),
    Stage(own, OBJECT | On.REQUEST),
    Stage(run_mutating_plugins, OBJECT | On.CLUSTER | On.REQUEST),
    Stage(call_mutating_webhooks, OBJECT | On.CLUSTER | On.REQUEST),
    Stage(identify, On.METADATA | On.MOMENT),
    Stage(validate, OBJECT),
    Stage(call_validating_webhooks, OBJECT | On.CLUSTER | On.REQUEST | On.MOMENT),
    Stage(convert, OBJECT),
    Stage(admit, OBJECT | On.REQUEST | On.MOMENT),
    Stage(store, OBJECT | On.REQUEST | On.MOMENT),
    Stage(answer, OBJECT | On.REQUEST),
)
"""From the request's body to the response.  All stages run; on what their results depend matters to the
create cache alone."""
FROM_BODY = tuple(stage.run for stage in CREATE)
FROM_TREE = FROM_BODY[1:]
"""For an object that was decoded before: a PUT that creates, a server-side apply."""
WITHOUT_RESPONSE = FROM_TREE[:-1]
"""For objects that the server itself creates."""


def creator_of(new: NewObject) -> Owner:
    """Under which name managedFields record a create."""
    return Owner(new.call.manager, ownership.UPDATE, "", new.resource.kind.api_version)


def attributes_of(new: NewObject) -> Attributes:
    """The create as admission sees it."""
    name = new.tree["metadata"].get("name") or ""
    return Attributes(new.call, new.resource, "CREATE", new.namespace, name, new.tree, None)


def place_in(metadata: Json, namespace: str) -> None:
    """Fill in the namespace of the URL; refuse another one."""
    found = metadata.get("namespace") or ""
    if found and found != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def refuse_invalid(new: NewObject, errors: list[FieldError]) -> None:
    """Refuse an object with errors or with a bad name.  A valid one may earn warnings."""
    kind, name = new.resource.kind, new.tree["metadata"]["name"]
    why = refuse_name(kind, name)
    if new.nameless:
        errors = [NAMELESS, *(error for error in errors if error.field != "metadata.name")]
    elif why is not None and not any(error.field == "metadata.name" for error in errors):
        errors.insert(0, fielderrors.invalid("metadata.name", name, why))
    if errors:
        raise invalid(kind, name, errors)
    if kind.strategy.warnings is not None:
        for text in kind.strategy.warnings(new.tree, None):
            new.call.warn(text)


def refuse_name(kind: Kind, name: str) -> str | None:
    """Why an object of this kind cannot have this name; None where it can."""
    rule = kind.strategy.name_rule
    if rule is not None:
        return rule(name)
    return (names.dns_subdomain(name) or (None,))[0]
