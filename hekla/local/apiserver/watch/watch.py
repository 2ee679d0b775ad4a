"""Watches: send the changes of a collection to clients, in order, encoded once for all."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Protocol

import msgspec

from hekla.api.text.fieldrules import Errors
from hekla.kube.http.server import Body, Request, Stream, Upgrade
from hekla.local.apiserver.request.forms import (
    LEAN,
    PLAIN,
    STREAMS,
    Form,
    MetadataListForm,
    TableForm,
    event_bytes,
    moved_version,
    not_acceptable_as,
    wanted,
)
from hekla.local.apiserver.request.reading import (
    check_numbers,
    number_option,
    selected,
    version_option,
)
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.selection import Selection, select
from hekla.local.apiserver.request.status import Refusal, expired, invalid_option
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import ADDED, DELETED, MODIFIED, Event, Row
from hekla.local.apiserver.storage.store import Store
from hekla.local.apiserver.watch import watchsocket

BUFFER = 32 * 1024 * 1024
"""The most unread bytes of a watch before its connection is closed."""
BOOKMARK_SECONDS = 55.0
LAST_BOOKMARK = 2.0
"""A watch with a shorter timeout in seconds ends without a last bookmark."""
PIECE = 256 * 1024
ONLY_STREAMS = f"only the following media types are accepted: {', '.join(STREAMS)}"


def check_watch_options(request: Request) -> None:
    match = request.option("resourceVersionMatch")
    errors = Errors()
    says = "sendInitialEvents" in request.options
    if says and match != "NotOlderThan":
        errors.forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )
    if match and not says:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.forbidden("resourceVersionMatch", why)
    if match and match != "NotOlderThan":
        errors.not_supported("resourceVersionMatch", match, ("NotOlderThan",))
    if match and request.option("continue"):
        errors.forbidden(
            "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
        )
    if errors:
        raise invalid_option("ListOptions", errors)


class Sink(Protocol):
    """What a watcher writes its events to: a response's body, or a WebSocket."""

    @property
    def closed(self) -> bool: ...

    @property
    def chunked(self) -> bool: ...

    @property
    def buffered(self) -> int: ...

    def write(self, data: bytes) -> None: ...

    def write_framed(self, framed: bytes) -> None: ...

    async def drain(self) -> None: ...

    def abort(self) -> None: ...


def watch(store: Store, request: Request, route: Route) -> Stream | Upgrade:
    """Answer a watch request.  Raises Refusal before the stream begins."""
    check_numbers(request)
    check_watch_options(request)
    form = wanted(request.headers, request.option("includeObject"), route)
    if form is PLAIN and request.headers.get("accept", "").startswith("application/yaml"):
        raise not_acceptable_as(ONLY_STREAMS)
    if isinstance(form, MetadataListForm):
        form = PLAIN  # an event shows an object, which is no list
    selection = select(
        route.resource,
        route.namespace,
        route.name,
        request.option("labelSelector"),
        request.option("fieldSelector"),
    )
    watcher = Watcher(store, route.resource, selection, form)
    watcher.version = version_option(request)
    watcher.initial = request.flag("sendInitialEvents") or watcher.version == 0
    if request.option("sendInitialEvents") and not request.flag("sendInitialEvents"):
        watcher.initial = False
    watcher.initial_end = request.flag("sendInitialEvents") and request.flag("allowWatchBookmarks")
    watcher.bookmarks = request.flag("allowWatchBookmarks")
    watcher.seconds = number_option(request, "timeoutSeconds") or random.uniform(1800, 3600)
    if "upgrade" in request.headers and watchsocket.asked(request):
        return watchsocket.upgrade(request, watcher)
    return Stream(watcher.run, headers={"Cache-Control": "no-cache, private"})


def end_watches(store: Store, collection: Collection) -> None:
    """Send all pending events of a collection, and end its watches."""
    store.notify_watchers()
    for listener in list(collection.watchers):
        watcher = getattr(listener, "__self__", None)
        if isinstance(watcher, Watcher):
            watcher.end()


class Watcher:
    """One watch on one connection."""

    def __init__(self, store: Store, resource: Resource, selection: Selection, form: Form) -> None:
        self.store = store
        self.resource = resource
        self.selection = selection
        self.form = form
        self.version = 0
        """All events up to this version were sent."""
        self.initial = False
        self.initial_end = False
        self.bookmarks = False
        self.seconds = 1800.0
        self._body: Sink
        self._live = False
        self._waiting: deque[Event] = deque()
        self._over: asyncio.Future[None]
        self._first = True
        self._came: asyncio.Future[None] | None = None

    async def run(self, body: Sink) -> None:
        self._body = body
        self._over = self.store.loop.create_future()
        collection = self.resource.collection
        ending = self.store.loop.call_later(self.seconds, self.end)
        # From here to the registration nothing may wait: what is read now and what is sent later
        # must meet without a gap.
        if self.initial:
            wanted = self.version
            if wanted > self.store.committed and not await self.store.reached(
                wanted, min(self.seconds, 3.0)
            ):
                self._send_error(
                    Refusal(
                        504,
                        f"Timeout: Too large resource version: {wanted}, current: {self.store.committed}",
                    )
                )
                return
            rows, backlog = selected(collection, self.selection), []
            self.version = self.store.committed
        else:
            rows = []
            if self.version == 0:  # from now on
                self.version = self.store.committed
            found = collection.since(self.version) if self.version <= self.store.committed else []
            if found is None:
                self._send_error(
                    expired(f"too old resource version: {self.version} ({collection.floor})")
                )
                ending.cancel()
                return
            backlog = found
        collection.watchers.add(self.on_events)
        timer: asyncio.TimerHandle | None = None
        try:
            if self.converts:
                await self._send_converted([(ADDED, row) for row in rows])
            else:
                await self._send_rows(rows)
            if self.initial_end:
                body.write(self.form.bookmark(self.resource, self.version, True))
            if self.converts:
                self._waiting.extendleft(reversed(backlog))
                await self._follow_converted()
                return
            await self._send_backlog(backlog)
            self._live = True
            if self.bookmarks:
                timer = self.store.loop.call_later(BOOKMARK_SECONDS, self._bookmark_later)
                self._timer = timer
            await self._over
            if self.bookmarks and self.seconds > LAST_BOOKMARK and not body.closed:
                body.write(self.form.bookmark(self.resource, self._sent(), False))
        finally:
            collection.watchers.discard(self.on_events)
            ending.cancel()
            if timer is not None:
                self._timer.cancel()

    @property
    def converts(self) -> bool:
        """Whether a conversion webhook is needed before an object can be sent."""
        return self.resource.kind.conversion is not None and self.form.versioned

    async def _follow_converted(self) -> None:
        """Send waiting and new events, each batch after its conversion."""
        bookmark = self.store.loop.time() + BOOKMARK_SECONDS
        while not self._over.done() and not self._body.closed:
            if self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), 500))]
                if not await self._send_converted(self._chosen(batch)):
                    return
                await self._body.drain()
                continue
            self._came = self.store.loop.create_future()
            await asyncio.wait(
                [self._came, self._over], timeout=1.0, return_when=asyncio.FIRST_COMPLETED
            )
            if self.bookmarks and self.store.loop.time() > bookmark:
                bookmark = self.store.loop.time() + BOOKMARK_SECONDS
                self._body.write(self.form.bookmark(self.resource, self.version, False))

    def _chosen(self, events: list[Event]) -> list[tuple[str, Row]]:
        """The events for the watch's selection, with their types."""
        chosen: list[tuple[str, Row]] = []
        for event in events:
            if event.version <= self.version:
                continue
            self.version = event.version
            now = event.type is not DELETED and self.selection.matches(event.row)
            before = event.old is not None and self.selection.matches(event.old)
            if event.type is DELETED and before:
                chosen.append((DELETED, event.row))
            elif now:
                chosen.append((MODIFIED if before else ADDED, event.row))
            elif before and event.old is not None:
                chosen.append((DELETED, moved_version(event.old, event.version)))
        return chosen

    async def _send_converted(self, chosen: list[tuple[str, Row]]) -> bool:
        """Send a batch of converted events.  Returns false if the conversion failed; then the
        client gets an error and the watch ends."""
        conversion = self.resource.kind.conversion
        assert conversion is not None
        try:
            await conversion.ready([row for _, row in chosen])
        except Refusal as refusal:
            self._send_error(refusal)
            return False
        self._body.write(b"".join([self._encode(type, row) for type, row in chosen]))
        return True

    def end(self) -> None:
        """End the watch.  The client resumes from its last version."""
        if not self._over.done():
            self._over.set_result(None)

    def _sent(self) -> int:
        """The version up to which the watcher has all events."""
        return max(self.version, self.store.notified) if self._live else self.version

    def _bookmark_later(self) -> None:
        if self._live and not self._body.closed:
            self._body.write(self.form.bookmark(self.resource, self._sent(), False))
            self._timer = self.store.loop.call_later(BOOKMARK_SECONDS, self._bookmark_later)

    def _send_error(self, refusal: Refusal) -> None:
        self._body.write(msgspec.json.encode({"type": "ERROR", "object": refusal.tree()}) + b"\n")

    async def _send_rows(self, rows: list[Row]) -> None:
        pieces: list[bytes] = []
        size = 0
        for row in rows:
            piece = self._encode(ADDED, row)
            pieces.append(piece)
            size += len(piece)
            if size > PIECE:
                self._body.write(b"".join(pieces))
                await self._body.drain()
                pieces, size = [], 0
        self._body.write(b"".join(pieces))

    async def _send_backlog(self, backlog: list[Event]) -> None:
        """Send the history, then what was committed meanwhile."""
        for event in backlog:
            self._send([event])
            # nobody else is sent the past right now, and the history outlives this watch
            event.encoded = {}
            if self._body.buffered > PIECE:
                await self._body.drain()
        while self._waiting:
            event = self._waiting.popleft()
            self._send([event])
            event.encoded = {}
            if self._body.buffered > PIECE:
                await self._body.drain()

    def _encode(self, type: str, row: Row) -> bytes:
        first, self._first = self._first, False
        return self.form.event(self.resource, type, row, first)

    # --- live -------------------------------------------------------------------------------------

    def on_events(self, events: list[Event]) -> None:
        if not self._live:
            self._waiting.extend(events)
            if self._came is not None and not self._came.done():
                self._came.set_result(None)
            if len(self._waiting) > 200_000:
                self._cut()
            return
        if self._body.closed:
            self.end()
        elif self._body.buffered > BUFFER:
            self._cut()
        else:
            self._send(events)

    def _cut(self) -> None:
        """Close a watch whose client does not read, with an error of code 410."""
        self._send_error(
            expired(f"too old resource version: {self.version} ({self.store.committed})")
        )
        self.resource.collection.watchers.discard(self.on_events)
        self._body.abort()
        self.end()

    def _send(self, events: list[Event]) -> None:
        selection = self.selection
        if (
            selection.everything
            and self.version < events[0].version
            and (self.form is PLAIN or self.form is LEAN)
            and self._body.chunked
        ):
            self._body.write_framed(self._shared(events))
            self.version = events[-1].version
            return
        pieces: list[bytes] = []
        for event in events:
            if event.version <= self.version:
                continue
            self.version = event.version
            row, old = event.row, event.old
            if selection.everything:
                if not selection.namespace or row.namespace == selection.namespace:
                    pieces.append(self._event(event.type, row, event))
                continue
            now = event.type is not DELETED and selection.matches(row)
            before = old is not None and selection.matches(old)
            if now:
                pieces.append(self._event(MODIFIED if before else ADDED, row, event))
            elif before:
                assert old is not None
                if event.type is DELETED:
                    pieces.append(self._event(DELETED, row, event))
                else:
                    pieces.append(self._encode(DELETED, moved_version(old, event.version)))
        if pieces:
            self._body.write(b"".join(pieces))

    def _event(self, type: str, row: Row, event: Event) -> bytes:
        if self._first and isinstance(self.form, TableForm):
            return self._encode(type, row)
        self._first = False
        return event_bytes(self.form, self.resource, type, row, event)

    def _shared(self, events: list[Event]) -> bytes:
        """One chunk with a batch of events, shared by all watchers of a resource and namespace."""
        resource, namespace = self.resource, self.selection.namespace
        cache = events[0].encoded
        key = (resource.token, self.form, namespace, len(events))
        found = cache.get(key)
        if found is None:
            pieces = [
                event_bytes(self.form, resource, event.type, event.row, event)
                for event in events
                if not namespace or event.row.namespace == namespace
            ]
            found = cache[key] = Body.frame(b"".join(pieces)) if pieces else b""
        return found
