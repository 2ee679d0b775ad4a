"""An HTTP/1.1 client that costs little a request, for programs that send thousands of small
requests a second.

It knows one server (the API server behind a kubeconfig), keeps a bounded pool of connections to it,
and does the work of a request in one write and one parser callback chain.  General clients spend
most of their time on what this one does not have: cookies, redirects, header multi-dicts,
per-request timers.  Deadlines are looked after by one sweep a second over the connections in use,
not by a timer a request.

What surprised: a server may close a kept-alive connection at the moment the next request is
written.  A request that may be repeated (GET, PUT, DELETE) is then sent once more on a fresh
connection; a POST is not, because nobody knows whether it was carried out.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

import httptools

from hekla.kube.http.proxy import Proxy, open_tunnel

DEFAULT_TIMEOUT = 60.0
"""Seconds a request may take; the server gives up after the same time (local-cluster 1.1)."""
CONNECT_TIMEOUT = 15.0
IDLE_LIMIT = 45.0
"""Seconds after which the client closes an idle connection, before the server does so while a
request is on its way."""
SWEEP_PERIOD = 1.0
PAUSE_ABOVE = 1 << 20
"""Bytes of an unread stream at which reading from the socket pauses."""
ONE_WRITE_BELOW = 1 << 16
REPEATABLE = frozenset(("GET", "PUT", "DELETE", "OPTIONS"))

Headers = list[tuple[bytes, bytes]]


class TransportError(ConnectionError):
    """The request got no answer.  `sent` tells whether the server may have seen it."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(TransportError, TimeoutError):
    """There was no answer within the caller's timeout."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server, and how to connect to it."""

    host: str = ""
    port: int = 0
    unix: str = ""
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the TLS context; None for plain HTTP."""
    server_name: str = ""
    """The name that the server's certificate must have, if it is not `host`."""
    proxy: Proxy | None = None

    def __str__(self) -> str:
        if self.unix:
            return f"unix://{self.unix}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def authority(self) -> bytes:
        """The Host header."""
        if self.unix:
            return b"localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == (443 if self.tls else 80):
            return host.encode("idna" if not host.isascii() else "ascii")
        return f"{host}:{self.port}".encode()


class Response:
    """A whole answer: status, headers in their order, body."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def header(self, name: bytes) -> str:
        """The first header of that name (given in lower case), "" when there is none."""
        return header_of(self.headers, name)


def header_of(headers: Headers, name: bytes) -> str:
    for key, value in headers:
        if len(key) == len(name) and key.lower() == name:
            return value.decode("latin-1")
    return ""


class _Connection(asyncio.Protocol):
    """One connection.  Between requests it is in the pool; `answer` is the future of the request in
    flight."""

    __slots__ = (
        "answer",
        "chunks",
        "closed",
        "deadline",
        "headers",
        "keep_alive",
        "loop",
        "on_free",
        "on_lost",
        "parser",
        "reason",
        "received",
        "status",
        "stream",
        "transport",
        "until_close",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before first use
        self.answer: asyncio.Future[Response] | None = None
        self.stream: Stream | None = None
        self.headers: Headers = []
        self.chunks: list[bytes] = []
        self.status = 0
        self.deadline = 0.0
        self.received = False
        self.keep_alive = True
        self.until_close = False
        self.closed = False
        self.reason = ""
        self.on_free: Callable[[_Connection], None] | None = None
        self.on_lost: Callable[[_Connection], None] | None = None

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is none by its type, only by what it does

    def data_received(self, data: bytes) -> None:
        self.received = True
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail("the server switched protocols, which was not asked for")
        except httptools.HttpParserError as error:
            self.fail(f"the answer is not HTTP/1.1: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.until_close and exc is None and (self.answer or self.stream):
            self.on_message_complete()
        self.fail(
            self.reason
            or (f"connection lost: {exc}" if exc else "the server closed the connection")
        )
        if self.on_lost is not None:
            self.on_lost(self)

    # called by httptools

    def on_message_begin(self) -> None:
        self.headers = []
        self.chunks = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self.keep_alive = self.parser.should_keep_alive()
        if not self.keep_alive:
            self.until_close = not (
                header_of(self.headers, b"content-length")
                or header_of(self.headers, b"transfer-encoding")
            )
        if self.stream is not None and self.status >= 200:
            self.stream._begin(self.status, self.headers)

    def on_body(self, body: bytes) -> None:
        if self.stream is not None:
            self.stream._feed(body)
        else:
            self.chunks.append(body)

    def on_message_complete(self) -> None:
        if self.status < 200:  # an interim answer (100 Continue): the real one follows
            return
        stream, answer = self.stream, self.answer
        if stream is not None:
            self.stream = None
            stream._end(None)
        elif answer is not None:
            self.answer = None
            chunks = self.chunks
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            if not answer.done():
                answer.set_result(Response(self.status, self.headers, body))
        else:  # an answer without a request: the connection cannot be trusted any more
            self.keep_alive = False
        if not self.keep_alive:
            self.close()
        if self.on_free is not None:
            self.on_free(self)

    # called by the pool

    def send(self, head: bytes, body: bytes) -> None:
        self.received = False
        self.until_close = False
        if len(body) < ONE_WRITE_BELOW:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def fail(self, reason: str) -> None:
        answer, stream = self.answer, self.stream
        self.answer = self.stream = None
        if answer is not None and not answer.done():
            kind = TimedOut if self.reason.startswith("no answer") else TransportError
            answer.set_exception(kind(reason, sent=True))
        if stream is not None:
            stream._end(reason)
        self.close()

    def close(self, reason: str = "") -> None:
        if reason:
            self.reason = reason
        if not self.closed:
            self.closed = True
            if self.transport is not None:
                if self.reason:
                    self.transport.abort()
                else:
                    self.transport.close()


class Stream:
    """An answer that is read while it arrives: a watch, a log.  An async iterator over pieces of
    the body."""

    __slots__ = (
        "_buffer",
        "_buffered",
        "_connection",
        "_ended",
        "_failure",
        "_paused",
        "_started",
        "_waiter",
        "headers",
        "status",
    )

    def __init__(self, connection: _Connection) -> None:
        self.status = 0
        self.headers: Headers = []
        self._connection = connection
        self._started = connection.loop.create_future()
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._ended = False
        self._failure: str | None = None
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: bytes) -> str:
        return header_of(self.headers, name)

    def _begin(self, status: int, headers: Headers) -> None:
        self.status = status
        self.headers = headers
        if not self._started.done():
            self._started.set_result(None)

    def _feed(self, data: bytes) -> None:
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered > PAUSE_ABOVE and not self._paused:
            self._paused = True
            self._connection.transport.pause_reading()
        self._wake()

    def _end(self, failure: str | None) -> None:
        self._ended = True
        self._failure = failure
        if not self._started.done():
            error = TransportError(failure or "the answer ended before it began", sent=True)
            self._started.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, timeout: float | None = None) -> bytes:
        """All data since the last call, b"" at the end.  Raises TransportError if the connection
        broke."""
        if not self._buffer and not self._ended:
            loop = self._connection.loop
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout, self._timed_out, timeout) if timeout else None
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        if self._buffer:
            data = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
            self._buffer.clear()
            self._buffered = 0
            if self._paused:
                self._paused = False
                if not self._connection.closed:
                    self._connection.transport.resume_reading()
            return data
        if self._failure is not None:
            raise TransportError(self._failure, sent=True)
        return b""

    def _timed_out(self, timeout: float) -> None:
        self._connection.fail(f"nothing came for {timeout:g} s")

    async def read_all(self, limit: int = 1 << 26) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in self:
            parts.append(part)
            size += len(part)
            if size > limit:
                self.close()
                raise TransportError(f"the answer is larger than {limit} bytes", sent=True)
        return b"".join(parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    def close(self) -> None:
        """Give up the rest of the answer."""
        self._connection.stream = None
        self._ended = True
        self._connection.close("closed by the reader")
        self._wake()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class HttpClient:
    """A pool of at most `pool` connections to one server.  Streams have connections of their own
    beside it.

    Must be used on one event loop.  `request` and `stream` take headers as one block of bytes,
    `Name: value\\r\\n` each, so that a caller builds what never changes once.
    """

    def __init__(self, target: Target, *, pool: int = 16) -> None:
        if pool < 1:
            raise ValueError(f"pool={pool}: at least one connection is needed")
        self.target = target
        self._pool = pool
        self._fixed = b" HTTP/1.1\r\nHost: " + target.authority + b"\r\n"
        self._prefix = b""
        if target.proxy and not target.tls:
            # A plain-HTTP server behind a proxy: the request names the whole URL.
            self._prefix = str(target).encode()
            self._fixed += target.proxy.authorization
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._streams: set[_Connection] = set()
        self._open = 0
        self._waiters: deque[asyncio.Future[_Connection | None]] = deque()
        self._urgent: deque[asyncio.Future[_Connection | None]] = deque()
        """Waiters that come before all of `_waiters`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        headers: bytes = b"",
        body: bytes = b"",
        timeout: float | None = None,
        *,
        urgent: bool = False,
    ) -> Response:
        """One request, one whole answer.  Raises TransportError (TimedOut) when there is none.

        Where all connections are busy it waits its turn, or with `urgent` before all others: see
        `Client.urgent`.
        """
        head = b"%b %b%b%b%bContent-Length: %d\r\n\r\n" % (
            method.encode(),
            self._prefix,
            path.encode(),
            self._fixed,
            headers,
            len(body),
        )
        while True:
            if not self._idle or (connection := self._idle.pop()).closed:
                connection = await self._acquire(urgent)
            fresh = connection.status == 0
            loop = connection.loop
            answer: asyncio.Future[Response] = loop.create_future()
            connection.answer = answer
            connection.deadline = loop.time() + (timeout or DEFAULT_TIMEOUT)
            self._busy.add(connection)
            connection.send(head, body)
            try:
                return await answer
            except TransportError as error:
                if (
                    fresh
                    or connection.received
                    or method not in REPEATABLE
                    or isinstance(error, TimedOut)
                    or self._closed
                ):
                    raise self._explained(error, method, path) from None
            except asyncio.CancelledError:
                if connection.answer is answer:
                    # Otherwise the answer has just arrived, and another request has the connection.
                    connection.answer = None
                    connection.close("the request was given up")
                raise

    async def stream(
        self,
        method: str,
        path: str,
        headers: bytes = b"",
        body: bytes = b"",
        timeout: float | None = None,
    ) -> Stream:
        """One request whose answer is read in pieces; returns after status and headers."""
        connection = await self._connect()
        connection.on_lost = self._streams.discard
        self._streams.add(connection)
        stream = connection.stream = Stream(connection)
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        line = (method.encode(), self._prefix, path.encode(), self._fixed, headers, length)
        limit = timeout or DEFAULT_TIMEOUT
        connection.send(b"%b %b%b%b%b%b\r\n" % line, body)
        try:
            async with asyncio.timeout(limit):
                await stream._started
        except TimeoutError:
            stream.close()
            raise TimedOut(
                f"{self.target}: no answer to {method} {path} within {limit:g} s", sent=True
            ) from None
        except TransportError as error:
            raise self._explained(error, method, path) from None
        except asyncio.CancelledError:
            stream.close()
            raise
        return stream

    def _explained(self, error: TransportError, method: str, path: str) -> TransportError:
        return type(error)(
            f"{self.target}: {method} {path.partition('?')[0]}: {error}", sent=error.sent
        )

    # the pool

    async def _acquire(self, urgent: bool) -> _Connection:
        while True:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
            if self._closed:
                raise TransportError(f"the client of {self.target} is closed", sent=False)
            if self._open < self._pool:
                self._open += 1
                try:
                    connection = await self._connect()
                except BaseException:
                    self._open -= 1
                    self._wake_waiter(None)
                    raise
                connection.on_free = self._released
                connection.on_lost = self._lost
                return connection
            waiter: asyncio.Future[_Connection | None] = asyncio.get_running_loop().create_future()
            (self._urgent if urgent else self._waiters).append(waiter)
            try:
                given = await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    # It has just been given a connection: pass it on.
                    handed = waiter.result()
                    if handed is None or handed.closed:
                        self._wake_waiter(None)
                    else:
                        self._released(handed)
                raise
            if given is not None and not given.closed:
                return given

    def _released(self, connection: _Connection) -> None:
        """The answer is complete: the connection is free for the next request."""
        self._busy.discard(connection)
        if connection.closed:
            return  # _lost follows and wakes a waiter
        if (self._urgent or self._waiters) and self._wake_waiter(connection):
            return
        connection.deadline = connection.loop.time() + IDLE_LIMIT
        self._idle.append(connection)

    def _lost(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        self._open -= 1
        self._wake_waiter(None)

    def _wake_waiter(self, connection: _Connection | None) -> bool:
        while self._urgent or self._waiters:
            waiter = (self._urgent or self._waiters).popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _sweep(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        for connection in [c for c in self._busy if c.deadline < now]:
            connection.reason = "no answer within the time allowed"
            connection.fail(connection.reason)
        if self._idle and self._idle[0].deadline < now:  # the oldest are at the bottom
            expired = [c for c in self._idle if c.deadline < now or c.closed]
            self._idle = [c for c in self._idle if c.deadline >= now and not c.closed]
            for connection in expired:
                connection.close()
        self._sweeper = (
            self._loop.call_later(SWEEP_PERIOD, self._sweep) if not self._closed else None
        )

    # connections

    async def _connect(self) -> _Connection:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._sweeper = self._loop.call_later(SWEEP_PERIOD, self._sweep)
        loop, target = self._loop, self.target
        make = partial(_Connection, loop)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                if target.unix:
                    _, protocol = await loop.create_unix_connection(make, target.unix)
                    return protocol
                context = target.tls() if target.tls else None
                name = (target.server_name or target.host) if context else None
                if target.proxy is not None:
                    return await open_tunnel(
                        loop, target.proxy, target.host, target.port, context, name, make
                    )
                transport, protocol = await loop.create_connection(
                    make, target.host, target.port, ssl=context, server_hostname=name
                )
                keep_alive(transport)
                return protocol
        except TimeoutError:
            raise TimedOut(
                f"{target}: no connection within {CONNECT_TIMEOUT:g} s", sent=False
            ) from None
        except ssl.SSLCertVerificationError as error:
            reason = f"the server's certificate is not trusted: {error.verify_message}"
            raise TransportError(f"{target}: {reason}", sent=False) from None
        except ssl.SSLError as error:
            raise TransportError(
                f"{target}: TLS failed: {error.reason or error}", sent=False
            ) from None
        except FileNotFoundError:
            raise TransportError(
                f"{target}: no such socket; the server is not running", sent=False
            ) from None
        except ConnectionRefusedError:
            refused = (
                f"the proxy {target.proxy.host} refused"
                if target.proxy
                else "connection refused; the server is not running"
            )
            raise TransportError(f"{target}: {refused}", sent=False) from None
        except OSError as error:
            raise TransportError(f"{target}: {error.strerror or error}", sent=False) from None

    def drop_idle(self) -> None:
        """Close all idle connections, so that the next requests open new ones."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def close(self) -> None:
        """Close every connection; requests in flight fail."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in [*self._idle, *self._busy, *self._streams]:
            connection.fail("the client was closed")
        self._idle.clear()
        for waiter in (*self._urgent, *self._waiters):
            if not waiter.done():
                waiter.set_result(None)
        await asyncio.sleep(0)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel detect within a minute that the peer has vanished; a watch may be silent for
    long."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
