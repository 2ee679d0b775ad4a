"""What Prometheus and the cluster's metrics APIs say becomes amounts; who is not measured is unknown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from hekla.descheduler.policy.arguments import Metrics, Queries
from hekla.descheduler.sources import Sources, fill, wanted
from hekla.descheduler.tables import Node
from hekla.kube.client import Client
from hekla.kube.errors import NotFound
from hekla.kube.http.message import Response
from hekla.monitoring.cluster_metrics import Sample
from tests.descheduler.stories import NOW, profile

NODES = {
    name: Node(
        name, capacity={"cpu": 4000, "memory": 1000}, allocatable={"cpu": 3000, "memory": 900}
    )
    for name in ("n1", "n2")
}


class Prometheus(BaseHTTPRequestHandler):
    """Rows by a word of the query."""

    said: dict[str, list[tuple[dict[str, str], Any]]] = {}
    asked: list[str] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        type(self).asked.append(query)
        rows = next((rows for word, rows in self.said.items() if word in query), [])
        result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in rows]
        body = json.dumps({"data": {"resultType": "vector", "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    Prometheus.asked, Prometheus.said = [], {}
    Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()


def of(name: str) -> dict[str, str]:
    return {"instance": name}


def pod(namespace: str, name: str) -> dict[str, str]:
    return {"namespace": namespace, "pod": name}


def sources(client: Any = None) -> Sources:
    return Sources(cast("Client", client), lambda: NOW)


async def test_prometheus_is_asked_a_few_questions_for_all(address: str) -> None:
    Prometheus.said = {
        "timestamp": [(of("n1"), NOW - 20), (of("n2"), NOW - 500), (of("gone"), NOW)],
        "node_cpu": [(of("n1"), 0.5), (of("n2"), "NaN"), (of("gone"), 0.1)],
        "node_memory": [(of("n1"), 0.25), (of("n2"), 0.5), (of("gone"), 0.1)],
        "container_cpu": [(pod("a", "p"), 0.2), (pod("b", "p"), 0.4)],
        "container_memory": [(pod("a", "p"), 100), (pod("b", "p"), 200)],
    }
    found = await sources().usage(Metrics(type="Prometheus", address=address), "5m", NODES)
    assert found.nodes == {
        "n1": Sample(2000, 250, NOW - 20, 420)
    }  # of the machine, not of what is allocatable
    assert {name: (one.cpu, one.memory) for name, one in found.pods.items()} == {
        "a/p": (200, 100),
        "b/p": (400, 200),
    }
    assert len(Prometheus.asked) == 5


async def test_samples_that_are_too_old_are_unknown(address: str) -> None:
    Prometheus.said = {
        "timestamp": [(of("n1"), NOW - 181), (of("n2"), NOW - 179)],
        "node_cpu": [(of("n1"), 0.5), (of("n2"), 0.5)],
        "node_memory": [(of("n1"), 0.5), (of("n2"), 0.5)],
    }
    metrics = Metrics(type="prometheus", address=address)
    found = await sources().usage(metrics, "2m", NODES)
    assert (set(found.nodes), found.stale, found.problem) == ({"n2"}, 1, "")
    Prometheus.said["timestamp"][1] = (of("n2"), NOW - 400)
    found = await sources().usage(metrics, "2m", NODES)
    assert found.problem == "the newest measurement of a node is 181 s old, older than 180 s"


@pytest.mark.scenario("descheduler", "N")
async def test_a_window_without_two_samples_is_said(address: str) -> None:
    metrics = Metrics(type="prometheus", address=address, rate_window="30s")
    found = await sources().usage(metrics, "2m", NODES)
    assert "Is metrics.rateWindow 30s longer than two scrape intervals" in found.problem
    assert '(rate(node_cpu_seconds_total{mode="idle"}[30s]))' in found.problem


async def test_a_prometheus_that_is_gone() -> None:
    metrics = Metrics(type="prometheus", address="http://127.0.0.1:1", timeout="1s")
    found = await sources().usage(metrics, "2m", NODES)
    assert found.problem.startswith("prometheus at http://127.0.0.1:1 cannot be asked: ")


async def test_queries_of_the_policy_are_filled_in(address: str) -> None:
    metrics = Metrics(
        type="prometheus",
        address=address,
        instance_label="node",
        step="15s",
        rate_window="4m",
        rate_function="irate",
        queries=Queries(
            node_cpu="avg_over_time(load:cpu{by='@instance'}[$duration:$step]) + $rate(x[$window])"
        ),
    )
    await sources().usage(metrics, "3m", NODES)
    assert "avg_over_time(load:cpu{by='node'}[3m0s:15s]) + irate(x[4m])" in Prometheus.asked
    assert fill("$rateWindow", metrics, "3m") == "4m"


class Api:
    """Answers of the cluster's metrics APIs by the end of their path."""

    def __init__(self, **answers: list[dict[str, Any]]) -> None:
        self.answers = answers

    async def request(self, method: str, path: str) -> Response:
        items = self.answers.get(path.rpartition("/")[2])
        if items is None:
            raise NotFound(404, b"")
        return Response(200, json.dumps({"items": items}).encode())


def measured(
    name: str, cpu: str, memory: str, at: str = "1970-01-12T13:46:30Z", **more: Any
) -> dict[str, Any]:
    usage = {"cpu": cpu, "memory": memory}
    shape = {"containers": [{"usage": usage}, {"usage": usage}]} if more else {"usage": usage}
    return {"metadata": {"name": name, **more}, "timestamp": at, "window": "15s", **shape}


async def test_a_metrics_server() -> None:
    api = Api(
        nodes=[measured("n1", "1500m", "1Ki")], pods=[measured("p", "100m", "10", namespace="a")]
    )
    found = await sources(api).usage(Metrics(type="metrics_server"), "2m", NODES)
    assert found.nodes == {"n1": Sample(1500, 1024, NOW - 10, 15)}
    assert found.pods == {"a/p": Sample(200, 20, NOW - 10, 15)}


async def test_a_node_that_lies_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [measured("n1", "-1", "10"), measured("n2", "5001m", "10")]
    found = await sources(Api(nodes=nodes, pods=[])).usage(
        Metrics(type="metrics_server"), "2m", NODES
    )
    assert found.nodes == {} and found.problem == "no node is measured"
    assert "node n1 cannot use cpu -1000 of 4000; it is left alone" in caplog.text
    assert "node n2 cannot use cpu 5001 of 4000" in caplog.text


async def test_an_adapter_without_measurements_of_pods() -> None:
    def item(name: str, value: str) -> dict[str, Any]:
        return {
            "describedObject": {"name": name},
            "value": value,
            "timestamp": "1970-01-12T13:46:30Z",
        }

    api = Api(
        node_cpu_usage_avg=[item("n1", "500m"), item("n2", "1")],
        node_memory_usage_avg=[item("n1", "100m"), item("gone", "1")],
    )
    found = await sources(api).usage(Metrics(type="prometheus_adaptor"), "2m", NODES)
    assert found.nodes == {"n1": Sample(2000, 100, NOW - 10, 120)}
    assert found.pods == {} and found.problem == ""


async def test_a_metrics_api_that_is_not_there() -> None:
    found = await sources(Api()).usage(Metrics(type="metrics_server"), "2m", NODES)
    assert found.problem.startswith("metrics_server cannot be asked: ")


def test_who_wants_what() -> None:
    aware = profile("LoadAware", "{metrics: {type: metrics_server}, thresholds: {cpu: 1}, targetThresholds: {cpu: 2}, duration: 3m}",
                    point="balance")  # fmt: skip
    assert wanted(aware) == {("p", "LoadAware"): (Metrics(type="metrics_server"), "3m")}
    low = "{thresholds: {cpu: 1}, targetThresholds: {cpu: 2}}"
    assert wanted(profile("LowNodeUtilization", low, point="balance")) == {}
