"""A client's connection over HTTP/1.1: a raw asyncio protocol on httptools.

A framework costs more a request than the whole of a durable create (uvicorn answered 20,500 POSTs a
second where this shape answered 42,000), and it hides what an API server needs: refusing a body
before it is read, streams that feel back-pressure, upgrades, and who is at the other end.  One
request of a connection is handled at a time; what is pipelined behind it waits, and a client that
pipelines too much is not read until it has been answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

import httptools

from hekla.kube.http.message import (
    REASONS,
    Answer,
    Handler,
    Peer,
    Request,
    Response,
    Stream,
    Upgrade,
    split_target,
)

if TYPE_CHECKING:
    from hekla.kube.http.server import Server

log = logging.getLogger("hekla.http")

MAX_HEADERS = 1024 * 1024
PIPELINE = 16
"""Requests read ahead of the one being answered, before reading stops."""
MOST_AHEAD = 64 * 1024
"""Bytes of such a request above which it is the last."""
HEAD_SECONDS, WHOLE_SECONDS, IDLE_SECONDS = 32.0, 60.0, 90.0
"""Seconds that a client may take for a head (or its first request), for a whole request, and
between two requests: those of Kubernetes' server."""
HIGH_WATER = 1024 * 1024

NAMES: dict[bytes, str] = {}
"""Names of headers, as sent -> in lower case; requests have the same few."""
KNOWN_NAMES = 500

STATUS_LINES = {
    status: b"HTTP/1.1 %d %s\r\n" % (status, reason) for status, reason in REASONS.items()
}


def head(status: int, content_type: str, headers: Mapping[str, str] | None) -> bytearray:
    """The status line and headers, without the empty line at their end."""
    out = bytearray(STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status)
    if content_type:
        out += b"Content-Type: " + content_type.encode("latin-1", "replace") + b"\r\n"
    if headers:
        for name, value in headers.items():
            # a name may come with several values, one a line (Warning)
            for line in value.split("\n"):
                out += f"{name}: {line}\r\n".encode("utf-8", "replace")
    return out


class Body:
    """The writer of a streamed answer."""

    __slots__ = ("_chunked", "_connection", "_transport", "closed")

    def __init__(self, connection: Connection, chunked: bool) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._chunked = chunked
        self.closed = False

    @staticmethod
    def frame(data: bytes) -> bytes:
        """The bytes of one chunk; writers of the same data to many streams frame it once."""
        return b"%x\r\n%b\r\n" % (len(data), data)

    @property
    def chunked(self) -> bool:
        return self._chunked

    @property
    def buffered(self) -> int:
        """Bytes that the client has not taken yet."""
        transport = self._transport
        return transport.get_write_buffer_size() if transport is not None and not self.closed else 0

    def write(self, data: bytes) -> None:
        """Hand bytes to the connection; never waits."""
        if data and not self.closed and self._transport is not None:
            self._transport.write(self.frame(data) if self._chunked else data)

    def write_framed(self, framed: bytes) -> None:
        """Like `write`, for bytes that went through `frame` (only on a chunked stream)."""
        if not self.closed and self._transport is not None:
            self._transport.write(framed)

    async def drain(self) -> None:
        """Wait until the client has taken enough; raises ConnectionResetError if it is gone."""
        if self.closed:
            raise ConnectionResetError("the client went away")
        await self._connection.writable()

    def abort(self) -> None:
        """Drop the connection, so that the client sees a broken stream."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()


class Connection(asyncio.Protocol):
    """The protocol of one client's connection."""

    __slots__ = (
        "_body",
        "_body_size",
        "_counted",
        "_discarding",
        "_fields",
        "_head_only",
        "_header_size",
        "_held",
        "_in_head",
        "_keep_alive",
        "_partial",
        "_paused_reading",
        "_paused_writing",
        "_queue",
        "_refused",
        "_requests",
        "_target",
        "_task",
        "_upgrading",
        "_waiters",
        "body",
        "busy",
        "handler",
        "max_body",
        "parser",
        "peer",
        "server",
        "transport",
    )

    def __init__(self, server: Server) -> None:
        self.server = server
        self.handler: Handler = server.handler
        self.max_body = server.max_body
        self.transport: asyncio.Transport | None = None
        self.parser: Any = None
        self.peer = Peer()
        self.busy = False
        self.body: Body | None = None
        self._queue: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Future[Any] | None = None
        self._paused_reading = False
        self._paused_writing = False
        self._waiters: list[asyncio.Future[None]] = []
        self._head_only = False
        self._discarding = False
        self._upgrading: bytes | None = None
        self._partial = False
        """Whether a request has begun to arrive and is not complete."""
        self._in_head = False
        self._held = 0
        """Bytes of it, if it comes in more than one piece."""
        self._requests = 0
        self._counted = (0, 0.0)
        """How many requests there were when the server looked first, and when that was."""
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._fields: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self._body_size = 0
        self._header_size = 0
        self._keep_alive = True
        self._refused = False

    # --- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # uvloop's is none by its type, only by what it does
        self.parser = httptools.HttpRequestParser(self)
        self.peer = peer_of(transport)
        self.server.connections.add(self)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=HIGH_WATER)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.lost(self)
        self.transport = None
        self._whole()
        if self.body is not None:
            self.body.closed = True
        self._queue.clear()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ConnectionResetError("the client went away"))
        self._waiters.clear()
        # A stream has no reader any more; an ordinary request goes on, because its write may be half
        # done.
        if self._task is not None and self.body is not None:
            self._task.cancel()
        self.parser = None

    def pause_writing(self) -> None:
        self._paused_writing = True

    def resume_writing(self) -> None:
        self._paused_writing = False
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def writable(self) -> None:
        """Wait while the client's buffer is full."""
        if self.transport is None:
            raise ConnectionResetError("the client went away")
        if self._paused_writing:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def eof_received(self) -> bool:
        # A client may close its half and still wait for the answer of what it asked.
        return self.busy and self.body is None

    def data_received(self, data: bytes) -> None:
        if self._discarding or self.parser is None:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._discarding = True
            rest = data[upgrade.args[0] :] if upgrade.args else b""
            if self._upgrading is None:
                self._upgrading = rest
        except httptools.HttpParserError as error:
            if not self._discarding:
                self.refuse(400, f"this is not HTTP/1.1: {error}")
        if self._partial and not self._refused:
            self._held += len(data)
            self.server.hold(self, len(data))
            if self._in_head and self._held > MAX_HEADERS:
                self.refuse(431, "the headers are larger than 1 MiB")

    def _whole(self) -> None:
        """Nothing is held of a request any more that is not whole."""
        self._partial = False
        if self._held:
            self.server.release(self, self._held)
            self._held = 0

    def overdue(self, now: float) -> bool:
        """Whether the client is too slow: with a head, with a whole request, or with the next
        request."""
        requests, since = self._counted
        if self.busy or self._queue or requests != self._requests or not since:
            self._counted = (self._requests, now)
            return False
        return now - since > (
            HEAD_SECONDS
            if self._in_head or not requests
            else WHOLE_SECONDS
            if self._partial
            else IDLE_SECONDS
        )

    def give_up(self, status: int, text: str) -> None:
        """End the connection of a client that is too slow."""
        if self._partial and not self._refused:
            self.refuse(status, text)
            self.parser = None
        elif self.transport is not None:
            self.transport.close()

    # --- the parser calls these -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reset()
        self._partial = self._in_head = True
        self._requests += 1

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._header_size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        key = NAMES.get(name)
        if key is None:
            key = name.decode("latin-1").lower()
            if len(NAMES) < KNOWN_NAMES:
                NAMES[name] = key
        text = value.decode("latin-1")
        self._header_size += len(name) + len(value)
        if self._header_size > MAX_HEADERS:
            self.refuse(431, "the headers are larger than 1 MiB")
            return
        if key in self._fields:
            text = f"{self._fields[key]},{text}"
        self._fields[key] = text

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._keep_alive = self.parser.should_keep_alive()
        length = self._fields.get("content-length")
        if length is not None and length.isdecimal() and int(length) > self.max_body:
            self.refuse_large()
        elif (
            "expect" in self._fields
            and self.transport is not None
            and not self._queue
            and not self.busy
        ):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._body_size:
            self._body = data
        else:
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += data
        self._body_size += len(data)
        if self._body_size > self.max_body:
            self.refuse_large()

    def on_message_complete(self) -> None:
        self._partial = False
        if self._held:
            self._whole()
        if self._refused:
            return
        path, query = split_target(self._target)
        body = self._body if isinstance(self._body, bytes) else bytes(self._body)
        method: bytes = self.parser.get_method()
        request = Request(method.decode("latin-1"), path, query, self._fields, body, self.peer)
        if self.parser.should_upgrade():
            self._upgrading = b""
            self._keep_alive = False
        if self.busy:
            self._queue.append((request, self._keep_alive))
            if (
                (len(self._queue) >= PIPELINE or len(body) > MOST_AHEAD)
                and not self._paused_reading
                and self.transport is not None
            ):
                self._paused_reading = True
                self.transport.pause_reading()
            return
        self._handle(request, self._keep_alive)

    # --- answering --------------------------------------------------------------------------------

    def refuse(self, status: int, text: str) -> None:
        """Answer out of turn and close; everything else that the client sends is dropped."""
        self._refused = True
        self._discarding = True
        self._whole()
        self._body, self._fields = b"", {}
        transport = self.transport
        if transport is None:
            return
        if self.busy or self._queue:
            transport.close()
            return
        self._head_only = False  # that of the previous request; this one may not be parsed
        answer = self.server.refusal(status, text)
        self._write(answer, keep_alive=False)
        self.server.linger(self, transport)

    def refuse_large(self) -> None:
        self.refuse(413, f"Request entity too large: limit is {self.max_body}")

    def _handle(self, request: Request, keep_alive: bool) -> None:
        self.busy = True
        self._head_only = request.method == "HEAD"
        try:
            answer = self.handler(request)
        except Exception as error:  # whatever went wrong, its client gets an answer
            self._finish(self.server.failure(request, error), keep_alive)
            return
        if isinstance(answer, Response):
            self._finish(answer, keep_alive)
        elif isinstance(answer, asyncio.Future):
            self._task = answer
            answer.add_done_callback(lambda done: self._answered(done, request, keep_alive))
        elif isinstance(answer, Stream | Upgrade):
            self._task = asyncio.ensure_future(self._run(answer, request, keep_alive))
        else:
            self._task = asyncio.ensure_future(self._await(answer, request, keep_alive))

    def _answered(self, done: asyncio.Future[Answer], request: Request, keep_alive: bool) -> None:
        """A future of the handler's is done (the path of every small write)."""
        self._task = None
        if done.cancelled():
            if self.transport is not None:
                self.transport.close()
            return
        error = done.exception()
        if error is not None:
            self._finish(self.server.failure(request, error), keep_alive)
            return
        answer = done.result()
        if isinstance(answer, Response):
            self._finish(answer, keep_alive)
        else:
            self._task = asyncio.ensure_future(self._run(answer, request, keep_alive))

    async def _await(self, waiting: Awaitable[Answer], request: Request, keep_alive: bool) -> None:
        try:
            answer = await waiting
        except Exception as error:  # as above
            answer = self.server.failure(request, error)
        if isinstance(answer, Response):
            self._task = None
            self._finish(answer, keep_alive)
        else:
            await self._run(answer, request, keep_alive)

    async def _run(
        self, answer: Stream | Upgrade | Response, request: Request, keep_alive: bool
    ) -> None:
        transport = self.transport
        if transport is None:
            return
        if isinstance(answer, Response):
            self._finish(answer, keep_alive)
        elif isinstance(answer, Upgrade):
            lead = head(answer.status, "", answer.headers)
            if "Connection" not in answer.headers:
                lead += b"Connection: Upgrade\r\n"
            transport.write(bytes(lead + b"\r\n"))
            rest, self._upgrading = self._upgrading or b"", None
            self.server.connections.discard(self)
            transport.set_protocol(answer.take(transport, rest))
        else:
            await self._stream(answer, request, keep_alive, transport)

    async def _stream(
        self, answer: Stream, request: Request, keep_alive: bool, transport: asyncio.Transport
    ) -> None:
        lead = head(answer.status, answer.content_type, answer.headers)
        chunked = answer.length is None
        lead += (
            b"Transfer-Encoding: chunked\r\n"
            if answer.length is None
            else b"Content-Length: %d\r\n" % answer.length
        )
        if not keep_alive:
            lead += b"Connection: close\r\n"
        transport.write(bytes(lead + b"\r\n"))
        self.body = body = Body(self, chunked)
        try:
            await answer.run(body)
        except asyncio.CancelledError:
            body.abort()
            raise
        except ConnectionError:
            body.abort()
            return
        except Exception:
            # The head is sent: only a broken stream can still say that the answer is incomplete.
            log.exception("%s %s: the stream broke", request.method, request.path)
            body.abort()
            return
        finally:
            self.body = None
            self._task = None
        if self.transport is None or body.closed:
            return
        body.closed = True
        if chunked:
            transport.write(b"0\r\n\r\n")
        self._next(keep_alive)

    def _write(self, answer: Response, keep_alive: bool) -> None:
        transport = self.transport
        if transport is None:
            return
        out = head(answer.status, answer.content_type if answer.body else "", answer.headers)
        if answer.status not in (204, 304):
            out += b"Content-Length: %d\r\n" % len(answer.body)
        out += b"\r\n" if keep_alive else b"Connection: close\r\n\r\n"
        if len(answer.body) > 65536 and not self._head_only:
            transport.write(bytes(out))
            transport.write(answer.body)
        else:
            if not self._head_only:
                out += answer.body
            transport.write(bytes(out))

    def _finish(self, answer: Response, keep_alive: bool) -> None:
        self._write(answer, keep_alive)
        self._next(keep_alive)

    def _next(self, keep_alive: bool) -> None:
        """The connection is free for the next request."""
        self.busy = False
        transport = self.transport
        if transport is None:
            return
        if not keep_alive or self.server.closing:
            transport.close()
            return
        if self._queue:
            request, keep = self._queue.popleft()
            # From the loop, not from here: a thousand pipelined requests must not become a thousand
            # stack frames.
            self.busy = True
            asyncio.get_running_loop().call_soon(self._handle, request, keep)
        elif self._paused_reading:
            self._paused_reading = False
            transport.resume_reading()


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """The client of a connection: address, verified certificate subject, Unix user."""
    name = transport.get_extra_info("peername")
    address = str(name[0]).removeprefix("::ffff:") if isinstance(name, tuple) and name else ""
    ssl_object = transport.get_extra_info("ssl_object")
    if ssl_object is not None:
        certificate = ssl_object.getpeercert()
        if certificate:
            common_name, organizations = "", []
            for part in certificate.get("subject", ()):
                for field, value in part:
                    if field == "commonName":
                        common_name = value
                    elif field == "organizationName":
                        organizations.append(value)
            digest = hashlib.sha256(ssl_object.getpeercert(binary_form=True)).hexdigest()
            return Peer(address, common_name, tuple(organizations), digest)
        return Peer(address)
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_UNIX:
        return Peer(user_id=unix_user(sock))
    return Peer(address)


def unix_user(sock: Any) -> int | None:
    """The uid of the process behind a Unix socket, if the system tells it."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", raw)[1])
        if sys.platform == "darwin":
            # LOCAL_PEERCRED (1) of SOL_LOCAL (0): struct xucred {u_int version; uid_t uid; ...}
            raw = sock.getsockopt(0, 1, 76)
            return int(struct.unpack_from("=II", raw)[1])
    except OSError as error:
        log.warning("cannot read who is behind the Unix socket: %s", error)
    return None
