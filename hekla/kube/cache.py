"""An informer: the objects of a kind as they are on the server, kept up to date by list and watch.

The cache may be late, but never wrong for ever: after any failure (of the connection, the server or
the watch history) the next list restores the server's state, and listeners hear of every
difference, deletions included.  All readers share the objects: change a copy, not the object.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from hekla.api.kinds import Kind, Malformed
from hekla.api.meta import key
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Expired
from hekla.kube.flowcontrol.backoff import Backoff
from hekla.kube.http.client import TransportError
from hekla.kube.listeners import Change, Listeners, Sorter
from hekla.kube.objects import uid_of, version_of
from hekla.kube.watch import BOOKMARK, DELETED, Event

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_A_TIME = 200
"""Objects of a page that are taken over before others have their turn."""
WATCH_SECONDS = (300, 600)
"""Seconds that a watch is requested for; drawn at random, so that caches do not all reconnect at
once."""
FIRST_DELAY, LONGEST_DELAY = 0.05, 10.0
LONGEST_ABSENCE = 1.0
"""Longest seconds between two attempts while no server answers: an attempt costs little, and the
server may be back for a moment only."""
STABLE_AFTER = 5.0
"""A watch that lasted so many seconds resets the back-off."""
FIRST_WORD, NEXT_WORDS = 3.0, 30.0
"""Seconds of failure before it is logged (a restart of the server is not), and between further
messages."""


def age() -> None:
    """Let all that there is count as old for Python's search for cyclic garbage.  What is read of a
    long list is no garbage, and the search goes through all of it that is young."""
    # Whoever froze something meant it to stay so.
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


class Indexes(Generic[T]):
    """The keys of objects by what index functions give for them: client-go's indexer."""

    def __init__(self, functions: Mapping[str, Callable[[T], Iterable[str]]]) -> None:
        self._functions = dict(functions)
        self._keys: dict[str, dict[str, dict[str, None]]] = {name: {} for name in functions}
        """Index -> value -> keys of its objects, in the order of their arrival."""

    def keys(self, index: str, value: str) -> Collection[str]:
        """The keys of the objects for which the index function gave `value`."""
        return self._keys[index].get(value, ())

    def values(self, index: str) -> Collection[str]:
        """All values of an index that some object has."""
        return self._keys[index].keys()

    def change(self, key: str, old: T | None, new: T | None) -> None:
        """An object came, changed, or went."""
        for index, values in self._functions.items():
            before = values(old) if old is not None else ()
            after = values(new) if new is not None else ()
            if before != after:
                self._move(self._keys[index], key, set(before), set(after))

    @staticmethod
    def _move(
        table: dict[str, dict[str, None]], key: str, before: set[str], after: set[str]
    ) -> None:
        for value in before - after:
            bucket = table[value]
            del bucket[key]
            if not bucket:
                del table[value]
        for value in after - before:
            table.setdefault(value, {})[key] = None


class Cache(Generic[T]):
    """The objects of one kind (in one namespace, by selectors), by key and by the given indexes.

    `on_change` callbacks run on the event loop, in the order of the server's changes, after the
    cache itself has changed; they must not block.  `on_malformed` hears of objects that could not
    be decoded, which are left out.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        on_malformed: Callable[[Malformed], None] | None = None,
        page: int | None = None,
        streamed: bool = False,
        keep: Callable[[T], Any] | None = None,
    ) -> None:
        """`streamed`: listeners hear of the objects of the first list page by page, before it is
        complete, so that they are never all in memory as they were sent.

        `keep`: what stays of an object once the listeners have heard of it, with its identity at
        least; not for a cache with indexes.
        """
        self.kind = kind
        self.resource_version = ""
        """The newest resourceVersion that the cache has seen; "" before the first list."""
        self._client = client
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page
        self._streamed = streamed
        self._keep = keep
        self._objects: dict[str, T] = {}
        self._indexes: Indexes[T] = Indexes(indexes or {})
        self._listeners: Listeners[T] = Listeners(kind.plural)
        self._on_malformed = on_malformed or (
            lambda problem: log.warning("%s; it is left out", problem)
        )
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(FIRST_DELAY, LONGEST_DELAY)
        self._absence = Backoff(FIRST_DELAY, LONGEST_ABSENCE)
        self._trouble_since = self._complained_at = 0.0
        self._in_doubt = False

    # reading

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def all(self) -> list[T]:
        return list(self._objects.values())

    def by(self, index: str, value: str) -> list[T]:
        """The objects for which the index function gave `value`."""
        return [self._objects[name] for name in self._indexes.keys(index, value)]

    def count(self, index: str, value: str) -> int:
        """The number of objects that `by` would return, without making the list."""
        return len(self._indexes.keys(index, value))

    def values(self, index: str) -> Collection[str]:
        """All values of an index that some object has."""
        return self._indexes.values(index)

    def keys(self) -> Collection[str]:
        return self._objects.keys()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self.all())

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    # running

    def on_change(self, callback: Change[T]) -> None:
        """Add a listener; it hears at once of the objects that are there, as added."""
        self._listeners.add(callback, self.all())

    def on_change_of(self, sorter: Sorter[T], values: Iterable[str], callback: Change[T]) -> None:
        """Add a listener for the objects whose sorter returns one of these values, now or before
        the change."""
        self._listeners.add_concerned(sorter, values, callback, self.all())

    async def start(self) -> None:
        """Start to list and watch in the background.  A second call changes nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name=f"cache of {self.kind.plural}"
            )

    async def synced(self) -> None:
        """Wait for the first complete list."""
        await self._synced.wait()

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def __aenter__(self) -> Cache[T]:
        await self.start()
        await self.synced()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _run(self) -> None:
        version = ""
        while True:
            try:
                if version and self._in_doubt and await self._is_another_history(version):
                    log.warning(
                        "%s: the server's versions have gone back; listing again", self.kind.plural
                    )
                    version = ""
                if not version:
                    version = await self._list()
                    self._synced.set()
                self._in_doubt = False
                version = await self._watch(version)
            except Expired as error:
                log.debug("%s: %s; listing again", self.kind.plural, error)
                version = ""
                await asyncio.sleep(self._backoff())
            except (ApiError, TransportError) as error:
                version = (
                    ""
                    if isinstance(error, ApiError) and error.code != 500
                    else self.resource_version
                )
                self._in_doubt = True
                self._complain(error)
                await asyncio.sleep(
                    self._absence() if isinstance(error, TransportError) else self._backoff()
                )
            except Exception:  # a bug of ours: readers would trust a cache that has stopped
                log.exception("%s: the cache failed; listing again", self.kind.plural)
                version = ""
                await asyncio.sleep(max(1.0, self._backoff()))

    async def _list(self) -> str:
        try:
            return await self._read_pages(self._page)
        except Expired:
            return await self._read_pages(0)

    async def _read_pages(self, limit: int | None) -> str:
        """List all objects, and take over what differs: the deletions first.  Of what is here
        already, nothing is held in memory twice."""
        listed: set[str] = set()
        changed: dict[str, T] = {}
        first = self._streamed and not self._objects
        async for page in self._client.urgent().pages(
            self.kind, self._namespace, labels=self._labels, fields=self._fields, limit=limit
        ):
            for problem in page.malformed:
                self._on_malformed(problem)
            for number, obj in enumerate(page.items):
                if number % AT_A_TIME == 0:
                    await asyncio.sleep(0)  # what has come of the next page is taken in meanwhile
                    if first:
                        age()
                name = key(obj)
                known = self._objects.get(name)
                listed.add(name)
                if known is not None and version_of(known) == version_of(obj):
                    continue
                if first:
                    self._put(name, obj)
                else:
                    changed[name] = obj
            version = page.resource_version
            del page
        self._recovered()
        for gone in [name for name in self._objects if name not in listed]:
            self._remove(gone)
        for name, obj in changed.items():
            self._put(name, obj)
        self.resource_version = version
        return version

    async def _is_another_history(self, version: str) -> bool:
        """Whether the server is behind the versions that were seen before the connection was lost,
        as a new cluster at the same address is.  A watch from a future version would stay silent
        and miss all events until then."""
        answer = await self._client.urgent().request(
            "GET", self.kind.path(self._namespace), {"limit": "1"}
        )
        newest = self.kind.decode_list(answer.body).resource_version
        return newest.isdigit() and version.isdigit() and int(newest) < int(version)

    async def _watch(self, version: str) -> str:
        """Follow one watch from `version` to its end; returns the version to continue from."""
        began = time.monotonic()
        watch = await self._client.open_watch(
            self.kind,
            self._namespace,
            resource_version=version,
            labels=self._labels,
            fields=self._fields,
            timeout=random.randint(*WATCH_SECONDS),
            on_malformed=self._malformed,
        )
        async with watch:
            self._recovered()
            self._absence.reset()
            while batch := await watch.batch():
                # the watch works: if it breaks now, the server has only been restarted
                self._backoff.reset()
                self._apply(batch)
        if time.monotonic() - began > STABLE_AFTER:
            self._backoff.reset()
        else:  # a server that hangs up at once must not be asked in a tight loop
            await asyncio.sleep(self._backoff())
        return self.resource_version

    def _apply(self, batch: list[Event[T]]) -> None:
        for event in batch:
            if event.type == DELETED:
                self._remove(key(event.object), event.object)
            elif event.type != BOOKMARK:
                self._put(key(event.object), event.object)
        self.resource_version = version_of(batch[-1].object)

    def _malformed(self, problem: Malformed) -> None:
        self._on_malformed(problem)
        if problem.key in self._objects:
            # As in a list, an object that cannot be decoded is not there.
            self._remove(problem.key)

    # changing

    def _put(self, name: str, obj: T) -> None:
        old = self._objects.get(name)
        if old is not None and uid_of(old) != uid_of(obj):
            # Deleted and created again between two events.
            self._remove(name)
            old = None
        self._objects[name] = obj
        self._indexes.change(name, old, obj)
        self._listeners.tell(old, obj)
        if self._keep is not None:
            self._objects[name] = self._keep(obj)

    def _remove(self, name: str, last: T | None = None) -> None:
        """Remove an object.  `last` is its last state on the server, which a deletion event
        carries."""
        old = self._objects.pop(name, None)
        if old is None:
            return
        self._indexes.change(name, old, None)
        self._listeners.tell(last if last is not None else old, None)

    # failures

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if not self._trouble_since:
            self._trouble_since = now
            log.debug("%s: %s; trying again", self.kind.plural, error)
        elif now - (self._complained_at or self._trouble_since) > (
            NEXT_WORDS if self._complained_at else FIRST_WORD
        ):
            self._complained_at = now
            log.warning(
                "%s cannot be watched for %.0f s now: %s",
                self.kind.plural,
                now - self._trouble_since,
                error,
            )

    def _recovered(self) -> None:
        if self._complained_at:
            log.info("%s are watched again", self.kind.plural)
        self._trouble_since = self._complained_at = 0.0
