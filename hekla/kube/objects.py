"""Names, versions and kinds of objects, whether structs or JSON trees."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.kinds import Kind, read_as


class Unread(msgspec.Struct):
    """The answer to a write whose content is not needed, because the watch brings it."""


def unread(kind: Kind[Any]) -> Kind[Unread]:
    """The kind with an answer that is not decoded, for writes whose result the watch brings."""
    return read_as(kind, Unread)


def with_kind(kind: Kind[Any], obj: Any) -> Any:
    """The object with its apiVersion and kind.  Built-in kinds come without them in lists, and
    servers require them in writes."""
    if isinstance(obj, dict):
        if not obj.get("kind") or not obj.get("apiVersion"):
            return {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
    elif getattr(obj, "kind", None) == "":
        # A reader's own struct may have no such field.
        obj.kind = kind.kind
        obj.api_version = kind.api_version
    return obj


def name_of(obj: Any) -> tuple[str, str | None]:
    """(name, namespace); the namespace of a cluster-scoped object is None."""
    if isinstance(obj, dict):
        metadata = obj.get("metadata") or {}
        return metadata.get("name") or "", metadata.get("namespace") or None
    return obj.metadata.name, obj.metadata.namespace or None


def version_of(obj: Any) -> str:
    """The resourceVersion."""
    if isinstance(obj, dict):
        return (obj.get("metadata") or {}).get("resourceVersion") or ""
    return str(obj.metadata.resource_version)


def uid_of(obj: Any) -> str:
    if isinstance(obj, dict):
        return (obj.get("metadata") or {}).get("uid") or ""
    return str(obj.metadata.uid)


def controller_reference(kind: Kind[Any], name: str, uid: str) -> dict[str, Any]:
    """The owner reference to the object that manages another."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
