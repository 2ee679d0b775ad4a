"""Times of objects: RFC 3339 text on the wire, seconds since the epoch in arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(text: str | None) -> float:
    """Seconds since the epoch; 0 for an absent time."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age_of(timestamp: str | None, now: float) -> float:
    """Seconds since an RFC 3339 time; 0 for an empty one."""
    return now - instant(timestamp) if timestamp else 0.0
