"""Where a server listens that was given a port and no address."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from hekla.kube.http.message import Request, Response
from hekla.kube.http.server import serve


async def who(request: Request) -> Response:
    return Response(200, request.peer.address.encode(), "text/plain")


async def answer_of(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return text.partition("\r\n\r\n")[2]


async def test_every_address_is_one_port_of_both_families() -> None:
    server = await serve(who, host="", port=0)
    try:
        assert await answer_of("127.0.0.1", server.port) == "127.0.0.1"
        if socket.has_dualstack_ipv6():
            assert await answer_of("::1", server.port) == "::1"
        with pytest.raises(OSError) as taken:
            await serve(who, host="", port=server.port)
        assert taken.value.errno == errno.EADDRINUSE
    finally:
        await server.close()


async def test_without_the_newer_family_it_is_the_older_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel may know IPv6 and not be allowed to use it."""
    made = socket.create_server

    def refused(*words: Any, **more: Any) -> socket.socket:
        if more.get("family") == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "no such address")
        return made(*words, **more)

    monkeypatch.setattr(socket, "create_server", refused)
    server = await serve(who, host="", port=0)
    try:
        assert await answer_of("127.0.0.1", server.port) == "127.0.0.1"
    finally:
        await server.close()
