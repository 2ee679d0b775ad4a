"""Whoever reads our output may leave before its end (`hekla crds | head`): no fault of ours, and
nothing to print a trace of."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

LEFT = 141
"""The exit code of a program that writes to a pipe nobody reads any more: 128 + SIGPIPE."""


def while_read(command: Callable[[], int]) -> int:
    """Run the command and flush its output; returns its exit code, or LEFT if the reader is gone."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would fail once more when the interpreter flushes on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return LEFT
    return code
