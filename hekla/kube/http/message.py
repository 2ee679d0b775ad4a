"""Requests as handlers get them, and the answers that they may return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs, unquote

if TYPE_CHECKING:
    from hekla.kube.http.connection import Body

REASONS: dict[int, bytes] = {
    101: b"Switching Protocols", 200: b"OK", 201: b"Created", 202: b"Accepted", 204: b"No Content", 301: b"Moved Permanently",
    304: b"Not Modified", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden", 404: b"Not Found",
    405: b"Method Not Allowed", 406: b"Not Acceptable", 408: b"Request Timeout", 409: b"Conflict", 410: b"Gone",
    411: b"Length Required", 413: b"Request Entity Too Large", 415: b"Unsupported Media Type", 422: b"Unprocessable Entity",
    429: b"Too Many Requests", 431: b"Request Header Fields Too Large", 500: b"Internal Server Error", 501: b"Not Implemented",
    502: b"Bad Gateway", 503: b"Service Unavailable", 504: b"Gateway Timeout", 507: b"Insufficient Storage",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Peer:
    """The client, as far as the connection identifies it."""

    address: str = ""
    common_name: str = ""
    """Subject of the verified client certificate; empty without one."""
    organizations: tuple[str, ...] = ()
    certificate: str = ""
    """The SHA-256 of that certificate, in hexadecimal digits."""
    user_id: int | None = None
    """The user of the process at the other end of a Unix socket."""

    @property
    def known(self) -> bool:
        """Whether the connection itself identifies the client."""
        return bool(self.common_name) or self.user_id is not None


class Request:
    """One request with its whole body."""

    __slots__ = ("_options", "body", "headers", "method", "notes", "path", "peer", "query")

    def __init__(
        self, method: str, path: str, query: str, headers: dict[str, str], body: bytes, peer: Peer
    ) -> None:
        self.method = method
        self.path = path
        """Without the query, percent-decoded."""
        self.query = query
        self.headers = headers
        """Names in lower case; repeated ones joined by a comma."""
        self.body = body
        self.peer = peer
        self.notes: dict[str, str] | None = None
        """Annotations for the audit log."""
        self._options: dict[str, list[str]] | None = None

    @property
    def options(self) -> dict[str, list[str]]:
        """The query, parsed; names that cannot be decoded keep replacement characters."""
        options = self._options
        if options is None:
            options = (
                parse_qs(self.query, keep_blank_values=True, errors="replace") if self.query else {}
            )
            self._options = options
        return options

    def option(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        if not self.query:
            return default
        values = self.options.get(name)
        return values[0] if values else default

    def flag(self, name: str) -> bool:
        """A boolean query parameter: every value means true, except `0` and `false` (in any case)."""
        return (
            bool(self.query)
            and name in self.options
            and self.option(name).lower() not in ("0", "false")
        )


@dataclass(slots=True)
class Response:
    """An answer whose body is complete."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None


@dataclass(slots=True)
class Stream:
    """An answer that is written piece by piece.

    `run(body)` writes to the body until it returns; it is cancelled when the client disconnects.
    """

    run: Callable[[Body], Awaitable[None]]
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None
    length: int | None = None

    @classmethod
    def of(
        cls, chunks: AsyncIterator[bytes], content_type: str = "text/plain", status: int = 200
    ) -> Stream:
        """Stream the pieces of an iterator, with back-pressure."""

        async def run(body: Body) -> None:
            async for chunk in chunks:
                body.write(chunk)
                await body.drain()

        return cls(run, status, content_type)


@dataclass(slots=True)
class Upgrade:
    """Leaves HTTP: after the 101 answer the connection belongs to the protocol that `take` returns.

    `take(transport, rest)` gets the bytes that followed the request.
    """

    take: Callable[[asyncio.Transport, bytes], asyncio.BaseProtocol]
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 101


Answer = Response | Stream | Upgrade


class Handler(Protocol):
    """Answers at once, or returns an awaitable."""

    def __call__(self, request: Request, /) -> Answer | Awaitable[Answer]: ...


def split_target(target: bytes) -> tuple[str, str]:
    """The path (percent-decoded) and the query of a request target."""
    text = target.decode("latin-1")
    if not text.startswith("/"):
        # absolute form: http://host/path?query, as proxies send it
        scheme = text.find("://")
        slash = text.find("/", scheme + 3) if scheme >= 0 else -1
        text = text[slash:] if slash >= 0 else "/"
    path, _, query = text.partition("?")
    if "%" in path:
        path = unquote(path, errors="replace")
    return path, query
