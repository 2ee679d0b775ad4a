"""Built-in kinds as msgspec structs, made from the field tables, so that a valid body is checked in
C.

Decoding into a struct checks names and types; converting the result back to plain values drops what
Kubernetes drops (zero values that mean absence, empty lists and maps). A body that does not fit
goes to the slow decoder, which finds the message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hekla.local.apiserver.objects.amounts import canonical
from hekla.local.apiserver.objects.encoding import fields

_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d"

_PLAIN: dict[str, tuple[Any, Any]] = {
    "string": (str, ""),
    "bytes": (bytes, b""),
    "bool": (bool, False),
    "int32": (Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)], 0),
    "int64": (Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)], 0),
    "double": (float | int, 0),
    "Quantity": (str | int | float, None),
    "Time": (Annotated[str, Meta(pattern=f"^{_DATE}Z$")], None),
    "MicroTime": (Annotated[str, Meta(pattern=rf"^{_DATE}\.\d{{6}}Z$")], None),
    "IntOrString": (Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | str, None),
    "Duration": (str, None),
    "ExtraValue": (list[str], None),
    "Verbs": (list[str], None),
    "RawExtension": (Any, None),
    "FieldsV1": (Any, None),
    "JSON": (Any, None),
}

_TEMPLATES = frozenset(
    {
        "PodTemplateSpec",
        "JobTemplateSpec",
        "PersistentVolumeClaimTemplate",
        "ResourceClaimTemplateSpec",
    }
)
"""Messages that have metadata but are not objects: they have no apiVersion and kind of their own.
"""


def is_object(described: fields.Message) -> bool:
    """Whether the Go type embeds TypeMeta (apiVersion and kind)."""
    if described.name in _TEMPLATES:
        return False
    return described.name.endswith("Options") or any(f.name == "metadata" for f in described.fields)


@cache
def contains(section: str, name: str, wanted: frozenset[str]) -> bool:
    """Whether a message holds a field of one of these types, at any depth."""
    return _contains(section, name, wanted, set())


def _contains(section: str, name: str, wanted: frozenset[str], seen: set[tuple[str, str]]) -> bool:
    described = fields.message(section, name)
    if described is None or (described.section, described.name) in seen:
        return False
    seen.add((described.section, described.name))
    return any(
        field.type in wanted or _contains(described.section, field.type, wanted, seen)
        for field in described.fields
    )


@cache
def shape(section: str, name: str) -> type[msgspec.Struct]:
    """The struct of a message. Recursive messages have none; see `contains`."""
    described = fields.message(section, name)
    assert described is not None
    names: list[tuple[str, Any, Any]] = []
    rename: dict[str, str] = {}
    if is_object(described):
        names += [("apiVersion", str | None, ""), ("kind", str | None, "")]
    for position, (field, owner) in enumerate(fields.flat(described)):
        attribute = f"f{position}"
        rename[attribute] = field.name
        names.append((attribute, *_typed(owner.section, field)))
    return msgspec.defstruct(
        name,
        names,
        rename=rename,
        forbid_unknown_fields=True,
        omit_defaults=True,
        kw_only=True,
        gc=False,
    )


def _typed(section: str, field: fields.Field) -> tuple[Any, Any]:
    if field.type in _PLAIN:
        kind, default = _PLAIN[field.type]
    else:
        kind = shape(section, field.type) if fields.message(section, field.type) else Any
        default = None
    if field.many == "list":
        return list.__class_getitem__(kind) | None, msgspec.field(default_factory=list)
    if field.many == "map":
        return dict.__class_getitem__((str, kind)) | None, msgspec.field(default_factory=dict)
    return (kind if kind is Any else kind | None), (None if field.pointer else default)


Fixer = Callable[[dict[str, Any]], None]


@cache
def quantities(section: str, name: str) -> Fixer | None:
    """A function that writes every quantity of a message in canonical form, in place; None if the
    message holds none."""
    if not contains(section, name, frozenset({"Quantity"})):
        return None
    described = fields.message(section, name)
    assert described is not None
    plan: list[tuple[str, str, Fixer | None]] = []
    for field, owner in fields.flat(described):
        if field.type == "Quantity":
            plan.append((field.name, field.many, None))
        elif (inner := fields.message(owner.section, field.type)) is not None:
            fixer = quantities(inner.section, inner.name)
            if fixer is not None:
                plan.append((field.name, field.many, fixer))
    return _fixer(tuple(plan))


def _fixer(plan: tuple[tuple[str, str, Fixer | None], ...]) -> Fixer:
    def fix(tree: dict[str, Any]) -> None:
        for name, many, inner in plan:
            value = tree.get(name)
            if value is None:
                continue
            if inner is None:
                if many == "map":
                    for key, amount in value.items():
                        value[key] = canonical(amount)
                elif many == "list":
                    tree[name] = [canonical(amount) for amount in value]
                else:
                    tree[name] = canonical(value)
            elif many == "list":
                for item in value:
                    inner(item)
            elif many == "map":
                for item in value.values():
                    inner(item)
            else:
                inner(value)

    return fix
