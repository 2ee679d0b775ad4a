"""Events live for an hour: the one kind that the server deletes by itself (local-cluster 5.6)."""

from __future__ import annotations

import asyncio
import time

from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.local.apiserver.storage.store import Collection, Row

LIFETIME = 3600.0
PERIOD = 30.0
AT_ONCE = 500
"""Events deleted in one step, so that nobody waits behind them."""


class EventExpiry:
    """Looks through the events now and then.  An event that is counted up lives on from its last
    change."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._written: dict[str, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._sweep)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self.start()
        self.expire(time.time())

    def expire(self, now: float) -> int:
        """Deletes what is too old; gives how many."""
        written: dict[str, tuple[int, float]] = {}
        old: list[Row] = []
        for row in self.collection.accepted():
            known = self._written.get(row.key)
            # Seen at this version before: its age is known without decoding it.
            stamp = (
                known[1]
                if known is not None and known[0] == row.version
                else last_change(row.tree())
            )
            written[row.key] = (row.version, stamp)
            if stamp + LIFETIME < now and len(old) < AT_ONCE:
                old.append(row)
        self._written = written
        for row in old:
            self.collection.delete(row.tree(), row)
        return len(old)


def last_change(event: Json) -> float:
    """When an event last happened, in seconds."""
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
