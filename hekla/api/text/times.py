"""Times: RFC 3339 text on the wire, seconds since the epoch in arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=8192)
def instant(text: str | None) -> float:
    """Seconds since the epoch; 0 for an absent time.  Raises ValueError."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def microseconds(text: str) -> int:
    """Microseconds since the epoch, exactly: a float has too few digits for them.  Raises
    ValueError."""
    return (datetime.fromisoformat(text) - EPOCH) // _MICROSECOND


def age_of(timestamp: str | None, now: float) -> float:
    """Seconds since an RFC 3339 time; 0 for an empty one."""
    return now - instant(timestamp) if timestamp else 0.0


def stamp(seconds: float) -> str:
    """A `Time` as Kubernetes writes it: UTC, in whole seconds, the fraction cut off."""
    return _written(int(seconds))


@lru_cache(maxsize=64)  # mostly it is now
def _written(seconds: int) -> str:
    return stamp_of(datetime.fromtimestamp(seconds, UTC))


def micro_stamp(seconds: float) -> str:
    """A `MicroTime` as Kubernetes writes it: UTC, with six digits of a second."""
    return f"{stamp(seconds)[:-1]}.{int(seconds % 1 * 1e6):06d}Z"


def nano_stamp(nanoseconds: int) -> str:
    """Go's RFC3339Nano with all nine digits, as container logs have it."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{stamp(seconds)[:-1]}.{rest:09d}Z"


def stamp_of(moment: datetime, timespec: str = "seconds") -> str:
    """The text of a moment in UTC.  `timespec` is that of `datetime.isoformat`: `seconds` for a
    `Time`, `microseconds` for a `MicroTime`."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec=timespec)}Z"


def zoned_stamp(seconds: float, zone: tzinfo) -> str:
    """The time of a zone with its offset (`2026-01-01T01:00:00+01:00`), `Z` where that is UTC."""
    text = datetime.fromtimestamp(seconds, zone).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")
