"""Upgrade requests to another server: the handshake, and the splice of the two connections after
it.

A proxy between a client and a node understands neither WebSocket nor SPDY: after the node's 101 it
hands bytes on in both directions, and a side that does not read holds up the other.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable

import httptools

from hekla.kube.http.client import CONNECT_TIMEOUT, TimedOut, TransportError

IDLE = 4 * 3600.0
"""Seconds without a byte in either direction after which a connection is ended, as kubelets do."""
ANSWER_PATIENCE = 60.0
HIGH_WATER = 256 * 1024
LONGEST_REFUSAL = 1 << 20
HOP = frozenset(
    (
        "connection",
        "upgrade",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "content-length",
    )
)
"""Headers that belong to one connection and are not handed on."""


class Opening(asyncio.Protocol):
    """A new connection until the head of the answer is there; of a refusal, until all of it is."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.rest = b""
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is none by its type, only by what it does

    def data_received(self, data: bytes) -> None:
        if self.status == 101:
            self.rest += data
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest += data[upgrade.args[0] :] if upgrade.args else b""
            self._done(101)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP/1.1: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        if self.status and self.status != 101:
            self._done(self.status)
        self._fail("the server closed the connection")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > LONGEST_REFUSAL:
            self._done(self.status)

    def on_message_complete(self) -> None:
        if self.status != 101:
            self._done(self.status)

    def _done(self, status: int) -> None:
        self.status = status
        if not self.answered.done():
            self.answered.set_result(status)

    def _fail(self, why: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(TransportError(why, sent=True))


async def open_upgrade(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    server_name: str = "",
) -> Opening:
    """Ask a server for an upgrade.  `server_name`: what its certificate must be for, if not the
    host.  Raises TransportError and OSError; a refusal is an Opening
    whose status is not 101."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT):
        transport, opening = await loop.create_connection(
            Opening, host, port, ssl=tls, server_hostname=server_name or None
        )
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}:{port}"]
    lines += [
        f"{name}: {value}" for name, value in headers if not set("\r\n") & set(f"{name}{value}")
    ]
    if method == "POST":
        lines.append("Content-Length: 0")
    transport.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
    try:
        async with asyncio.timeout(ANSWER_PATIENCE):
            await opening.answered
    except TimeoutError:
        transport.abort()
        raise TimedOut(f"no answer within {ANSWER_PATIENCE:g} s", sent=True) from None
    except BaseException:
        transport.abort()
        raise
    if opening.status == 101:
        transport.pause_reading()
    else:
        transport.close()
    return opening


class End(asyncio.Protocol):
    """One end of a splice."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.other: End | None = None
        self.heard = asyncio.get_running_loop().time()
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        self.heard = asyncio.get_running_loop().time()
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        other, self.other = self.other, None
        if other is not None:
            other.transport.close()


def splice(client: asyncio.Transport, rest: bytes, opening: Opening) -> asyncio.BaseProtocol:
    """Join a client's connection with the opened one; returns the protocol for the client's."""
    server = opening.transport
    assert server is not None
    near, far = End(client), End(server)
    near.other, far.other = far, near
    server.set_protocol(far)
    loop = asyncio.get_running_loop()

    def begin() -> None:
        if opening.rest:
            client.write(opening.rest)
        if rest:
            server.write(rest)
        if server.is_closing():
            client.close()
        else:
            server.resume_reading()

    def look() -> None:
        if near.other is None or far.other is None:
            return
        left = max(near.heard, far.heard) + IDLE - loop.time()
        if left <= 0:
            client.close()
        else:
            loop.call_later(left, look)

    loop.call_soon(begin)
    loop.call_later(IDLE, look)
    return near
