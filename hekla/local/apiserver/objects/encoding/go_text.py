"""How Go prints values, and what errors its JSON decoder reports.

Users search for these messages and clients compare them, so they must match to the letter. None of
this runs for a valid request.
"""

from __future__ import annotations

import string
from typing import Any

from hekla.api.text.quoting import quoted

__all__ = ["kind_of", "printed", "quoted", "syntax_error", "type_of", "written"]


def printed(value: Any) -> str:
    """A value of a JSON tree as Go prints it with %v."""
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
    """A value of a JSON tree as Go prints it with %#v."""
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
    """The reflect.Kind of a value of a JSON tree."""
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
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
UNEXPECTED_END = "unexpected end of JSON input"
MAX_DEPTH = 10_000


class _SyntaxError(Exception):
    """The message of a syntax error."""


def syntax_error(text: bytes) -> str | None:
    """What is wrong with a text that should be JSON; None if nothing is."""
    try:
        _Scanner(text).run()
    except _SyntaxError as error:
        return str(error)
    return None


class _Scanner:
    """Scans a text byte by byte up to the first syntax error."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0

    def run(self) -> None:
        """Scan the whole text. Raises _SyntaxError."""
        open_: list[int] = []
        self._begin(open_)
        while True:
            char = self._next_non_space_or_end(not open_)
            if char is None:
                return
            if not open_:
                raise self._wrong(char, "after top-level value")
            if char == ord(","):
                if open_[-1] == ord("{"):
                    self._key(self._next_non_space(), "looking for beginning of object key string")
                self._begin(open_)
            elif char == (ord("}") if open_[-1] == ord("{") else ord("]")):
                open_.pop()
            else:
                raise self._wrong(
                    char,
                    "after object key:value pair"
                    if open_[-1] == ord("{")
                    else "after array element",
                )

    def _begin(self, open_: list[int], char: int | None = None) -> None:
        """Scan to the end of a value, or past the opening bracket of one that is not empty."""
        while True:
            char = self._next_non_space() if char is None else char
            if char not in b"{[":
                self._scalar(char)
                return
            open_.append(char)
            if len(open_) > MAX_DEPTH:
                raise _SyntaxError("exceeded max depth")
            first = self._next_non_space()
            if first == (ord("}") if char == ord("{") else ord("]")):
                open_.pop()
                return
            if char == ord("{"):
                self._key(first, "looking for beginning of object key string")
                char = None
            else:
                char = first

    def _key(self, char: int, where: str) -> None:
        if char != ord('"'):
            raise self._wrong(char, where)
        self._string()
        char = self._next_non_space()
        if char != ord(":"):
            raise self._wrong(char, "after object key")

    def _scalar(self, char: int) -> None:
        if char == ord('"'):
            self._string()
        elif char in _LITERALS:
            literal = _LITERALS[char].decode()
            for expected in literal[1:]:
                byte = self._take()
                if byte != ord(expected):
                    raise self._wrong(byte, f"in literal {literal} (expecting '{expected}')")
        elif char in _DIGITS or char == ord("-"):
            self._number(char)
        else:
            raise self._wrong(char, "looking for beginning of value")

    def _string(self) -> None:
        while (char := self._take()) != ord('"'):
            if char == ord("\\"):
                escaped = self._take()
                if escaped == ord("u"):
                    for _ in range(4):
                        if (digit := self._take()) not in _HEX:
                            raise self._wrong(digit, "in \\u hexadecimal character escape")
                elif escaped not in b'bfnrt\\/"':
                    raise self._wrong(escaped, "in string escape code")
            elif char < 0x20:
                raise self._wrong(char, "in string literal")

    def _number(self, char: int) -> None:
        if char == ord("-"):
            char = self._digit("in numeric literal")
        if char != ord("0"):
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
        char = self._take()
        if char not in _DIGITS:
            raise self._wrong(char, where)
        return char

    def _digits(self) -> None:
        while (char := self._peek()) is not None and char in _DIGITS:
            self.at += 1

    def _peek(self) -> int | None:
        return self.text[self.at] if self.at < len(self.text) else None

    def _take(self) -> int:
        if self.at >= len(self.text):
            raise _SyntaxError(UNEXPECTED_END)
        self.at += 1
        return self.text[self.at - 1]

    def _next_non_space(self) -> int:
        """The next byte that is not white space."""
        while (char := self._take()) in _SPACE:
            pass
        return char

    def _next_non_space_or_end(self, may_end: bool) -> int | None:
        try:
            return self._next_non_space()
        except _SyntaxError:
            if may_end:
                return None
            raise

    def _wrong(self, char: int, where: str) -> _SyntaxError:
        shown = "\\'" if char == ord("'") else '"' if char == ord('"') else quoted(chr(char))[1:-1]
        return _SyntaxError(f"invalid character '{shown}' {where}")
