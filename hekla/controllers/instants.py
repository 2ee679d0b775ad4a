"""Times between the wire and arithmetic: RFC 3339 text on objects, seconds since the epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def instant(text: str | None) -> float:
    """Seconds since the epoch; 0 for an absent time."""
    if not text:
        return 0.0
    return datetime.fromisoformat(text).timestamp()


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it, in whole seconds."""
    return _text(int(seconds))


@lru_cache(maxsize=64)  # mostly it is now
def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
