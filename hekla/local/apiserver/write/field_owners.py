"""Who comes to own the fields of a written object: under which name a write is recorded, how the
objects of its endpoint merge, and which fields the endpoint does not write (local-cluster 2.3, 2.7).
"""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.objects.merging.ownership import Owner, Scope
from hekla.local.apiserver.objects.merging.topology import Node
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.storage.managed_fields import Ownership
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.store import decode

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


def owner_of(
    registry: Registry, call: Call, resource: Resource, endpoint: str
) -> tuple[Owner, Scope]:
    """Under which name a create or update is recorded, and how objects merge at its endpoint."""
    scope = scope_of(registry, resource, endpoint)
    return Owner(call.manager, ownership.UPDATE, endpoint, scope.version), scope


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
            resource.node, kind.api_version, frozenset(without), convert, kept
        )
    return scope


def in_version(
    registry: Registry, resource: Resource, version: str, tree: Json
) -> tuple[Node, Json] | None:
    """An object of the resource in another served version, with the schema of that version.  None
    if the version is not served."""
    if resource.kind.conversion is not None:
        # A webhook is not asked for names of fields; most versions share them.
        return resource.node, tree
    keep = resource.kind.keep
    for other in registry.resources.values():
        if other.collection is resource.collection and other.kind.api_version == version:
            stored = keep(tree) if keep is not None else tree
            present = other.kind.present
            return other.node, present(stored) if present is not None else stored
    return None


def with_managed_fields(tree: Json, held: Ownership) -> Json:
    """The object with its managedFields, as a dry run shows it."""
    owners, stamps = held
    if owners is None:
        return tree
    shown = decode(owners.render(stamps))
    return {**tree, "metadata": {**tree["metadata"], "managedFields": shown}}
