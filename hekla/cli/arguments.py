"""The command line of `hekla`'s own commands: argparse, with the nearest name for a flag that does
not exist."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn


def worded(error: Exception) -> str:
    """An error as people read it; of a file, its name and what the system says of it."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}"
    return str(error)


class Parser(argparse.ArgumentParser):
    """A parser that accepts no abbreviated flags, so that a new flag never changes the meaning of
    an old script."""

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the flags; exits with code 2 and a message if they are wrong."""
        found, unknown = self.parse_known_args(arguments)
        if unknown:
            self.error(self.unknown(unknown[0]))
        return found

    def unknown(self, word: str) -> str:
        """What to say of a word that means nothing here."""
        if not word.startswith("-"):
            return f'"{word}" is not expected here; this command takes flags only'
        flag = word.partition("=")[0]
        near = get_close_matches(flag, list(self._option_string_actions), 1)
        return f"unknown flag {flag}" + (f"; did you mean {near[0]}?" if near else "")

    def error(self, message: str) -> NoReturn:
        print(f'{self.prog}: {message}\n"{self.prog} --help" lists the flags.', file=sys.stderr)
        sys.exit(2)
