"""What nodes really use comes from a monitoring system, and decides where pods go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hekla.engine.policies import read_policy
from hekla.engine.world import World
from hekla.scheduler.node_usage import LoadCollector, cpu_query, memory_query


class Monitoring(BaseHTTPRequestHandler):
    """Both a Prometheus and an Elasticsearch; `said` by query or node."""

    said: dict[str, Any] = {}
    asked: list[Any] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        value = self.said.get(query)
        result = [] if value is None else [{"metric": {}, "value": [1, str(value)]}]
        self.answer({"status": "success", "data": {"resultType": "vector", "result": result}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((self.path, body, self.headers.get("Authorization")))
        node = next(iter(body["query"]["bool"]["must"][1]["term"].values()))
        cpu, memory = self.said[node]
        self.answer({"aggregations": {"cpu": {"value": cpu}, "mem": {"value": memory}}})

    def answer(self, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Monitoring)
    Monitoring.said, Monitoring.asked = {}, []
    Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()


def world() -> World:
    here = World(
        read_policy(
            {"actions": "allocate", "tiers": [{"plugins": [{"name": "gang"}, {"name": "usage"}]}]}
        )
    )
    here.nodes("busy", "idle", cpu=8)
    return here


def collector(here: World, settings: dict[str, str], client: Any = None) -> LoadCollector:
    return LoadCollector(client, here.state, lambda: settings, lambda: None)


async def test_prometheus_is_asked_about_each_node(address):
    Monitoring.said = {cpu_query("busy"): 95.5, memory_query("busy"): 20, cpu_query("idle"): "NaN"}
    here = world()
    settings = {"type": "prometheus", "address": f"{address}/"}
    found = await collector(here, settings).ask(settings)
    assert {name: load[:2] for name, load in found.items()} == {
        "busy": (95.5, 20.0),
        "idle": (0.0, 0.0),
    }

    collector(here, settings).take(found)
    here.now = found["busy"].at
    here.job("one", pods=1, cpu=1)
    assert here.run().bound() == {"default/one-task-0": "idle"}


async def test_elasticsearch_is_asked_about_each_node(address):
    Monitoring.said = {"busy": (0.9, 0.5), "idle": (0.1, None)}
    settings = {
        "type": "elasticsearch",
        "address": address,
        "elasticsearch.index": "beats",
        "elasticsearch.username": "me",
        "elasticsearch.password": "secret",
    }
    found = await collector(world(), settings).ask(settings)
    assert {name: load[:2] for name, load in found.items()} == {
        "busy": (90.0, 50.0),
        "idle": (10.0, 0.0),
    }
    path, body, authorization = Monitoring.asked[0]
    assert path == "/beats/_search" and body["size"] == 0 and authorization == "Basic bWU6c2VjcmV0"


class Adaptor:
    """The custom metrics API."""

    async def request(self, method: str, path: str) -> Any:
        metric = path.rpartition("/")[2]
        value = {"node_cpu_usage_avg": "930m", "node_memory_usage_avg": "250m"}[metric]
        items = [
            {"describedObject": {"name": name}, "timestamp": "2026-01-01T00:00:00Z", "value": value}
            for name in ("busy", "unknown")
        ]

        class Answer:
            body = json.dumps({"items": items}).encode()

        return Answer()


async def test_the_adaptor_names_its_nodes_and_times():
    settings = {"type": "prometheus_adaptor"}
    found = await collector(world(), settings, Adaptor()).ask(settings)
    assert found == {"busy": (93.0, 25.0, 1767225600.0)}


class MetricsServer:
    """The resource metrics API, a measurement a minute later each time."""

    def __init__(self) -> None:
        self.minute = 0

    async def request(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
        items = [
            {
                "metadata": {"name": name},
                "timestamp": f"2026-01-01T00:{self.minute:02}:00Z",
                "usage": {"cpu": f"{self.minute * 800_000_000}n", "memory": "1Gi"},
            }
            for name in ("busy", "unknown")
        ]
        self.minute += 1

        class Answer:
            body = json.dumps({"items": items}).encode()

        return Answer()


async def test_the_metrics_servers_measurements_are_averaged_here():
    here = world()
    here.nodes("large", cpu=16, memory=8 << 30)
    settings = {"type": "metrics_server"}
    made = collector(here, settings, MetricsServer())
    found = await made.ask(settings)
    assert found["busy"][:1] == (0.0,) and set(found) == {"busy"}
    assert (await made.ask(settings))["busy"].cpu == pytest.approx(5.0)
    for _ in range(18):
        found = await made.ask(settings)
    # The last eleven minutes, of 20: from 9 to 19 times a tenth of 8 cores.
    assert found["busy"].cpu == pytest.approx(140.0)


async def test_a_kind_that_nobody_knows_is_said_once(caplog):
    settings = {"type": "crystal ball", "interval": "1ms"}
    made = collector(world(), settings)
    for _ in range(2):
        with pytest.raises(ValueError, match="crystal ball"):
            await made.ask(settings)
        made.complain("the load of nodes cannot be had")
    assert len(caplog.records) == 1
