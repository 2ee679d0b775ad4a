"""The HTTP server by itself: streams, upgrades, peers, and clients that go away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from hekla.kube.http.server import Body, Request, Response, Server, Stream, Upgrade, serve

Answering = Callable[[Request], Response | Stream | Upgrade | Awaitable[Response]]


class Client:
    """A connection on which a story is told byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, text: str) -> tuple[str, dict[str, str], bytes]:
        self.writer.write(text.replace("\n", "\r\n").encode())
        return await self.answer()

    async def answer(self) -> tuple[str, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        return (
            head[0],
            headers,
            await self.reader.readexactly(int(headers.get("content-length", 0))),
        )


@pytest.fixture
async def listen(tmp_path: Path) -> AsyncIterator[Callable[[Answering], Awaitable[Client]]]:
    servers: list[Server] = []
    writers: list[asyncio.StreamWriter] = []

    async def start(handler: Answering) -> Client:
        path = tmp_path / f"{len(servers)}.sock"
        servers.append(await serve(handler, unix=path))
        reader, writer = await asyncio.open_unix_connection(str(path))
        writers.append(writer)
        return Client(reader, writer)

    yield start
    for writer in writers:
        writer.close()
    for server in servers:
        await server.close(0.1)


Listen = Callable[[Answering], Awaitable[Client]]


async def test_one_connection_many_requests(listen: Listen) -> None:
    seen: list[tuple[str, str, str, bytes]] = []

    async def handler(request: Request) -> Response:
        seen.append((request.method, request.path, request.option("a"), request.body))
        return Response(200, b"yes", "text/plain", {"X": "1\n2"})

    client = await listen(handler)
    status, headers, body = await client.ask(
        "POST /a%20b?a=1&a=2 HTTP/1.1\nContent-Length: 2\n\nhi"
    )
    assert (status, headers["x"], body) == ("HTTP/1.1 200 OK", "2", b"yes")
    await client.ask("GET http://host/c HTTP/1.1\n\n")
    assert seen == [("POST", "/a b", "1", b"hi"), ("GET", "/c", "", b"")]


async def test_the_process_at_the_other_end_is_known(listen: Listen) -> None:
    client = await listen(lambda request: Response(200, str(request.peer.user_id).encode()))
    assert (await client.ask("GET / HTTP/1.1\n\n"))[2] == str(os.getuid()).encode()


async def test_what_a_handler_throws_is_a_500(listen: Listen) -> None:
    async def handler(request: Request) -> Response:
        raise ValueError("oops")

    client = await listen(handler)
    status, _, body = await client.ask("GET / HTTP/1.1\n\n")
    assert status.startswith("HTTP/1.1 500")
    assert b"oops" not in body


async def test_expecting_clients_are_asked_to_go_on(listen: Listen) -> None:
    client = await listen(lambda request: Response(200, request.body))
    client.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.writer.write(b"ok")
    assert (await client.answer())[2] == b"ok"


async def test_a_stream_is_framed_and_ends(listen: Listen) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    client = await listen(lambda request: Stream.of(chunks()))
    client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert await client.reader.readuntil(b"0\r\n\r\n") == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_a_stream_waits_for_a_slow_reader(listen: Listen) -> None:
    written = 0

    async def run(body: Body) -> None:
        nonlocal written
        for _ in range(1000):
            body.write(b"x" * 100_000)
            written += 1
            await body.drain()

    client = await listen(lambda request: Stream(run))
    client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await client.reader.readuntil(b"\r\n\r\n")
    for _ in range(50):
        await asyncio.sleep(0)
    assert 0 < written < 100  # of 100 MB, no more than buffers hold
    total = 0
    while piece := await client.reader.read(1 << 20):
        total += len(piece)
        if piece.endswith(b"0\r\n\r\n"):
            break
    assert (written, total > 100_000_000) == (1000, True)


async def test_a_stream_ends_with_its_reader(listen: Listen) -> None:
    ended = asyncio.get_running_loop().create_future()

    async def run(body: Body) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set_result(True)

    client = await listen(lambda request: Stream(run))
    client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await client.reader.readuntil(b"\r\n\r\n")
    client.writer.close()
    assert await asyncio.wait_for(ended, 60)


async def test_a_broken_stream_is_seen_to_be_broken(listen: Listen) -> None:
    async def run(body: Body) -> None:
        body.write(b"half")
        raise RuntimeError("cannot go on")

    client = await listen(lambda request: Stream(run))
    client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    try:
        rest = await client.reader.read()
    except ConnectionResetError:
        rest = b""
    assert not rest.endswith(b"0\r\n\r\n")


async def test_an_upgrade_takes_the_connection(listen: Listen) -> None:
    class Echo(asyncio.Protocol):
        def __init__(self, transport: asyncio.Transport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data.upper())

    def take(transport: asyncio.Transport, rest: bytes) -> asyncio.BaseProtocol:
        transport.write(rest)
        return Echo(transport)

    client = await listen(lambda request: Upgrade(take, {"Upgrade": "echo"}))
    client.writer.write(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    client.writer.write(b"abc")
    assert await client.reader.readexactly(3) == b"ABC"


async def test_an_upgrade_that_is_not_wanted_is_an_ordinary_request(listen: Listen) -> None:
    client = await listen(lambda request: Response(200, b"plain"))
    _, headers, body = await client.ask("GET / HTTP/1.1\nConnection: Upgrade\nUpgrade: h2c\n\n")
    assert (headers["connection"], body) == ("close", b"plain")


async def test_a_write_goes_on_when_its_client_goes_away(listen: Listen) -> None:
    finished = asyncio.get_running_loop().create_future()

    async def handler(request: Request) -> Response:
        await asyncio.sleep(0.05)
        finished.set_result(True)
        return Response(200)

    client = await listen(handler)
    client.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    await client.writer.drain()
    client.writer.close()
    assert await asyncio.wait_for(finished, 60)
