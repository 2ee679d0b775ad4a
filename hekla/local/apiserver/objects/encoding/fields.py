"""The fields of every built-in kind: names, protobuf numbers, types, pointers.

Protobuf decoding, type checks of JSON bodies, OpenAPI documents and `kubectl explain` all read the
files in `tables/`, one for each group and version, so that a kind is described once. Each line
describes one message:

    Message: <number> <json name> <type>; <number> <json name> <type>; ...

Types are `string`, `bytes`, `bool`, `int32`, `int64`, `double`, or a message of the same file, of
core.v1, of meta.v1, or of another file by its name (`authentication.v1/UserInfo`). `[t]` is a list,
`{t}` a map from string. A trailing `?` marks a field whose zero value differs from its absence (a
pointer, or a field that is always written). `=` instead of a name means that the message's fields
are inlined into the parent. A file is read when the first of its kinds is used, a line when its
message is.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_TABLES = Path(__file__).parents[1] / "tables"

SCALARS = frozenset({"string", "bytes", "bool", "int32", "int64", "double"})

SPECIAL = frozenset(
    {
        "Time", "MicroTime", "Duration", "Quantity", "IntOrString", "FieldsV1", "RawExtension", "ExtraValue", "JSON",
        "JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrStringArray", "Verbs",
    }
)  # fmt: skip
"""Messages with a JSON form of their own; no table describes them."""


class Field(NamedTuple):
    """One field of a message."""

    number: int
    name: str
    """Empty for a message whose fields are inlined into the parent."""
    type: str
    """A scalar type, a special message, or the name of a message as the table writes it."""
    many: str
    """"list", "map", or "" for a single value."""
    pointer: bool


class Message(NamedTuple):
    """One message and the table that describes it."""

    section: str
    name: str
    fields: tuple[Field, ...]


def section_of(group: str, version: str) -> str:
    """The table of a group and version: `coordination.k8s.io/v1` -> `coordination.v1`."""
    return f"{group.partition('.')[0] or 'core'}.{version}"


@cache
def sections() -> frozenset[str]:
    """The names of all tables. A name that comes from a client is looked up here before it is used
    as a file name."""
    return frozenset(
        entry.name.removesuffix(".txt")
        for entry in _TABLES.iterdir()
        if entry.name.endswith(".txt")
    )


@cache
def _section(section: str) -> dict[str, str]:
    try:
        text = (_TABLES / f"{section}.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return dict(line.split(":", 1) for line in re.sub(r"\n\s+", " ", text).splitlines() if line)


@cache
def message(section: str, name: str) -> Message | None:
    """The message with a name as a table refers to it; None if no table has it."""
    if "/" in name:
        section, name = name.split("/")
    for where in (section, "core.v1", "meta.v1"):
        line = _section(where).get(name)
        if line is not None:
            return Message(where, name, tuple(_fields(line)))
    return None


def root(group: str, version: str, kind: str) -> Message | None:
    """The message of a kind; meta kinds (DeleteOptions, ...) are found in every group."""
    section = section_of(group, version)
    if kind in _section(section):
        return message(section, kind)
    return message("meta.v1", kind) if kind in _section("meta.v1") else None


def flat(described: Message) -> list[tuple[Field, Message]]:
    """The fields as JSON has them: those of inlined messages in the place of their parent field,
    each with its message."""
    fields: list[tuple[Field, Message]] = []
    for field in described.fields:
        if field.name:
            fields.append((field, described))
            continue
        inner = message(described.section, field.type)
        if inner is not None:
            fields += flat(inner)
    return fields


def _fields(line: str) -> list[Field]:
    fields = []
    for piece in line.split(";"):
        words = piece.split()
        if len(words) != 3:
            continue
        number, name, kind = words
        pointer = kind.endswith("?")
        kind = kind.rstrip("?")
        many = {"[": "list", "{": "map"}.get(kind[0], "")
        fields.append(
            Field(int(number), "" if name == "=" else name, kind.strip("[]{}"), many, pointer)
        )
    return fields
