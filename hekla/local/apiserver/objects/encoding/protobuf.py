"""Request bodies in Kubernetes' protobuf encoding, which every generated Go client sends for
built-in kinds (local-cluster 1.5).

The tables of `fields.py` say which number is which field. A message's table is compiled once into a
dictionary from wire tag to handling, and one loop walks the bytes. Any input gives either a tree or
BadBody: lengths are checked against the enclosing message, nesting is bounded, and a truncated body
is an error like any other.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import msgspec

from hekla.api.text.durations import nanoseconds, nanoseconds_text
from hekla.api.text.times import EPOCH, microseconds, stamp_of
from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.errors import BadBody

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAX_DEPTH = 200

(_STRING, _MESSAGE, _LIST, _MAP, _INT, _BOOL, _INLINE, _SPECIAL, _DOUBLE, _BYTES, _INT_LIST) = (
    range(11)
)
_INT64 = 1 << 63


class Envelope(NamedTuple):
    """The content of runtime.Unknown."""

    api_version: str
    kind: str
    raw: bytes


class _Entry(NamedTuple):
    code: int
    name: str
    pointer: bool
    inner: Any
    """_MESSAGE, _INLINE: a _Table; _SPECIAL: a _Form; _LIST, _MAP: the _Entry of an element;
    _INT_LIST: varint -> value."""


class _Table:
    """A compiled message. Its entries are made on first use, because schemas contain themselves."""

    __slots__ = ("_entries", "message")

    def __init__(self, described: fields.Message) -> None:
        self.message = described
        self._entries: dict[int, _Entry] | None = None

    @property
    def entries(self) -> dict[int, _Entry]:
        """Wire tag -> how to decode the field."""
        if self._entries is None:
            self._entries = _compiled(self.message)
        return self._entries


def envelope(body: bytes) -> Envelope:
    r"""Decode the envelope `k8s\0` + runtime.Unknown. Raises BadBody."""
    if body[:4] != MAGIC:
        raise BadBody(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    unknown = _decoded(body, 4, _unknown())
    meta = unknown.get("typeMeta", {})
    return Envelope(meta.get("apiVersion", ""), meta.get("kind", ""), unknown.get("raw", b""))


def decode(raw: bytes, described: fields.Message) -> Json:
    """The object's message as a JSON tree, without apiVersion and kind.  Raises BadBody."""
    return _decoded(raw, 0, _table(described.section, described.name))


def encode(tree: Json, described: fields.Message) -> bytes:
    """A tree as the object's message: the inverse of `decode` for trees that hold nothing the table
    does not name."""
    out = bytearray()
    _write(tree, _table(described.section, described.name), out)
    return bytes(out)


def enclose(api_version: str, kind: str, raw: bytes) -> bytes:
    """Put the envelope around an encoded message."""
    meta = chunk(1, api_version.encode()) + chunk(2, kind.encode())
    return MAGIC + chunk(1, meta) + chunk(2, raw) + chunk(3, b"") + chunk(4, b"")


def _decoded(buffer: bytes, start: int, table: _Table) -> Json:
    try:
        return _read(buffer, start, len(buffer), table, 0)
    except IndexError:
        raise BadBody("unexpected EOF") from None
    except UnicodeDecodeError as error:
        raise BadBody(
            f"protobuf: a string is not valid UTF-8: {error.reason} at byte {error.start}"
        ) from None


# --- reading --------------------------------------------------------------------------------------


def _read(buffer: bytes, at: int, end: int, table: _Table, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise BadBody(f"exceeded max depth: messages are nested more than {MAX_DEPTH} deep")
    entries = table._entries or table.entries
    tree: Json = {}
    while at < end:
        tag = buffer[at]
        at += 1
        if tag > 127:
            tag, at = _varint(buffer, at - 1)
        wire = tag & 7
        if wire == 2:
            size = buffer[at]
            at += 1
            if size > 127:
                size, at = _varint(buffer, at - 1)
            stop = at + size
            if stop > end:
                raise BadBody("unexpected EOF")
            entry = entries.get(tag)
            if entry is not None:
                code, name, pointer, inner = entry
                if code == _STRING:
                    if size or pointer:
                        tree[name] = buffer[at:stop].decode()
                elif code == _MESSAGE:
                    tree[name] = _read(buffer, at, stop, inner, depth + 1)
                else:
                    _take(tree, entry, buffer, at, stop, depth)
            at = stop
        elif wire == 0:
            value = buffer[at]
            at += 1
            if value > 127:
                value, at = _varint(buffer, at - 1)
            entry = entries.get(tag)
            if entry is None:
                entry = entries.get(tag | 2)
                if entry is None or entry.code != _INT_LIST:
                    continue
                tree.setdefault(entry.name, []).append(entry.inner(value))
            elif value or entry.pointer:
                tree[entry.name] = (
                    bool(value)
                    if entry.code == _BOOL
                    else value - (1 << 64)
                    if value >= _INT64
                    else value
                )
        elif wire == 1:
            if at + 8 > end:
                raise BadBody("unexpected EOF")
            entry = entries.get(tag)
            if entry is not None:
                number = struct.unpack_from("<d", buffer, at)[0]
                if number != number or number in (float("inf"), float("-inf")):
                    raise BadBody(f"json: unsupported value: {number}")
                if number or entry.pointer:
                    tree[entry.name] = int(number) if number.is_integer() else number
            at += 8
        elif wire == 5:
            at += 4
        else:
            raise BadBody(
                f"proto: illegal wireType {wire}"
                if wire > 5
                else f"proto: wiretype {wire} is not used here"
            )
    if at != end:
        raise BadBody("unexpected EOF")
    return tree


def _take(tree: Json, entry: _Entry, buffer: bytes, at: int, stop: int, depth: int) -> None:
    """Decode one length-delimited field that is neither a string nor a message into the tree."""
    code, name, pointer, inner = entry
    if code == _LIST:
        below = inner.code
        if below == _MESSAGE:
            value: Any = _read(buffer, at, stop, inner.inner, depth + 1)
        elif below == _STRING:
            value = buffer[at:stop].decode()
        else:
            value = _element(inner, buffer, at, stop, depth)
        if name in tree:
            tree[name].append(value)
        else:
            tree[name] = [value]
    elif code == _MAP:
        key, value = _pair(inner, buffer, at, stop, depth)
        if name in tree:
            tree[name][key] = value
        else:
            tree[name] = {key: value}
    elif code == _INLINE:
        tree.update(_read(buffer, at, stop, inner, depth + 1))
    elif code == _SPECIAL:
        value = inner.read(buffer[at:stop], depth)
        if value is not None:
            tree[name] = value
    elif code == _BYTES:
        if stop > at or pointer:
            tree[name] = b64encode(buffer[at:stop]).decode()
    elif code == _RAW:
        tree[name] = buffer[at:stop]
    else:
        numbers = tree.setdefault(name, [])
        while at < stop:
            number, at = _varint(buffer, at)
            numbers.append(inner(number))


def _element(entry: _Entry, buffer: bytes, at: int, stop: int, depth: int) -> Any:
    """Decode an element of a list or a value of a map. An empty string stays an empty string there,
    because an element cannot be absent."""
    code = entry.code
    if code == _STRING:
        return buffer[at:stop].decode()
    if code == _MESSAGE:
        return _read(buffer, at, stop, entry.inner, depth + 1)
    if code == _SPECIAL:
        return entry.inner.read(buffer[at:stop], depth)
    if code == _BYTES:
        return b64encode(buffer[at:stop]).decode()
    raise BadBody("proto: wrong wireType")


def _pair(entry: _Entry, buffer: bytes, at: int, end: int, depth: int) -> tuple[str, Any]:
    """Decode a map entry {1 key, 2 value}; missing parts are empty."""
    key, value = "", None
    while at < end:
        tag, size = buffer[at], buffer[at + 1]
        if tag > 127 or size > 127:
            tag, at = _varint(buffer, at)
            size, at = _varint(buffer, at)
        else:
            at += 2
        if tag not in (10, 18):
            if tag & 7 == 2:
                at += size
            continue
        stop = at + size
        if stop > end:
            raise BadBody("unexpected EOF")
        if tag == 10:
            key = buffer[at:stop].decode()
        else:
            value = _element(entry, buffer, at, stop, depth)
        at = stop
    return key, _element(entry, b"", 0, 0, depth) if value is None else value


def _varint(buffer: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise BadBody("proto: integer overflow")


# --- writing --------------------------------------------------------------------------------------


def _write(tree: Json, table: _Table, out: bytearray) -> None:
    for tag, entry in table.entries.items():
        number = tag >> 3
        if entry.code == _INLINE:
            inner = bytearray()
            _write(tree, entry.inner, inner)
            out += chunk(number, bytes(inner))
            continue
        value = tree.get(entry.name)
        if value is None:
            continue
        if entry.code == _INT or entry.code == _BOOL:
            out += varint(tag) + varint(int(value))
        elif entry.code == _DOUBLE:
            out += varint(tag) + struct.pack("<d", value)
        elif entry.code == _INT_LIST:
            out += b"".join(varint(number << 3) + varint(int(item)) for item in value)
        elif entry.code == _LIST:
            out += b"".join(chunk(number, _encoded(item, entry.inner)) for item in value)
        elif entry.code == _MAP:
            for key, item in value.items():
                out += chunk(number, chunk(1, key.encode()) + chunk(2, _encoded(item, entry.inner)))
        else:
            out += chunk(number, _encoded(value, entry))


def _encoded(value: Any, entry: _Entry) -> bytes:
    if entry.code == _STRING:
        return str(value).encode()
    if entry.code == _BYTES:
        return b64decode(value)
    if entry.code == _SPECIAL:
        return bytes(entry.inner.write(value))
    inner = bytearray()
    _write(value, entry.inner, inner)
    return bytes(inner)


def chunk(number: int, data: bytes) -> bytes:
    """A length-delimited field: a string, or an encoded message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """An integer in protobuf's variable-length encoding; a negative one as its 64 bits."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- forms of their own ---------------------------------------------------------------------------


class _Form(NamedTuple):
    read: Callable[[bytes, int], Any]
    write: Callable[[Any], bytes]


def _plain(data: bytes) -> dict[int, Any]:
    """A small message as {field number: last value}, from which the special forms are decoded."""
    values: dict[int, Any] = {}
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            values[tag >> 3], at = _varint(data, at)
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise BadBody("unexpected EOF")
            values[tag >> 3] = data[at : at + size]
            at += size
        else:
            raise BadBody(f"proto: illegal wireType {tag & 7}")
    return values


def _signed(value: Any) -> int:
    if not isinstance(value, int):
        raise BadBody("proto: wrong wireType for a number")
    return value - (1 << 64) if value >= _INT64 else value


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise BadBody("proto: wrong wireType for a string")
    return value.decode()


def _moment(data: bytes) -> datetime | None:
    parts = _plain(data)
    if not parts:
        return None
    try:
        micros = _signed(parts.get(2, 0)) // 1000
        return EPOCH + timedelta(seconds=_signed(parts.get(1, 0)), microseconds=micros)
    except OverflowError:
        raise BadBody("Time.MarshalJSON: year outside of range [0,9999]") from None


def _read_time(data: bytes, _: int) -> str | None:
    moment = _moment(data)
    return None if moment is None else stamp_of(moment)


def _read_micro_time(data: bytes, _: int) -> str | None:
    moment = _moment(data)
    return None if moment is None else stamp_of(moment, "microseconds")


def _write_time(text: str) -> bytes:
    if not text:
        return b""
    seconds, micros = divmod(microseconds(text), 1_000_000)
    return b"\x08" + varint(seconds) + b"\x10" + varint(micros * 1000)


def _read_quantity(data: bytes, _: int) -> str:
    return _text(_plain(data).get(1, b"")) or "0"


def _read_int_or_string(data: bytes, _: int) -> int | str:
    parts = _plain(data)
    return _text(parts.get(3, b"")) if parts.get(1) else _signed(parts.get(2, 0))


def _write_int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + chunk(3, value.encode())
    return b"\x08\x00\x10" + varint(value) + b"\x1a\x00"


def _read_json(data: bytes, _: int) -> Any:
    raw = _plain(data).get(1, b"")
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, TypeError) as error:
        raise BadBody(f"a raw field does not hold JSON: {error}") from None


def _write_json(value: Any) -> bytes:
    return chunk(1, msgspec.json.encode(value))


def _repeated(data: bytes, number: int) -> list[bytes]:
    chunks = []
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        if tag & 7 != 2:
            continue
        if at + size > end:
            raise BadBody("unexpected EOF")
        if tag >> 3 == number:
            chunks.append(data[at : at + size])
        at += size
    return chunks


def _read_strings(data: bytes, _: int) -> list[str]:
    return [item.decode() for item in _repeated(data, 1)]


def _write_strings(value: list[str]) -> bytes:
    return b"".join(chunk(1, item.encode()) for item in value)


def _schema() -> _Table:
    return _table("apiextensions.v1", "JSONSchemaProps")


def _schema_bytes(tree: Json) -> bytes:
    out = bytearray()
    _write(tree, _schema(), out)
    return bytes(out)


def _read_schema_or_bool(data: bytes, depth: int) -> Any:
    parts = _plain(data)
    if 2 in parts and isinstance(parts[2], bytes):
        return _read(parts[2], 0, len(parts[2]), _schema(), depth + 1)
    return bool(parts.get(1))


def _write_schema_or_bool(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"\x08\x01" + chunk(2, _schema_bytes(value))
    return b"\x08" + varint(int(bool(value)))


def _read_schema_or_array(data: bytes, depth: int) -> Any:
    single = _repeated(data, 1)
    if single:
        return _read(single[-1], 0, len(single[-1]), _schema(), depth + 1)
    return [_read(item, 0, len(item), _schema(), depth + 1) for item in _repeated(data, 2)]


def _write_schema_or_array(value: Any) -> bytes:
    if isinstance(value, dict):
        return chunk(1, _schema_bytes(value))
    return b"".join(chunk(2, _schema_bytes(item)) for item in value)


def _read_schema_or_strings(data: bytes, depth: int) -> Any:
    single = _repeated(data, 1)
    if single:
        return _read(single[-1], 0, len(single[-1]), _schema(), depth + 1)
    return [item.decode() for item in _repeated(data, 2)]


def _write_schema_or_strings(value: Any) -> bytes:
    if isinstance(value, dict):
        return chunk(1, _schema_bytes(value))
    return b"".join(chunk(2, item.encode()) for item in value)


def _read_duration(data: bytes, _: int) -> str:
    return nanoseconds_text(_signed(_plain(data).get(1, 0)))


def _write_duration(text: str) -> bytes:
    return b"\x08" + varint(nanoseconds(text))


_FORMS = {
    "Time": _Form(_read_time, _write_time),
    "MicroTime": _Form(_read_micro_time, _write_time),
    "Duration": _Form(_read_duration, _write_duration),
    "Quantity": _Form(_read_quantity, lambda value: chunk(1, str(value).encode())),
    "IntOrString": _Form(_read_int_or_string, _write_int_or_string),
    "FieldsV1": _Form(_read_json, _write_json),
    "RawExtension": _Form(_read_json, _write_json),
    "JSON": _Form(_read_json, _write_json),
    "ExtraValue": _Form(_read_strings, _write_strings),
    "Verbs": _Form(_read_strings, _write_strings),
    "JSONSchemaPropsOrBool": _Form(_read_schema_or_bool, _write_schema_or_bool),
    "JSONSchemaPropsOrArray": _Form(_read_schema_or_array, _write_schema_or_array),
    "JSONSchemaPropsOrStringArray": _Form(_read_schema_or_strings, _write_schema_or_strings),
}

_RAW = 11
_SCALAR_CODES = {
    "string": _STRING,
    "bytes": _BYTES,
    "bool": _BOOL,
    "int32": _INT,
    "int64": _INT,
    "double": _DOUBLE,
}
_WIRE = {_INT: 0, _BOOL: 0, _DOUBLE: 1}


@cache
def _table(section: str, name: str) -> _Table:
    described = fields.message(section, name)
    if described is None:
        raise BadBody(
            f"no field table describes {name} of {section}", code=415, reason="UnsupportedMediaType"
        )
    return _Table(described)


def _compiled(described: fields.Message) -> dict[int, _Entry]:
    entries: dict[int, _Entry] = {}
    for field in described.fields:
        single = _single(described.section, field)
        if not field.many:
            entry = single
        elif field.many == "list" and single.code in (_INT, _BOOL):
            entry = _Entry(_INT_LIST, field.name, False, _signed if single.code == _INT else bool)
        else:
            entry = _Entry(_LIST if field.many == "list" else _MAP, field.name, False, single)
        entries[field.number << 3 | _WIRE.get(entry.code, 2)] = entry
    return entries


def _single(section: str, field: fields.Field) -> _Entry:
    if field.type in _SCALAR_CODES:
        return _Entry(_SCALAR_CODES[field.type], field.name, field.pointer, None)
    if field.type in _FORMS:
        return _Entry(_SPECIAL, field.name, field.pointer, _FORMS[field.type])
    inner = fields.message(section, field.type)
    if inner is None:
        return _Entry(
            _SPECIAL, field.name, False, _Form(lambda _data, _depth: None, lambda _value: b"")
        )
    return _Entry(
        _INLINE if not field.name else _MESSAGE,
        field.name,
        field.pointer,
        _table(inner.section, inner.name),
    )


@cache
def _unknown() -> _Table:
    """runtime.Unknown {1 typeMeta {1 apiVersion, 2 kind}, 2 raw}."""
    meta = _Table(fields.Message("", "TypeMeta", ()))
    meta._entries = {
        10: _Entry(_STRING, "apiVersion", False, None),
        18: _Entry(_STRING, "kind", False, None),
    }
    unknown = _Table(fields.Message("", "Unknown", ()))
    unknown._entries = {
        10: _Entry(_MESSAGE, "typeMeta", False, meta),
        18: _Entry(_RAW, "raw", False, None),
    }
    return unknown
