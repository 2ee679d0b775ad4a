"""Protobuf bodies as a Go client writes them, put together by hand from field numbers: no decoder
of ours is asked."""

from __future__ import annotations

Value = str | bytes | int


def message(*fields: tuple[int, Value]) -> bytes:
    """A message of (field number, value): numbers as varints, texts and messages with their length."""
    return b"".join(_field(number, value) for number, value in fields)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """The body of a request: the magic bytes, then `Unknown` with the object inside."""
    return b"k8s\x00" + message(
        (1, message((1, api_version), (2, kind))), (2, raw), (3, ""), (4, "")
    )


def metadata(name: str, labels: dict[str, str] | None = None) -> bytes:
    """ObjectMeta, with the fields that Go writes even when they are empty."""
    entries = [(11, message((1, key), (2, value))) for key, value in (labels or {}).items()]
    return message(
        (1, name), (2, ""), (3, ""), (4, ""), (5, ""), (6, ""), (7, 0), (8, b""), *entries
    )


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (1 << 64) - 1)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
