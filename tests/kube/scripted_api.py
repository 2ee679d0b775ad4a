"""An API server that does what a test tells it to: lists as set, watches as fed, failures as asked
for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from hekla.kube.client import Client
from hekla.kube.connection.config import Connection
from hekla.kube.http.client import Target
from hekla.kube.http.message import Request, Response, Stream
from hekla.kube.http.server import Body, Server, serve


def config_map(name: str, version: int, uid: str = "", **data: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "resourceVersion": str(version),
            "uid": uid or f"uid-{name}",
        },
        "data": data,
    }


def status(code: int, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
    }


def expired() -> dict[str, Any]:
    return status(410, "Expired", "too old resource version: 2 (453)")


class ScriptedApi:
    """`objects` and `version` are what a list gives; `feed` and `hang_up` act on the watches that
    are open."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.version = 1
        self.requests: list[Request] = []
        self.refusals: list[Response] = []
        """Answers to give to the next requests instead."""
        self.watches: list[Body] = []
        self.opened = asyncio.Event()
        self._release: dict[int, asyncio.Event] = {}

    async def handle(self, request: Request) -> Response | Stream:
        self.requests.append(request)
        if self.refusals:
            return self.refusals.pop(0)
        if request.flag("watch"):
            return Stream(self._watch)
        return self._list(request)

    def _list(self, request: Request) -> Response:
        limit = int(request.option("limit") or 0)
        start = int(request.option("continue") or 0)
        items = self.objects[start : start + limit] if limit else self.objects
        metadata: dict[str, Any] = {"resourceVersion": str(self.version)}
        if limit and start + limit < len(self.objects):
            metadata["continue"] = str(start + limit)
        return answer(
            200, {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}
        )

    async def _watch(self, body: Body) -> None:
        release = self._release[id(body)] = asyncio.Event()
        self.watches.append(body)
        self.opened.set()
        await release.wait()

    async def watching(self) -> None:
        """Wait until the next watch is open."""
        await self.opened.wait()
        self.opened.clear()

    def feed(self, *events: tuple[str, dict[str, Any]]) -> None:
        self.feed_lines(
            b"".join(
                msgspec.json.encode({"type": type_, "object": obj}) + b"\n" for type_, obj in events
            )
        )

    def feed_lines(self, lines: bytes) -> None:
        for body in self.watches:
            body.write(lines)

    def break_off(self) -> None:
        """Lose the connections of all watches, as a server that is killed does."""
        for body in self.watches:
            body.abort()
        self.watches.clear()

    def hang_up(self) -> None:
        """End all watches, as a server does at its time limit."""
        for body in self.watches:
            self._release[id(body)].set()
        self.watches.clear()


def answer(code: int, tree: dict[str, Any], **headers: str) -> Response:
    return Response(
        code,
        msgspec.json.encode(tree),
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


@asynccontextmanager
async def scripted_api(directory: Path) -> AsyncIterator[tuple[ScriptedApi, Client]]:
    api = ScriptedApi()
    server: Server = await serve(api.handle, unix=directory / "api")
    async with Client(Connection(Target(unix=str(directory / "api")))) as client:
        try:
            yield api, client
        finally:
            api.hang_up()
            await server.close(grace=0)
