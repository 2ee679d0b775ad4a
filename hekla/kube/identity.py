"""What stays of an object once its reader has taken from it what it needs (`Cache(keep=identified)`)."""

from __future__ import annotations

from sys import intern

import msgspec

from hekla.api.trees import Tree


class Identity(msgspec.Struct, rename="camel", gc=False):
    """The metadata that stays of an object."""

    name: str
    namespace: str
    uid: str
    resource_version: str


class Identified(msgspec.Struct, gc=False):
    """What stays of an object once it has been read."""

    metadata: Identity


def identified(tree: Tree) -> Identified:
    """The identity of an object."""
    metadata = tree["metadata"]
    namespace = metadata.get("namespace") or ""
    if type(namespace) is str:  # a reader refuses any other
        namespace = intern(namespace)
    return Identified(
        Identity(
            metadata["name"],
            namespace,
            metadata.get("uid") or "",
            metadata.get("resourceVersion") or "",
        )
    )
