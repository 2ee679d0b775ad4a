"""The careful reader of built-in kinds: walks a body beside its field table and says what does not
fit.

It runs only when the fast reader refused or something stands twice.  What it returns is what a
correct reader would have made of the body: unknown fields dropped, the last of a repeated key,
nulls and meaningless zeros gone.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hekla.api.text.times import stamp_of
from hekla.local.apiserver.objects.amounts import canonical
from hekla.local.apiserver.objects.encoding import documents, fields
from hekla.local.apiserver.objects.encoding.documents import Pairs
from hekla.local.apiserver.objects.encoding.shapes import is_object
from hekla.local.apiserver.objects.errors import BadBody

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_INT_LIMITS = {"int32": 2**31, "int64": 2**63}
_GO = {
    "bytes": "[]uint8",
    "double": "float64",
    "bool": "bool",
    "string": "string",
    "int32": "int32",
    "int64": "int64",
}
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)").fullmatch


class Mismatch(BadBody):
    """A value of the wrong type.  The walk goes on after it, and what cannot be read at all (a
    quantity, a date) is told in its place."""


class Findings:
    """What the walk met: what is not wrong enough to refuse in every mode, and the first value of
    the wrong type."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._first: Mismatch | None = None

    def mismatch(self, error: Mismatch) -> None:
        self._first = self._first or error.with_traceback(None)  # which would hold these findings

    def settle(self) -> None:
        """Raises what was wrong, if anything; once, for what is raised holds the frame that it is
        raised from."""
        first, self._first = self._first, None
        if first is not None:
            try:
                raise first
            finally:
                del first

    def unknown(self, path: str) -> None:
        self._texts.append(f'unknown field "{path}"')

    def duplicate(self, path: str) -> None:
        self._texts.append(f'duplicate field "{path}"')

    def texts(self) -> list[str]:
        return self._texts


def check(tree: Any, described: fields.Message, found: Findings) -> dict[str, Any]:
    """The tree as the table allows it.  `tree` holds objects as Pairs or dictionaries.  Raises
    BadBody."""
    try:
        result = _object(tree, described, "", "", described.name, found)
    except RecursionError:
        raise BadBody("exceeded max depth") from None
    found.settle()
    return result


def check_metadata(meta: Any, found: Findings) -> dict[str, Any]:
    """An object's metadata alone, as custom kinds need it.  Raises BadBody."""
    described = fields.message("meta.v1", "ObjectMeta")
    assert described is not None
    result = _object(meta, described, "metadata", "metadata", "ObjectMeta", found)
    found.settle()
    return result


def _object(
    value: Any, described: fields.Message, path: str, names: str, owner: str, found: Findings
) -> dict[str, Any]:
    """`path` has list positions and is for findings, `names` has none and is for type errors; both
    end without a dot."""
    if not isinstance(value, (dict, Pairs)):
        raise _mismatch(value, owner, names, f"{_package(described)}.{described.name}")
    known = _known(described)
    result: dict[str, Any] = {}
    seen: set[str] = set()
    for key, item in value.items() if isinstance(value, dict) else value:
        where = f"{path}.{key}" if path else key
        entry = known.get(key)
        if entry is None:
            found.unknown(where)
            continue
        if key in seen:
            found.duplicate(where)
            result.pop(key, None)
        seen.add(key)
        try:
            made = _field(
                item,
                entry,
                where,
                ".".join(part for part in (names, entry.chain, key) if part),
                found,
            )
        except Mismatch as error:
            found.mismatch(error)
            continue
        if made is not None:
            result[key] = made
    return result


class Entry(NamedTuple):
    """A field where it stands in JSON."""

    field: fields.Field
    owner: fields.Message
    """The message that it is written in."""
    outer: str
    """The message whose field it is in JSON; another one for what is inlined there."""
    chain: str = ""
    """The names of the messages in between, which Go's errors show."""


def _known(described: fields.Message) -> dict[str, Entry]:
    known = {entry.field.name: entry for entry in _entries(described, described.name, "")}
    if is_object(described):
        for name in ("apiVersion", "kind"):
            known.setdefault(
                name, Entry(fields.Field(0, name, "string", "", False), described, described.name)
            )
    return known


def _entries(described: fields.Message, outer: str, chain: str) -> Iterator[Entry]:
    for field in described.fields:
        if field.name:
            yield Entry(field, described, outer, chain)
        elif (inner := fields.message(described.section, field.type)) is not None:
            yield from _entries(inner, outer, f"{chain}.{inner.name}" if chain else inner.name)


def _field(value: Any, entry: Entry, path: str, names: str, found: Findings) -> Any:
    """The value to keep, None for absent."""
    field, owner = entry.field, entry.owner
    if value is None:
        return None
    if field.many == "list":
        if not isinstance(value, list) or isinstance(value, Pairs):
            raise _mismatch(value, entry.outer, names, "[]" + _go_type(field, owner))
        items = [
            _empty(field, owner)
            if item is None
            else _item(item, entry, f"{path}[{position}]", names, found)
            for position, item in enumerate(value)
        ]
        return items or None
    if field.many == "map":
        if not isinstance(value, (dict, Pairs)):
            wanted = (
                "v1.ResourceList"
                if field.type == "Quantity"
                else "map[string]" + _go_type(field, owner)
            )
            raise _mismatch(value, entry.outer, names, wanted)
        entries: dict[str, Any] = {}
        for key, item in value.items() if isinstance(value, dict) else value:
            where = f"{path}.{key}"
            if key in entries:
                found.duplicate(where)
            entries[key] = (
                _empty(field, owner) if item is None else _item(item, entry, where, names, found)
            )
        return entries or None
    made = _single(value, entry, path, names, found)
    if (
        made in ("", 0, False)
        and not isinstance(made, dict)
        and not field.pointer
        and field.type in fields.SCALARS
    ):
        return None
    return made


def _item(value: Any, entry: Entry, path: str, names: str, found: Findings) -> Any:
    """A value inside a list or map; one of the wrong type does not end the look at the others."""
    try:
        return _single(value, entry, path, names, found)
    except Mismatch as error:
        found.mismatch(error)
        return None


def _empty(field: fields.Field, owner: fields.Message) -> Any:
    """What Kubernetes makes of a null inside a list or map."""
    if field.type in ("string", "bytes"):
        return ""
    if field.type in fields.SCALARS:
        return 0 if field.type != "bool" else False
    return (
        "0"
        if field.type == "Quantity"
        else {}
        if fields.message(owner.section, field.type)
        else None
    )


def _single(value: Any, entry: Entry, path: str, names: str, found: Findings) -> Any:
    field, owner, outer, _ = entry
    kind = field.type
    if kind in ("string", "Duration"):
        if not isinstance(value, str):
            raise _mismatch(value, outer, names, go_text_type(owner, field.name))
        return value
    if kind in _INT_LIMITS:
        limit = _INT_LIMITS[kind]
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            raise _mismatch(value, outer, names, kind)
        return value
    if kind == "bool":
        if not isinstance(value, bool):
            raise _mismatch(value, outer, names, "bool")
        return value
    if kind == "double":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _mismatch(value, outer, names, "float64")
        return value
    if kind == "bytes":
        return _base64(value, outer, names)
    if kind in SPECIAL:
        try:
            return SPECIAL[kind](value, path, found)
        except BadBody as error:
            raise BadBody(
                str(error).replace(
                    "into Go value of type", f"into Go struct field {outer}.{names} of type"
                )
            ) from None
    inner = fields.message(owner.section, kind)
    if inner is None:
        return documents.plain(value)
    return _object(value, inner, path, names, outer, found)


def single(value: Any, field: fields.Field, owner: fields.Message) -> Any:
    """One value alone.  Raises BadBody."""
    found = Findings()
    made = _single(value, Entry(field, owner, owner.name), "", field.name, found)
    found.settle()
    return made


@cache
def _text_types() -> dict[tuple[str, str], str]:
    """(section, message.field) -> the type of `tables/texts.txt`."""
    found: dict[tuple[str, str], str] = {}
    section = kind = ""
    for line in (
        (Path(__file__).parents[1] / "tables" / "texts.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        if line.startswith("["):
            section = line.strip("[]")
            continue
        if not line.startswith(" "):
            kind, _, line = line.partition(":")
        found |= {(section, name): kind for name in line.split()}
    return found


def go_text_type(owner: fields.Message, name: str) -> str:
    """What Go calls the texts of a field."""
    return _text_types().get((owner.section, f"{owner.name}.{name}"), "string")


def _base64(value: Any, owner: str, names: str) -> str:
    if isinstance(value, list) and not isinstance(value, Pairs):
        return _octets(value, owner, names)
    if not isinstance(value, str):
        raise _mismatch(value, owner, names, "[]uint8")
    text = value.replace("\n", "").replace("\r", "")
    try:
        b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        good = len(value) - len(value.lstrip(_BASE64))
        raise Mismatch(
            f"illegal base64 data at input byte {good // 4 * 4 if good == len(value) else good}"
        ) from None
    return text


def _octets(values: list[Any], owner: str, names: str) -> str:
    """Bytes that were written as a list of numbers."""
    for value in values:
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 256
        ):
            raise _mismatch(value, owner, names, "uint8")
    return b64encode(bytes(value or 0 for value in values)).decode()


def _time(value: Any, _path: str, _found: Findings) -> str:
    return stamp_of(_moment(value))


def _micro_time(value: Any, _path: str, _found: Findings) -> str:
    return stamp_of(_moment(value), "microseconds")


def _moment(value: Any) -> datetime:
    if not isinstance(value, str):
        raise BadBody(f"json: cannot unmarshal {type_name(value)} into Go value of type string")
    parts = _DATE_TIME(value)
    layout = "2006-01-02T15:04:05Z07:00"
    if parts is None:
        raise BadBody(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
    date, time, fraction, zone = parts.groups()
    try:
        return datetime.fromisoformat(
            f"{date}T{time}{(fraction or '')[:7]}{zone.replace('Z', '+00:00')}"
        ).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadBody(f'parsing time "{value}": day out of range') from None


def _quantity(value: Any, _path: str, _found: Findings) -> str:
    return canonical(value)


def _int_or_string(value: Any, _path: str, _found: Findings) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise BadBody(f"json: cannot unmarshal {_literal(value)} into Go value of type int32")
    return value


def _any(value: Any, _path: str, _found: Findings) -> Any:
    return documents.plain(value)


def _strings(value: Any, path: str, _found: Findings) -> list[str]:
    if (
        not isinstance(value, list)
        or isinstance(value, Pairs)
        or not all(isinstance(item, str) for item in value)
    ):
        raise BadBody(
            f"json: cannot unmarshal {type_name(value)} into Go struct field {path} of type []string"
        )
    return list(value)


def _schema(value: Any, path: str, found: Findings) -> dict[str, Any]:
    described = fields.message("apiextensions.v1", "JSONSchemaProps")
    assert described is not None
    names = re.sub(r"\[\d+\]", "", path)
    return _object(value, described, path, names, "JSONSchemaProps", found)


def _schema_or_bool(value: Any, path: str, found: Findings) -> Any:
    return value if isinstance(value, bool) else _schema(value, path, found)


def _schema_or_array(value: Any, path: str, found: Findings) -> Any:
    if isinstance(value, list) and not isinstance(value, Pairs):
        return [_schema(item, f"{path}[{position}]", found) for position, item in enumerate(value)]
    return _schema(value, path, found)


def _schema_or_strings(value: Any, path: str, found: Findings) -> Any:
    if isinstance(value, list) and not isinstance(value, Pairs):
        return _strings(value, path, found)
    return _schema(value, path, found)


SPECIAL = {
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "RawExtension": _any,
    "FieldsV1": _any,
    "JSON": _any,
    "ExtraValue": _strings,
    "Verbs": _strings,
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrArray": _schema_or_array,
    "JSONSchemaPropsOrStringArray": _schema_or_strings,
}


def _package(described: fields.Message) -> str:
    """The Go package of a message: the version, as Kubernetes names its packages."""
    return described.section.rpartition(".")[2]


def _go_type(field: fields.Field, owner: fields.Message) -> str:
    if field.type == "Quantity":
        return "resource.Quantity"
    if field.type in ("Time", "MicroTime"):
        return f"v1.{field.type}"
    if field.type == "IntOrString":
        return "intstr.IntOrString"
    if field.type == "string":
        return go_text_type(owner, field.name)
    if field.type in _GO:
        return _GO[field.type]
    inner = fields.message(owner.section, field.type)
    return f"{_package(inner)}.{inner.name}" if inner else field.type


def type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (dict, Pairs)):
        return "object"
    if isinstance(value, list):
        return "array"
    return "number"


def _literal(value: Any) -> str:
    """The type of a value; of a number also which it is."""
    what = type_name(value)
    return f"number {value}" if what == "number" else what


def _mismatch(value: Any, owner: str, names: str, wanted: str) -> Mismatch:
    what = _literal(value) if wanted in _INT_LIMITS or wanted == "uint8" else type_name(value)
    target = f"Go struct field {owner}.{names}" if names else "Go value"
    return Mismatch(f"json: cannot unmarshal {what} into {target} of type {wanted}")
