"""Lengths of time in kubectl's short form, at most two units: `45s`, `2m7s`, `3h12m`, `5d`."""

from __future__ import annotations

from typing import Any

from hekla.api.text.times import instant

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
UNKNOWN, INVALID = "<unknown>", "<invalid>"


def human(seconds: float) -> str:
    whole = int(seconds)
    if whole < -1:
        return INVALID
    if whole < 0:
        return "0s"
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _two(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return _two(whole, DAY, "d", HOUR, "h")
    if whole < 2 * YEAR:
        return f"{whole // DAY}d"
    if whole < 8 * YEAR:
        return _two(whole, YEAR, "y", DAY, "d")
    return f"{whole // YEAR}y"


def _two(seconds: int, unit: int, letter: str, part: int, part_letter: str) -> str:
    large, small = seconds // unit, seconds % unit // part
    return f"{large}{letter}{small}{part_letter}" if small else f"{large}{letter}"


def age(timestamp: Any, now: float) -> str:
    """How long ago a timestamp of the wire was."""
    if not isinstance(timestamp, str) or not timestamp:
        return UNKNOWN
    try:
        return human(now - instant(timestamp))
    except ValueError:
        return INVALID
