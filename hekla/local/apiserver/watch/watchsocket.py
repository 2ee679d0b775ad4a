"""A watch as a WebSocket: browsers and Java clients ask for it first.  One event is one text
message, as Kubernetes sends it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hekla.kube.http.server import Request, Upgrade
from hekla.kube.streams import websocket
from hekla.kube.streams.websocket import WebSocket, WebSocketError
from hekla.local.apiserver.request.status import Refusal

if TYPE_CHECKING:
    from hekla.local.apiserver.watch.watch import Watcher

VERSION = "13"
LONGEST_MESSAGE = 64 * 1024
"""Bytes of what a client says; there is nothing for it to say, and nothing is done with it."""
HIGH_WATER = 1024 * 1024
FAREWELL = 1.0
"""Seconds for the client to answer that the watch is over."""


def asked(request: Request) -> bool:
    """Whether a request wants to become a WebSocket."""
    tokens = {token.strip().lower() for token in request.headers.get("connection", "").split(",")}
    return "upgrade" in tokens and request.headers.get("upgrade", "").lower() == "websocket"


def upgrade(request: Request, watcher: Watcher) -> Upgrade:
    """The answer 101; raises Refusal for a handshake that is none."""
    headers = request.headers
    protocols = [
        name for name in websocket.offered(headers) if not name.startswith(websocket.TOKEN_PROTOCOL)
    ]
    if headers.get("sec-websocket-version", "") != VERSION:
        refusal = Refusal(400, "missing or bad WebSocket Version", details={})
        refusal.headers = {"Sec-WebSocket-Version": VERSION}
        raise refusal
    if not websocket.is_upgrade(headers):
        raise Refusal(400, "mismatch challenge/response", details={})
    if len(protocols) > 1:
        raise Refusal(400, "missing or bad WebSocket-Protocol", details={})
    answer = websocket.answer_headers(headers, protocols[0] if protocols else "")
    return Upgrade(lambda transport, rest: WatchSocket(watcher, transport, rest), answer)


class WatchSocket(asyncio.Protocol):
    """The connection of one watch: to the watcher a body that it writes to, to the client a
    WebSocket."""

    chunked = False

    def __init__(self, watcher: Watcher, transport: asyncio.Transport, rest: bytes) -> None:
        self.watcher = watcher
        self.transport = transport
        self.socket = WebSocket(server=True, longest=LONGEST_MESSAGE)
        self.closed = False
        self._writable = asyncio.Event()
        self._writable.set()
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self._run = asyncio.ensure_future(self.run())
        if rest:
            asyncio.get_running_loop().call_soon(self.data_received, rest)

    async def run(self) -> None:
        try:
            await self.watcher.run(self)
        except ConnectionError:
            pass
        finally:
            self.finish(1000)

    def finish(self, code: int) -> None:
        """Says that this is the end, and waits a moment for the client to say so too."""
        if not self.closed:
            self.closed = True
            self.socket.close(code)
            self._flush()
            asyncio.get_running_loop().call_later(FAREWELL, self.transport.close)

    # --- what a watcher writes to -----------------------------------------------------------------

    @property
    def buffered(self) -> int:
        return self.transport.get_write_buffer_size() if not self.closed else 0

    def write(self, data: bytes) -> None:
        """Sends whole lines, each as a message."""
        if not self.closed:
            for line in data.splitlines(keepends=True):
                self.socket.send(line, text=True)
            self._flush()

    def write_framed(self, framed: bytes) -> None:
        raise AssertionError("only chunked streams are framed")

    async def drain(self) -> None:
        if self.closed:
            raise ConnectionResetError("the client went away")
        await self._writable.wait()

    def abort(self) -> None:
        self.closed = True
        self.transport.abort()

    # --- the connection ---------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self.socket.feed(data)
        except WebSocketError:
            self._flush()
            self.abort()
            return
        self._flush()
        if self.socket.closed:
            self.closed = True
            self.transport.close()
            self.watcher.end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._writable.set()
        self._run.cancel()

    def _flush(self) -> None:
        data = self.socket.take()
        if data and not self.transport.is_closing():
            self.transport.write(data)
