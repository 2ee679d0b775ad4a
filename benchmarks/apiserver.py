"""The API server alone, driven by clients that cost next to nothing: creates, binds, latencies,
watch events."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.clusters import api_server
from benchmarks.figure import Figure
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import NotFound
from hekla.local.cluster.cluster import Cluster

FIGURES = ("api.create", "api.bind", "api.create.p99", "api.watch.events", "api.watch.p99")
COUNT = 20_000
CONNECTIONS = 64
NAMESPACE = "bench"


class Raw:
    """A raw client in a process of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.raw_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)

    def send(self, **order: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                "the raw client has ended without an answer; its message stands above"
            )
        answered: dict[str, float] = json.loads(line)
        return answered

    def ask(self, **order: Any) -> dict[str, float]:
        self.send(**order)
        return self.answer()


def measure(names: set[str]) -> Iterator[Figure]:
    """All on one server, one after another; the bound pods are those that were created first."""
    with api_server() as (cluster, server), Raw() as raw:
        asyncio.run(prepare(cluster))
        where: dict[str, Any] = {
            "socket": str(cluster.socket),
            "connections": CONNECTIONS,
            "namespace": NAMESPACE,
        }
        through = f"Unix socket, {CONNECTIONS} connections, {COUNT} pods of 1.5 kB"
        raw.ask(what="create", prefix="warm", count=1000, **where)
        if names & {"api.create", "api.bind"}:
            before = cpu_seconds(server.pid)
            created = raw.ask(what="create", prefix="pod", count=COUNT, **where)
            spent = 1e6 * (cpu_seconds(server.pid) - before) / COUNT
            tls = raw.ask(
                what="create", prefix="tls", count=COUNT // 4, **{**where, **over_https(cluster)}
            )
            yield Figure(
                "api.create",
                created["speed"],
                "1/s",
                f"{through}; p50 {1000 * created['p50']:.1f} ms, {spent:.0f} µs of server CPU; over HTTPS {tls['speed']:,.0f}/s",
            )
            before = cpu_seconds(server.pid)
            bound = raw.ask(what="bind", prefix="pod", count=COUNT, **where)
            spent = 1e6 * (cpu_seconds(server.pid) - before) / COUNT
            tls = raw.ask(
                what="bind", prefix="tls", count=COUNT // 4, **{**where, **over_https(cluster)}
            )
            yield Figure(
                "api.bind",
                bound["speed"],
                "1/s",
                f"{through}; p50 {1000 * bound['p50']:.1f} ms, {spent:.0f} µs of server CPU; over HTTPS {tls['speed']:,.0f}/s",
            )
        if "api.create.p99" in names:
            steady = raw.ask(what="create", prefix="steady", count=10_000, rate=1000, **where)
            yield Figure(
                "api.create.p99",
                1000 * steady["p99"],
                "ms",
                f"1,000/s offered for 10 s; p50 {1000 * steady['p50']:.1f} ms",
            )
        if "api.watch.events" in names:
            yield watch_events(cluster, raw, where)
        if "api.watch.p99" in names:
            version = asyncio.run(current_version(cluster))
            delay = raw.ask(
                what="delay", prefix="delay", count=10_000, rate=1000, version=version, **where
            )
            told = f"{delay['earlier']:.1%} of the events came before their answer; p50 {1000 * delay['p50']:.2f} ms"
            yield Figure(
                "api.watch.p99", 1000 * delay["p99"], "ms", f"1,000 writes/s for 10 s; {told}"
            )


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, all threads and its children: a measure that other programs
    on the machine hardly disturb."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children())]
    return sum(one.user + one.system for one in times)


def watch_events(cluster: Cluster, raw: Raw, where: dict[str, Any]) -> Figure:
    """Ten watchers in a third process while creates run."""
    with Raw() as watchers:
        version = asyncio.run(current_version(cluster))
        watchers.send(what="watch", watchers=10, count=COUNT, version=version, **where)
        watchers.answer()
        created = raw.ask(what="create", prefix="watched", count=COUNT, **where)
        seen = watchers.answer()
    return Figure(
        "api.watch.events",
        seen["speed"],
        "1/s",
        f"10 watchers, {created['speed']:,.0f} creates/s meanwhile",
    )


def over_https(cluster: Cluster) -> dict[str, Any]:
    """The other door."""
    port = cluster.kubeconfig.read_text().partition("https://127.0.0.1:")[2].split()[0]
    pki = cluster.pki
    return {
        "socket": "",
        "port": int(port),
        "certificates": [str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key")],
    }


async def prepare(cluster: Cluster) -> None:
    """Waits for the server; makes the namespace, its account and a node, as a cluster's controllers
    would."""
    for _ in range(200):
        if cluster.socket.exists():
            break
        await asyncio.sleep(0.05)
    async with Client(config.load(str(cluster.internal_kubeconfig))) as client:
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": NAMESPACE}})
        try:
            await client.get(core.SERVICE_ACCOUNT, "default", NAMESPACE)
        except NotFound:
            await client.create(
                core.SERVICE_ACCOUNT.untyped, {"metadata": {"name": "default"}}, NAMESPACE
            )
        await client.create(core.NODE.untyped, {"metadata": {"name": "node-0"}})


async def current_version(cluster: Cluster) -> str:
    async with Client(config.load(str(cluster.internal_kubeconfig))) as client:
        return (await client.list(core.NODE)).resource_version
