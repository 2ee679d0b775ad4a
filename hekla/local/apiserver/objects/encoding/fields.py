"""The fields of every built-in kind: names, protobuf numbers, types, pointers.  One table, many
readers.

Protobuf decoding, type checks of JSON bodies, OpenAPI documents and `kubectl explain` all come from
the files in `tables/`, one a group and version, so a kind is described once.  A line there is one
message:

    Message: <number> <json name> <type>; <number> <json name> <type>; ...

Types are `string`, `bytes`, `bool`, `int32`, `int64`, `double`, or a message of the same file, of
core.v1, of meta.v1, or of a file that is named (`authentication.v1/UserInfo`).  `[t]` is a list,
`{t}` a map from string.  A trailing `?` marks a field whose zero is a value and not an absence (a
pointer, or a field that is always written).  `=` instead of a name says that the message's fields
stand in the parent itself.  Files are read when a kind of theirs is first asked for, lines when
their message is.
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
"""Messages with a JSON form of their own, which no table describes."""


class Field(NamedTuple):
    number: int
    name: str
    """Empty for a message whose fields stand in the parent."""
    type: str
    """A scalar, a special form, or a message's name as written in the table."""
    many: str
    """"list", "map", or "" for one."""
    pointer: bool


class Message(NamedTuple):
    section: str
    name: str
    fields: tuple[Field, ...]


def section_of(group: str, version: str) -> str:
    """The table that describes a group and version: `coordination.k8s.io/v1` -> `coordination.v1`."""
    return f"{group.partition('.')[0] or 'core'}.{version}"


@cache
def sections() -> frozenset[str]:
    """The tables that there are; a name that a client sent is looked up here before it becomes that
    of a file."""
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
    """The message of that name as seen from a section; None where no table has it."""
    if "/" in name:
        section, name = name.split("/")
    for where in (section, "core.v1", "meta.v1"):
        line = _section(where).get(name)
        if line is not None:
            return Message(where, name, tuple(_fields(line)))
    return None


def root(group: str, version: str, kind: str) -> Message | None:
    """The message of a kind; meta kinds (DeleteOptions, ...) are found from every group."""
    section = section_of(group, version)
    if kind in _section(section):
        return message(section, kind)
    return message("meta.v1", kind) if kind in _section("meta.v1") else None


def flat(described: Message) -> list[tuple[Field, Message]]:
    """The fields as JSON shows them: those of inlined messages in their parents' place, each with
    the message it came from."""
    found: list[tuple[Field, Message]] = []
    for field in described.fields:
        if field.name:
            found.append((field, described))
            continue
        inner = message(described.section, field.type)
        if inner is not None:
            found += flat(inner)
    return found


def _fields(line: str) -> list[Field]:
    found = []
    for piece in line.split(";"):
        words = piece.split()
        if len(words) != 3:
            continue
        number, name, kind = words
        pointer = kind.endswith("?")
        kind = kind.rstrip("?")
        many = {"[": "list", "{": "map"}.get(kind[0], "")
        found.append(
            Field(int(number), "" if name == "=" else name, kind.strip("[]{}"), many, pointer)
        )
    return found
