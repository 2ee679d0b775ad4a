"""Times between the wire and arithmetic: RFC 3339 text on objects, seconds since the epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(text: str | None) -> float:
    """Seconds since the epoch; 0 for an absent time."""
    if not text:
        return 0.0
    return datetime.fromisoformat(text).timestamp()


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
