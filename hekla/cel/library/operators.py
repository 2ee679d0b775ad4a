"""Operators, sizes and conversions of standard CEL."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hekla.cel.errors import Failed, TooCostly
from hekla.cel.functions import function, method
from hekla.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from hekla.cel.values import (
    FIRST,
    HIGHEST,
    LAST,
    LOWEST,
    NONE,
    SECOND,
    Duration,
    Optional,
    Timestamp,
    Uint,
    same,
    type_value,
)

LONGEST_TEXT = 10_000_000
"""Texts that grow beyond this end an evaluation: requests are smaller."""


def whole(value: int) -> int:
    if LOWEST <= value <= HIGHEST:
        return value
    raise Failed("integer overflow")


def unsigned(value: int) -> Uint:
    if 0 <= value < 2**64:
        return Uint(value)
    raise Failed("unsigned integer overflow")


def span(value: int) -> Duration:
    if LOWEST <= value <= HIGHEST:
        return Duration(value)
    raise Failed("duration overflow")


def moment(value: int) -> Timestamp:
    if FIRST <= value < LAST:
        return Timestamp(value)
    raise Failed("timestamp overflow")


def limited(text: Any) -> Any:
    if len(text) > LONGEST_TEXT:
        raise TooCostly
    return text


def _toward_zero(one: int, other: int) -> int:
    size = abs(one) // abs(other)
    return size if (one < 0) == (other < 0) else -size


def _divided(one: int, other: int) -> int:
    if other == 0:
        raise Failed("division by zero")
    return whole(_toward_zero(one, other))


def _unsigned_divided(one: int, other: int) -> Uint:
    if other == 0:
        raise Failed("division by zero")
    return Uint(one // other)


def _quotient(one: float, other: float) -> float:
    if other != 0:
        return one / other
    if one == 0 or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1.0, other)


def _remainder(one: int, other: int) -> int:
    if other == 0:
        raise Failed("modulus by zero")
    return one - other * _toward_zero(one, other)


def _unsigned_remainder(one: int, other: int) -> Uint:
    if other == 0:
        raise Failed("modulus by zero")
    return Uint(one % other)


for _sign, _work in (("_+_", operator.add), ("_-_", operator.sub), ("_*_", operator.mul)):

    def _of_ints(one: int, other: int, work: Callable[[int, int], int] = _work) -> int:
        return whole(work(one, other))

    def _of_uints(one: int, other: int, work: Callable[[int, int], int] = _work) -> Uint:
        return unsigned(work(int(one), int(other)))

    function(_sign, (INT, INT), INT, _of_ints)
    function(_sign, (UINT, UINT), UINT, _of_uints)
    function(_sign, (DOUBLE, DOUBLE), DOUBLE, _work)
function("_+_", (STRING, STRING), STRING, lambda one, other: limited(one + other))
function("_+_", (BYTES, BYTES), BYTES, lambda one, other: limited(one + other))
function("_+_", (list_of(A), list_of(A)), list_of(A), lambda one, other: limited(one + other))
function("_+_", (TIMESTAMP, DURATION), TIMESTAMP, lambda one, other: moment(one.ns + other.ns))
function("_+_", (DURATION, TIMESTAMP), TIMESTAMP, lambda one, other: moment(one.ns + other.ns))
function("_+_", (DURATION, DURATION), DURATION, lambda one, other: span(one.ns + other.ns))
function("_-_", (TIMESTAMP, TIMESTAMP), DURATION, lambda one, other: span(one.ns - other.ns))
function("_-_", (TIMESTAMP, DURATION), TIMESTAMP, lambda one, other: moment(one.ns - other.ns))
function("_-_", (DURATION, DURATION), DURATION, lambda one, other: span(one.ns - other.ns))
function("_/_", (INT, INT), INT, _divided)
function("_/_", (UINT, UINT), UINT, _unsigned_divided)
function("_/_", (DOUBLE, DOUBLE), DOUBLE, _quotient)
function("_%_", (INT, INT), INT, _remainder)
function("_%_", (UINT, UINT), UINT, _unsigned_remainder)
function("-_", (INT,), INT, lambda value: whole(-value))
function("-_", (DOUBLE,), DOUBLE, operator.neg)
function("!_", (BOOL,), BOOL, operator.not_)
for _sign in ("_&&_", "_||_"):
    function(_sign, (BOOL, BOOL), BOOL, lambda one, other: one)
for _sign in ("_==_", "_!=_"):
    function(_sign, (A, A), BOOL, same)

_NUMBERS = (INT, UINT, DOUBLE)
for _sign, _compare in (
    ("_<_", operator.lt),
    ("_<=_", operator.le),
    ("_>_", operator.gt),
    ("_>=_", operator.ge),
):
    for _one in _NUMBERS:
        for _other in _NUMBERS:
            function(_sign, (_one, _other), BOOL, _compare)
    for _one in (BOOL, STRING, BYTES, TIMESTAMP, DURATION):
        function(_sign, (_one, _one), BOOL, _compare)


# --- containers -----------------------------------------------------------------------------------


def _in_list(item: Any, holder: list[Any]) -> bool:
    if type(item) is str:
        return item in holder
    return any(same(item, other) for other in holder)


def _in_map(item: Any, holder: dict[Any, Any]) -> bool:
    try:
        return item in holder
    except TypeError:
        raise Failed("no such overload") from None


def _at(holder: list[Any], place: Any) -> Any:
    if isinstance(place, float) and place.is_integer():
        place = int(place)
    if isinstance(place, bool) or not isinstance(place, int):
        raise Failed(f"unsupported index type '{type_value(place)}' in list")
    if 0 <= place < len(holder):
        return holder[place]
    raise Failed(f"index out of bounds: {place}")


def _key(holder: dict[Any, Any], key: Any) -> Any:
    try:
        found = holder[key]
    except KeyError:
        raise Failed(f"no such key: {key}") from None
    except TypeError:
        raise Failed("no such overload") from None
    return found.get() if hasattr(found, "get") and not isinstance(found, dict) else found


def _maybe_at(holder: list[Any], place: Any) -> Optional:
    try:
        return Optional(_at(holder, place))
    except Failed:
        return NONE


def _maybe_key(holder: dict[Any, Any], key: Any) -> Optional:
    try:
        return Optional(_key(holder, key))
    except Failed:
        return NONE


def _within(optional: Optional, place: Any) -> Optional:
    if not optional.present:
        return NONE
    return (
        _maybe_at(optional.value, place)
        if isinstance(optional.value, list)
        else _maybe_key(optional.value, place)
    )


function("@in", (A, list_of(A)), BOOL, _in_list)
function("@in", (A, map_of(A, B)), BOOL, _in_map)
function("_[_]", (list_of(A), INT), A, _at)
function("_[_]", (map_of(A, B), A), B, _key)
for _sign in ("_[?_]", "_[_]"):
    function(_sign, (optional_of(list_of(A)), INT), optional_of(A), _within)
    function(_sign, (optional_of(map_of(A, B)), A), optional_of(B), _within)
function("_[?_]", (list_of(A), INT), optional_of(A), _maybe_at)
function("_[?_]", (map_of(A, B), A), optional_of(B), _maybe_key)
for _kind in (STRING, BYTES, list_of(A), map_of(A, B)):
    function("size", (_kind,), INT, len)
    method("size", (_kind,), INT, len)


# --- conversions ----------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number_of(text: str, read: str) -> Any:
    try:
        if text != text.strip() or "_" in text:
            raise ValueError
        return int(text) if read != "ParseFloat" else float(text)
    except ValueError:
        raise _no_number(read) from None


def _no_number(read: str) -> Failed:
    wanted = {"ParseInt": "int", "ParseUint": "uint", "ParseFloat": "double"}[read]
    return Failed(f"type conversion error from 'string' to '{wanted}'")


def _int_of_text(text: str) -> int:
    value = int(_number_of(text, "ParseInt"))
    if not LOWEST <= value <= HIGHEST:
        raise _no_number("ParseInt")
    return value


def _uint_of_text(text: str) -> Uint:
    if text[:1] in ("-", "+"):
        raise _no_number("ParseUint")
    value = int(_number_of(text, "ParseUint"))
    if value >= 2**64:
        raise _no_number("ParseUint")
    return Uint(value)


def _int_of_double(value: float) -> int:
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise Failed("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise Failed("unsigned integer overflow")
    return Uint(int(value))


def _bool_of_text(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise Failed("type conversion error from 'string' to 'bool'")


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Failed("invalid UTF-8 in bytes, cannot convert to string") from None


def text_of_double(value: float) -> str:
    """The shortest text that reads back as the same number, as Go's `%g` writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    power = len(text) + exponent - 1
    start = "-" if sign else ""
    if not -4 <= power < 6:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        return f"{start}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"
    return start + format(Decimal((0, digits, exponent)), "f")


_CONVERSIONS: dict[str, tuple[Type, dict[Type, Callable[[Any], Any]]]] = {
    "int": (INT, {
        INT: lambda value: value, UINT: lambda value: whole(int(value)), DOUBLE: _int_of_double, STRING: _int_of_text,
        TIMESTAMP: lambda value: value.ns // SECOND, DURATION: lambda value: value.ns,
    }),
    "uint": (UINT, {
        UINT: lambda value: value, INT: unsigned, DOUBLE: _uint_of_double, STRING: _uint_of_text,
    }),
    "double": (DOUBLE, {
        DOUBLE: lambda value: value, INT: float, UINT: float, STRING: lambda text: _number_of(text, "ParseFloat"),
    }),
    "string": (STRING, {
        STRING: lambda value: value, INT: str, UINT: lambda value: str(int(value)), DOUBLE: text_of_double, BYTES: _text_of_bytes,
        BOOL: lambda value: "true" if value else "false", TIMESTAMP: str, DURATION: str,
    }),
    "bytes": (BYTES, {BYTES: lambda value: value, STRING: lambda text: text.encode()}),
    "bool": (BOOL, {BOOL: lambda value: value, STRING: _bool_of_text}),
    "timestamp": (TIMESTAMP, {
        TIMESTAMP: lambda value: value, STRING: Timestamp.read, INT: lambda value: moment(value * SECOND),
    }),
    "duration": (DURATION, {DURATION: lambda value: value, STRING: Duration.read, INT: Duration}),
}  # fmt: skip
for _name, (_result, _sources) in _CONVERSIONS.items():
    for _source, _convert in _sources.items():
        function(_name, (_source,), _result, _convert)
function("dyn", (A,), DYN, lambda value: value)
function("type", (A,), type_of(A), type_value)

for _name, _test in (
    ("startsWith", str.startswith),
    ("endsWith", str.endswith),
    ("contains", lambda text, part: part in text),
):
    method(_name, (STRING, STRING), BOOL, _test)
