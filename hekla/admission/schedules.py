"""Whether a text is a schedule: five cron fields or a descriptor.  When it fires is the CronJob controller's business."""

from __future__ import annotations

import re

DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
MONTHS = dict(zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True))
DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}

# Bounds and names of minute, hour, day of month, month, day of week.
FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = ((0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, MONTHS), (0, 6, DAYS))

_DURATION = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*\Z")


def is_schedule(text: str) -> bool:
    if text.startswith("@"):
        if text.startswith("@every "):
            duration = text.removeprefix("@every ")
            return duration == "0" or bool(_DURATION.match(duration))
        return text in DESCRIPTORS
    parts = text.split()
    return len(parts) == len(FIELDS) and all(_is_field(part, *field) for part, field in zip(parts, FIELDS, strict=True))


def _is_field(text: str, low: int, high: int, names: dict[str, int]) -> bool:
    # Empty pieces between commas are skipped, as the original's reader does; a field of commas alone is refused.
    pieces = [piece for piece in text.split(",") if piece]
    return bool(pieces) and all(_is_range(piece, low, high, names) for piece in pieces)


def _is_range(text: str, low: int, high: int, names: dict[str, int]) -> bool:
    span, *steps = text.split("/")
    if len(steps) > 1 or (steps and (not _is_number(steps[0]) or int(steps[0]) == 0)):
        return False
    ends = span.split("-")
    if len(ends) > 2:
        return False
    if ends[0] in ("*", "?"):
        return len(ends) == 1
    values = [_value(end, names) for end in ends]
    start, end = values[0], values[-1]
    return start is not None and end is not None and low <= start <= end <= high


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _value(text: str, names: dict[str, int]) -> int | None:
    return int(text) if _is_number(text) else names.get(text.lower())
