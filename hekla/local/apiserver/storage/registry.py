"""The kinds that are served, with their collections and the prefixes of their wire forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, partial

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.merging import topology
from hekla.local.apiserver.objects.merging.ownership import Scope
from hekla.local.apiserver.objects.merging.reset_fields import reset_fields, reset_metadata
from hekla.local.apiserver.objects.merging.topology import Node
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.rows import ADDED, DELETED, MODIFIED
from hekla.local.apiserver.storage.store import Store


class Resource:
    """A served kind with its collection."""

    def __init__(self, kind: Kind, collection: Collection, registry: Registry) -> None:
        self.kind = kind
        self._registry = registry
        self.collection = collection
        self.prefix = f'{{"kind":{json.dumps(kind.kind)},"apiVersion":{json.dumps(kind.api_version)},'.encode()
        """Replaces the opening brace of stored bytes."""
        self.item_prefix = self.prefix if kind.custom else b"{"
        self.list_prefix = f'{{"kind":{json.dumps(kind.list_kind)},"apiVersion":{json.dumps(kind.api_version)},"metadata":'.encode()
        self.event_prefix = {
            type: b'{"type":"' + type.encode() + b'","object":' + self.prefix
            for type in (ADDED, MODIFIED, DELETED)
        }
        self._scopes: dict[str, Scope] = {}
        self.token = object()
        """Identifies wire forms of this resource in an event's cache."""

    @cached_property
    def node(self) -> Node:
        """How the fields of the kind's objects merge."""
        kind = self.kind
        if kind.custom:
            schema = kind.schema or {"x-kubernetes-preserve-unknown-fields": True}
            return topology.of_schema(schema, root=True)
        described = fields.root(kind.group, kind.version, kind.kind)
        if described is None:
            return topology.GUESSED
        return topology.of_kind(described.section, described.name)

    def scope(self, subresource: str = "") -> Scope:
        """How objects merge at an endpoint, and what it resets; built at the first write."""
        scope = self._scopes.get(subresource)
        if scope is None:
            kind = self.kind
            scope = self._scopes[subresource] = Scope(
                self.node,
                kind.api_version,
                reset_fields(kind, subresource),
                self._in_version,
                reset_metadata(kind, subresource),
            )
        return scope

    def _in_version(self, version: str, tree: Json) -> tuple[Node, Json] | None:
        """An object in another served version, with the schema of that version.  None if the
        version is not served."""
        if self.kind.conversion is not None:
            # A webhook is not asked for names of fields; most versions share them.
            return self.node, tree
        for other in self._registry.resources.values():
            if other.collection is self.collection and other.kind.api_version == version:
                stored = self.kind.keep(tree) if self.kind.keep is not None else tree
                present = other.kind.present
                return other.node, present(stored) if present is not None else stored
        return None

    def field_position(self, field: str) -> int:
        """The index of a selectable field in `Row.fields`."""
        return self.collection.positions[self.storage_field(field)]

    def storage_field(self, field: str) -> str:
        """The name of a field selector in the store."""
        # Two kinds that share a store may name the same place differently (v1 and events.k8s.io
        # events).
        path = self.kind.selectable[field]
        for name, other in self.collection.selectable.items():
            if other == path:
                return name
        return field

    def typed(self, tree: Json) -> Json:
        """The object with kind and apiVersion in front."""
        return {"kind": self.kind.kind, "apiVersion": self.kind.api_version, **tree}


def storage_name(kind: Kind) -> str:
    """The name of a kind's collection."""
    group, plural = kind.storage if kind.storage != ("", "") else (kind.group, kind.plural)
    return f"{plural}.{group}" if group else plural


def maturity(version: str) -> tuple[int, int, int]:
    """Sort key of versions in Kubernetes' order of preference: v2, v1, v1beta1, v1alpha2, v1alpha1,
    then others."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (0, 0, 0)
    stage = {None: 3, "beta": 2, "alpha": 1}[match[2]]
    return (stage, int(match[1]), int(match[3] or 0))


def protobuf_size(kind: Kind, tree: Json) -> int:
    """The size of an object in Kubernetes' storage, in bytes."""
    from hekla.local.apiserver.objects.encoding import protobuf

    described = fields.root(kind.group, kind.version, kind.kind)
    return len(protobuf.encode(tree, described)) if described is not None else 0


class Registry:
    """All served kinds, by group, version and plural."""

    def __init__(self, store: Store, kinds: Iterable[Kind]) -> None:
        self.store = store
        self.resources: dict[tuple[str, str, str], Resource] = {}
        self.generation = 0
        """Increases with every change.  Discovery and OpenAPI are computed once per generation."""
        self.built_in = frozenset([self.add(kind) for kind in kinds])

    def add(self, kind: Kind) -> str:
        """Serve a kind.  Returns its group."""
        collection = self.store.collection(storage_name(kind), kind.selectable)
        if not kind.custom:
            collection.measure = partial(protobuf_size, kind)
        self.resources[kind.group, kind.version, kind.plural] = Resource(kind, collection, self)
        self.generation += 1
        return kind.group

    def remove(self, group: str, version: str, plural: str) -> None:
        """Stop serving a kind."""
        if self.resources.pop((group, version, plural), None) is not None:
            self.generation += 1

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        """The served kind, None if there is none."""
        return self.resources.get((group, version, plural))

    def versions(self) -> Mapping[str, list[str]]:
        """Group -> its versions, in the order of discovery: built-in groups first, preferred
        version first."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self.resources:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        for group, versions in found.items():
            if group not in self.built_in:
                versions.sort(key=maturity, reverse=True)
        return found

    def of(self, group: str, version: str) -> list[Resource]:
        """The served kinds of a group and version."""
        return [
            resource
            for (g, v, _), resource in self.resources.items()
            if g == group and v == version
        ]

    def __getitem__(self, plural: str) -> Resource:
        """A resource of the core group."""
        return self.resources["", "v1", plural]
