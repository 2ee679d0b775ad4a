"""Times: RFC 3339 text on the wire, seconds since the epoch in arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=8192)
def instant(text: str | None) -> float:
    """Seconds since the epoch; 0 for an absent time.  Raises ValueError."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it, in whole seconds."""
    return _written(int(seconds))


@lru_cache(maxsize=64)  # mostly it is now
def _written(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age_of(timestamp: str | None, now: float) -> float:
    """Seconds since an RFC 3339 time; 0 for an empty one."""
    return now - instant(timestamp) if timestamp else 0.0
