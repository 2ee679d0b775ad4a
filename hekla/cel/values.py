"""Values that JSON has no form for, and what is asked of any value: its type's name, equality,
order.

JSON trees are evaluated as they are: bool, int, float, str, list, dict, None.  Here is what else an
expression can make.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hekla.api.text.durations import NotADuration, nanoseconds
from hekla.api.text.times import EPOCH, stamp
from hekla.cel.errors import Failed

LOWEST, HIGHEST = -(2**63), 2**63 - 1
SECOND = 1_000_000_000


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What `type(x)` gives, and what names such as `string` stand for."""

    kind = "type"
    name: str

    def __str__(self) -> str:
        return self.name


class Optional:
    __slots__ = ("present", "value")
    kind = "optional_type"

    def __init__(self, value: Any, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.present is not other.present:
            return False
        return not self.present or same(self.value, other.value)


NONE = Optional(None, False)


@dataclass(order=True, unsafe_hash=True, slots=True)
class _Nanoseconds:
    ns: int


NO_DURATION = "type conversion error from 'string' to 'google.protobuf.Duration'"


class Duration(_Nanoseconds):
    """A span of time in nanoseconds."""

    __slots__ = ()
    kind = "duration"

    @classmethod
    def read(cls, text: str) -> Duration:
        """As Go writes durations: `1h30m`, `-1.5s`, `0`."""
        try:
            return cls(nanoseconds(text))
        except NotADuration:
            raise Failed(NO_DURATION) from None

    def __str__(self) -> str:
        """In seconds, as CEL converts durations to strings."""
        sign, size = ("-", -self.ns) if self.ns < 0 else ("", self.ns)
        whole, part = divmod(size, SECOND)
        return f"{sign}{whole}" + (f".{part:09}".rstrip("0") if part else "") + "s"


_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)"
)
FIRST, LAST = -62135596800 * SECOND, 253402300800 * SECOND


class Timestamp(_Nanoseconds):
    """A moment, in nanoseconds since 1970."""

    __slots__ = ()
    kind = "timestamp"

    @classmethod
    def read(cls, text: str) -> Timestamp:
        match = _MOMENT.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            year, month, day, hour, minute, second = (
                int(match[position]) for position in range(1, 7)
            )
            ns = (
                seconds_since(datetime(year, month, day, hour, minute, second, tzinfo=UTC)) * SECOND
            )
            ns += int((match[7] or "0").ljust(9, "0"))
            zone = match[8]
            if zone not in "Zz":
                shift = (int(zone[1:3]) * 60 + int(zone[4:6])) * 60 * SECOND
                ns -= shift if zone[0] == "+" else -shift
            return cls(ns)
        except ValueError:
            raise Failed(
                "type conversion error from 'string' to 'google.protobuf.Timestamp'"
            ) from None

    def moment(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.ns // 1000)

    def __str__(self) -> str:
        whole, part = divmod(self.ns, SECOND)
        return stamp(whole)[:-1] + (f".{part:09}".rstrip("0") if part else "") + "Z"


def seconds_since(moment: datetime) -> int:
    span = moment - EPOCH
    return span.days * 86400 + span.seconds


_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    type(None): "null_type",
}


def kind_of(value: Any) -> str:
    """The name under which overloads know a value's type."""
    return _KINDS.get(type(value)) or str(value.kind)


_SHOWN = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}


def type_value(value: Any) -> TypeValue:
    kind = kind_of(value)
    return TypeValue(_SHOWN.get(kind, kind))


_PLAIN = (str, int, bytes)
_NUMBERS = (int, float)


def same(one: Any, other: Any) -> bool:
    """Equality across types, as CEL has it: numbers by value, everything else only with its own
    kind."""
    kind = type(one)
    if kind is type(other) and kind in _PLAIN:
        return bool(one == other)
    if kind is bool or type(other) is bool:
        return one is other
    if isinstance(one, _NUMBERS):
        return isinstance(other, _NUMBERS) and one == other
    if kind is list:
        return type(other) is list and len(one) == len(other) and all(map(same, one, other))
    if kind is dict:
        if type(other) is not dict or len(one) != len(other):
            return False
        return all(key in other and same(value, other[key]) for key, value in one.items())
    return type(other) is kind and bool(one == other)
