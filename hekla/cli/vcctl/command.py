"""What a command and a flag are: rows of the table that help, parsing and dispatch all read."""

from __future__ import annotations

from typing import NamedTuple

Value = str | int | bool


class CommandError(Exception):
    """A command failed; the text is for the user.  `hint` goes to stderr, so that stdout keeps its
    exact text."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Flag(NamedTuple):
    """One flag.  `type` is the placeholder in the help: string, int, int32, bool, duration, Level,
    moduleSpec, or stringArray for one that may be repeated."""

    name: str
    short: str
    type: str
    default: Value
    help: str
    hidden: bool = False


class Command(NamedTuple):
    """One command.  A group has children; a leaf has `action`, a `module:function` that is imported
    when it runs.

    Hidden commands and flags are Hekla's own: they work everywhere, and the standard help keeps its
    exact text (`vcctl help more` lists them).
    """

    name: str
    short: str
    flags: tuple[Flag, ...] = ()
    children: tuple[Command, ...] = ()
    action: str = ""
    long: str = ""
    example: str = ""
    hidden: bool = False
    arguments: bool = False
    """Positional arguments mean something; otherwise they are ignored."""

    def child(self, name: str) -> Command | None:
        return next((child for child in self.children if child.name == name), None)


class Invocation(NamedTuple):
    """A parsed command line: the path of commands, the values of all flags, and the other
    arguments."""

    path: tuple[Command, ...]
    values: dict[str, Value]
    arguments: tuple[str, ...]

    @property
    def command(self) -> Command:
        return self.path[-1]

    def text(self, name: str) -> str:
        return str(self.values[name])

    def texts(self, name: str) -> list[str]:
        """The values of a flag that may be repeated, in their order."""
        return self.text(name).split("\n") if self.text(name) else []

    def number(self, name: str) -> int:
        return int(self.values[name])

    def on(self, name: str) -> bool:
        return bool(self.values[name])
