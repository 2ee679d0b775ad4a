"""A small synchronous client for stories about the server: one line a request, trees in and out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.apiserver_process import ApiServerProcess, UnixConnection

JSON_PATCH, MERGE, STRATEGIC = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def tree(self) -> dict[str, Any]:
        tree = json.loads(self.body)
        assert isinstance(tree, dict)
        return tree

    @property
    def message(self) -> str:
        return str(self.tree.get("message", ""))

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.tree["items"]]

    @property
    def version(self) -> str:
        return str(self.tree["metadata"]["resourceVersion"])

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:500]!r}"


class Http:
    """Requests to one server, on one kept-alive connection through the Unix socket."""

    def __init__(self, server: ApiServerProcess) -> None:
        self.server = server
        self.connection = UnixConnection(server.socket)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, data, sent)
        answer = self.connection.getresponse()
        received: dict[str, str] = {}
        for key, value in answer.getheaders():
            known = received.get(key.lower())
            received[key.lower()] = f"{known}, {value}" if known else value
        return Answer(answer.status, received, answer.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any, content_type: str = "application/json") -> Answer:
        return self.request("POST", path, body, Content_Type=content_type)

    def put(self, path: str, body: Any) -> Answer:
        return self.request("PUT", path, body, Content_Type="application/json")

    def patch(self, path: str, body: Any, content_type: str = MERGE) -> Answer:
        return self.request("PATCH", path, body, Content_Type=content_type)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.request("DELETE", path, body, Content_Type="application/json")

    @contextmanager
    def watch(self, path: str, **headers: str) -> Iterator[Watched]:
        connection = UnixConnection(self.server.socket, 20)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        try:
            yield Watched(answer)
        finally:
            connection.close()


class Watched:
    """The events of a watch."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.status = answer.status

    def next(self) -> dict[str, Any]:
        line = self.answer.readline()
        if not line:
            raise EOFError("the watch has ended")
        event = json.loads(line)
        assert isinstance(event, dict)
        return event

    def take(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next events."""
        return [
            (event["type"], event["object"]["metadata"].get("name", ""))
            for event in (self.next() for _ in range(count))
        ]

    def rest(self) -> list[dict[str, Any]]:
        found = []
        while line := self.answer.readline():
            found.append(json.loads(line))
        return found


def until(condition: Callable[[], Any]) -> None:
    """Waits for what the server does by itself after it has answered; a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def config_map(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "busybox", "command": ["sleep", "1"]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, **spec},
    }
