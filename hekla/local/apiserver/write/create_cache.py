"""The short way of creates whose like was made a moment ago: of their bodies, metadata alone is
read.

Most objects of a busy cluster come from a few templates: the jobs of a sweep, their groups, their
pods.  What becomes of such a spec (defaults, admission, checks, its bytes in the store) follows
from its own bytes and from a few collections that hardly ever change, so it is remembered by these.
What depends on the name, on other metadata, on who asks, on quotas or on policies is decided for
each object, as ever.  The short way either comes to what the long way would have come to, or it is
not gone.  Decision 0249.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.admission.admission import Admission
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
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.store import Collection, Store, decode, encode, split

if TYPE_CHECKING:
    from hekla.local.apiserver.admission.hook import Hook
    from hekla.local.apiserver.admission.webhooks import Webhooks

KNOWN = 512
"""Cached results, and hashes of keys that were seen once."""
LARGEST = 16 * 1024
"""Bytes of a body that goes this way."""
FIELDS = frozenset({"apiVersion", "kind", "metadata", "spec"})
AROUND = len('{"apiVersion":,"kind":,"metadata":,"spec":}')
METADATA = frozenset(
    {"name", "namespace", "generateName", "labels", "annotations", "ownerReferences", "finalizers"}
)
"""What may stand in metadata; all else is rare, or the server's own."""
EVERYWHERE = ("namespaces", "mutatingwebhookconfigurations.admissionregistration.k8s.io")
"""Collections on which it depends what becomes of any object."""
MIRROR = b"config.mirror"

Key = tuple[Any, ...]


class Body(NamedTuple):
    """A body whose like was seen."""

    key: Key
    metadata: msgspec.Raw
    cached: CachedCreate


class CreateRecord:
    """What the long way of a create shows of its spec.  It is begun for a body that comes the
    second time."""

    __slots__ = (
        "_annotations",
        "_before",
        "_hooks",
        "_metadata",
        "_notes",
        "_shape",
        "key",
        "reordered",
        "said",
    )

    def __init__(self, key: Key, said: bytes) -> None:
        self.key = key
        self.said = said
        self.reordered = False
        self._before = b""
        self._metadata: Json = {}
        self._shape = 0
        self._hooks: tuple[Hook, ...] | None = ()
        self._notes: tuple[tuple[str, str], ...] = ()
        self._annotations: dict[str, str] = {}

    def begin(self, shape: int, metadata: Json) -> None:
        self._shape, self._metadata, self._before = shape, metadata, encode(metadata)

    def asked(self, hooks: tuple[Hook, ...] | None) -> None:
        """The webhooks that are about to be asked; None where what they say may depend on other
        things."""
        self._hooks = hooks

    def mutated(self, call: Call, tree: Json) -> None:
        """What admission made of it."""
        before, after = decode(self._before), tree["metadata"]
        if after != before:
            if (
                "annotations" in before
                or {**before, "annotations": after.get("annotations")} != after
            ):
                self._shape = 0
            self._annotations = after.get("annotations") or {}
        self.reordered = after is not self._metadata
        self._notes = tuple((call.request.notes or {}).items())

    def learned(self, call: Call, stored: Json) -> CachedCreate | None:
        """The cached; None where another object of this spec may come out otherwise."""
        if (
            not self._shape
            or self._hooks is None
            or call.warnings
            or not stored.keys() <= {"metadata", "spec", "status"}
        ):
            return None
        if "conditions" in (stored.get("status") or {}):
            return None  # they say when
        rest = encode({name: value for name, value in stored.items() if name != "metadata"})[1:]
        name = token_volume(stored["spec"])
        if name and TOKEN_VOLUME_PREFIX.encode() in self.said:
            return None
        pieces = tuple(rest.split(name.encode())) if name else (rest,)
        return CachedCreate(
            pieces,
            self._shape,
            self.reordered,
            self._hooks,
            self._notes,
            set(),
            BoundedCache(CACHED_CONDITIONS),
            self._annotations,
        )


def token_volume(spec: Any) -> str:
    """The made-up name of the volume of an account's token."""
    for volume in (spec.get("volumes") if isinstance(spec, dict) else None) or ():
        name = volume.get("name")
        if type(name) is str and TOKEN_VOLUME.fullmatch(name):
            return name
    return ""


class CreateCache:
    """Results of creates, by resource, namespace, spec and what admission reads."""

    def __init__(self, store: Store, registry: Registry, admission: Admission) -> None:
        self.store = store
        self.registry = registry
        self.admission = admission
        self._known: BoundedCache[Key, CachedCreate] = BoundedCache(KNOWN)
        self._seen: BoundedCache[int, bool] = BoundedCache(KNOWN)
        """Hashes of keys that came once."""
        self._looks: dict[Resource, tuple[Collection, ...] | None] = {}
        self._generation = -1

    def find(self, call: Call) -> Body | CreateRecord | None:
        """A body with its cached, or what is to be learned from it; None where the short way is not
        for it."""
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
        looks = self._looks_at(resource)
        if looks is None:
            return None
        key: list[Any] = [resource, call.route.namespace]
        for collection in looks:
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
        named, version = bytes(pieces["kind"]), bytes(pieces["apiVersion"])
        if len(metadata) + len(spec) + len(named) + len(version) + AROUND != len(body):
            return None  # blanks, or a field that stands twice
        key += (named, version, spec)
        found = tuple(key)
        cached = self._known.get(found)
        if cached is not None:
            return Body(found, pieces["metadata"], cached)
        if hash(found) in self._seen:
            return (
                CreateRecord(found, spec) if read_metadata(pieces["metadata"]) is not None else None
            )
        self._seen[hash(found)] = True
        return None

    def keep(self, record: CreateRecord, cached: CachedCreate) -> None:
        self._known[record.key] = cached

    def _looks_at(self, resource: Resource) -> tuple[Collection, ...] | None:
        """The collections that admission looks at for a new object; None where it looks at others."""
        generation = self.registry.generation
        if generation != self._generation:
            self._generation = generation
            self._looks.clear()
            self._known.clear()  # what was served otherwise was perhaps asked otherwise
            self._seen.clear()
        if resource not in self._looks:
            self._looks[resource] = self._found(resource)
        return self._looks[resource]

    def _found(self, resource: Resource) -> tuple[Collection, ...] | None:
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
        own = self.admission.looks.get(name)
        if own is None and (name, "CREATE") in self.admission.plugins:
            return None
        queues = self.registry.get(*QUEUES)
        found = [
            self.store.collections[other]
            for other in (*EVERYWHERE, *(own or ()))
            if other in self.store.collections
        ]
        return (*found, queues.collection) if queues is not None else tuple(found)

    # --- webhooks ---------------------------------------------------------------------------------

    def asked(self, attributes: Attributes) -> tuple[Hook, ...] | None:
        """The webhooks that see a new object and may change it; None where their answers may depend
        on more than its cached."""
        webhooks = self.admission.webhooks
        if webhooks is None:
            return ()
        if self.admission.policies.mutating.wanted(attributes):
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

    def settled(self, cached: CachedCreate, tree: Json) -> bool:
        """Whether the webhooks that were asked about the cached would say the same of this object,
        whatever stands in its metadata."""
        webhooks = self.admission.webhooks
        reviewers = (
            [webhooks.reviewer(hook) for hook in cached.hooks] if webhooks is not None else []
        )
        return all(reviewer is not None and reviewer.settled(tree) for reviewer in reviewers)


def note(webhooks: Webhooks, attributes: Attributes, cached: CachedCreate) -> None:
    """Counts the webhooks and writes down for the audit log what they would have."""
    for hook in cached.hooks:
        webhooks.count_skipped(hook, attributes)
    for name, text in cached.audit_annotations:
        attributes.call.annotate(name, text)


@cache
def _reader() -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(shapes.shape("meta.v1", "ObjectMeta")).decode


def read_metadata(raw: msgspec.Raw) -> Json | None:
    """Metadata as the long way reads it; None where it finds something to say about it."""
    said = bytes(raw)
    if b"null" in said or MIRROR in said:
        return None
    try:
        shaped = _reader()(said)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if documents.has_duplicates(said, shaped) and documents.has_duplicates(
        said, documents.json_tree(said)
    ):
        return None
    found: Json = msgspec.to_builtins(shaped)
    return found if found.keys() <= METADATA else None


def in_order(metadata: Json) -> Json:
    """Metadata with its fields in the order in which they are read."""
    found: Json = msgspec.to_builtins(
        msgspec.convert(metadata, shapes.shape("meta.v1", "ObjectMeta"))
    )
    return found
