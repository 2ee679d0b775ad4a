"""The scheduler's questions to an extender go over HTTP, and whatever comes back is understood or
refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hekla.engine.world import World, policy
from hekla.scheduler.extender import ExtenderClient


class Asked(BaseHTTPRequestHandler):
    """Answers by path."""

    protocol_version = "HTTP/1.1"
    answers: dict[str, tuple[int, bytes]] = {}
    heard: list[tuple[str, Any]] = []
    connections: set[Any] = set()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).heard.append((self.path, body))
        type(self).connections.add(self.client_address)
        status, answer = self.answers.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
    Asked.answers, Asked.heard, Asked.connections = {}, [], set()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()


def test_questions_share_a_connection(server):
    Asked.answers = {"/say": (200, b'{"status": 1}')}
    client = ExtenderClient()
    assert [client(f"{server}/say", {"n": number}, 5.0) for number in range(3)] == [
        {"status": 1}
    ] * 3
    assert [body for _, body in Asked.heard] == [{"n": 0}, {"n": 1}, {"n": 2}] and len(
        Asked.connections
    ) == 1


@pytest.mark.scenario("plugins-placement", 75)
def test_answers_that_are_none(server):
    Asked.answers = {
        "/large": (200, b'"' + b"x" * (10 << 20) + b'"'),
        "/busy": (503, b"{}"),
        "/text": (200, b"hello"),
        "/none": (200, b""),
    }
    client = ExtenderClient()
    with pytest.raises(ValueError, match="http: request body too large"):
        client(f"{server}/large", {}, 5.0)
    with pytest.raises(ValueError, match="answered 503"):
        client(f"{server}/busy", {}, 5.0)
    with pytest.raises(json.JSONDecodeError):
        client(f"{server}/text", {}, 5.0)
    assert client(f"{server}/none", {}, 5.0) is None
    with pytest.raises(OSError):
        client("http://127.0.0.1:1/say", {}, 1.0)
    with pytest.raises(ValueError, match="no address"):
        client("/say", {}, 1.0)


def test_it_decides_about_nodes(server):
    Asked.answers = {
        "/open": (200, b"fine, thank you"),
        "/fits": (200, b'{"status": "not today", "code": 2}'),
    }
    arguments = {
        "extender.urlPrefix": f"{server}/",
        "extender.onSessionOpenVerb": "open",
        "extender.predicateVerb": "fits",
    }
    here = World(
        policy(plugins=["gang", {"name": "extender", "arguments": arguments}], actions="allocate")
    )
    here.state.ask_extender = ExtenderClient()
    here.nodes("n1", cpu=4)
    here.job("one", pods=1, cpu=1)
    assert not here.run().binds and not here.decisions.problems
    assert "not today" in here.why("one")
    assert {path for path, _ in Asked.heard} == {"/open", "/fits"}
