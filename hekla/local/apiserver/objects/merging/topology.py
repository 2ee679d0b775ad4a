"""What the lists and maps of a kind are for merging: which are owned whole, and by which keys the
others' elements are known.

Built-in kinds take this from the field tables and `tables/merging.txt`, custom kinds from their
schema; both become the same nodes, opened only where an object goes.  Strategic merge patches read
their keys from the same file. Reference: local-cluster 2.6, 2.7.
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
    """What `tables/merging.txt` says of one field."""

    keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False
    always: bool = False
    patch: str = ""
    """The strategic merge key, UNION for lists of scalars, empty where a patch replaces."""
    default: Any = None


PLAIN = Rule()
WHOLE = "*"
"""Stands for the message itself among its fields."""


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
    """Field -> rule of a message, for the fields that have one."""
    found: dict[str, Rule] = {}
    for piece in _section(section).get(name, "").split("; "):
        field, *words = piece.split() or [""]
        if not field:
            continue
        pairs = dict(zip(words, [*words[1:], ""], strict=True))
        found[field] = Rule(
            keys=tuple(sorted(pairs["by"].split(","))) if "by" in pairs else (),
            is_set="set" in pairs,
            atomic="atomic" in pairs,
            always="always" in pairs,
            patch=pairs.get("patch", ""),
            default=pairs.get("else"),
        )
    return found


class Node:
    """One place in a kind's objects.  `fields` and `always` are known after `open`."""

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
        """Of a KEYED list, sorted."""
        self.element = element
        """Of lists, and of maps for keys that are not declared; None where none may be."""
        self.scalar = scalar
        """string, number, bool or any for leaves that are scalars; list or map for leaves that are
        those."""
        self.default = default
        """The value that counts where the field is absent and is a key."""
        self.inside = inside
        """Of leaves that are lists or maps what their items, or they themselves, have to be like.
        """
        self.deep: dict[str, Node] = {}
        """Of `fields` those that are no leaves."""
        self.fields: dict[str, Node] | None = None
        """Of a MAP, after `open`; those that a schema declares."""
        self.always: tuple[tuple[str, Any], ...] = ()
        self.empty: tuple[str, ...] = ()
        """Of `always` those that are owned whole and whose value may be none, which nobody owns."""
        """Fields that are never absent, with the value that they have when they are not written."""
        self.mark = kind == KEYED and keys in (("ip",), ("uid",))
        """Its elements' keys differ from object to object, so field sets keep a mark in their
        place."""
        self._open: Callable[[], dict[str, Node]] | None = None

    def open(self) -> dict[str, Node]:
        """The declared fields of a MAP."""
        found = self.fields
        if found is None:
            found = self.fields = self._open() if self._open is not None else {}
            self.deep = {name: child for name, child in found.items() if child.kind is not LEAF}
        return found

    def child(self, name: str) -> Node | None:
        """The node of a map's key; None where none is declared."""
        return self.open().get(name, self.element)


STRING, NUMBER, BOOL, SCALAR = (
    Node(LEAF, scalar=scalar) for scalar in ("string", "number", "bool", "any")
)
LIST = Node(LEAF, scalar="list")
FREE = Node(LEAF)
"""Anything, owned whole."""
GUESSED = Node(ANY)
"""Anything: objects are merged by field, lists and scalars are owned whole."""
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
    ruled = rules(described.section, described.name)
    node = Node(MAP, scalar="map")

    def open_message() -> dict[str, Node]:
        found = {
            field.name: _field_node(field, owner, ruled.get(field.name, PLAIN))
            for field, owner in fields.flat(described)
        }
        node.always = tuple(
            (field.name, _zero(field, owner))
            for field, owner in fields.flat(described)
            if ruled.get(field.name, PLAIN).always
        )
        # Of the others there are too many to look so closely.
        rare = described.section not in (
            "core.v1",
            "meta.v1",
        )
        node.empty = tuple(
            name
            for name, zero in node.always
            if found[name].kind is LEAF and (zero == {} or (rare and zero is not None))
        )
        return found

    node._open = open_message
    return Node(LEAF, scalar="map", inside=node) if WHOLE in ruled else node


def of_kind(section: str, name: str) -> Node:
    """The node of a built-in kind, whose objects have apiVersion and kind too."""
    node = of_message(section, name)
    node.open().setdefault("apiVersion", STRING)
    node.open().setdefault("kind", STRING)
    return node


def _field_node(field: fields.Field, owner: fields.Message, rule: Rule) -> Node:
    one = _LEAVES.get(field.type) or of_message(owner.section, field.type)
    if field.many == "list":
        if rule.keys:
            return Node(KEYED, keys=rule.keys, element=one, scalar="list")
        return (
            Node(SET, element=one, scalar="list")
            if rule.is_set
            else Node(LEAF, scalar="list", inside=one)
        )
    if field.many == "map":
        whole = Node(MAP, element=one, scalar="map")
        return Node(LEAF, scalar="map", inside=whole) if rule.atomic else whole
    if rule.atomic:
        return Node(LEAF, scalar="map", inside=one)
    default = (
        rule.default
        if rule.default is not None
        else _ZEROS.get(field.type)
        if rule.always
        else None
    )
    return (
        Node(LEAF, scalar=one.scalar, default=default)
        if default is not None and one.kind == LEAF
        else one
    )


def _zero(field: fields.Field, owner: fields.Message) -> Any:
    """What Kubernetes writes for a field of no value."""
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
        found = {name: of_schema(inner) for name, inner in properties.items()}
        if root or embedded:
            found |= {
                "apiVersion": STRING,
                "kind": STRING,
                "metadata": of_message("meta.v1", "ObjectMeta"),
            }
        if root:
            node.always = (("metadata", {}),)
        return found

    node._open = open_schema
    return node


def children_of(node: Node, value: Any) -> Node:
    """What a node is for a value: an ANY takes the value's own form."""
    if node.kind is not ANY:
        return node
    return _GUESSED_MAP if isinstance(value, dict) else FREE


_GUESSED_MAP = Node(MAP, element=GUESSED, scalar="map")


def empty_object(node: Node) -> dict[str, Any]:
    """What is written of an object that says nothing: the fields that are always there."""
    node.open()
    found: dict[str, Any] = {}
    for name, zero in node.always:
        child = node.child(name)
        found[name] = (
            empty_object(child) if zero == {} and child is not None and child.kind is MAP else zero
        )
    return found
