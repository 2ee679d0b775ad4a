"""Declared types from OpenAPI schemas, as the rules of custom kinds see their objects
(local-cluster 4.4)."""

from __future__ import annotations

import re

from hekla.api.trees import Json
from hekla.cel import parser
from hekla.cel.types import BOOL, DYN, INT, STRING, LazyFields, Type, list_of, map_of

RESERVED = parser.RESERVED | {"true", "false", "null", "in"}
_SIGNS = {"_": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_FIELD = re.compile("[a-zA-Z_][a-zA-Z0-9_./-]*")
_STRING_META = {"type": "string"}
_META: Json = {"type": "object", "properties": {"name": _STRING_META, "generateName": _STRING_META}}


def _raw(name: str) -> Type:
    made = Type(name)
    made.raw = True
    return made


RAW_BYTES, RAW_DURATION, RAW_TIMESTAMP, RAW_DOUBLE = (
    _raw(name) for name in ("bytes", "duration", "timestamp", "double")
)
_FORMATS = {
    "byte": RAW_BYTES,
    "duration": RAW_DURATION,
    "date": RAW_TIMESTAMP,
    "date-time": RAW_TIMESTAMP,
}


def escaped(name: str) -> str | None:
    """The name of a field in expressions; None if it cannot be written in one."""
    if name in RESERVED:
        return f"__{name}__"
    if _FIELD.fullmatch(name) is None:
        return None
    if "__" not in name and "." not in name and "-" not in name and "/" not in name:
        return name
    return re.sub(r"__|[-./]", lambda match: _SIGNS[match[0][0]], name)


def unescaped(name: str) -> str:
    match = re.fullmatch("__([a-z]+)__", name)
    if match is not None and match[1] in RESERVED:
        return match[1]
    for sign, word in (
        ("__", "__underscores__"),
        (".", "__dot__"),
        ("-", "__dash__"),
        ("/", "__slash__"),
    ):
        name = name.replace(word, sign)
    return name


def declared(schema: Json, *, root: bool = False) -> Type | None:
    """The type of a schema node; None where the schema says nothing, so that rules cannot see the
    field."""
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    kind = schema.get("type")
    if kind == "object" or root:
        return _object(schema, root)
    if kind == "array":
        return _list(schema)
    if kind == "string":
        return _FORMATS.get(schema.get("format") or "", STRING)
    return {"boolean": BOOL, "number": RAW_DOUBLE, "integer": INT}.get(str(kind))


def _list(schema: Json) -> Type | None:
    items = schema.get("items")
    if not isinstance(items, dict):
        return None
    item = declared(items, root=bool(items.get("x-kubernetes-embedded-resource")))
    if item is None:
        return None
    made = list_of(item)
    if schema.get("x-kubernetes-list-type") in ("map", "set"):
        made.list_type = schema["x-kubernetes-list-type"]
        made.map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    return made


def _object(schema: Json, root: bool) -> Type | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        value = declared(additional, root=bool(additional.get("x-kubernetes-embedded-resource")))
        return None if value is None else map_of(STRING, value)
    properties: Json = dict(schema.get("properties") or {})
    if root:
        properties.setdefault("apiVersion", _STRING_META)
        properties.setdefault("kind", _STRING_META)
        properties["metadata"] = _META
    names = {
        shown: (name, inner)
        for name, inner in properties.items()
        if (shown := escaped(name)) is not None
    }
    for name in RESERVED & properties.keys():
        names.setdefault(name, (name, properties[name]))  # behind a dot most keywords are names too
    return Type("object", fields=LazyFields(names, _field))


def _field(shown: str, declared_as: tuple[str, Json]) -> tuple[str, Type] | None:
    name, schema = declared_as
    kind = declared(schema, root=bool(schema.get("x-kubernetes-embedded-resource")))
    return None if kind is None else (name, kind)
