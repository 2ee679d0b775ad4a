"""Probes against servers of this machine."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from hekla.api.kubernetes import core
from hekla.local.kubelet.runtime import grpc
from hekla.local.kubelet.runtime.grpc import DATA, END_STREAM, HEADERS, PREFACE, SETTINGS, frame
from hekla.local.kubelet.runtime.probes import Outcome, Target, attempt

TARGET = Target(None, "127.0.0.1", {})  # type: ignore[arg-type]


class HealthServer:
    """Speaks the little of gRPC that a probe hears."""

    def __init__(self) -> None:
        self.status = 1
        self.asked: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(PREFACE)) == PREFACE
        writer.write(frame(SETTINGS, 0, 0))
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == DATA:
                self.asked.append(payload[5:])
                break
        if self.status:
            writer.write(
                frame(HEADERS, 4, 1, b"\x88")
                + frame(DATA, 0, 1, b"\0\0\0\0\x02\x08" + bytes([self.status]))
            )
        writer.write(frame(HEADERS, 4 | END_STREAM, 1, b"\x88"))
        await writer.drain()
        writer.close()


@pytest.fixture
async def health() -> AsyncIterator[tuple[HealthServer, int]]:
    server = HealthServer()
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    yield server, listening.sockets[0].getsockname()[1]
    listening.close()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(1, Outcome(True)), (2, Outcome(False, 'service unhealthy (responded with "NOT_SERVING")'))],
)
async def test_grpc_servers_say_how_they_are(
    health: tuple[HealthServer, int], status: int, outcome: Outcome
) -> None:
    server, port = health
    server.status = status
    probe = core.Probe(grpc=core.GRPCAction(port=port, service="shop"))
    assert await attempt(probe, TARGET, 5) == outcome
    assert server.asked == [b"\x0a\x04shop"]


async def test_a_server_without_the_service_is_not_well(health: tuple[HealthServer, int]) -> None:
    server, port = health
    server.status = 0
    with pytest.raises(grpc.HealthError, match="no health service"):
        await grpc.health("127.0.0.1", port, "")
    outcome = await attempt(core.Probe(grpc=core.GRPCAction(port=port)), TARGET, 5)
    assert not outcome.good and outcome.text.startswith("error: ")


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        places = {
            "/moved": "/fine",
            "/away": "http://example.invalid/",
            "/round": "/round",
            "/lost": "/missing",
        }
        self.send_response(302 if self.path in places else 200 if self.path == "/fine" else 404)
        if self.path in places:
            self.send_header("Location", places[self.path])
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def pages() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "good", "text"),
    [
        ("/fine", True, ""),
        ("/moved", True, ""),
        ("/away", True, ""),
        ("/missing", False, "HTTP probe failed with statuscode: 404"),
        ("/lost", False, "HTTP probe failed with statuscode: 404"),
        ("/round", False, "stopped after 10 redirects"),
    ],
)
async def test_redirects_are_followed_on_the_same_host(
    pages: int, path: str, good: bool, text: str
) -> None:
    outcome = await attempt(
        core.Probe(http_get=core.HTTPGetAction(port=pages, path=path)), TARGET, 5
    )
    assert outcome.good is good
    assert outcome.good or text in outcome.text
