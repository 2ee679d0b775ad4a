"""Reading a watch: one JSON document a line, decoded in bulk straight into the kind's type.

A burst of events arrives as a few large pieces of text; all whole lines of a piece are decoded by
one call.  That call fails when one line is not what the type says (a malformed object, an ERROR
event whose object is a Status), and only then is the piece read line by line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from hekla.api.kinds import Kind, Malformed
from hekla.api.meta import Status
from hekla.kube.errors import from_status
from hekla.kube.http.client import Stream
from hekla.kube.objects import with_kind

T = TypeVar("T")

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"


class Event(msgspec.Struct, Generic[T]):
    """One change.  `type` is ADDED, MODIFIED, DELETED or BOOKMARK (whose object has a
    resourceVersion and nothing else)."""

    type: str
    object: T


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class Watch(Generic[T]):
    """An open watch.  `batch()` gives what has come since the last call, [] at the end of the
    stream."""

    def __init__(
        self,
        stream: Stream,
        kind: Kind[T],
        on_malformed: Callable[[Malformed], None] | None = None,
        silence: float | None = None,
    ) -> None:
        self._stream = stream
        self._kind = kind
        self._on_malformed = on_malformed
        self._silence = silence
        self._rest = b""
        self._failure: Exception | None = None
        decoder = _decoders.get(kind.type)
        if decoder is None:
            decoder = _decoders[kind.type] = msgspec.json.Decoder(Event[kind.type])  # type: ignore[name-defined]  # a type made at run time
        self._decode_lines: Callable[[bytes], list[Event[T]]] = decoder.decode_lines

    async def batch(self) -> list[Event[T]]:
        """Raises the ApiError of an ERROR event and TransportError when the connection broke."""
        while self._failure is None:
            data = await self._stream.read(self._silence)
            if not data:
                return []
            if self._rest:
                data = self._rest + data
            end = data.rfind(b"\n") + 1
            self._rest = data[end:]
            if end and (events := self._decode(data[:end])):
                return events
        raise self._failure

    def _decode(self, lines: bytes) -> list[Event[T]]:
        """The events of whole lines.  What came before an ERROR event counts, so the error is kept
        for the next batch."""
        try:
            events = self._decode_lines(lines)
        except msgspec.ValidationError:
            events = self._decode_each(lines)
        else:
            if any(event.type == ERROR for event in events):
                # A Status that the type was lax enough to take.
                events = self._decode_each(lines)
        for event in events:
            event.object = with_kind(self._kind, event.object)
        return events

    def _decode_each(self, lines: bytes) -> list[Event[T]]:
        events: list[Event[T]] = []
        for line in lines.splitlines():
            if not line.strip():
                continue
            event = self._kind.decode_event(line)
            if isinstance(event.object, Status):
                self._failure = from_status(msgspec.to_builtins(event.object))
                break
            if event.type == BOOKMARK and isinstance(event.object, Malformed):
                # A bookmark is no object and may lack fields that the reader's struct requires; only
                # its version matters.
                bare: Any = {"metadata": {"resourceVersion": event.object.resource_version}}
                events.append(Event(event.type, bare))
            elif not isinstance(event.object, Malformed):
                events.append(Event(event.type, event.object))
            elif self._on_malformed is not None:
                self._on_malformed(event.object)
            else:
                self._failure = msgspec.ValidationError(str(event.object))
                break
        return events

    async def __aenter__(self) -> Watch[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the watch."""
        self._stream.close()
