"""A real Prometheus is asked: what nodes and pods use, in the window that the policy sets, and since when
it knows nothing new."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from hekla.descheduler.policy.arguments import LoadAwareArguments
from hekla.descheduler.policy.reader import read
from hekla.descheduler.sources import Sources
from hekla.descheduler.tables import Tables
from hekla.descheduler.usage import Usage
from hekla.kube.client import Client
from tests.clients.test_prometheus import BUILD_PATIENCE, program, running
from tests.descheduler.stories import node, pod, run

__all__ = ["program"]

GIB = 1 << 30
USE = {"n1": 0.9, "n2": 0.5, "n3": 0.1}
PODS = {"web-0": 3.0, "web-1": 1.5}
"""Cores that the pods of n1 use."""

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: hot
  pluginConfig:
  - name: LoadAware
    args:
      metrics: {type: Prometheus, address: "ADDRESS", rateWindow: 4s, step: 1s, expiration: 3s}
      duration: 3s
      thresholds: {cpu: 30}
      targetThresholds: {cpu: 80}
  plugins:
    balance: {enabled: [LoadAware]}
"""


class Exporter(BaseHTTPRequestHandler):
    """What a node exporter on each of three nodes says, and the kubelet of the first."""

    began = time.time()

    def do_GET(self) -> None:
        passed = time.time() - self.began
        lines = []
        for name, use in USE.items():
            for core in range(2):
                lines.append(
                    f'node_cpu_seconds_total{{cpu="{core}",mode="idle",instance="{name}"}} {passed * (1 - use)}'
                )
                lines.append(
                    f'node_cpu_seconds_total{{cpu="{core}",mode="user",instance="{name}"}} {passed * use}'
                )
            lines.append(f'node_memory_MemTotal_bytes{{instance="{name}"}} {8 * GIB}')
            lines.append(f'node_memory_MemAvailable_bytes{{instance="{name}"}} {6 * GIB}')
        for name, cores in PODS.items():
            for container in ("", "main"):
                labels = (
                    f'{{namespace="default",pod="{name}",container="{container}",instance="n1"}}'
                )
                lines.append(f"container_cpu_usage_seconds_total{labels} {passed * cores}")
                lines.append(f"container_memory_usage_bytes{labels} {GIB}")
        body = "\n".join([*lines, ""]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def exporter() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def measured(usage: Usage, name: str) -> float:
    """Millicores of a pod."""
    sample = usage.pods.get(f"default/{name}")
    return 0.0 if sample is None else sample.cpu


async def until(arguments: LoadAwareArguments, tables: Tables, seen: Any) -> Usage:
    sources = Sources(cast("Client", None))
    deadline = time.monotonic() + 40
    while True:
        usage = await sources.usage(arguments.metrics, arguments.duration, tables.nodes)
        if seen(usage):
            return usage
        assert time.monotonic() < deadline, usage
        await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(BUILD_PATIENCE + 120)
@pytest.mark.scenario("descheduler", "E")
@pytest.mark.scenario("descheduler", "N")
async def test_a_hot_node_is_relieved_by_what_prometheus_measures(
    program: Path, exporter: ThreadingHTTPServer, tmp_path: Path
) -> None:
    jobs = [
        {
            "job_name": "nodes",
            "scrape_interval": "1s",
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{exporter.server_address[1]}"]}],
        }
    ]
    tables = Tables(
        [node(name, 10000, 8 * GIB) for name in USE],
        [pod(name, "n1", 100) for name in (*PODS, "web-2")],
    )
    with running(program, tmp_path, jobs) as address:
        policy = read(POLICY.replace("ADDRESS", address))
        arguments = policy.profiles[0].load_aware()
        assert arguments is not None
        usage = await until(arguments, tables, lambda found: len(found.nodes) == 3)
        # from the first measurement on, though the series have just begun
        assert usage.nodes["n1"].cpu == pytest.approx(9000, rel=0.02)
        assert usage.nodes["n3"].cpu == pytest.approx(1000, rel=0.05)
        assert usage.nodes["n1"].memory == pytest.approx(2 * GIB)
        usage = await until(arguments, tables, lambda found: measured(found, "web-0") > 2900)
        assert measured(usage, "web-0") == pytest.approx(3000, rel=0.05)
        assert usage.pods["default/web-0"].memory == GIB
        assert abs(time.time() - usage.nodes["n1"].at) < 3
        (eviction,) = run(policy, tables, usage).evictions
        assert (eviction.pod.name, eviction.reason) == (
            "web-0",
            "node n1 is over its target: cpu 90% > 80%",
        )
        # a window with one scrape in it measures nothing, and says so
        narrow = read(
            POLICY.replace("ADDRESS", address).replace("rateWindow: 4s", "rateWindow: 500ms")
        )
        found = narrow.profiles[0].load_aware()
        assert found is not None
        await until(
            found, tables, lambda usage: "longer than two scrape intervals" in usage.problem
        )
        exporter.shutdown()
        exporter.server_close()
        await until(arguments, tables, lambda found: not found.nodes and found.problem)
