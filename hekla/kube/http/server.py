"""The server under every daemon: its sockets, its connections, and what it holds of requests that
have not come to their end."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import socket
import ssl as tls
import stat
from pathlib import Path

from hekla.kube.http.connection import Body, Connection
from hekla.kube.http.message import Handler, Peer, Request, Response, Stream, Upgrade

__all__ = ["Body", "Peer", "Request", "Response", "Server", "Stream", "Upgrade", "serve"]

log = logging.getLogger("hekla.http")

MAX_BODY = 3 * 1024 * 1024
BACKLOG = 1024
"""The backlog: connections that wait to be accepted."""
SWEEP_SECONDS = 2.0
MOST_HELD = 64 * 1024 * 1024
"""Bytes of all incomplete requests together: their clients are not authenticated yet."""
WORTH_GIVING_BACK = 16 * 1024 * 1024
LINGER = 0.5
"""Seconds for which a refused body is read and dropped, so that the client can read the answer."""
MOST_LINGERING = 32
TLS_ROOM = 512 * 1024
"""Bytes that uvloop and OpenSSL keep, roughly, for a connection that has sent much at once."""


def is_listening(path: Path) -> bool:
    """Whether a process listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def everywhere(port: int) -> socket.socket:
    """A socket on a port of all addresses.  Raises OSError if it is taken."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno not in (
                errno.EADDRNOTAVAIL,
                errno.EAFNOSUPPORT,
            ):
                # The kernel has IPv6, but it is disabled.
                raise
    return socket.create_server(("", port), backlog=BACKLOG)


class Server:
    """A listening socket and its connections."""

    def __init__(self, handler: Handler, max_body: int = MAX_BODY) -> None:
        self.handler = handler
        self.max_body = max_body
        self.connections: set[Connection] = set()
        self.closing = False
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self.port = 0
        self.held = 0
        """Bytes of incomplete requests."""
        self._unfinished: dict[Connection, None] = {}
        """Their connections, the oldest first."""
        self._released = 0
        self.lingering: dict[Connection, tuple[asyncio.TimerHandle, ...]] = {}
        """Connections that were refused and may still read why, the oldest first, with what will
        close them."""
        self._sweeper: asyncio.TimerHandle | None = None

    def hold(self, connection: Connection, size: int) -> None:
        """Count a piece of an incomplete request.  Above the limit the slowest clients are closed,
        unknown ones first."""
        self.held += size
        self._unfinished[connection] = None
        if self.held > MOST_HELD:
            self._give_up_the_slowest()
            # Now, not in the next sweep: until then as much again could arrive.
            self._give_back()

    def _give_up_the_slowest(self) -> None:
        for known in (False, True):
            for slow in [one for one in self._unfinished if one.peer.known is known]:
                if self.held <= MOST_HELD * 3 // 4:
                    return
                slow.give_up(429, "too many requests that are not whole; try again")

    def release(self, connection: Connection, size: int) -> None:
        self.held -= size
        self._released += size
        self._unfinished.pop(connection, None)

    def linger(self, connection: Connection, transport: asyncio.Transport) -> None:
        """Close a refused connection after a moment; if there are many, the oldest at once, because
        TLS keeps `TLS_ROOM` for each."""
        loop = asyncio.get_running_loop()
        self.lingering[connection] = (
            loop.call_later(LINGER, transport.close),
            # TLS would wait half a minute for the peer's close_notify.
            loop.call_later(3 * LINGER, transport.abort),
        )
        if len(self.lingering) > MOST_LINGERING:
            oldest = next(iter(self.lingering))
            if oldest.transport is not None:
                oldest.transport.abort()
            self.lost(oldest)

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection: its timers would keep TLS buffers alive."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._released += TLS_ROOM
        for timer in self.lingering.pop(connection, ()):
            timer.cancel()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [one for one in self.connections if one.overdue(now)]:
            connection.give_up(408, "the request did not come in time")
        if self.held < self._released:
            self._give_back()
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def _give_back(self) -> None:
        if self._released > WORTH_GIVING_BACK:
            self._released = 0
            give_back()

    def refusal(self, status: int, text: str) -> Response:
        """The answer to invalid requests.  Daemons with an error format of their own replace it."""
        return Response(status, text.encode(), "text/plain")

    def failure(self, request: Request, error: BaseException) -> Response:
        """The answer when a handler raised."""
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return Response(500, b"internal error\n", "text/plain")

    async def listen_tcp(self, host: str, port: int, ssl: tls.SSLContext | None = None) -> None:
        """Listen on TCP.  An empty host is every address, of both families by one socket: two
        sockets would get two ports where any free one is taken."""
        loop = asyncio.get_running_loop()
        where = {"host": host, "port": port} if host else {"sock": everywhere(port)}
        self._server = await loop.create_server(
            lambda: Connection(self), **where, ssl=ssl, backlog=BACKLOG
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._sweep()

    async def listen_unix(self, path: Path) -> None:
        """Listen on a Unix socket that only its owner may open."""
        loop = asyncio.get_running_loop()
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            if is_listening(path):
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), str(path))
            path.unlink()  # left behind by a process that was killed
        mask = os.umask(0o177)
        try:
            self._server = await loop.create_unix_server(
                lambda: Connection(self), str(path), backlog=1024
            )
        finally:
            os.umask(mask)
        self._path = path
        self._sweep()

    async def close(self, grace: float = 1.0) -> None:
        """Stop listening, let running requests end for a moment, then drop the rest."""
        self.closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            if connection.transport is not None and (
                not connection.busy or connection.body is not None
            ):
                connection.transport.close()
        deadline = asyncio.get_running_loop().time() + grace
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


async def serve(
    handler: Handler,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    unix: str | Path | None = None,
    ssl: tls.SSLContext | None = None,
    max_body: int = MAX_BODY,
) -> Server:
    """Listen on a TCP port (0: any free one, then `server.port`) or a Unix socket.  Raises OSError."""
    server = Server(handler, max_body)
    if unix is not None:
        await server.listen_unix(Path(unix))
    else:
        await server.listen_tcp(host, port or 0, ssl)
    return server


def give_back() -> None:
    """Return freed memory to the system; otherwise the memory of many large bodies stays with the
    process."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        # This is glibc; other libraries return memory of that size by themselves.
        library.malloc_trim(0)
