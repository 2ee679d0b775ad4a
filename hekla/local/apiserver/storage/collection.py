"""All objects of one kind: what is committed, what is accepted and on its way to the disk, and what
watchers may still ask for.

Reference: local-cluster 1, 3.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.storage.journal import Record
from hekla.local.apiserver.storage.managed_fields import NOBODY, Ownership
from hekla.local.apiserver.storage.rows import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    LoadedRow,
    Row,
    decode,
    encode,
)

if TYPE_CHECKING:
    from hekla.local.apiserver.storage.store import Store

MAX_OBJECT_BYTES = 3 * 512 * 1024
"""The largest object in bytes: etcd's limit for a request."""
HISTORY_EVENTS = 100_000
"""The most events that the history of one collection holds."""

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
