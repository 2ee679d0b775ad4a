"""Scopes of managed fields: how the objects of an endpoint merge, and which fields the endpoint
does not write (local-cluster 2.3, 2.7)."""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.merging import topology
from hekla.local.apiserver.objects.merging.ownership import Scope
from hekla.local.apiserver.objects.merging.topology import Node
from hekla.local.apiserver.storage.registry import Registry, Resource

STATUS, SPEC = frozenset({"status"}), frozenset({"spec"})
RESET = {
    ("certificatesigningrequests", ""): SPEC | STATUS,
    ("certificatesigningrequests", "approval"): SPEC,
    ("servicecidrs", "status"): SPEC | {"metadata"},
    ("resourceclaims", "status"): SPEC | {"metadata"},
    ("volumeattachments", "status"): SPEC | {"metadata"},
    ("flowschemas", "status"): SPEC | {"metadata"},
    ("prioritylevelconfigurations", "status"): SPEC | {"metadata"},
    ("validatingadmissionpolicies", "status"): SPEC | {"metadata"},
}
"""(plural, subresource) -> top-level fields that the endpoint resets, where the common rule does
not hold."""


RESET_METADATA = {("deployments", "status"): ("labels",), ("pods", "status"): ("ownerReferences",)}
"""(plural, subresource) -> fields of metadata that the endpoint resets."""


def scope_of(registry: Registry, resource: Resource, subresource: str) -> Scope:
    """The scope of an endpoint; built at the first write."""
    scope = resource.scopes.get(subresource)
    if scope is None:
        kind = resource.kind
        without = RESET.get((kind.plural, subresource))
        if without is None:
            without = (
                SPEC
                if subresource == "status"
                else STATUS
                if "status" in kind.subresources
                else frozenset()
            )

        def convert(version: str, tree: Json) -> tuple[Node, Json] | None:
            return in_version(registry, resource, version, tree)

        kept = RESET_METADATA.get((kind.plural, subresource), ())
        scope = resource.scopes[subresource] = Scope(
            node_of(resource), kind.api_version, frozenset(without), convert, kept
        )
    return scope


def node_of(resource: Resource) -> Node:
    node = resource.node
    if node is None:
        kind = resource.kind
        if kind.custom:
            node = topology.of_schema(
                kind.schema or {"x-kubernetes-preserve-unknown-fields": True}, root=True
            )
        else:
            described = fields.root(kind.group, kind.version, kind.kind)
            node = (
                topology.of_kind(described.section, described.name)
                if described is not None
                else topology.GUESSED
            )
        resource.node = node
    return node


def in_version(
    registry: Registry, resource: Resource, version: str, tree: Json
) -> tuple[Node, Json] | None:
    """An object of the resource in another served version, with the schema of that version.  None
    if the version is not served."""
    if resource.kind.conversion is not None:
        return node_of(
            resource
        ), tree  # a webhook is not asked for names of fields; most versions share them
    keep = resource.kind.keep
    for other in registry.resources.values():
        if other.collection is resource.collection and other.kind.api_version == version:
            stored = keep(tree) if keep is not None else tree
            present = other.kind.present
            return node_of(other), present(stored) if present is not None else stored
    return None
