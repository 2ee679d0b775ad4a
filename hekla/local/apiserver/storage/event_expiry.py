"""Events expire after an hour: the only objects that the server deletes by itself (local-cluster
5.6)."""

from __future__ import annotations

import asyncio
import time

from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.rows import Row

TTL = 3600.0
SWEEP_INTERVAL = 30.0
MAX_DELETIONS = 500
"""The most events that are deleted in one step, because requests wait meanwhile."""


class EventExpiry:
    """Deletes old events from time to time. An event whose count increases lives on from its last
    change."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._written: dict[str, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the task."""
        self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL, self._sweep)

    def stop(self) -> None:
        """Stop the task."""
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self.start()
        self.expire(time.time())

    def expire(self, now: float) -> int:
        """Delete expired events; returns how many. `now` is in seconds since the epoch."""
        written: dict[str, tuple[int, float]] = {}
        old: list[Row] = []
        for row in self.collection.accepted():
            known = self._written.get(row.key)
            # Checked at this version before, so its age is known without decoding it.
            stamp = (
                known[1]
                if known is not None and known[0] == row.version
                else last_change(row.tree())
            )
            written[row.key] = (row.version, stamp)
            if stamp + TTL < now and len(old) < MAX_DELETIONS:
                old.append(row)
        self._written = written
        for row in old:
            self.collection.delete(row.tree(), row)
        return len(old)


def last_change(event: Json) -> float:
    """When an event occurred last, in seconds since the epoch."""
    observed = (event.get("series") or {}).get("lastObservedTime")
    stamps = [
        event.get("lastTimestamp"),
        observed,
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    ]
    newest = 0.0
    for stamp in stamps:
        if stamp:
            try:
                newest = max(newest, instant(f"{str(stamp)[:19]}Z"))
            except ValueError:
                continue
    return newest
