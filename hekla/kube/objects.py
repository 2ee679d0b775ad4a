"""Structs and JSON trees alike: what an object is called, and making it say what it is."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.kinds import Kind, read_as


class Unread(msgspec.Struct):
    """An answer of which only that it came matters; what it says comes by the watch."""


def unread(kind: Kind[Any]) -> Kind[Unread]:
    """The kind, for writes whose answer is not looked at."""
    return read_as(kind, Unread)


def with_kind(kind: Kind[Any], obj: Any) -> Any:
    """The object, saying what it is.  Built-in kinds come without apiVersion and kind in lists;
    servers want them on writes."""
    if isinstance(obj, dict):
        if not obj.get("kind") or not obj.get("apiVersion"):
            return {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
    elif (
        getattr(obj, "kind", None) == ""
    ):  # a struct of a reader's own may leave out what it does not need
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
