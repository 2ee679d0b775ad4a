"""What a server does with requests that do not come to their end: it waits so long, and holds so
much of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hekla.kube.http import server as http
from hekla.kube.http.connection import HEAD_SECONDS, IDLE_SECONDS, WHOLE_SECONDS, Connection
from hekla.kube.http.message import Response
from hekla.kube.http.server import MOST_LINGERING, Peer, Server

HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
NOW = 1000.0


class Wire(asyncio.Transport):
    """The other side of a connection, which keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    yield Server(lambda request: Response(200, b"%d" % len(request.body)))


def connected(server: Server, peer: Peer | None = None) -> tuple[Connection, Wire]:
    connection, wire = Connection(server), Wire()
    connection.connection_made(wire)
    connection.peer = peer or Peer("192.0.2.1")
    return connection, wire


async def test_a_head_a_body_and_the_next_request_have_their_time(server: Server) -> None:
    silent, heading, sending, idle = (connected(server)[0] for _ in range(4))
    heading.data_received(b"GET / HTTP/1.1\r\nHost:")
    sending.data_received(HEAD % 100 + b"x")
    idle.data_received(HEAD % 1 + b"x")
    for connection in (silent, heading, sending, idle):
        assert not connection.overdue(NOW)  # the first look
    late = {
        NOW + HEAD_SECONDS - 1: [],
        NOW + HEAD_SECONDS + 1: [silent, heading],
        NOW + WHOLE_SECONDS + 1: [silent, heading, sending],
        NOW + IDLE_SECONDS + 1: [silent, heading, sending, idle],
    }
    for now, wanted in late.items():
        assert [
            connection for connection in (silent, heading, sending, idle) if connection.overdue(now)
        ] == wanted
    idle.data_received(HEAD % 1 + b"x")
    assert not idle.overdue(NOW + IDLE_SECONDS + 2)


async def test_one_that_comes_byte_by_byte_gets_no_more_time(server: Server) -> None:
    slow, wire = connected(server)
    for number, byte in enumerate(HEAD % 5):
        slow.data_received(bytes([byte]))
        if slow.overdue(NOW + number):
            slow.give_up(408, "the request did not come in time")
            break
    assert wire.written.startswith(b"HTTP/1.1 408 ") and number > HEAD_SECONDS


async def test_strangers_together_hold_no_more_than_a_budget(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MOST_HELD", 100_000)
    friend, friendly = connected(server, Peer(common_name="kubernetes-admin"))
    friend.data_received(HEAD % 50_000 + b"x" * 20_000)
    others = [connected(server) for _ in range(20)]
    for connection, _ in others:
        connection.data_received(HEAD % 50_000 + b"x" * 10_000)
        assert server.held <= 100_000
    refused = [wire.written.startswith(b"HTTP/1.1 429 ") for _, wire in others]
    assert refused == sorted(refused, reverse=True) and 10 < sum(refused) < 20  # the oldest
    friend.data_received(b"x" * 30_000)
    assert friendly.written.startswith(b"HTTP/1.1 200 ")
    for connection, _ in others:
        connection.connection_lost(None)
    assert server.held == 0


async def test_of_many_refused_the_oldest_are_not_waited_for(server: Server) -> None:
    """A refused client has a moment to read why, and what TLS keeps for it stays that long."""
    wires = []
    for _ in range(MOST_LINGERING + 5):
        connection, wire = connected(server)
        connection.data_received(b"no HTTP\r\n\r\n")
        assert wire.written.startswith(b"HTTP/1.1 400 ")
        wires.append(wire)
    assert [wire.ended for wire in wires] == [True] * 5 + [False] * MOST_LINGERING
    assert len(server.lingering) == MOST_LINGERING


async def test_a_head_without_an_end_is_refused(server: Server) -> None:
    connection, wire = connected(server)
    connection.data_received(b"GET / HTTP/1.1\r\nX: ")
    for _ in range(20):
        connection.data_received(b"x" * 64 * 1024)
    assert wire.written.startswith(b"HTTP/1.1 431 ") and server.held == 0


async def test_what_comes_whole_is_not_counted(server: Server) -> None:
    connection, wire = connected(server)
    connection.data_received((HEAD % 3 + b"abc") * 3)
    connection.data_received(HEAD % 200_000 + b"x" * 100_000)
    assert server.held > 100_000
    connection.data_received(b"x" * 100_000)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.held == 0 and wire.written.count(b"HTTP/1.1 200 ") == 4
