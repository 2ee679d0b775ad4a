"""How the lists and maps of a kind are merged: which are owned as a whole, and which keys identify
the elements of the others.

Built-in kinds take this from the field tables and `tables/merging.txt`, custom kinds from their
schema. Both give the same nodes, which are opened only when an object needs them. Strategic merge
patches read their keys from the same file. Reference: local-cluster 2.6, 2.7.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields

LEAF, MAP, KEYED, SET, ANY = "leaf", "map", "keyed", "set", "any"
"""Owned whole; an object merged by field; a list of objects known by keys; a list of scalars;
whatever its value looks like."""

UNION = "+"
_SECTION = re.compile(r"^\[(\S+)\]\n", re.M)


class Rule(NamedTuple):
    """What `tables/merging.txt` says about a field."""

    keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False
    always: bool = False
    """Kubernetes writes the field even if it is empty."""
    patch: str = ""
    """The key of a strategic merge, UNION for lists of scalars, empty if a patch replaces the list.
    """
    default: Any = None


PLAIN = Rule()
WHOLE = "*"
"""Stands for the message itself in the place of a field name."""


@cache
def _sections() -> dict[str, str]:
    text = (Path(__file__).parents[1] / "tables" / "merging.txt").read_text(encoding="utf-8")
    _, *parts = _SECTION.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def _section(section: str) -> dict[str, str]:
    text = re.sub(r"\n    ", " ", _sections().get(section, ""))
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


@cache
def rules(section: str, name: str) -> dict[str, Rule]:
    """The rules of a message: field -> rule, for the fields that have one."""
    rules_by_field: dict[str, Rule] = {}
    for piece in _section(section).get(name, "").split("; "):
        field, *words = piece.split() or [""]
        if not field:
            continue
        pairs = dict(zip(words, [*words[1:], ""], strict=True))
        rules_by_field[field] = Rule(
            keys=tuple(sorted(pairs["by"].split(","))) if "by" in pairs else (),
            is_set="set" in pairs,
            atomic="atomic" in pairs,
            always="always" in pairs,
            patch=pairs.get("patch", ""),
            default=pairs.get("else"),
        )
    return rules_by_field


class Node:
    """A position in the objects of a kind. `fields` and `always` are known after `open`."""

    __slots__ = (
        "_open",
        "always",
        "deep",
        "default",
        "element",
        "empty",
        "fields",
        "inside",
        "keys",
        "kind",
        "mark",
        "scalar",
    )

    def __init__(
        self,
        kind: str,
        *,
        keys: tuple[str, ...] = (),
        element: Node | None = None,
        scalar: str = "",
        default: Any = None,
        inside: Node | None = None,
    ) -> None:
        self.kind = kind
        self.keys = keys
        """The sorted keys of a KEYED list."""
        self.element = element
        """The items of a list, or the undeclared fields of a map; None if a map has none."""
        self.scalar = scalar
        """The type of a leaf: string, number, bool or any for scalars, list or map for the others."""
        self.default = default
        """The value of a key field that is absent."""
        self.inside = inside
        """For a leaf that is a list, the node of its items; for one that is a map, its own node."""
        self.deep: dict[str, Node] = {}
        """Those of `fields` that are not leaves."""
        self.fields: dict[str, Node] | None = None
        """The declared fields of a MAP; known after `open`."""
        self.always: tuple[tuple[str, Any], ...] = ()
        """Fields that Kubernetes always writes, with the value of an absent one."""
        self.empty: tuple[str, ...] = ()
        """Those of `always` that are leaves and may be empty; nobody owns an empty one."""
        self.mark = kind == KEYED and keys in (("ip",), ("uid",))
        """The keys of its elements differ from object to object, so field sets hold placeholders."""
        self._open: Callable[[], dict[str, Node]] | None = None

    def open(self) -> dict[str, Node]:
        """The declared fields of a MAP."""
        fields = self.fields
        if fields is None:
            fields = self.fields = self._open() if self._open is not None else {}
            self.deep = {name: child for name, child in fields.items() if child.kind is not LEAF}
        return fields

    def child(self, name: str) -> Node | None:
        """The node of a field of a map; None if it is not declared."""
        return self.open().get(name, self.element)


STRING, NUMBER, BOOL, SCALAR = (
    Node(LEAF, scalar=scalar) for scalar in ("string", "number", "bool", "any")
)
LIST = Node(LEAF, scalar="list")
FREE = Node(LEAF)
"""Any value; it is owned as a whole."""
GUESSED = Node(ANY)
"""Any value: objects are merged by field, lists and scalars are owned as a whole."""
GUESSED.element = GUESSED

_LEAVES = {
    "string": STRING, "bytes": STRING, "bool": BOOL, "int32": NUMBER, "int64": NUMBER, "double": NUMBER, "Time": STRING,
    "MicroTime": STRING, "Duration": STRING, "Quantity": SCALAR, "IntOrString": SCALAR, "ExtraValue": LIST, "Verbs": LIST,
    "RawExtension": FREE, "FieldsV1": FREE, "JSON": FREE,
}  # fmt: skip
_ZEROS: dict[str, Any] = {
    "string": "",
    "bytes": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "double": 0,
}
_ATOMIC_MESSAGES = frozenset(
    {"JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrStringArray"}
)


# --- built-in kinds -------------------------------------------------------------------------------


@cache
def of_message(section: str, name: str) -> Node:
    """The node of a built-in message."""
    described = fields.message(section, name)
    if described is None or name in _ATOMIC_MESSAGES:
        return FREE
    field_rules = rules(described.section, described.name)
    node = Node(MAP, scalar="map")

    def open_message() -> dict[str, Node]:
        fields_by_name = {
            field.name: _field_node(field, owner, field_rules.get(field.name, PLAIN))
            for field, owner in fields.flat(described)
        }
        node.always = tuple(
            (field.name, _zero(field, owner))
            for field, owner in fields.flat(described)
            if field_rules.get(field.name, PLAIN).always
        )
        # Objects of core.v1 are too many for this check.
        rare = described.section not in ("core.v1", "meta.v1")
        node.empty = tuple(
            name
            for name, zero in node.always
            if fields_by_name[name].kind is LEAF and (zero == {} or (rare and zero is not None))
        )
        return fields_by_name

    node._open = open_message
    return Node(LEAF, scalar="map", inside=node) if WHOLE in field_rules else node


def of_kind(section: str, name: str) -> Node:
    """The node of a built-in kind, whose objects also have apiVersion and kind."""
    node = of_message(section, name)
    node.open().setdefault("apiVersion", STRING)
    node.open().setdefault("kind", STRING)
    return node


def _field_node(field: fields.Field, owner: fields.Message, rule: Rule) -> Node:
    child = _LEAVES.get(field.type) or of_message(owner.section, field.type)
    if field.many == "list":
        if rule.keys:
            return Node(KEYED, keys=rule.keys, element=child, scalar="list")
        return (
            Node(SET, element=child, scalar="list")
            if rule.is_set
            else Node(LEAF, scalar="list", inside=child)
        )
    if field.many == "map":
        whole = Node(MAP, element=child, scalar="map")
        return Node(LEAF, scalar="map", inside=whole) if rule.atomic else whole
    if rule.atomic:
        return Node(LEAF, scalar="map", inside=child)
    default = (
        rule.default
        if rule.default is not None
        else _ZEROS.get(field.type)
        if rule.always
        else None
    )
    return (
        Node(LEAF, scalar=child.scalar, default=default)
        if default is not None and child.kind == LEAF
        else child
    )


def _zero(field: fields.Field, owner: fields.Message) -> Any:
    """The value that Kubernetes writes for an empty field."""
    if not field.many:
        if field.type in _ZEROS:
            return _ZEROS[field.type]
        if field.type == "Quantity":
            return "0"
        if field.type == "IntOrString":
            return 0
        if fields.message(owner.section, field.type) is not None:
            return {}
    return None


# --- custom kinds ---------------------------------------------------------------------------------


def of_schema(schema: Json, *, root: bool = False) -> Node:
    """The node of a structural schema."""
    if schema.get("x-kubernetes-int-or-string"):
        return Node(LEAF, scalar="any", default=schema.get("default"))
    kind = schema.get("type")
    if kind == "array":
        return _list_node(schema)
    if kind == "object" or "properties" in schema or root:
        return _map_node(schema, root)
    if kind == "string":
        return Node(LEAF, scalar="string", default=schema.get("default"))
    if kind in ("integer", "number"):
        return Node(LEAF, scalar="number", default=schema.get("default"))
    if kind == "boolean":
        return Node(LEAF, scalar="bool", default=schema.get("default"))
    return GUESSED


def _list_node(schema: Json) -> Node:
    items = schema.get("items") or {}
    match schema.get("x-kubernetes-list-type"):
        case "map" if schema.get("x-kubernetes-list-map-keys"):
            return Node(
                KEYED,
                keys=tuple(sorted(schema["x-kubernetes-list-map-keys"])),
                element=of_schema(items),
                scalar="list",
            )
        case "set":
            return Node(SET, element=of_schema(items), scalar="list")
    return Node(LEAF, scalar="list", inside=of_schema(items)) if items else LIST


def _map_node(schema: Json, root: bool) -> Node:
    if schema.get("x-kubernetes-map-type") == "atomic":
        loose = {key: value for key, value in schema.items() if key != "x-kubernetes-map-type"}
        return Node(LEAF, scalar="map", inside=_map_node(loose, root))
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        element: Node | None = GUESSED
        if not properties and not root and not embedded:
            return GUESSED
    elif isinstance(additional, dict):
        element = of_schema(additional)
    else:
        element = GUESSED if additional is True else None
    node = Node(MAP, element=element, scalar="map")

    def open_schema() -> dict[str, Node]:
        fields = {name: of_schema(inner) for name, inner in properties.items()}
        if root or embedded:
            fields |= {
                "apiVersion": STRING,
                "kind": STRING,
                "metadata": of_message("meta.v1", "ObjectMeta"),
            }
        if root:
            node.always = (("metadata", {}),)
        return fields

    node._open = open_schema
    return node


def children_of(node: Node, value: Any) -> Node:
    """The node of a value: for ANY it depends on the value."""
    if node.kind is not ANY:
        return node
    return _GUESSED_MAP if isinstance(value, dict) else FREE


_GUESSED_MAP = Node(MAP, element=GUESSED, scalar="map")


def empty_object(node: Node) -> dict[str, Any]:
    """How Kubernetes writes an empty object: with the fields that are always written."""
    node.open()
    values: dict[str, Any] = {}
    for name, zero in node.always:
        child = node.child(name)
        values[name] = (
            empty_object(child) if zero == {} and child is not None and child.kind is MAP else zero
        )
    return values
