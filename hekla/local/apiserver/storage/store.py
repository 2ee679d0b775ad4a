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
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.storage.database import DATABASE
from hekla.local.apiserver.storage.history import PastVersions, past_row_class
from hekla.local.apiserver.storage.journal import Journal, Record
from hekla.local.apiserver.storage.logfile import Damaged
from hekla.local.apiserver.storage.managed_fields import NOBODY, ManagedFields, Ownership
from hekla.local.apiserver.storage.rows import (
    ADDED,
    DELETED,
    METADATA_FIRST,
    MODIFIED,
    Event,
    LoadedRow,
    Row,
    decode,
    encode,
)
from hekla.local.apiserver.storage.stored_ownership import StoredOwnership

log = logging.getLogger("hekla.apiserver")

MAX_OBJECT_BYTES = 3 * 512 * 1024
"""The largest object in bytes: etcd's limit for a request."""
HISTORY_SECONDS = 300.0
MAX_PAST_BYTES_IN_MEMORY = 4 * 1024 * 1024
"""Of past versions in memory; more than that moves to the disk."""
HISTORY_FILE_BYTES = 1024 * 1024 * 1024
HISTORY_EVENTS = 100_000
"""The most events that the history of one collection holds."""
SUPERSEDED_EVENTS = 80_000
"""The most events of all collections that refer to a superseded state: some 40 MB of rows."""

BUSY_COMMIT_SIZE = 10
"""From this many writes in a commit on, watchers get their events in batches."""
BATCH_INTERVAL = 0.016
"""Between two batches.  A batch wakes up every watching process, which under load costs more than
to read an event."""

NO_LABELS: Mapping[str, str] = {}
NOTHING_KEPT: Mapping[str, msgspec.Raw] = {}


class Write:
    """A write on its way to the disk.  `done` resolves to the row when it is there."""

    __slots__ = ("collection", "done", "old", "row", "type")

    def __init__(
        self,
        collection: Collection,
        type: str,
        row: Row,
        old: Row | None,
        done: asyncio.Future[Row],
    ) -> None:
        self.collection = collection
        self.type = type
        self.row = row
        self.old = old
        self.done = done


class WriteLost(Exception):
    """The disk refused a write; it has no effect."""


class TooLarge(Exception):
    """An object over the size limit."""


class Collection:
    """All objects of one resource."""

    def __init__(self, store: Store, name: str, selectable: Mapping[str, tuple[str, ...]]) -> None:
        self.store = store
        self.name = name
        self.rows: dict[str, Row] = {}
        """The committed objects by key."""
        self.overlay: dict[str, Write] = {}
        """The newest accepted write of a key that is not yet committed."""
        self.selectable: dict[str, tuple[str, ...]] = dict(selectable)
        self._plan()
        self.history: deque[Event] = deque()
        self.floor = store.committed
        """Watches from a version below this one cannot be served."""
        self.version = store.committed
        """The resourceVersion of the newest committed change in this collection."""
        self.listeners: set[Callable[[list[Event]], None]] = set()
        """Parts of this server; they get events in the step of the commit."""
        self.watchers: set[Callable[[list[Event]], None]] = set()
        """Watches of clients; under load they get events in batches."""
        self.measure: Callable[[Json], int] = lambda tree: len(encode(tree))
        """The size of an object in Kubernetes' storage, where most kinds are shorter than their
        JSON."""
        self.account: Callable[[Collection, str, Json, Row | None, Row], None] | None = None
        """Quotas count accepted writes here; called in the same step."""
        self._order: list[str] = []
        self._new: list[str] = []
        self._gone = False
        self._labels: BoundedCache[tuple[tuple[str, str], ...], dict[str, str]] = BoundedCache(
            10_000
        )

    def _plan(self) -> None:
        """Work out the positions and paths of selectable fields.  Most paths have two steps."""
        self.positions = {field: position for position, field in enumerate(self.selectable)}
        self._paths = [
            (path[0], path[1] if len(path) == 2 else "", path) for path in self.selectable.values()
        ]

    def newest(self, key: str) -> Row | None:
        """The newest accepted state of an object; writes are checked against it."""
        write = self.overlay.get(key)
        if write is not None:
            return None if write.type is DELETED else write.row
        return self.rows.get(key)

    def accepted(self) -> Iterable[Row]:
        """All rows of the accepted state, unordered."""
        if not self.overlay:
            return list(self.rows.values())
        merged = dict(self.rows)
        for key, write in self.overlay.items():
            if write.type is DELETED:
                merged.pop(key, None)
            else:
                merged[key] = write.row
        return merged.values()

    def ordered(self, namespace: str = "") -> list[str]:
        """Committed keys in order, of one namespace or all."""
        if self._gone:
            rows = self.rows
            self._order = [key for key in self._order if key in rows]
            self._gone = False
        if self._new:
            # A key that was deleted and made again may stand in both lists.
            fresh = set(self._new)
            self._order = (
                [key for key in self._order if key not in fresh]
                if len(fresh) < len(self._order)
                else sorted(self.rows)
            )
            if len(self._order) != len(self.rows):
                self._order.extend(key for key in fresh if key in self.rows)
                self._order.sort()
            self._new = []
        if not namespace:
            return self._order
        first = bisect_left(self._order, f"{namespace}/")
        return self._order[first : bisect_left(self._order, f"{namespace}0", first)]

    def labels_of(self, metadata: Json) -> Mapping[str, str]:
        """The labels of an object, shared between objects with equal labels."""
        labels = metadata.get("labels")
        if not labels:
            return NO_LABELS
        shape = tuple(labels.items())
        known = self._labels.get(shape)
        if known is None:
            known = self._labels[shape] = dict(labels)
        return known

    def fields_of(
        self, tree: Json, kept: Mapping[str, Any] = NO_LABELS, before: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """The values of the selectable fields.  Those below top-level fields in `kept` are taken
        from `before`."""
        if not self._paths:
            return ()
        found: list[str] = []
        for first, leaf, path in self._paths:
            if first in kept and first not in tree:
                found.append(before[len(found)])
                continue
            value = tree.get(first)
            if leaf and type(value) is dict:
                value = value.get(leaf)
                found.append(
                    value if type(value) is str else "" if value is None else field_text(tree, path)
                )
            else:
                found.append(field_text(tree, path) if value is not None else "")
        return tuple(found)

    def select_also(self, selectable: Mapping[str, tuple[str, ...]]) -> None:
        """Make more fields selectable, also for the stored objects."""
        missing = {name: path for name, path in selectable.items() if name not in self.selectable}
        if not missing:
            return
        self.selectable.update(missing)
        self._plan()
        for row in [*self.rows.values(), *(write.row for write in self.overlay.values())]:
            if type(row) is not LoadedRow:
                row.fields = self.fields_of(row.tree())

    # --- writing ----------------------------------------------------------------------------------

    def create(self, tree: Json, held: Ownership = NOBODY, rest: bytes = b"") -> Write:
        """Accept a new object and set its resourceVersion.  The caller has checked that the name is
        free.

        `rest` are its bytes after metadata, if the caller has them.
        """
        return self._accept(ADDED, tree, None, held, rest=rest)

    def update(
        self,
        tree: Json,
        old: Row,
        held: Ownership | None = None,
        *,
        kept: Mapping[str, msgspec.Raw] = NOTHING_KEPT,
        fields: tuple[str, ...] | None = None,
        counts: bool = True,
        bounded: bool = True,
    ) -> Write:
        """Accept a new state of `old`, which must be the newest one.  Without `held` the fields
        keep their owners.  Raises TooLarge, unless `bounded` is false (the update marks an object
        as deleted).

        `kept` are the top-level fields in their order, metadata first, as bytes; those in `tree`
        replace them.  If metadata is only in `kept`, it must contain the resourceVersion once.
        `fields` are the selectable ones, if the caller knows them.  An update that does not count
        is not reported to `account`.
        """
        return self._accept(
            MODIFIED,
            tree,
            old,
            old.held if held is None else held,
            kept,
            fields,
            counts,
            bounded=bounded,
        )

    def delete(self, tree: Json, old: Row, held: Ownership | None = None) -> Write:
        """Accept the removal of `old`.  `tree` is its last state; without `held` its fields keep
        their owners."""
        return self._accept(DELETED, tree, old, old.held if held is None else held)

    def _accept(
        self,
        type: str,
        tree: Json,
        old: Row | None,
        held: Ownership,
        kept: Mapping[str, msgspec.Raw] = NOTHING_KEPT,
        fields: tuple[str, ...] | None = None,
        counts: bool = True,
        rest: bytes = b"",
        bounded: bool = True,
    ) -> Write:
        store = self.store
        version = store.version = store.version + 1
        metadata = tree.get("metadata")
        if metadata is None:
            assert old is not None
            kept = {**kept, "metadata": renumbered(kept["metadata"], old.version, version)}
            labels = old.labels
        else:
            metadata["resourceVersion"] = str(version)
            labels = self.labels_of(metadata)
        if rest:
            data = b'{"metadata":%b,%b' % (encode(metadata), rest)
        elif kept:
            data = encode({**kept, **tree})
        else:
            data = encode(
                tree if next(iter(tree)) == "metadata" else {"metadata": metadata, **tree}
            )
        if len(data) > MAX_OBJECT_BYTES // 8 and bounded and type is not DELETED:
            self._check_size(data, held, old)
        if fields is None:
            fields = (
                self.fields_of(tree, kept, old.fields)
                if old is not None and kept
                else self.fields_of(tree)
            )
        if old is None:
            metadata = tree["metadata"]
            number = store.number()
            namespace = store.intern(metadata.get("namespace", ""))
            name = metadata["name"]
            uid = metadata.get("uid", "")
        else:
            number, namespace, name, uid = old.id, old.namespace, old.name, old.uid
        row = Row(number, namespace, name, uid, version, data, labels, fields, held)
        if old is not None:
            row.key = old.key  # the history keeps both rows
            if row.fields == old.fields:
                row.fields = old.fields
        write = self.overlay[row.key] = Write(self, type, row, old, store.loop.create_future())
        if type is DELETED:
            store.journal.append(Record(number, None, None, version, None), write)
        else:
            owners, stamps = held
            written = data if owners is None else b"%b\n%b" % (data, owners.render(stamps))
            store.journal.append(Record(number, self.name, row.key, version, written), write)
        if self.account is not None and counts:
            self.account(self, type, decode(data) if kept else tree, old, row)
        return write

    def _check_size(self, data: bytes, held: Ownership, old: Row | None) -> None:
        """Raise TooLarge, unless the object was too large before and does not grow."""
        owners, stamps = held
        size = len(data) + (0 if owners is None else len(owners.render(stamps)))
        if size > MAX_OBJECT_BYTES:
            size += self.measure(decode(data)) - len(data)
        if size > MAX_OBJECT_BYTES and (old is None or len(data) > len(old.data)):
            self.store.version -= 1  # which nobody has
            raise TooLarge(
                f"etcdserver: request is too large: the object would have {size} bytes, and may have {MAX_OBJECT_BYTES}"
            )

    # --- what the store calls ---------------------------------------------------------------------

    def apply(self, write: Write, now: float) -> Event:
        """Makes a write part of the committed state."""
        row, key = write.row, write.row.key
        if write.type is DELETED:
            self.rows.pop(key, None)
            self._gone = True
        else:
            if write.type is ADDED:
                self._new.append(key)
            self.rows[key] = row
        if self.overlay.get(key) is write:
            del self.overlay[key]
        self.version = row.version
        event = Event(write.type, row.version, row, write.old, now)
        self.history.append(event)
        if write.old is not None:
            self.store.supersede(write.old)
        return event

    def load(self, row: LoadedRow) -> None:
        """Add a row that was read from the disk."""
        row.index_by(self)
        self.rows[row.key] = row
        self._new.append(row.key)

    def forget(self, before: float, events: int = HISTORY_EVENTS) -> None:
        """Drop events older than a time or above a number."""
        history = self.history
        while history and (history[0].time < before or len(history) > events):
            event = history.popleft()
            self.floor = event.version
            if event.old is not None:
                self.store.past -= 1

    def since(self, version: int) -> list[Event] | None:
        """Committed events above a version; None when history does not reach back to it."""
        if version < self.floor:
            return None
        events: list[Event] = []
        for event in reversed(self.history):
            if event.version <= version:
                break
            events.append(event)
        events.reverse()
        return events


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


def renumbered(metadata: msgspec.Raw, old: int, new: int) -> msgspec.Raw:
    """The bytes of metadata with another resourceVersion.  They must contain the old one only once."""
    return msgspec.Raw(
        bytes(metadata).replace(b'"resourceVersion":"%d"' % old, b'"resourceVersion":"%d"' % new)
    )


def field_text(tree: Any, path: tuple[str, ...]) -> str:
    """The value at a path as a field selector compares it; empty if absent."""
    for step in path:
        if not isinstance(tree, dict):
            return ""
        tree = tree.get(step)
        if tree is None:
            return ""
    if isinstance(tree, str):
        return tree
    if tree is True:
        return "true"
    if tree is False:
        return "false"
    if isinstance(tree, dict | list):
        return ""
    return str(tree)


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
