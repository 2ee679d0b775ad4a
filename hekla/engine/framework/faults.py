"""Whose fault it was that something broke in the middle of a cycle: the last plugin on the way
down, else the engine's own."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable
from typing import Protocol

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """Python's default texts of objects without where they lie, which is elsewhere when a recording
    is replayed."""
    return _ADDRESS.sub("", text)


class Named(Protocol):
    """A plugin, as far as blame needs it."""

    @property
    def name(self) -> str: ...


def fault(error: Exception, plugins: Iterable[Named]) -> str:
    """What went wrong, and whose fault it was."""
    culprit = "the engine"
    files = {sys.modules[type(plugin).__module__].__file__: plugin.name for plugin in plugins}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = files.get(frame.f_code.co_filename)
        if name is not None:
            culprit = f"plugin {name}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {without_addresses(str(error))} (fault of {culprit}, {last.name} line {last.lineno})"
