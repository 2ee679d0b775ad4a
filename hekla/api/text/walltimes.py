"""Walltimes as people write them: how long a job runs at most."""

from __future__ import annotations

import math

from hekla.api.text import durations

FORM = "a duration such as 1h30m, or whole seconds"


def read_walltime(text: str) -> float:
    """Seconds of a walltime: `1h30m`, or whole seconds.  Raises ValueError."""
    length = float(text) if text.isascii() and text.isdigit() else durations.seconds(text)
    if length <= 0 or not math.isfinite(length):
        raise ValueError(f"{text!r} is no length of time")
    return length
