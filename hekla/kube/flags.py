"""Command line flags in Go's manner, declared as data next to the code that uses them.

The daemons take the flags that their users' manifests already have: `--flag=value`, `--flag value`,
bare booleans, underscores for hyphens, durations such as 500ms or 1h30m.  A flag that means nothing
is an error that names its nearest neighbour.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hekla.api.text.durations import duration_text, seconds


class FlagError(Exception):
    """The command line is wrong; the message quotes the wrong part."""


class HelpWanted(Exception):
    """--help was given; `str()` is the text."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type of flags.  `parse` converts the text and raises ValueError, whose text says what is
    expected."""

    name: str
    parse: Callable[[str], Any]
    bare: str | None = None
    """The value of the flag if none follows (booleans)."""
    repeated: bool = False
    """Several occurrences add up to a list (or map)."""
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.  Its value is `options.<name with underscores>`."""

    name: str
    type: Type
    default: Any
    help: str
    short: str = ""
    check: Callable[[Any], str | None] | None = None
    """Returns why a parsed value is invalid, None if it is valid."""

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_").replace(".", "_")

    @property
    def usage(self) -> str:
        short = f"-{self.short}, " if self.short else "    "
        kind = "" if self.type.bare is not None else f" {self.type.name}"
        default = (
            ""
            if self.default in ("", None, False, [], (), {})
            else f" (default {self.type.show(self.default)})"
        )
        left = f"  {short}--{self.name}{kind}"
        return f"{left:<46}{'' if len(left) < 46 else chr(10) + ' ' * 46}{self.help}{default}"


class Options:
    """The values of all flags by attribute; `given(name)` tells whether the command line had the
    flag."""

    def __init__(self, values: dict[str, Any], given: frozenset[str], rest: list[str]) -> None:
        self._values = values
        self._given = given
        self.rest = rest
        """Positional arguments."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"no flag --{name.replace('_', '-')} is declared") from None

    def given(self, name: str) -> bool:
        return name in self._given

    def changed(self, **values: Any) -> Options:
        """The same options with other values."""
        return Options({**self._values, **values}, self._given, self.rest)


def parse(
    flags: Sequence[Flag], argv: Sequence[str], *, program: str = "", positional: bool = False
) -> Options:
    """Parse `argv`.  Raises FlagError, or HelpWanted for --help."""
    by_name = {flag.name: flag for flag in flags}
    by_short = {flag.short: flag for flag in flags if flag.short}
    values: dict[str, Any] = {flag.attribute: flag.default for flag in flags}
    given: set[str] = set()
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            rest.extend(words)
            break
        if word in ("--help", "-h"):
            raise HelpWanted(usage(flags, program))
        if word.startswith("--"):
            name, equals, text = word[2:].partition("=")
            flag = _named(by_name, name)
        elif word.startswith("-") and word != "-":
            name, equals, text = word[1:].partition("=")
            flag, text, equals = _shorthand(by_name, by_short, word, name, text, equals)
        else:
            rest.append(word)
            continue
        if not equals:
            if flag.type.bare is not None:
                text = flag.type.bare
            elif words:
                text = words.pop(0)
            else:
                raise FlagError(f"flag needs an argument: --{flag.name}")
        value = _value(flag, text)
        if flag.type.repeated and flag.name in given:
            before = values[flag.attribute]
            value = {**before, **value} if isinstance(before, dict) else [*before, *value]
        values[flag.attribute] = value
        given.add(flag.name)
    if rest and not positional:
        raise FlagError(
            f"unexpected argument {rest[0]!r}: values follow their flag, as in --flag=value"
        )
    return Options(values, frozenset(given), rest)


def usage(flags: Sequence[Flag], program: str) -> str:
    lines = [flag.usage for flag in sorted(flags, key=lambda flag: flag.name)]
    return f"Usage: {program} [flags]\n\nFlags:\n" + "\n".join(lines) + "\n"


def _named(by_name: Mapping[str, Flag], name: str) -> Flag:
    flag = (
        by_name.get(name)
        or by_name.get(name.replace("_", "-"))
        or by_name.get(name.replace("-", "_"))
    )
    if flag is None:
        near = difflib.get_close_matches(name.replace("_", "-"), by_name, 1, 0.6)
        raise FlagError(f"unknown flag: --{name}{f'; did you mean --{near[0]}?' if near else ''}")
    return flag


def _shorthand(
    by_name: Mapping[str, Flag],
    by_short: Mapping[str, Flag],
    word: str,
    name: str,
    text: str,
    equals: str,
) -> tuple[Flag, str, str]:
    if name in by_short:
        return by_short[name], text, equals
    if name[:1] in by_short and len(name) > 1 and name not in by_name:  # -v4
        return by_short[name[0]], name[1:] + equals + text, "="
    if name in by_name or name.replace("_", "-") in by_name:
        # -logtostderr: Go's own flag package takes one hyphen.
        return _named(by_name, name), text, equals
    raise FlagError(f"unknown shorthand flag: '{name[:1]}' in {word}")


def _value(flag: Flag, text: str) -> Any:
    try:
        value = flag.type.parse(text)
    except ValueError as error:
        raise FlagError(f'invalid argument "{text}" for "--{flag.name}" flag: {error}') from None
    reason = flag.check(value) if flag.check else None
    if reason:
        raise FlagError(f'invalid argument "{text}" for "--{flag.name}" flag: {reason}')
    return value


# types

_WHOLE = re.compile(r"[-+]?[0-9]+")


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("expected a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def _truth(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("expected true or false")


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _yes_no_map(text: str) -> dict[str, bool]:
    result: dict[str, bool] = {}
    for part in _words(text):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} has no value; expected Name=true or Name=false")
        try:
            result[name.strip()] = _truth(value.strip())
        except ValueError as error:
            raise ValueError(f"{part!r}: {error}") from None
    return result


def _show_map(value: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(on).lower()}" for name, on in value.items())


TEXT = Type("string", str)
WHOLE = Type("int", _whole)
NUMBER = Type("float", _number, show=lambda value: f"{value:g}")
YES_NO = Type("bool", _truth, bare="true", show=lambda value: str(value).lower())
SECONDS = Type("duration", seconds, show=duration_text)
TEXTS = Type("strings", _words, repeated=True, show=",".join)
"""A list, separated by commas; each occurrence of the flag adds to it."""
YES_NO_MAP = Type("mapStringBool", _yes_no_map, repeated=True, show=_show_map)


# checks


def at_least(least: float) -> Callable[[Any], str | None]:
    return lambda value: None if value >= least else f"must be at least {least:g}"


def between(least: float, most: float) -> Callable[[Any], str | None]:
    return lambda value: None if least <= value <= most else f"must be from {least:g} to {most:g}"


def one_of(*words: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value in words:
            return None
        near = difflib.get_close_matches(str(value), words, 1)
        return f"expected one of {', '.join(words)}{f'; did you mean {near[0]!r}?' if near else ''}"

    return check


def known_names(*names: str) -> Callable[[Mapping[str, bool]], str | None]:
    """A check for maps by name, such as feature gates."""

    def check(value: Mapping[str, bool]) -> str | None:
        for name in value:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
                return f"unrecognized name {name!r}; {hint}"
        return None

    return check
