"""Kill -9 of the descheduler and of what measures for it, at random moments: of a hot node's pods one goes,
which is enough, and no second one for what was measured before that.

HEKLA_CHAOS_SEED chooses other moments.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Protocol

import pytest
import pytest_asyncio

from hekla.api.kubernetes import core
from hekla.api.text import quantity
from tests.clients.test_prometheus import BUILD_PATIENCE, program
from tests.cluster.api import Api
from tests.deploy import accounts
from tests.descheduler.test_live import COOL, HOT, MILD, Live, Process
from tests.kubelet.live_cluster import PATIENCE, cluster
from tests.metrics_server.process import MetricsServerProcess
from tests.ports import free_port

__all__ = ["program"]

SEED = int(os.environ.get("HEKLA_CHAOS_SEED", "14"))
KILLS = 8
CORES = 10
WINDOW = 5.0
"""Seconds that Prometheus averages over, and over which it takes rates."""
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: hot
  pluginConfig:
  - name: LoadAware
    args:
      metrics: METRICS
      duration: 5s
      thresholds: {cpu: 30}
      targetThresholds: {cpu: 80}
  plugins:
    balance: {enabled: [LoadAware]}
"""


class Source(Protocol):
    """What measures, as a process."""

    settings: str

    def start(self) -> None: ...
    def kill(self) -> None: ...


class Exporters:
    """What node exporters on the fake nodes would say: processor time by what the pods' annotations say."""

    def __init__(self, kubeconfig: Path) -> None:
        self.api = Api(kubeconfig)
        self.at = time.time()
        self.busy = dict.fromkeys((HOT, MILD, COOL), 0.0)
        self.began = self.at
        self.lock = Lock()

    def text(self) -> bytes:
        with self.lock:
            used = dict.fromkeys(self.busy, 0.0)
            for pod in self.api.get("/api/v1/namespaces/default/pods").tree["items"]:
                cpu = pod["metadata"]["annotations"]["kwok.x-k8s.io/usage-cpu"]
                used[pod["spec"]["nodeName"]] += quantity.milli(cpu) / 1000
            now = time.time()
            for name, cores in used.items():
                self.busy[name] += cores * (now - self.at)
            self.at = now
            lines = []
            for name, busy in self.busy.items():
                all_time = CORES * (now - self.began)
                for mode, seconds in (("idle", all_time - busy), ("user", busy)):
                    labels = f'{{mode="{mode}",instance="{name}"}}'
                    lines.append(f"node_cpu_seconds_total{labels} {seconds}")
                for part in ("MemTotal", "MemAvailable"):
                    lines.append(f'node_memory_{part}_bytes{{instance="{name}"}} 1e9')
            return "\n".join([*lines, ""]).encode()


class Prometheus:
    """One that scrapes them, and goes on after a kill with what it has written."""

    def __init__(self, program: Path, place: Path, exporter: int) -> None:
        self.log = place / "prometheus.log"
        port = free_port()
        job = {"job_name": "nodes", "scrape_interval": "1s", "honor_labels": True,
               "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}  # fmt: skip
        settings = place / "prometheus.yml"
        settings.write_text(json.dumps({"scrape_configs": [job]}))
        self.command = [
            str(program),
            f"--config.file={settings}",
            f"--storage.tsdb.path={place / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self.settings = (
            f'{{type: Prometheus, address: "http://127.0.0.1:{port}", rateWindow: 5s, step: 1s, '
            "expiration: 4s, timeout: 2s}"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class MetricsServer(MetricsServerProcess):
    settings = "{type: metrics_server, expiration: 4s}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    directory = tmp_path_factory.mktemp("kills")
    flags = ("--nodes=0", "--fake-nodes=3", "--fake-node-name=fake", f"--fake-node-cpu={CORES}")
    async with cluster(directory, *flags, nodes=3) as made:
        account = await asyncio.to_thread(
            accounts.grant, made.server.kubeconfig, "descheduler", accounts.DESCHEDULER
        )
        yield Live(made, directory, account)


@pytest.fixture
def metrics_server(live: Live, tmp_path: Path) -> Source:
    return MetricsServer(tmp_path, live.cluster.server)


@pytest.fixture
def prometheus(live: Live, program: Path, tmp_path: Path) -> Iterator[Source]:
    exporters = Exporters(live.cluster.server.kubeconfig)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exporters.text()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield Prometheus(program, tmp_path, server.server_address[1])
    server.shutdown()
    server.server_close()


@pytest.mark.slow(seconds=120)
@pytest.mark.asyncio(loop_scope="module")
async def test_one_pod_goes_whatever_is_killed(live: Live, metrics_server: Source) -> None:
    await one_pod_goes(live, metrics_server, "metrics-server")


@pytest.mark.slow(seconds=120)
@pytest.mark.timeout(BUILD_PATIENCE + 240)
@pytest.mark.asyncio(loop_scope="module")
async def test_one_pod_goes_though_prometheus_is_killed(live: Live, prometheus: Source) -> None:
    await one_pod_goes(live, prometheus, "prometheus")


async def one_pod_goes(live: Live, source: Source, prefix: str) -> None:
    chance = random.Random(f"{SEED} {prefix}")
    policy = POLICY.replace("METRICS", source.settings)
    running: list[Process] = []
    logs: list[str] = []

    def begin() -> None:
        place = live.directory / f"{prefix}-{len(logs) + len(running)}"
        running.append(Process(place, live.kubeconfig, policy, "--descheduling-interval=300ms"))

    def kill_descheduler() -> None:
        process = running.pop()
        os.kill(process.process.pid, signal.SIGKILL)
        process.process.wait()
        logs.append(process.log.read_text())
        begin()

    def kill_source() -> None:
        source.kill()
        time.sleep(chance.uniform(0, 2))
        source.start()

    def evicted() -> int:
        return sum(log.count("Evicted pod: ") for log in (*logs, running[-1].log.read_text()))

    for name, cpu in (("a", "3"), ("b", "2500m"), ("c", "2"), ("d", "1500m")):
        await live.pod(f"{prefix}-{name}", HOT, cpu)
    await live.pod(f"{prefix}-mild", MILD, "5")
    await live.pod(f"{prefix}-cool", COOL, "1")
    source.start()
    begin()
    try:
        # the moments that tell: while nothing has been measured, around the eviction, and in the window after it
        for number in range(KILLS):
            if number == KILLS // 2:
                await until(lambda: evicted() == 1, lambda: running[-1].log.read_text())
                await asyncio.to_thread(kill_descheduler)
                # what is measured is still hot, and the next one sees it
                await running[-1].counts("Number of evicted pods", 3)
            await asyncio.sleep(chance.uniform(0, 3))
            victim: Callable[[], None] = chance.choice((kill_descheduler, kill_source))
            await asyncio.to_thread(victim)
        source.kill()
        await running[-1].says("LoadAware of profile hot evicts nothing: ")
        await running[-1].shows('descheduler_usage_failures{profile="hot",strategy="LoadAware"} ')
        event = await live.about_itself("NoFreshUsage")
        assert event.type == "Warning"
        source.start()
        deadline = time.monotonic() + 3 * WINDOW
        while time.monotonic() < deadline:
            assert len(await live.names()) == 5 and evicted() <= 1
            await asyncio.sleep(0.2)
        await running[-1].says("of overutilized nodes: 0")
    finally:
        running[-1].stop()
        source.kill()
        # the next story's pods are of the same ReplicaSet, and have not come back
        await live.kept(None)
        left = await live.names()
        for name in left:
            await live.cluster.client.delete(core.POD.untyped, name, "default", grace=0)
    assert left == {f"{prefix}-{name}" for name in ("b", "c", "d", "mild", "cool")}
    told = (await live.cluster.client.list(core.EVENT, "default")).items
    assert (
        sum(
            one.reason == "LoadAware" and one.involved_object.name.startswith(prefix)
            for one in told
        )
        <= 1
    )


async def until(what: Callable[[], bool], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, told()[-3000:]
        await asyncio.sleep(0.05)
