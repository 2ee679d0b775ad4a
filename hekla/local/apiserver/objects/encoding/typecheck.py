"""The slow decoder of built-in kinds: walks a body along its field table and reports what does not
fit.

It runs only if the fast decoder refused the body or a key is repeated. It returns what a valid body
would have given: unknown fields, nulls and zero values without meaning are dropped, and of a
repeated key the last value counts.
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
    """A value of the wrong type. The walk continues, and if a later value cannot be parsed at all
    (a quantity, a date), that error is reported instead."""


class Findings:
    """What the walk found: unknown and repeated fields, which not every mode refuses, and the first
    value of the wrong type."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._first: Mismatch | None = None

    def mismatch(self, error: Mismatch) -> None:
        """Remember the first value of the wrong type."""
        self._first = self._first or error.with_traceback(
            None
        )  # the traceback would hold these findings

    def raise_mismatch(self) -> None:
        """Raise the remembered mismatch, if there is one. It is forgotten first, because the
        exception refers to the frame that raises it."""
        first, self._first = self._first, None
        if first is not None:
            try:
                raise first
            finally:
                del first

    def unknown(self, path: str) -> None:
        """Report a field that the table does not have."""
        self._texts.append(f'unknown field "{path}"')

    def duplicate(self, path: str) -> None:
        """Report a repeated key."""
        self._texts.append(f'duplicate field "{path}"')

    def texts(self) -> list[str]:
        """The messages for unknown and repeated fields."""
        return self._texts


def check(tree: Any, described: fields.Message, findings: Findings) -> dict[str, Any]:
    """The tree as the table allows it. `tree` holds objects as Pairs or dictionaries. Raises
    BadBody."""
    try:
        result = _object(tree, described, "", "", described.name, findings)
    except RecursionError:
        raise BadBody("exceeded max depth") from None
    findings.raise_mismatch()
    return result


def check_metadata(meta: Any, findings: Findings) -> dict[str, Any]:
    """An object's metadata alone, for custom kinds. Raises BadBody."""
    described = fields.message("meta.v1", "ObjectMeta")
    assert described is not None
    result = _object(meta, described, "metadata", "metadata", "ObjectMeta", findings)
    findings.raise_mismatch()
    return result


def _object(
    value: Any, described: fields.Message, path: str, names: str, owner: str, findings: Findings
) -> dict[str, Any]:
    """`path` has list positions and is for findings, `names` has none and is for type errors;
    neither ends with a dot."""
    if not isinstance(value, (dict, Pairs)):
        raise _mismatch(value, owner, names, f"{_package(described)}.{described.name}")
    known = _known(described)
    result: dict[str, Any] = {}
    seen: set[str] = set()
    for key, item in value.items() if isinstance(value, dict) else value:
        where = f"{path}.{key}" if path else key
        entry = known.get(key)
        if entry is None:
            findings.unknown(where)
            continue
        if key in seen:
            findings.duplicate(where)
            result.pop(key, None)
        seen.add(key)
        try:
            made = _field(
                item,
                entry,
                where,
                ".".join(part for part in (names, entry.chain, key) if part),
                findings,
            )
        except Mismatch as error:
            findings.mismatch(error)
            continue
        if made is not None:
            result[key] = made
    return result


class Entry(NamedTuple):
    """A field as it appears in JSON."""

    field: fields.Field
    owner: fields.Message
    """The message that declares it."""
    outer: str
    """The message that has it in JSON; differs from the owner if that is inlined."""
    chain: str = ""
    """The names of the inlined messages in between, which Go's errors show."""


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


def _field(value: Any, entry: Entry, path: str, names: str, findings: Findings) -> Any:
    """The value to keep; None if it counts as absent."""
    field, owner = entry.field, entry.owner
    if value is None:
        return None
    if field.many == "list":
        if not isinstance(value, list) or isinstance(value, Pairs):
            raise _mismatch(value, entry.outer, names, "[]" + _go_type(field, owner))
        items = [
            _empty(field, owner)
            if item is None
            else _item(item, entry, f"{path}[{position}]", names, findings)
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
                findings.duplicate(where)
            entries[key] = (
                _empty(field, owner) if item is None else _item(item, entry, where, names, findings)
            )
        return entries or None
    made = _single(value, entry, path, names, findings)
    if (
        made in ("", 0, False)
        and not isinstance(made, dict)
        and not field.pointer
        and field.type in fields.SCALARS
    ):
        return None
    return made


def _item(value: Any, entry: Entry, path: str, names: str, findings: Findings) -> Any:
    """A value inside a list or map; one of the wrong type does not end the check of the others."""
    try:
        return _single(value, entry, path, names, findings)
    except Mismatch as error:
        findings.mismatch(error)
        return None


def _empty(field: fields.Field, owner: fields.Message) -> Any:
    """What a null inside a list or map becomes."""
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


def _single(value: Any, entry: Entry, path: str, names: str, findings: Findings) -> Any:
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
            return SPECIAL[kind](value, path, findings)
        except BadBody as error:
            raise BadBody(
                str(error).replace(
                    "into Go value of type", f"into Go struct field {outer}.{names} of type"
                )
            ) from None
    inner = fields.message(owner.section, kind)
    if inner is None:
        return documents.plain(value)
    return _object(value, inner, path, names, outer, findings)


def single(value: Any, field: fields.Field, owner: fields.Message) -> Any:
    """Check one value alone. Raises BadBody."""
    findings = Findings()
    made = _single(value, Entry(field, owner, owner.name), "", field.name, findings)
    findings.raise_mismatch()
    return made


@cache
def _text_types() -> dict[tuple[str, str], str]:
    """(section, message.field) -> its type, from `tables/texts.txt`."""
    findings: dict[tuple[str, str], str] = {}
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
        findings |= {(section, name): kind for name in line.split()}
    return findings


def go_text_type(owner: fields.Message, name: str) -> str:
    """The Go type of a string field."""
    return _text_types().get((owner.section, f"{owner.name}.{name}"), "string")


def _base64(value: Any, owner: str, names: str) -> str:
    if isinstance(value, list) and not isinstance(value, Pairs):
        return _bytes_of_list(value, owner, names)
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


def _bytes_of_list(values: list[Any], owner: str, names: str) -> str:
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


def _schema(value: Any, path: str, findings: Findings) -> dict[str, Any]:
    described = fields.message("apiextensions.v1", "JSONSchemaProps")
    assert described is not None
    names = re.sub(r"\[\d+\]", "", path)
    return _object(value, described, path, names, "JSONSchemaProps", findings)


def _schema_or_bool(value: Any, path: str, findings: Findings) -> Any:
    return value if isinstance(value, bool) else _schema(value, path, findings)


def _schema_or_array(value: Any, path: str, findings: Findings) -> Any:
    if isinstance(value, list) and not isinstance(value, Pairs):
        return [
            _schema(item, f"{path}[{position}]", findings) for position, item in enumerate(value)
        ]
    return _schema(value, path, findings)


def _schema_or_strings(value: Any, path: str, findings: Findings) -> Any:
    if isinstance(value, list) and not isinstance(value, Pairs):
        return _strings(value, path, findings)
    return _schema(value, path, findings)


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
    """The Go package of a message: its version, as Kubernetes names its packages."""
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
    """The JSON type of a value, as Go's decoder names it."""
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
    """The JSON type of a value, followed by the value if it is a number."""
    what = type_name(value)
    return f"number {value}" if what == "number" else what


def _mismatch(value: Any, owner: str, names: str, wanted: str) -> Mismatch:
    what = _literal(value) if wanted in _INT_LIMITS or wanted == "uint8" else type_name(value)
    target = f"Go struct field {owner}.{names}" if names else "Go value"
    return Mismatch(f"json: cannot unmarshal {what} into {target} of type {wanted}")
