"""The create cache: the stages of a create that depend on the object's spec run once for a spec.

Most objects of a busy cluster come from a few templates: the jobs of a sweep, their PodGroups, their
pods.  The result of such a spec (defaults, admission, validation, its stored bytes) follows from its
bytes and from a few collections that hardly ever change; these are the key of the cache.  What
depends on metadata, on the client or on the moment is done for each object: that is the list
`REMAINING`.  It gives what `CREATE` would give, or it stops before anything is written and `CREATE`
runs from the beginning.  Decision 0249.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import (
    CACHED_CONDITIONS,
    TOKEN_VOLUME_PREFIX,
    Attributes,
    CachedCreate,
)
from hekla.local.apiserver.admission.in_process import QUEUES
from hekla.local.apiserver.objects.encoding import documents, shapes
from hekla.local.apiserver.objects.validation.pod import TOKEN_VOLUME
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import decode, encode, split
from hekla.local.apiserver.write import creating
from hekla.local.apiserver.write.creating import CREATE, FROM_BODY, NewObject, creator_of
from hekla.local.apiserver.write.stages import Backend, NeedsFullPath, On, Step, remaining

if TYPE_CHECKING:
    from hekla.local.apiserver.admission.hook import Hook

SIZE = 512
"""Cached results, and hashes of keys that were seen once."""
LARGEST = 16 * 1024
"""Bytes of a body whose result can be cached."""
FIELDS = frozenset({"apiVersion", "kind", "metadata", "spec"})
AROUND = len('{"apiVersion":,"kind":,"metadata":,"spec":}')
METADATA = frozenset(
    {"name", "namespace", "generateName", "labels", "annotations", "ownerReferences", "finalizers"}
)
"""What metadata may hold; all else is rare, or set by the server."""
EVERYWHERE = ("namespaces", "mutatingwebhookconfigurations.admissionregistration.k8s.io")
"""Collections that admission reads for objects of every kind."""
MIRROR = b"config.mirror"

Key = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class KnownObject(NewObject):
    """A new object whose spec has a cached result."""

    cached: CachedCreate = field(init=False)
    raw_metadata: msgspec.Raw = field(init=False)
    """The metadata of the body, as bytes."""
    reordered: bool = field(init=False)
    """Whether the fields of metadata are to be put in order."""


class CreateCache:
    """Results of creates, by resource, namespace, spec and the collections that admission reads."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._known: BoundedCache[Key, CachedCreate] = BoundedCache(SIZE)
        self._seen: BoundedCache[int, bool] = BoundedCache(SIZE)
        """Hashes of keys that were seen once."""
        self._read: dict[Resource, tuple[Collection, ...] | None] = {}
        """Resource -> the collections that admission reads for a new object of it."""
        self._generation = -1
        self.hits = 0
        """Creates that were carried out with a cached result."""

    def find(self, call: Call) -> KnownObject | Observer | None:
        """What the cache has for a body: the object whose spec has a result, for `REMAINING`; or
        what caches the result on the way, because the key was seen once before; or None, where the
        body is not for the cache or new to it."""
        request, resource = call.request, call.resource
        body = request.body
        if (
            resource.kind.strategy.known_spec is None
            or request.query
            or len(body) > LARGEST
            or call.user.node is not None
        ):
            return None
        if request.headers.get("content-type") != "application/json":
            return None
        collections = self._read_for(resource)
        if collections is None:
            return None
        key: list[Any] = [resource, call.route.namespace]
        for collection in collections:
            if collection.overlay:
                return None
            key.append(collection.version)
        try:
            pieces = split(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if pieces.keys() != FIELDS:
            return None
        metadata, spec = bytes(pieces["metadata"]), bytes(pieces["spec"])
        kind, version = bytes(pieces["kind"]), bytes(pieces["apiVersion"])
        if len(metadata) + len(spec) + len(kind) + len(version) + AROUND != len(body):
            return None  # blanks, or a field that stands twice
        key += (kind, version, spec)
        whole = tuple(key)
        cached = self._known.get(whole)
        if cached is not None:
            known = KnownObject(self.backend, call, resource, call.route.namespace, {})
            known.raw_metadata, known.cached = pieces["metadata"], cached
            return known
        if hash(whole) in self._seen:
            if read_metadata(pieces["metadata"]) is None:
                return None
            return Observer(self._known, whole, spec)
        self._seen[hash(whole)] = True
        return None

    def _read_for(self, resource: Resource) -> tuple[Collection, ...] | None:
        """The collections that admission reads for a new object; None where those are not known."""
        generation = self.backend.registry.generation
        if generation != self._generation:
            self._generation = generation
            self._read.clear()
            self._known.clear()  # a definition changed, and with it perhaps what admission reads
            self._seen.clear()
        if resource not in self._read:
            self._read[resource] = self._collections(resource)
        return self._read[resource]

    def _collections(self, resource: Resource) -> tuple[Collection, ...] | None:
        store, registry, admission = self.backend
        kind, name = resource.kind, resource.collection.name
        known_spec = kind.strategy.known_spec
        if (
            known_spec is None
            or not known_spec.cacheable()
            or kind.conversion is not None
            or kind.keep is not None
            or kind.present is not None
        ):
            return None
        own = admission.reads.get(name)
        if own is None and (name, "CREATE") in admission.plugins:
            return None
        queues = registry.get(*QUEUES)
        found = [
            store.collections[other]
            for other in (*EVERYWHERE, *(own or ()))
            if other in store.collections
        ]
        return (*found, queues.collection) if queues is not None else tuple(found)


# --- what is left of a create whose spec is known -------------------------------------------------


def decode_metadata(new: KnownObject) -> None:
    """Of the body, read metadata alone."""
    cached = new.cached
    metadata = read_metadata(new.raw_metadata)
    if metadata is None or (cached.annotations and "annotations" in metadata):
        raise NeedsFullPath
    new.tree = {"metadata": metadata}
    if cached.hooks and not all_settled(new.backend, cached, new.tree):
        raise NeedsFullPath
    new.reordered = cached.reordered and bool(cached.annotations or "namespace" not in metadata)


def own_by_shape(new: KnownObject) -> None:
    """Look the owners up by the shape of the spec and of metadata."""
    found = new.backend.store.managed_fields.created_alike(
        new.resource.scope(), new.tree["metadata"], new.cached.shape, creator_of(new)
    )
    if found is None:
        raise NeedsFullPath
    new.ownership = found


def take_cached_spec(new: KnownObject) -> None:
    """Put the cached spec, as the plugins and webhooks have made it, behind metadata."""
    cached, metadata = new.cached, new.tree["metadata"]
    if cached.annotations:
        metadata["annotations"] = dict(cached.annotations)
    if new.reordered:
        metadata = in_order(metadata)
    new.rest = cached.rest()
    new.tree = {"metadata": metadata, **decode(b"{" + new.rest)}
    new.attributes = creating.attributes_of(new)
    new.attributes.cached = cached
    new.backend.admission.namespace_lifecycle(new.attributes)


def skip_mutating_webhooks(new: KnownObject) -> None:
    """Count the webhooks whose answers are cached, and repeat what they said to the audit log."""
    admission, cached = new.backend.admission, new.cached
    if admission.webhooks is None:
        return
    if admission.policies.mutating.wanted(new.attributes):
        raise NeedsFullPath
    for hook in cached.hooks:
        admission.webhooks.count_skipped(hook, new.attributes)
    for name, text in cached.audit_annotations:
        new.call.annotate(name, text)


def validate_metadata(new: KnownObject) -> None:
    """Check metadata alone."""
    known_spec = new.resource.kind.strategy.known_spec
    assert known_spec is not None
    creating.refuse_invalid(new, known_spec.validate_metadata(new.tree))


INSTEAD: Mapping[Any, Step[KnownObject]] = {
    creating.decode: decode_metadata,
    creating.own: own_by_shape,
    creating.run_mutating_plugins: take_cached_spec,
    creating.call_mutating_webhooks: skip_mutating_webhooks,
    creating.validate: validate_metadata,
}
REMAINING: tuple[Step[KnownObject], ...] = remaining(CREATE, On.CONTENT | On.CLUSTER, INSTEAD)
"""The steps of a create whose spec, and all that admission reads for it, is the key of a result."""


# --- learning -------------------------------------------------------------------------------------


class Observer:
    """Looks at a create between its stages, and caches the result for its spec."""

    __slots__ = (
        "_annotations",
        "_audit_annotations",
        "_before",
        "_hooks",
        "_key",
        "_known",
        "_metadata",
        "_reordered",
        "_shape",
        "_spec",
    )

    def __init__(self, known: dict[Key, CachedCreate], key: Key, spec: bytes) -> None:
        self._known = known
        self._key = key
        self._spec = spec
        self._shape = 0
        self._metadata: Json = {}
        self._before = b""
        """Metadata as it was when admission began."""
        self._hooks: tuple[Hook, ...] | None = ()
        self._annotations: dict[str, str] = {}
        self._audit_annotations: tuple[tuple[str, str], ...] = ()
        self._reordered = False

    def steps(self) -> list[Step[NewObject]]:
        """All steps of `CREATE`, with a look behind those that tell something."""
        found: list[Step[NewObject]] = []
        for step in FROM_BODY:
            found.append(step)
            if step in LOOKS:
                found.append(partial(LOOKS[step], self))
        return found

    def owned(self, new: NewObject) -> None:
        """Note the object as it is before admission, and which webhooks may change it."""
        self._shape = new.backend.store.managed_fields.shape_of(new.resource.scope(), new.tree)
        self._metadata = new.tree["metadata"]
        self._before = encode(self._metadata)
        self._hooks = cacheable_webhooks(new.backend, creating.attributes_of(new))

    def mutated(self, new: NewObject) -> None:
        """Note what admission has changed outside of the spec."""
        assert new.attributes.object is not None
        before, after = decode(self._before), new.attributes.object["metadata"]
        if after != before:
            if (
                "annotations" in before
                or {**before, "annotations": after.get("annotations")} != after
            ):
                self._shape = 0
            self._annotations = after.get("annotations") or {}
        self._reordered = after is not self._metadata
        self._audit_annotations = tuple((new.call.request.notes or {}).items())

    def admitted(self, new: NewObject) -> None:
        """Cache the result."""
        result = self._result(new)
        if result is not None:
            self._known[self._key] = result

    def _result(self, new: NewObject) -> CachedCreate | None:
        """The result for the spec; None where another object of this spec may get another one."""
        stored = new.stored
        if (
            not self._shape
            or self._hooks is None
            or new.call.warnings
            or not stored.keys() <= {"metadata", "spec", "status"}
        ):
            return None
        if "conditions" in (stored.get("status") or {}):
            return None  # they have a time
        rest = encode({name: value for name, value in stored.items() if name != "metadata"})[1:]
        volume = token_volume(stored["spec"])
        if volume and TOKEN_VOLUME_PREFIX.encode() in self._spec:
            return None
        return CachedCreate(
            pieces=tuple(rest.split(volume.encode())) if volume else (rest,),
            shape=self._shape,
            reordered=self._reordered,
            hooks=self._hooks,
            audit_annotations=self._audit_annotations,
            allowed_by=set(),
            conditions=BoundedCache(CACHED_CONDITIONS),
            annotations=self._annotations,
        )


LOOKS: Mapping[Step[NewObject], Callable[[Observer, NewObject], None]] = {
    creating.own: Observer.owned,
    creating.call_mutating_webhooks: Observer.mutated,
    creating.admit: Observer.admitted,
}


def cacheable_webhooks(backend: Backend, attributes: Attributes) -> tuple[Hook, ...] | None:
    """The webhooks that may change a new object; None where their answers may depend on its
    metadata."""
    webhooks = backend.admission.webhooks
    if webhooks is None:
        return ()
    if backend.admission.policies.mutating.wanted(attributes):
        return None
    found = webhooks.mutating.independent_of_object(attributes)
    if found is None:
        return None
    for hook, matched in found:
        reviewer = webhooks.reviewer(hook)
        if (
            reviewer is None
            or matched is not attributes.resource
            or hook.reinvoke
            or not reviewer.settled(attributes.object or {})
        ):
            return None
    return tuple(hook for hook, _ in found)


def all_settled(backend: Backend, cached: CachedCreate, tree: Json) -> bool:
    """Whether the webhooks that were called for the cached object would give this one the same
    answers, whatever its metadata holds."""
    webhooks = backend.admission.webhooks
    reviewers = [webhooks.reviewer(hook) for hook in cached.hooks] if webhooks is not None else []
    return all(reviewer is not None and reviewer.settled(tree) for reviewer in reviewers)


def token_volume(spec: Any) -> str:
    """The generated name of the service account token's volume."""
    for volume in (spec.get("volumes") if isinstance(spec, dict) else None) or ():
        name = volume.get("name")
        if type(name) is str and TOKEN_VOLUME.fullmatch(name):
            return name
    return ""


# --- metadata -------------------------------------------------------------------------------------


@cache
def _reader() -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(shapes.shape("meta.v1", "ObjectMeta")).decode


def read_metadata(raw: msgspec.Raw) -> Json | None:
    """Metadata as `decode` reads it; None where that would warn or refuse."""
    text = bytes(raw)
    if b"null" in text or MIRROR in text:
        return None
    try:
        shaped = _reader()(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if documents.has_duplicates(text, shaped) and documents.has_duplicates(
        text, documents.json_tree(text)
    ):
        return None
    found: Json = msgspec.to_builtins(shaped)
    return found if found.keys() <= METADATA else None


def in_order(metadata: Json) -> Json:
    """Metadata with its fields in the order of the schema."""
    found: Json = msgspec.to_builtins(
        msgspec.convert(metadata, shapes.shape("meta.v1", "ObjectMeta"))
    )
    return found
