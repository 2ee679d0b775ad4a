"""Functions of timestamps and durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hekla.cel.errors import Failed
from hekla.cel.functions import method
from hekla.cel.types import DURATION, INT, STRING, TIMESTAMP
from hekla.cel.values import SECOND, Duration, Timestamp


def _in_zone(value: Timestamp, zone: str) -> datetime:
    try:
        if ":" in zone:
            sign = -1 if zone[0] == "-" else 1
            hours, minutes = zone.lstrip("+-").split(":")
            return value.moment().astimezone(
                timezone(sign * timedelta(hours=int(hours), minutes=int(minutes)))
            )
        return value.moment().astimezone(ZoneInfo(zone or "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Failed(f"unknown time zone {zone}") from None


_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda when: when.year,
    "getMonth": lambda when: when.month - 1,
    "getDayOfYear": lambda when: when.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda when: when.day - 1,
    "getDate": lambda when: when.day,
    "getDayOfWeek": lambda when: when.isoweekday() % 7,
    "getHours": lambda when: when.hour,
    "getMinutes": lambda when: when.minute,
    "getSeconds": lambda when: when.second,
    "getMilliseconds": lambda when: when.microsecond // 1000,
}


def _declare(name: str, part: Callable[[datetime], int]) -> None:
    method(name, (TIMESTAMP,), INT, lambda value: part(value.moment()))
    method(name, (TIMESTAMP, STRING), INT, lambda value, zone: part(_in_zone(value, zone)))


def _whole(value: Duration, unit: int) -> int:
    size = abs(value.ns) // unit
    return -size if value.ns < 0 else size


for _name, _part in _PARTS.items():
    _declare(_name, _part)
method("getHours", (DURATION,), INT, lambda value: _whole(value, 3600 * SECOND))
method("getMinutes", (DURATION,), INT, lambda value: _whole(value, 60 * SECOND))
method("getSeconds", (DURATION,), INT, lambda value: _whole(value, SECOND))
method("getMilliseconds", (DURATION,), INT, lambda value: _whole(value, SECOND // 1000))
