"""A connection after its HTTP upgrade: bytes in both directions with back-pressure, bare or inside
WebSocket messages.

Incoming bytes are sorted into inlets, one for each stream. If an inlet is not read, the whole
connection is not read: that is the only back-pressure that all clients understand.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from hekla.kube.streams.spdy import Event, Session, SpdyError
from hekla.kube.streams.websocket import WebSocket, WebSocketError

log = logging.getLogger("kubelet.streams")

HIGH_WATER = 1 << 20
"""With so many bytes in the inlets the connection is not read."""
WRITE_HIGH_WATER = 256 * 1024
CLOSE_TIMEOUT = 10.0
"""Seconds for the other end to close after everything was sent; closing earlier would lose data in
flight."""


class Lost(ConnectionError):
    """The other end has gone."""


class Inlet:
    """The bytes of one incoming stream that were not read yet."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._pieces: deque[bytes] = deque()
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if data and not self._ended:
            self._pieces.append(data)
            self._wire.holding(len(data))
            self._wake()

    def end(self) -> None:
        """The stream has ended."""
        self._ended = True
        self._wake()

    def drop(self) -> None:
        """Discard everything that arrives; it no longer blocks the other streams."""
        while self._pieces:
            self._wire.holding(-len(self._pieces.popleft()))
        self.end()

    async def read(self) -> bytes:
        """The next bytes; b"" at the end."""
        while not self._pieces:
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._pieces.popleft()
        self._wire.holding(-len(piece))
        return piece

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Wire(asyncio.Protocol):
    """One connection. Subclasses interpret the bytes in `received`."""

    def __init__(self, websocket: WebSocket | None = None) -> None:
        self.websocket = websocket
        self.transport: asyncio.Transport | None = None
        self.gone = asyncio.Event()
        self.inlets: list[Inlet] = []
        self._held = 0
        self._paused_reading = False
        self._writable = asyncio.Event()
        self._writable.set()

    # --- the connection ---------------------------------------------------------------------------

    def take(self, transport: asyncio.Transport, rest: bytes) -> Wire:
        """Take over the connection from the HTTP server."""
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        if rest:
            asyncio.get_running_loop().call_soon(self.data_received, rest)
        return self

    def data_received(self, data: bytes) -> None:
        try:
            if self.websocket is None:
                self.received(data)
            else:
                for message in self.websocket.feed(data):
                    self.received(message)
                self._flush()
                if self.websocket.closed:
                    self.closing()
        except (SpdyError, WebSocketError) as error:
            log.info("a stream connection broke the protocol: %s", error)
            self.abort()

    def received(self, data: bytes) -> None:
        """Handle received bytes."""
        raise NotImplementedError

    def closing(self) -> None:
        """The other end closes the connection."""
        if self.transport is not None:
            self.transport.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.gone.set()
        self._writable.set()
        for inlet in self.inlets:
            inlet.end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- in ---------------------------------------------------------------------------------------

    def inlet(self) -> Inlet:
        made = Inlet(self)
        self.inlets.append(made)
        return made

    def holding(self, change: int) -> None:
        """So many bytes more (or less) wait to be read."""
        self._held += change
        if self.transport is None:
            return
        if self._held > HIGH_WATER and not self._paused_reading:
            self._paused_reading = True
            self.transport.pause_reading()
        elif self._held < HIGH_WATER // 2 and self._paused_reading:
            self._paused_reading = False
            self.transport.resume_reading()

    # --- out --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Sends bytes; as one message where messages are spoken."""
        if self.websocket is not None:
            self.websocket.send(data)
            self._flush()
        elif self.transport is not None and data:
            self.transport.write(data)

    def _flush(self) -> None:
        assert self.websocket is not None
        data = self.websocket.take()
        if data and self.transport is not None:
            self.transport.write(data)

    async def drain(self) -> None:
        """Waits until the other end has taken enough.  Raises Lost."""
        await self._writable.wait()
        if self.transport is None:
            raise Lost("the other end has gone")

    async def part(self) -> None:
        """Closes once the other end has, or after a while."""
        if self.websocket is not None:
            self.websocket.close()
            self._flush()
        if self._paused_reading and self.transport is not None:
            self.transport.resume_reading()
        for inlet in self.inlets:
            inlet.drop()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.gone.wait()
        except TimeoutError:
            if self.transport is not None:
                self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class SpdyWire(Wire):
    """A connection that carries SPDY streams."""

    def __init__(self, websocket: WebSocket | None = None) -> None:
        super().__init__(websocket)
        self.session = Session(server=True)

    def received(self, data: bytes) -> None:
        for event in self.session.feed(data):
            self.happened(event)
        self.push()

    def happened(self, event: Event) -> None:
        raise NotImplementedError

    def push(self) -> None:
        """Sends what the session has to say."""
        if data := self.session.take():
            self.send(data)

    async def write(self, stream: int, data: bytes, end: bool = False) -> None:
        self.session.send(stream, data, end)
        self.push()
        await self.drain()
