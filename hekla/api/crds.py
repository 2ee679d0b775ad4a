"""The CustomResourceDefinitions of the batch kinds, made from their structs.

The structs say everything once: names, types, bounds, defaults, columns.  What an API server is
told is a walk over them, so a field that a program knows and a cluster does not cannot happen.  The
result is the same text in every process.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from functools import cache
from json import dumps
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from hekla.api import catalog, descriptions
from hekla.api.kinds import Kind
from hekla.api.kubernetes.pod import PodTemplateSpec
from hekla.api.kubernetes.volumes import PersistentVolumeClaimSpec
from hekla.api.meta import AtomicStruct, Object
from hekla.api.schema import Rule

Schema = dict[str, Any]

SHAPES: dict[str, type[msgspec.Struct]] = {
    "PodTemplateSpec": PodTemplateSpec,
    "PersistentVolumeClaimSpec": PersistentVolumeClaimSpec,
}
"""What a raw tree is described as, by the name that its rule gives."""

SCALARS: dict[type, str] = {str: "string", int: "integer", bool: "boolean", float: "number"}

KEYWORDS = (
    ("format", "format"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("min_items", "minItems"),
    ("pattern", "pattern"),
    ("list_type", "x-kubernetes-list-type"),
    ("map_type", "x-kubernetes-map-type"),
)
"""Attribute of a rule -> keyword of the schema, where the value is carried over as it is."""

KEEP = {"helm.sh/resource-policy": "keep"}
"""A chart that is removed must not take every job with it."""


def all() -> list[dict[str, Any]]:
    """Fresh trees of the definitions of all kinds that are installed on a cluster."""
    return [definition(kind) for kind in catalog.INSTALLED]


def yaml() -> str:
    """The same definitions as one YAML stream."""
    return "".join(f"---\n{_yaml(tree)}" for tree in all())


def definition(kind: Kind[Any]) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(kind)},
    }
    if kind.status:
        version["subresources"] = {"status": {}}
    if kind.columns:
        version["additionalPrinterColumns"] = [
            {"name": column.name, "type": column.type, "jsonPath": column.path}
            | ({"priority": column.priority} if column.priority else {})
            for column in kind.columns
        ]
    names: dict[str, Any] = {
        "plural": kind.plural,
        "singular": kind.singular,
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    tree = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "annotations": KEEP},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }
    fresh: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(tree))
    return fresh


def _root(kind: Kind[Any]) -> Schema:
    struct: type[msgspec.Struct] = kind.type
    said = descriptions.KINDS.get(kind.kind) or " ".join((struct.__doc__ or "").split())
    return ({"description": said} if said else {}) | _struct(struct)


@cache
def _struct(struct: type[msgspec.Struct]) -> Schema:
    """The schema of a struct: one property for each field, in alphabetical order."""
    hints = get_type_hints(struct, include_extras=True)
    properties: dict[str, Schema] = {}
    required = []
    for field in msgspec.structs.fields(struct):
        schema, rules = _annotated(hints[field.name])
        if issubclass(struct, Object) and field.encode_name == "metadata":
            schema = {"type": "object"}
        elif said := descriptions.of_field(struct.__name__, field.encode_name):
            schema = {"description": said, **schema}
        properties[field.encode_name] = schema
        if any(rule.required for rule in rules):
            required.append(field.encode_name)
    result: Schema = {"type": "object", "properties": dict(sorted(properties.items()))}
    if required:
        result["required"] = sorted(required)
    if issubclass(struct, AtomicStruct):
        result["x-kubernetes-map-type"] = "atomic"
    return result


def _annotated(hint: Any, inherited: tuple[Rule, ...] = ()) -> tuple[Schema, tuple[Rule, ...]]:
    """The schema of a type hint, and the rules in its annotations."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        return _annotated(
            inner, inherited + tuple(extra for extra in extras if isinstance(extra, Rule))
        )
    if get_origin(hint) in (Union, types.UnionType):
        present = [option for option in get_args(hint) if option is not types.NoneType]
        if len(present) == 1:
            return _annotated(present[0], inherited)
    schema = dict(_bare(hint, inherited))
    for rule in inherited:
        _apply(rule, schema)
    return schema, inherited


def _bare(hint: Any, rules: tuple[Rule, ...]) -> Schema:
    """The schema of a type before its own rules are applied, except for rules that replace the
    type."""
    for rule in rules:
        if rule.int_or_string:
            return {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            }
        if rule.shape:
            return _struct(SHAPES[rule.shape])
    items = [rule.items for rule in rules if rule.items]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list:
        return {"type": "array", "items": _element(arguments[0], items)}
    if origin is dict and arguments[1] is not Any:
        return {"type": "object", "additionalProperties": _element(arguments[1], items)}
    if origin is dict:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    raise TypeError(f"{hint!r} has no place in a schema: say what it is with a Rule")


def _element(hint: Any, rules: list[Rule]) -> Schema:
    schema, _ = _annotated(hint, tuple(rules))
    return schema


def _apply(rule: Rule, schema: Schema) -> None:
    for attribute, keyword in KEYWORDS:
        value = getattr(rule, attribute)
        if value is not None and value != "":
            schema[keyword] = value
    if rule.default is not None:
        schema["default"] = rule.default
    if rule.enum:
        schema["enum"] = list(rule.enum)
    if rule.list_keys:
        schema["x-kubernetes-list-map-keys"] = list(rule.list_keys)
    if rule.validations:
        schema["x-kubernetes-validations"] = [
            {"rule": check.rule, "message": check.message} for check in rule.validations
        ]


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def _yaml(tree: Any) -> str:
    """A JSON tree as block YAML.  PyYAML is not needed for it."""
    return "".join(f"{line}\n" for line in _lines(tree))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _entry(f"{_scalar(name)}:", member)
    elif isinstance(value, list) and value:
        for member in value:
            first, *rest = _lines(member)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(label: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield label
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{label} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return dumps(value, ensure_ascii=False)
