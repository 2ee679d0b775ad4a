"""The error message for a strategic merge patch whose result is not an object of its kind.

Kubernetes converts the result into its Go struct field by field, not by its JSON decoder, and that
has messages of its own. This runs only for patches that are refused already.
"""

from __future__ import annotations

import re
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields, typecheck
from hekla.local.apiserver.objects.encoding.go_text import kind_of
from hekla.local.apiserver.objects.errors import BadBody

_INTO = re.compile(r"into Go struct field \S+ of type")
NUMBERS = {"int32": "int32", "int64": "int64", "double": "float64"}


def misfit(tree: Json, group: str, version: str, kind: str) -> str | None:
    """The message for the first value that does not fit the kind; None if there is none."""
    described = fields.root(group, version, kind)
    return None if described is None else _object(tree, described)


def _object(tree: Any, described: fields.Message) -> str | None:
    if not isinstance(tree, dict):
        return f"cannot restore struct from: {kind_of(tree)}"
    for field, owner in fields.flat(described):
        value = tree.get(field.name)
        if value is not None:
            why = _field(value, field, owner)
            if why is not None:
                return why
    return None


def _field(value: Any, field: fields.Field, owner: fields.Message) -> str | None:
    if field.many == "list":
        if not isinstance(value, list):
            return f"cannot restore slice from {kind_of(value)}"
        return next(
            (
                why
                for item in value
                if item is not None and (why := _single(item, field, owner)) is not None
            ),
            None,
        )
    if field.many == "map":
        if not isinstance(value, dict):
            return f"cannot restore map from {kind_of(value)}"
        return next(
            (
                why
                for item in value.values()
                if item is not None and (why := _single(item, field, owner)) is not None
            ),
            None,
        )
    return _single(value, field, owner)


def _single(value: Any, field: fields.Field, owner: fields.Message) -> str | None:
    kind, value_type = field.type, kind_of(value)
    if kind == "string":
        wanted = typecheck.go_text_type(owner, field.name)
        return (
            None
            if value_type == "string"
            else f"cannot convert int64 to {wanted}"
            if value_type == "int64"
            else "unrecognized type: string"
        )
    if kind == "bool":
        return None if value_type == "bool" else "unrecognized type: bool"
    if kind in NUMBERS:
        if value_type == "int64":
            return None
        if value_type == "float64":
            return (
                None
                if kind == "double" or value.is_integer()
                else f"cannot convert float64 to {kind}"
            )
        return f"unrecognized type: {NUMBERS[kind]}"
    if kind == "bytes" and value_type != "string":
        if value_type == "slice":
            return (
                "unrecognized type: uint8"
                if any(not isinstance(item, int) for item in value)
                else None
            )
        return f"cannot restore slice from {value_type}"
    inner = fields.message(owner.section, kind) if kind not in typecheck.SPECIAL else None
    if inner is not None:
        return _object(value, inner)
    try:
        typecheck.single(value, field, owner)
    except BadBody as error:
        return (
            f"error decoding from json: {error}"
            if kind == "bytes"
            else _INTO.sub("into Go value of type", str(error))
        )
    return None
