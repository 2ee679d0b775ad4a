"""When a schedule fires: five cron fields, descriptors, `@every`, in any time zone (reference:
controllers 8.1, local-cluster 10.6).

Times are seconds since the epoch.  A wall-clock time that a daylight-saving change skips does not
fire that day; one that comes twice fires twice, as with the original's library.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hekla.api.text.durations import seconds

_MONTHS = {name.lower(): at for at, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: at for at, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
HORIZON = 5 * 366 * 86400.0
"""Seconds ahead that are searched for the next time, because 31 February never comes."""
LONGEST = 2**63 / 1e9
"""Seconds of the longest Go duration, which counts nanoseconds in 64 bits."""
LARGEST = 2**63 - 1
_WHOLE = re.compile(r"\+?0*([0-9]{1,19})")


class ScheduleError(ValueError):
    """A text is no schedule, or names an unknown time zone."""


class Schedule(Protocol):
    """A schedule: the first time strictly after another; None if there is none."""

    def next(self, after: float) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Every:
    """`@every 1h30m`: whole seconds, at least one."""

    period: float

    def next(self, after: float) -> float | None:
        return float(int(after + self.period))


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields in a time zone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Both day fields are restricted, so that either is enough."""
    zone: tzinfo | None

    def next(self, after: float) -> float | None:
        at = (int(after) // 60 + 1) * 60.0
        while at < after + HORIZON:
            local = datetime.fromtimestamp(at, self.zone)
            if local.month not in self.months:
                at = self._midnight(local.year + local.month // 12, local.month % 12 + 1, 1, at)
            elif not self._day(local):
                tomorrow = local.date() + timedelta(days=1)
                at = self._midnight(tomorrow.year, tomorrow.month, tomorrow.day, at)
            elif local.hour not in self.hours:
                at += (60 - local.minute) * 60.0
            elif local.minute not in self.minutes:
                at += 60.0
            else:
                return at
        return None

    def _day(self, local: datetime) -> bool:
        of_month, of_week = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week

    def _midnight(self, year: int, month: int, day: int, before: float) -> float:
        at = datetime(year, month, day, tzinfo=self.zone).timestamp()
        return max(at, before + 60.0)


def parse(text: str, zone: str | None = None) -> Schedule:
    """A schedule in a named zone, None for this machine's; a prefix `TZ=` of the text goes before
    both.

    Raises ScheduleError.
    """
    for prefix in ("TZ=", "CRON_TZ="):
        if text.startswith(prefix):
            name, _, text = text.removeprefix(prefix).partition(" ")
            return _parse(text.strip(), zone_named(name))
    return _parse(text, zone_named(zone) if zone is not None else None)


def zone_named(name: str) -> tzinfo:
    """A time zone.  Raises ScheduleError."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"unknown time zone {name}") from None


def _parse(text: str, zone: tzinfo | None) -> Schedule:
    if text.startswith("@every "):
        try:
            period = seconds(text.removeprefix("@every "))
        except ValueError as error:
            raise ScheduleError(f"failed to parse duration {text}: {error}") from None
        if abs(period) >= LONGEST:
            raise ScheduleError(f"failed to parse duration {text}: it is longer than 292 years")
        return Every(max(1.0, float(int(period))))
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(parts)}: {text!r}")
    sets: list[frozenset[int]] = []
    free: list[bool] = []
    for part, (name, low, high, words) in zip(parts, _FIELDS, strict=True):
        values, star = _field(part, name, low, high, words)
        sets.append(values)
        free.append(star)
    minutes, hours, days, months, weekdays = sets
    return Cron(minutes, hours, days, months, weekdays, not free[2] and not free[4], zone)


def _field(
    text: str, name: str, low: int, high: int, words: dict[str, int]
) -> tuple[frozenset[int], bool]:
    """The values of a field, and whether it is a bare star."""
    values: set[int] = set()
    star = False
    for piece in text.split(","):
        if not piece:
            continue
        span, slash, step_text = piece.partition("/")
        step = _number(step_text, name, text, {}) if slash else 1
        if step <= 0:
            raise ScheduleError(f"step of field {name} should be a positive number: {text}")
        start, dash, end = span.partition("-")
        if start in (
            "*",
            "?",
        ):
            # What follows a star's dash is not looked at, as with the original's library.
            first, last = low, high
            star = star or step == 1
        else:
            first = _number(start, name, text, words)
            last = _number(end, name, text, words) if dash else (high if slash else first)
        if first < low or last > high or first > last:
            raise ScheduleError(f"{name} has to be from {low} to {high}, in order: {text}")
        values.update(range(first, last + 1, step))
    if not values:
        raise ScheduleError(f"{name} is empty: {text}")
    return frozenset(values), star


def _number(text: str, name: str, field: str, words: dict[str, int]) -> int:
    known = words.get(text.lower())
    if known is not None:
        return known
    whole = _WHOLE.fullmatch(text)
    if whole is None or int(whole[1]) > LARGEST:
        raise ScheduleError(f"failed to parse {text!r} in {name} field {field!r}")
    return int(whole[1])
