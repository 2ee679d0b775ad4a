"""The cluster's state in memory, in front of the journal.

Every write goes one way: it is checked against the newest ACCEPTED state, gets the next
resourceVersion, waits for the disk, and only then becomes COMMITTED: readable, sent to watchers,
answered.  So a reader never sees what a power cut could still take back, and two writers that race
are told apart without waiting for the disk.  What is accepted but not committed lies in a small
overlay of each collection; when the disk refuses a batch, everything accepted since is refused with
it and the overlays are emptied.

Objects are kept as their JSON bytes without `kind` and `apiVersion` (a version of a kind is then a
prefix), with a small index beside them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hekla.local.apiserver.storage.collection import (
    HISTORY_EVENTS,
    Collection,
    Write,
    WriteLost,
)
from hekla.local.apiserver.storage.database import DATABASE
from hekla.local.apiserver.storage.history import PastVersions, past_row_class
from hekla.local.apiserver.storage.journal import Journal, Record
from hekla.local.apiserver.storage.logfile import Damaged
from hekla.local.apiserver.storage.managed_fields import NOBODY, ManagedFields
from hekla.local.apiserver.storage.rows import (
    ADDED,
    DELETED,
    METADATA_FIRST,
    Event,
    LoadedRow,
    Row,
    decode,
    encode,
)
from hekla.local.apiserver.storage.stored_ownership import StoredOwnership

log = logging.getLogger("hekla.apiserver")

HISTORY_SECONDS = 300.0
MAX_PAST_BYTES_IN_MEMORY = 4 * 1024 * 1024
"""Of past versions in memory; more than that moves to the disk."""
HISTORY_FILE_BYTES = 1024 * 1024 * 1024
SUPERSEDED_EVENTS = 80_000
"""The most events of all collections that refer to a superseded state: some 40 MB of rows."""

BUSY_COMMIT_SIZE = 10
"""From this many writes in a commit on, watchers get their events in batches."""
BATCH_INTERVAL = 0.016
"""Between two batches.  A batch wakes up every watching process, which under load costs more than
to read an event."""


def notify(
    collection: Collection, listeners: Iterable[Callable[[list[Event]], None]], events: list[Event]
) -> None:
    """Call listeners with the events of a collection. An exception of one is logged."""
    for listener in list(listeners):
        try:
            listener(events)
        except Exception:
            # A failing listener must not keep events from the others.
            log.exception("a listener of %s failed", collection.name)


def forget_encoded(events: list[Event]) -> None:
    """Drop the cached wire forms of events."""
    for event in events:
        event.encoded = {}


class Store:
    """All collections, the resourceVersion counter, and the journal."""

    def __init__(self, directory: Path) -> None:
        """Read the state in a directory, and check it.  Raises StorageError."""
        self._directory = directory
        self.managed_fields = ManagedFields()
        self._stored_ownership = StoredOwnership(self.managed_fields)
        self._names: dict[str, str] = {"": ""}
        self.journal = Journal(directory, self._keep)
        self.version = 1
        """The resourceVersion of the newest accepted write."""
        self.committed = 1
        self.notified = 1
        """Watchers have all events up to this version."""
        self._unsent: dict[Collection, list[Event]] = {}
        self._notify_timer: asyncio.TimerHandle | None = None
        self._notified_at = 0.0
        self.superseded = 0
        """Bytes of superseded objects in memory."""
        self.past = 0
        """The number of events that refer to a superseded state."""
        self.past_versions = PastVersions(directory)
        self._past_row: type[Row] = past_row_class(Row, self.past_versions)
        self._data: Any = Row.__dict__["data"]
        self._held: deque[Row] = deque()
        self.collections: dict[str, Collection] = {}
        self.loop: asyncio.AbstractEventLoop
        self._free: list[int] = []
        self._next = 1
        self._unclaimed: dict[str, list[LoadedRow]] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._versions_seen: list[asyncio.Future[None]] = []
        self.compacted = 0
        """Lists of an older version cannot be served.  Watches can, if nothing was written to their
        collection."""
        self._versions: deque[tuple[float, int]] = deque()
        """(time, committed version) of each sweep."""
        self.on_loss: Callable[[], None] | None = None
        """Called when the disk refused writes that were already counted."""
        self.on_collection: Callable[[Collection], None] | None = None
        self._load()

    def _keep(self, record: Record) -> LoadedRow | None:
        """What stays in memory of a stored row; None for a free number."""
        if record.data is None or record.collection is None or record.key is None:
            return None
        data, _, managed = record.data.partition(b"\n")
        try:
            if not data.startswith(METADATA_FIRST):
                tree = decode(data)
                data = encode({"metadata": tree["metadata"], **tree})
            held = self._stored_ownership.read(managed) if managed else NOBODY
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            what = f"{record.collection} {record.key!r} cannot be read ({error})"
            raise Damaged(self._directory / DATABASE, what) from error
        row = LoadedRow(
            record.id, self.intern(record.collection), record.key, record.version, data, held
        )
        row.namespace = self.intern(row.namespace)
        return row

    def _load(self) -> None:
        for number, row in self.journal.rows().items():
            self._next = max(self._next, number + 1)
            if row is None:
                self._free.append(number)
            else:
                self._unclaimed.setdefault(row.collection, []).append(row)
        self.version = self.committed = self.notified = self.journal.version

    def start(self) -> None:
        """Start to commit.  Call it in the event loop that serves."""
        self.loop = asyncio.get_running_loop()
        self.journal.start(self._written)
        self._sweep()

    async def close(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        await self.journal.close()
        self.past_versions.close()
        await asyncio.sleep(0)

    def number(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def intern(self, text: str) -> str:
        return self._names.setdefault(text, text)

    def collection(self, name: str, selectable: Mapping[str, tuple[str, ...]]) -> Collection:
        """The collection of this name.  It is created and filled from the disk at the first call."""
        collection = self.collections.get(name)
        if collection is None:
            collection = self.collections[name] = Collection(self, name, selectable)
            for row in self._unclaimed.pop(name, []):
                collection.load(row)
            if self.on_collection is not None:
                self.on_collection(collection)
        else:
            collection.select_also(selectable)
        return collection

    def unclaimed(self) -> list[str]:
        """Names of stored collections that no kind has claimed."""
        return sorted(self._unclaimed)

    def drop(self, name: str) -> None:
        """Drop an empty collection whose CustomResourceDefinition is gone."""
        self.collections.pop(name, None)

    async def reached(self, version: int, seconds: float) -> bool:
        """Waits until a version is committed."""
        deadline = self.loop.time() + seconds
        while self.committed < version:
            left = deadline - self.loop.time()
            if left <= 0:
                return False
            seen: asyncio.Future[None] = self.loop.create_future()
            self._versions_seen.append(seen)
            await asyncio.wait([seen], timeout=left)
        return True

    # --- commits ----------------------------------------------------------------------------------

    def _written(self, batch: list[Write], error: Exception | None) -> None:
        if error is None:
            self._commit(batch)
        else:
            self._refuse(batch, error)

    def _commit(self, batch: list[Write]) -> None:
        """Commit a batch that is on the disk."""
        now = time.monotonic()
        touched: dict[Collection, list[Event]] = {}
        for write in batch:
            event = write.collection.apply(write, now)
            touched.setdefault(write.collection, []).append(event)
            if write.type is DELETED:
                self._free.append(write.row.id)
        self.committed = batch[-1].row.version
        # Answers first: they are what the throughput of a client with one connection hangs on.
        for write in batch:
            if not write.done.done():
                write.done.set_result(write.row)
        for collection, events in touched.items():
            if collection.watchers:
                self._unsent.setdefault(collection, []).extend(events)
            else:
                forget_encoded(events)
        for collection, events in touched.items():
            notify(collection, collection.listeners, events)
            if len(collection.history) > HISTORY_EVENTS:
                collection.forget(0.0)
        if self._notify_timer is None:
            since = now - self._notified_at
            if len(batch) < BUSY_COMMIT_SIZE or since >= BATCH_INTERVAL:
                self.notify_watchers()
            else:
                self._notify_timer = self.loop.call_later(
                    BATCH_INTERVAL - since, self.notify_watchers
                )
        if self.superseded > MAX_PAST_BYTES_IN_MEMORY:
            self._move_to_disk()
        if self.past > SUPERSEDED_EVENTS:
            self._shorten()
        if self._versions_seen:
            seen, self._versions_seen = self._versions_seen, []
            for future in seen:
                if not future.done():
                    future.set_result(None)

    def notify_watchers(self) -> None:
        """Send the watchers all events since the last batch."""
        if self._notify_timer is not None:
            self._notify_timer.cancel()
            self._notify_timer = None
        self._notified_at = time.monotonic()
        self.notified = self.committed
        unsent, self._unsent = self._unsent, {}
        for collection, events in unsent.items():
            notify(collection, collection.watchers, events)
            forget_encoded(events)

    def _refuse(self, batch: list[Write], error: Exception) -> None:
        """Drop a batch that the disk refused, and all writes accepted after it, because they may
        build on it."""
        lost: list[Write] = batch + self.journal.take_back()
        for collection in self.collections.values():
            collection.overlay.clear()
        for write in lost:
            if write.type is ADDED:
                self._free.append(write.row.id)
        if self.on_loss is not None:
            self.on_loss()
        reason = WriteLost(f"the write could not be stored: {error}")
        for write in lost:
            if not write.done.done():
                write.done.set_exception(reason)
            write.done.exception()

    # --- history ----------------------------------------------------------------------------------

    def supersede(self, row: Row) -> None:
        """Count a row that a newer state has replaced; it belongs to the history now."""
        if type(row) is LoadedRow:
            row.settle()  # it will change its class once more
        self.past += 1
        self.superseded += len(row.data)
        self._held.append(row)

    def _move_to_disk(self) -> None:
        """Move the older half of the past versions in memory to the disk."""
        rows: list[Row] = []
        while self._held and self.superseded > MAX_PAST_BYTES_IN_MEMORY // 2:
            row = self._held.popleft()
            self.superseded -= len(row.data)
            rows.append(row)
        try:
            places = self.past_versions.append([row.data for row in rows])
        except OSError as error:
            log.warning(
                "the history cannot be kept on the disk (%s); watches that come back late list again",
                error,
            )
            self._forget_all(time.monotonic())
            return
        keep, kind = self._data.__set__, self._past_row
        for row, place in zip(rows, places):
            keep(row, place)
            row.__class__ = kind

    def compact(self, now: float) -> None:
        """Let lists of old versions expire, also in collections without writes: clients rely on the
        expiry of continue tokens."""
        self._versions.append((now, self.committed))
        while self._versions[0][0] < now - HISTORY_SECONDS:
            self.compacted = self._versions.popleft()[1]

    def _sweep(self) -> None:
        now = time.monotonic()
        before = now - HISTORY_SECONDS
        self.compact(now)
        self._forget_all(before)
        # A watcher may still be reading what has just been forgotten.
        gone = self.past_versions.drop(before - 60.0, HISTORY_FILE_BYTES)
        if gone > before:
            self._forget_all(gone)
        self._tick = self.loop.call_later(5.0, self._sweep)

    def _forget_all(self, before: float) -> None:
        for collection in self.collections.values():
            collection.forget(before)

    def _shorten(self) -> None:
        """Drop the oldest events of all collections until there are few enough superseded states."""
        for age in (
            240.0,
            180.0,
            150.0,
            120.0,
            100.0,
            90.0,
            80.0,
            75.0,
            60.0,
            45.0,
            30.0,
            20.0,
            10.0,
            5.0,
            2.0,
            1.0,
            0.0,
        ):
            self._forget_all(time.monotonic() - age)
            if self.past <= SUPERSEDED_EVENTS * 9 // 10:
                return
