"""Reset fields: what an endpoint does not write, whatever the client sends (local-cluster 2.7)."""

from __future__ import annotations

from hekla.local.apiserver.objects.kind import Kind

STATUS, SPEC = frozenset({"status"}), frozenset({"spec"})
EXCEPTIONS = {
    ("certificatesigningrequests", ""): SPEC | STATUS,
    ("certificatesigningrequests", "approval"): SPEC,
    ("servicecidrs", "status"): SPEC | {"metadata"},
    ("resourceclaims", "status"): SPEC | {"metadata"},
    ("volumeattachments", "status"): SPEC | {"metadata"},
    ("flowschemas", "status"): SPEC | {"metadata"},
    ("prioritylevelconfigurations", "status"): SPEC | {"metadata"},
    ("validatingadmissionpolicies", "status"): SPEC | {"metadata"},
}
"""(plural, subresource) -> top-level fields, where the common rule does not hold."""
METADATA = {("deployments", "status"): ("labels",), ("pods", "status"): ("ownerReferences",)}
"""(plural, subresource) -> fields of metadata."""


def reset_fields(kind: Kind, subresource: str) -> frozenset[str]:
    """The top-level fields that an endpoint resets: spec at status, else a status that has an
    endpoint of its own."""
    known = EXCEPTIONS.get((kind.plural, subresource))
    if known is not None:
        return known
    if subresource == "status":
        return SPEC
    return STATUS if "status" in kind.subresources else frozenset()


def reset_metadata(kind: Kind, subresource: str) -> tuple[str, ...]:
    """The fields of metadata that an endpoint resets."""
    return METADATA.get((kind.plural, subresource), ())
