"""Reads the argument lists of job plugins, which follow the grammar of Go's `flag` package.

`--k=v`, `-k=v` and `--k v` mean the same; a boolean is `--k` or `--k=v`. Reading stops at the first
flag that is unknown or has a bad value: flags before it count, flags after it keep their defaults
(reference: controllers 3.1). So manifests with arguments of older versions go on working; what was
not understood is returned for the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Value = bool | int | str
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Arguments:
    """The values of a plugin's flags; `complaint` says what stopped the reading, or is empty."""

    def __init__(self, defaults: Mapping[str, Value], given: Sequence[str]) -> None:
        self.values: dict[str, Value] = dict(defaults)
        self.complaint = self._read(list(given))

    def text(self, name: str) -> str:
        return str(self.values[name])

    def number(self, name: str) -> int:
        return int(self.values[name])

    def flag(self, name: str) -> bool:
        return bool(self.values[name])

    def _read(self, rest: list[str]) -> str:
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word in ("-", "--"):
                return ""  # Go stops at the first word that is not a flag, without an error
            name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
            if name not in self.values:
                return f"flag provided but not defined: -{name}"
            default = self.values[name]
            if isinstance(default, bool):
                value = value if equals else "true"
            elif not equals:
                if not rest:
                    return f"flag needs an argument: -{name}"
                value = rest.pop(0)
            try:
                self.values[name] = _convert(default, value)
            except ValueError as error:
                return f"invalid value {value!r} for flag -{name}: {error}"
        return ""


def _convert(default: Value, value: str) -> Value:
    if isinstance(default, bool):
        if value in _TRUE or value in _FALSE:
            return value in _TRUE
        raise ValueError("not a boolean")
    if isinstance(default, int):
        return int(value, 0)
    return value
