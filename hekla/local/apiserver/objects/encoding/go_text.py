"""How Go prints what is in a message, and what its JSON reader says of a text that is no JSON.

Users search for these messages and clients compare them, so they are the same to the letter;
nothing here runs for what is right.
"""

from __future__ import annotations

import string
from typing import Any

from hekla.api.text.quoting import quoted

__all__ = ["kind_of", "printed", "quoted", "syntax_error", "type_of", "written"]


def printed(value: Any) -> str:
    """A value of a JSON tree (%v)."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{printed(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(printed, value))}]"
    return str(value)


def written(value: Any) -> str:
    """A value of a JSON tree as Go source has it (%#v)."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return f"map[string]interface {{}}{{{', '.join(f'{quoted(key)}:{written(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(written, value))}}}"
    return printed(value)


def kind_of(value: Any) -> str:
    """What a value of a JSON tree is to Go's reflection."""
    for kind, name in (
        (bool, "bool"),
        (str, "string"),
        (int, "int64"),
        (float, "float64"),
        (list, "slice"),
    ):
        if isinstance(value, kind):
            return name
    return "map"


def type_of(value: Any) -> str:
    """The Go type of a value of a JSON tree (%T)."""
    if value is None:
        return "<nil>"
    return {"slice": "[]interface {}", "map": "map[string]interface {}"}.get(
        kind_of(value), kind_of(value)
    )


# --- JSON -----------------------------------------------------------------------------------------

_SPACE, _DIGITS, _HEX = b" \t\r\n", string.digits.encode(), string.hexdigits.encode()
_WORDS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
END = "unexpected end of JSON input"
DEEPEST = 10_000


class _Wrong(Exception):
    """What Go says of the text."""


def syntax_error(text: bytes) -> str | None:
    """What is wrong with a text that should be JSON; None where nothing is."""
    try:
        _Scanner(text).run()
    except _Wrong as error:
        return str(error)
    return None


class _Scanner:
    """Goes through a text sign by sign, as far as it is JSON."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0

    def run(self) -> None:
        open_: list[int] = []
        self._begin(open_)
        while True:
            sign = self._next_solid(not open_)
            if sign is None:
                return
            if not open_:
                raise self._wrong(sign, "after top-level value")
            if sign == ord(","):
                if open_[-1] == ord("{"):
                    self._key(self._solid(), "looking for beginning of object key string")
                self._begin(open_)
            elif sign == (ord("}") if open_[-1] == ord("{") else ord("]")):
                open_.pop()
            else:
                raise self._wrong(
                    sign,
                    "after object key:value pair"
                    if open_[-1] == ord("{")
                    else "after array element",
                )

    def _begin(self, open_: list[int], sign: int | None = None) -> None:
        """Goes to the end of a value, or behind the opening of one that has something inside."""
        while True:
            sign = self._solid() if sign is None else sign
            if sign not in b"{[":
                self._scalar(sign)
                return
            open_.append(sign)
            if len(open_) > DEEPEST:
                raise _Wrong("exceeded max depth")
            first = self._solid()
            if first == (ord("}") if sign == ord("{") else ord("]")):
                open_.pop()
                return
            if sign == ord("{"):
                self._key(first, "looking for beginning of object key string")
                sign = None
            else:
                sign = first

    def _key(self, sign: int, where: str) -> None:
        if sign != ord('"'):
            raise self._wrong(sign, where)
        self._string()
        sign = self._solid()
        if sign != ord(":"):
            raise self._wrong(sign, "after object key")

    def _scalar(self, sign: int) -> None:
        if sign == ord('"'):
            self._string()
        elif sign in _WORDS:
            word = _WORDS[sign].decode()
            for expected in word[1:]:
                found = self._take()
                if found != ord(expected):
                    raise self._wrong(found, f"in literal {word} (expecting '{expected}')")
        elif sign in _DIGITS or sign == ord("-"):
            self._number(sign)
        else:
            raise self._wrong(sign, "looking for beginning of value")

    def _string(self) -> None:
        while (sign := self._take()) != ord('"'):
            if sign == ord("\\"):
                escaped = self._take()
                if escaped == ord("u"):
                    for _ in range(4):
                        if (digit := self._take()) not in _HEX:
                            raise self._wrong(digit, "in \\u hexadecimal character escape")
                elif escaped not in b'bfnrt\\/"':
                    raise self._wrong(escaped, "in string escape code")
            elif sign < 0x20:
                raise self._wrong(sign, "in string literal")

    def _number(self, sign: int) -> None:
        if sign == ord("-"):
            sign = self._digit("in numeric literal")
        if sign != ord("0"):
            self._digits()
        if self._peek() == ord("."):
            self._take()
            self._digit("after decimal point in numeric literal")
            self._digits()
        if self._peek() in (ord("e"), ord("E")):
            self._take()
            if self._peek() in (ord("+"), ord("-")):
                self._take()
            self._digit("in exponent of numeric literal")
            self._digits()

    def _digit(self, where: str) -> int:
        sign = self._take()
        if sign not in _DIGITS:
            raise self._wrong(sign, where)
        return sign

    def _digits(self) -> None:
        while (sign := self._peek()) is not None and sign in _DIGITS:
            self.at += 1

    def _peek(self) -> int | None:
        return self.text[self.at] if self.at < len(self.text) else None

    def _take(self) -> int:
        if self.at >= len(self.text):
            raise _Wrong(END)
        self.at += 1
        return self.text[self.at - 1]

    def _solid(self) -> int:
        """The next sign that is no space."""
        while (sign := self._take()) in _SPACE:
            pass
        return sign

    def _next_solid(self, may_end: bool) -> int | None:
        try:
            return self._solid()
        except _Wrong:
            if may_end:
                return None
            raise

    def _wrong(self, sign: int, where: str) -> _Wrong:
        shown = "\\'" if sign == ord("'") else '"' if sign == ord('"') else quoted(chr(sign))[1:-1]
        return _Wrong(f"invalid character '{shown}' {where}")
