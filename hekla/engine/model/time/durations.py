"""Durations as Go writes them: 300ms, 1.5h, 2h45m.  Also instants as Kubernetes writes them, and
time zones."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from hekla.api.text import durations, times


def seconds(text: str) -> float:
    """The length in seconds.  Raises ValueError."""
    try:
        return durations.seconds(text)
    except durations.TooLong:
        raise ValueError(f"{text!r} is longer than 290 years") from None
    except durations.NotADuration:
        raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m") from None


def instant(text: str) -> float:
    """Seconds since 1970; 0 for an absent or unreadable time."""
    try:
        return times.instant(text)
    except ValueError:
        return 0.0


_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])")


def zone(name: str) -> tzinfo:
    """A time zone by its name (UTC, Europe/Vienna) or its offset (+01:00).  Raises ValueError."""
    if name == "UTC":
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-length if offset[1] == "-" else length)
    try:
        return ZoneInfo(name)
    except (
        OSError,
        ValueError,
        KeyError,
    ) as error:  # a directory, a path outside, a name that nobody knows
        raise ValueError(
            f"{name!r} is no time zone such as UTC, Europe/Vienna or +01:00"
        ) from error
