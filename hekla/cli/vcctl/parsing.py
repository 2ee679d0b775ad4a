"""Reading a command line: which command, which flags.  The rules and messages are those of the
original's flag library.

Flags may stand anywhere, underscores count as hyphens, and a group's unknown child only shows the
group's help; an unknown child of the root is an error.  Reference: cli 1.2, 1.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hekla.cli.vcctl.command import Command, Flag, Invocation, Value
from hekla.cli.vcctl.tree import LOGGING

HELP = Flag("help", "h", "bool", False, "")
TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
BITS = {"int": 63, "int32": 31}
LONGEST_NUMBER = 100
"""Digits that are looked at: no flag takes as many, and Python refuses to read thousands of them.
"""


class UsageError(Exception):
    """The command line is invalid.  `path` is the command as far as it is known."""

    def __init__(self, message: str, path: tuple[Command, ...], hint: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.hint = hint


def parse(root: Command, argv: Sequence[str]) -> Invocation:
    path, rest = _find(root, list(argv))
    command = path[-1]
    flags = flags_of(command)
    values: dict[str, Value] = {flag.name: flag.default for flag in flags}
    arguments: list[str] = []
    words = iter(rest)
    for word in words:
        if word == "--":
            arguments.extend(words)
        elif word.startswith("--"):
            _long(word, words, flags, values, path)
        elif word.startswith("-") and len(word) > 1:
            _short(word, words, flags, values, path)
        else:
            arguments.append(word)
    return Invocation(path, values, tuple(arguments))


def flags_of(command: Command) -> tuple[Flag, ...]:
    return (*command.flags, HELP, *LOGGING)


def _find(root: Command, words: list[str]) -> tuple[tuple[Command, ...], list[str]]:
    """Follow the names of commands down the tree; returns the path of commands and the other words."""
    path: tuple[Command, ...] = (root,)
    rest = words
    while path[-1].children:
        place = _first_argument(rest, flags_of(path[-1]))
        if place is None:
            break
        name = rest[place]
        if name == "help" and len(path) == 1:
            return _help_topic(root, rest[place + 1 :])
        child = path[-1].child(name)
        if child is None:
            if len(path) == 1:
                raise UsageError(
                    f'unknown command "{name}" for "{root.name}"{_meant(name, root)}', path
                )
            break
        path, rest = (*path, child), rest[:place] + rest[place + 1 :]
    return path, rest


def _help_topic(root: Command, names: list[str]) -> tuple[tuple[Command, ...], list[str]]:
    path: tuple[Command, ...] = (root,)
    names = [name for name in names if not name.startswith("-")]
    if names == ["more"]:
        return (root, Command("more", "")), []
    for name in names:
        child = path[-1].child(name)
        if child is None:
            raise UsageError(
                f"Unknown help topic {names}".replace("'", "`").replace(", ", " "), (root,)
            )
        path = (*path, child)
    return path, ["--help"]


def _first_argument(words: Sequence[str], flags: Sequence[Flag]) -> int | None:
    """The position of the first word that is neither a flag nor a flag's value."""
    takes_value = {flag.name for flag in flags if flag.type != "bool"} | {
        flag.short for flag in flags if flag.type != "bool"
    }
    skip = False
    for place, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            return None
        elif word.startswith("--"):
            skip = "=" not in word and word[2:].replace("_", "-") in takes_value
        elif word.startswith("-") and len(word) > 1:
            skip = len(word) == 2 and word[1] in takes_value
        else:
            return place
    return None


def _meant(name: str, root: Command) -> str:
    near = near_names(name, [child.name for child in root.children if not child.hidden])
    return (
        "\n\nDid you mean this?\n" + "".join(f"\t{candidate}\n" for candidate in near)
        if near
        else ""
    )


def near_names(name: str, candidates: Sequence[str]) -> list[str]:
    """Similar names: two edits away at most, or longer forms of the word."""
    return [
        candidate
        for candidate in candidates
        if _distance(name, candidate) <= 2 or candidate.startswith(name)
    ]


def _distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            previous, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, previous + (a.lower() != b.lower())),
            )
    return row[-1]


def _long(
    word: str,
    words: Iterator[str],
    flags: Sequence[Flag],
    values: dict[str, Value],
    path: tuple[Command, ...],
) -> None:
    name, equals, value = word[2:].partition("=")
    if not name or name.startswith("-"):
        raise UsageError(f"bad flag syntax: {word}", path)
    flag = next((flag for flag in flags if flag.name == name.replace("_", "-")), None)
    if flag is None:
        near = near_names(name, [flag.name for flag in flags])
        raise UsageError(
            f"unknown flag: --{name}", path, f"Did you mean --{near[0]}?" if near else ""
        )
    if not equals:
        if flag.type == "bool":
            value = "true"
        else:
            following = next(words, None)
            if following is None:
                raise UsageError(f"flag needs an argument: --{name}", path)
            value = following
    known = values.get(flag.name)
    if flag.type == "stringArray" and known:
        value = f"{known}\n{value}"
    values[flag.name] = _value(flag, value, path)


def _short(
    word: str,
    words: Iterator[str],
    flags: Sequence[Flag],
    values: dict[str, Value],
    path: tuple[Command, ...],
) -> None:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        flag = next((flag for flag in flags if flag.short == letter), None)
        if flag is None:
            raise UsageError(f"unknown shorthand flag: {letter!r} in -{letter}{letters}", path)
        if letters.startswith("="):
            value, letters = letters[1:], ""
        elif flag.type == "bool":
            value = "true"
        elif letters:
            value, letters = letters, ""
        else:
            following = next(words, None)
            if following is None:
                raise UsageError(f"flag needs an argument: {letter!r} in -{letter}", path)
            value = following
        values[flag.name] = _value(flag, value, path)


def _value(flag: Flag, text: str, path: tuple[Command, ...]) -> Value:
    reason = ""
    if flag.type == "bool":
        if text in TRUE or text in FALSE:
            return text in TRUE
        reason = f'strconv.ParseBool: parsing "{text}": invalid syntax'
    elif flag.type in BITS:
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit()):
            reason = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        elif (
            len(digits) > LONGEST_NUMBER
            or not -(2 ** BITS[flag.type]) <= int(text) < 2 ** BITS[flag.type]
        ):
            reason = f'strconv.ParseInt: parsing "{text}": value out of range'
        else:
            return int(text)
    elif flag.type == "Level" and not text.lstrip("-").isdigit():
        reason = f'strconv.ParseInt: parsing "{text}": invalid syntax'
    elif flag.type == "duration" and not _is_duration(text):
        reason = f'time: invalid duration "{text}"'
    if not reason:
        return text
    shown = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    raise UsageError(f'invalid argument "{text}" for "{shown}" flag: {reason}', path)


def _is_duration(text: str) -> bool:
    import re

    return bool(re.fullmatch(r"[+-]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+", text))
