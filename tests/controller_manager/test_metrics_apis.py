"""What a metrics API answers that a cluster's own would not, and how often it is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import Connection
from hekla.kube.http.client import Target
from hekla.kube.http.server import Request, Response, serve
from hekla.local.controller_manager.autoscaling.custom_metrics import CUSTOM, CustomMetrics
from hekla.local.controller_manager.autoscaling.replicas import NoReplicas
from hekla.local.controller_manager.autoscaling.usage import Reader

NOW = "2026-01-02T03:04:05Z"
PERIOD = 15.0
GROUP = f"/apis/{CUSTOM}"


@dataclass
class Answering:
    """A server of metrics, and a client of it."""

    client: Client
    now: float = 1000.0
    version: str = "v1beta2"
    items: list[Json] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Response:
        self.asked.append(request.path)
        versions = [{"version": self.version}]
        body: Json = {"versions": versions} if request.path == GROUP else {"items": self.items}
        return Response(200, json.dumps(body).encode())

    def custom(self) -> CustomMetrics:
        return CustomMetrics(self.client, lambda *_: "", PERIOD, lambda: self.now)


@pytest_asyncio.fixture
async def answering(tmp_path: Path) -> AsyncIterator[Answering]:
    socket = tmp_path / "s"
    async with Client(Connection(Target(unix=str(socket)))) as client:
        made = Answering(client)
        server = await serve(made, unix=socket)
        yield made
        await server.close(grace=0)


def measured(value: str = "30", timestamp: str = NOW) -> Json:
    return {"describedObject": {"name": "p"}, "timestamp": timestamp, "value": value}


async def test_the_version_is_asked_once_in_a_period(answering: Answering) -> None:
    answering.items = [measured()]
    custom = answering.custom()
    for metric in ("hits", "misses"):
        found = await custom.of_pods("default", "app=web", metric, None)
        assert found["p"].value == 30_000
    assert [path for path in answering.asked if path == GROUP] == [GROUP]
    assert answering.asked[-1] == f"{GROUP}/v1beta2/namespaces/default/pods/*/misses"
    answering.version = "v1beta1"
    answering.now += PERIOD
    await custom.of_pods("default", "app=web", "hits", None)
    assert answering.asked[-2:] == [GROUP, f"{GROUP}/v1beta1/namespaces/default/pods/*/hits"]


@pytest.mark.parametrize("timestamp", ["yesterday", "0001-01-01T00:00:00"])
async def test_an_adapter_s_time_that_is_none_is_said(answering: Answering, timestamp: str) -> None:
    answering.items = [measured(timestamp=timestamp)]
    with pytest.raises(NoReplicas, match=f"the adapter's timestamp '{timestamp}' is no time"):
        await answering.custom().of_pods("default", "", "hits", None)


@pytest.mark.parametrize("wrong", [
    {"timestamp": "yesterday"},
    {"window": "long"},
    {"containers": [{"name": "c", "usage": {"cpu": "many"}}]},
])  # fmt: skip
async def test_what_a_metrics_server_says_that_nobody_can_read_is_said(
    answering: Answering, wrong: Json
) -> None:
    used = {"name": "c", "usage": {"cpu": "100m"}}
    whole = {"metadata": {"name": "p"}, "timestamp": NOW, "window": "15s", "containers": [used]}
    reader = Reader(answering.client)
    answering.items = [whole]
    assert (await reader.samples("default", "", "cpu", ""))["p"].value == 100
    answering.items = [{**whole, **wrong}]
    with pytest.raises(NoReplicas, match="what the metrics API says cannot be read: "):
        await reader.samples("default", "", "cpu", "")
