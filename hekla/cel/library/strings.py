"""Text functions of CEL's string extension, `format` included."""

from __future__ import annotations

import math
from typing import Any

from hekla.cel.errors import Failed, TooCostly
from hekla.cel.functions import function, method
from hekla.cel.library.operators import LONGEST_TEXT, limited, text_of_double
from hekla.cel.types import DYN, INT, STRING, list_of
from hekla.cel.values import Duration, Timestamp, TypeValue, Uint, type_value


def _char_at(text: str, place: int) -> str:
    if not 0 <= place <= len(text):
        raise Failed(f"index out of range: {place}")
    return text[place : place + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if part == "":
        return start
    if not 0 <= start <= len(text):
        raise Failed(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, end: int | None = None) -> int:
    if end is None:
        return len(text) if part == "" else text.rfind(part)
    if not 0 <= end <= len(text):
        raise Failed(f"index out of range: {end}")
    return end if part == "" else text.rfind(part, 0, end + len(part))


def _replaced(text: str, old: str, new: str, count: int = -1) -> str:
    places = len(text) // len(old) if old else len(text) + 1
    if places * len(new) > LONGEST_TEXT and text.count(old) * len(new) > LONGEST_TEXT:
        raise TooCostly
    return text.replace(old, new, count)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator == "":
        signs = list(text)
        if 0 < limit < len(signs):
            return [*signs[: limit - 1], "".join(signs[limit - 1 :])]
        return signs
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if not 0 <= start <= len(text):
        raise Failed(f"index out of range: {start}")
    if end is None:
        return text[start:]
    if not 0 <= end <= len(text):
        raise Failed(f"index out of range: {end}")
    if start > end:
        raise Failed(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _ascii(text: str, lower: bool) -> str:
    return "".join(
        (sign.lower() if lower else sign.upper()) if sign.isascii() else sign for sign in text
    )


def _joined(parts: list[Any], separator: str = "") -> str:
    try:
        return str(limited(separator.join(parts)))
    except TypeError:
        raise Failed("no such overload") from None


_QUOTED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(sign, sign) for sign in text) + '"'


# --- format ---------------------------------------------------------------------------------------


def _format(text: str, arguments: list[Any]) -> str:
    found: list[str] = []
    at, used, size = 0, 0, len(text)
    while at < size:
        sign = text[at]
        at += 1
        if sign != "%":
            found.append(sign)
            continue
        if at >= size:
            raise Failed("unexpected end of string")
        if text[at] == "%":
            found.append("%")
            at += 1
            continue
        if used >= len(arguments):
            raise Failed(f"index {used} out of range")
        precision = 6
        if text[at] == ".":
            end = at + 1
            while end < size and text[end].isdigit():
                end += 1
            if end >= size:
                raise Failed("could not find end of precision specifier")
            precision, at = int(text[at + 1 : end] or 0), end
        verb = text[at]
        at += 1
        found.append(_clause(verb, arguments[used], min(precision, 1000)))
        used += 1
    return str(limited("".join(found)))


def _clause(verb: str, value: Any, precision: int) -> str:
    if verb == "s":
        return _shown(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if verb == "d":
        if number and (not isinstance(value, float) or math.isinf(value) or math.isnan(value)):
            return _special(value) if isinstance(value, float) else str(int(value))
        raise _unfit("decimal clause can only be used on integers", value)
    if verb in ("f", "e"):
        if not isinstance(value, float):
            kind = "fixed-point" if verb == "f" else "scientific"
            raise _unfit(f"{kind} clause can only be used on doubles", value)
        if math.isinf(value) or math.isnan(value):
            return _special(value)
        if verb == "f":
            return f"{float(value):.{precision}f}"
        mantissa, _, exponent = f"{float(value):.{precision}e}".partition("e")
        return f"{mantissa}\u00d710" + exponent.removeprefix("+").translate(_RAISED)
    if verb == "b":
        if isinstance(value, int):
            return format(int(value), "b")
        raise _unfit("only integers and bools can be formatted as binary", value)
    if verb == "o":
        if isinstance(value, int) and not isinstance(value, bool):
            return format(int(value), "o")
        raise _unfit("octal clause can only be used on integers", value)
    if verb in ("x", "X"):
        if isinstance(value, (str, bytes)):
            text = (value.encode() if isinstance(value, str) else value).hex()
            return text.upper() if verb == "X" else text
        if isinstance(value, int) and not isinstance(value, bool):
            return format(int(value), verb)
        raise _unfit("only integers, byte buffers, and strings can be formatted as hex", value)
    raise Failed(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def _unfit(text: str, value: Any) -> Failed:
    return Failed(f"error during formatting: {text}, was given {type_value(value)}")


_RAISED = str.maketrans(
    "0123456789-", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b"
)


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Uint)):
        return str(int(value))
    if isinstance(value, float):
        return _special(value) if math.isinf(value) or math.isnan(value) else text_of_double(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (Duration, Timestamp, TypeValue)):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_nested, value)) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_nested(key)}:{_nested(value[key])}" for key in sorted(value, key=str))
            + "}"
        )
    kinds = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
    raise _unfit(f"string clause can only be used on {kinds}", value)


def _nested(value: Any) -> str:
    """The text of a value inside a list or map: strings are quoted, times are written as calls."""
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, float) and not (math.isinf(value) or math.isnan(value)):
        return f"{value:.6f}"
    if isinstance(value, (Duration, Timestamp)):
        return f'{value.kind}("{value}")'
    return _shown(value)


method("charAt", (STRING, INT), STRING, _char_at)
method("indexOf", (STRING, STRING), INT, _index_of)
method("indexOf", (STRING, STRING, INT), INT, _index_of)
method("lastIndexOf", (STRING, STRING), INT, _last_index_of)
method("lastIndexOf", (STRING, STRING, INT), INT, _last_index_of)
method("lowerAscii", (STRING,), STRING, lambda text: _ascii(text, True))
method("upperAscii", (STRING,), STRING, lambda text: _ascii(text, False))
method("replace", (STRING, STRING, STRING), STRING, _replaced)
method("replace", (STRING, STRING, STRING, INT), STRING, _replaced)
method("split", (STRING, STRING), list_of(STRING), _split)
method("split", (STRING, STRING, INT), list_of(STRING), _split)
method("substring", (STRING, INT), STRING, _substring)
method("substring", (STRING, INT, INT), STRING, _substring)
method("trim", (STRING,), STRING, str.strip)
method("join", (list_of(STRING),), STRING, _joined)
method("join", (list_of(STRING), STRING), STRING, _joined)
method("format", (STRING, list_of(DYN)), STRING, _format)
function("strings.quote", (STRING,), STRING, _quote)
