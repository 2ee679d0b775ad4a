"""Durations as Go reads and prints them: `300ms`, `1.5s`, `1h30m`."""

from __future__ import annotations

import re

SECOND = 1_000_000_000
LARGEST = 2**63 - 1
"""Nanoseconds of the longest duration that Go can hold."""
MOST_DIGITS = 100
"""A number of more digits is too large; Python refuses to read one of some thousands."""
FRACTION_DIGITS = 30
"""What comes behind them is less than a nanosecond in every unit."""
UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_WHOLE = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_PART = re.compile(r"0*([0-9]*)\.?([0-9]*)(ns|us|µs|μs|ms|s|m|h)")


class NotADuration(ValueError):
    """A text that Go does not read as a duration."""


class TooLong(NotADuration):
    """A duration beyond the 290 years that Go can hold."""


def nanoseconds(text: str) -> int:
    """The exact length of a duration; digits below a nanosecond are cut off.  Raises NotADuration
    or TooLong."""
    if not _WHOLE.fullmatch(text):
        raise NotADuration("expected a duration such as 500ms, 1s or 1h30m")
    total = 0
    for whole, fraction, unit in _PART.findall(text):
        size, digits = UNITS[unit], fraction[:FRACTION_DIGITS]
        total += (int(whole or 0) if len(whole) < MOST_DIGITS else LARGEST + 1) * size
        total += int(digits or 0) * size // 10 ** len(digits)
    if total > LARGEST:
        raise TooLong("expected a duration of at most 2562047h47m16s")
    return -total if text.startswith("-") else total


def seconds(text: str) -> float:
    """The length of a duration in seconds.  Raises NotADuration or TooLong."""
    return nanoseconds(text) / SECOND


def duration_text(length: float) -> str:
    """How Go prints a duration of so many seconds."""
    return nanoseconds_text(round(length * SECOND))


def nanoseconds_text(length: int) -> str:
    """How Go prints a duration of so many nanoseconds: `1h2m3.5s`, `1.5ms`, `0s`."""
    sign, left = ("-", -length) if length < 0 else ("", length)
    if 0 < left < SECOND:
        size, unit = next(
            (size, unit)
            for size, unit in ((1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
            if left >= size
        )
        return f"{sign}{_decimal(left, size)}{unit}"
    hours, left = divmod(left, UNITS["h"])
    minutes, left = divmod(left, UNITS["m"])
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(left, SECOND)}s"


def _decimal(value: int, size: int) -> str:
    """`value / size` in decimal digits, `size` being a power of ten."""
    whole, rest = divmod(value, size)
    fraction = f".{str(rest).rjust(len(str(size)) - 1, '0')}".rstrip("0") if rest else ""
    return f"{whole}{fraction}"
