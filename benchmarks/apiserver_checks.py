"""The API server with every built-in check at work, and the reads: quota, limit ranges, accounts
and priorities on each create."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.apiserver import CONNECTIONS, Raw, cpu_seconds, current_version, prepare
from benchmarks.clusters import api_server, kube_controllers
from benchmarks.figure import Figure
from hekla.api.kubernetes import core, priority
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import Forbidden
from hekla.local.cluster.cluster import Cluster

FIGURES = (
    "api.create.full",
    "api.bind.full",
    "api.update",
    "api.get",
    "api.list.10000",
    "api.list.50000",
    "api.watch.100.p99",
    "cluster.rss.pod",
)
FULL = "full"
"""The namespace that has a quota and a limit range."""
COUNT = 10_000
MANY = 50_000


def measure(names: set[str]) -> Iterator[Figure]:
    """The checked namespace first, the large one on a server of its own, because there memory
    counts."""
    if names & {
        "api.create.full",
        "api.bind.full",
        "api.update",
        "api.get",
        "api.list.10000",
        "api.watch.100.p99",
    }:
        yield from checked(names)
    if names & {"api.list.50000", "cluster.rss.pod"}:
        yield from large(names)


def checked(names: set[str]) -> Iterator[Figure]:
    """10,000 pods in a namespace whose quota and limit range are shown to refuse what they must."""
    with api_server() as (cluster, server), kube_controllers(cluster), Raw() as raw:
        asyncio.run(prepare(cluster))
        asyncio.run(restrict(cluster))
        where: dict[str, Any] = {
            "socket": str(cluster.socket),
            "connections": CONNECTIONS,
            "namespace": FULL,
        }
        raw.ask(what="create", prefix="warm", count=1000, **where)
        created = timed(server, raw, what="create", prefix="pod", count=COUNT, **where)
        on = "quota, limit range, service account, default priority class"
        if "api.create.full" in names:
            yield Figure("api.create.full", created["speed"], "1/s", f"{on}; {told(created)}")
        used = asyncio.run(refusals(cluster))
        bound = timed(server, raw, what="bind", prefix="pod", count=COUNT, **where)
        if "api.bind.full" in names:
            yield Figure(
                "api.bind.full", bound["speed"], "1/s", f"same namespace, {used}; {told(bound)}"
            )
        patched = timed(server, raw, what="status", prefix="pod", count=COUNT, **where)
        if "api.update" in names:
            yield Figure(
                "api.update",
                patched["speed"],
                "1/s",
                f"merge patches of pod status, Pending to Running; {told(patched)}",
            )
        if "api.get" in names:
            got = timed(server, raw, what="get", prefix="pod", count=COUNT, **where)
            yield Figure("api.get", got["speed"], "1/s", told(got))
        if "api.list.10000" in names:
            listed = raw.ask(what="list", **where)
            size = f"{COUNT + 1000} pods, {listed['bytes'] / 1e6:.0f} MB"
            yield Figure("api.list.10000", 1000 * listed["seconds"], "ms", f"{size}, median of 5")
        if "api.watch.100.p99" in names:
            version = asyncio.run(current_version(cluster))
            delay = raw.ask(
                what="delay",
                prefix="delay",
                count=5000,
                rate=500,
                watchers=100,
                version=version,
                **where,
            )
            yield Figure(
                "api.watch.100.p99",
                1000 * delay["p99"],
                "ms",
                f"100 watchers of all pods, p50 {1000 * delay['p50']:.2f} ms",
            )


def large(names: set[str]) -> Iterator[Figure]:
    """50,000 pods: what a list of them takes, and what the server holds for each."""
    with api_server() as (cluster, server), Raw() as raw:
        asyncio.run(prepare(cluster))
        where: dict[str, Any] = {
            "socket": str(cluster.socket),
            "connections": CONNECTIONS,
            "namespace": "bench",
        }
        raw.ask(what="create", prefix="warm", count=100, **where)
        before = psutil.Process(server.pid).memory_info().rss
        raw.ask(what="create", prefix="pod", count=MANY, **where)
        after = psutil.Process(server.pid).memory_info().rss
        listed = raw.ask(what="list", **where)
        if "api.list.50000" in names:
            yield Figure(
                "api.list.50000",
                1000 * listed["seconds"],
                "ms",
                f"{listed['bytes'] / 1e6:.0f} MB, median of 5",
            )
        if "cluster.rss.pod" in names:
            each, json = (after - before) / MANY, listed["bytes"] / (MANY + 100)
            conditions = f"{each / 1000:.2f} kB resident a pod, its JSON {json / 1000:.2f} kB"
            yield Figure("cluster.rss.pod", (each - json) / 1000, "kB", conditions)


def timed(server: subprocess.Popen[bytes], raw: Raw, **order: Any) -> dict[str, float]:
    """The raw client's answer, and the server's CPU time a request in µs."""
    before = cpu_seconds(server.pid)
    answer = raw.ask(**order)
    return answer | {"cpu": 1e6 * (cpu_seconds(server.pid) - before) / order["count"]}


def told(answer: dict[str, float]) -> str:
    return f"p50 {1000 * answer['p50']:.1f} ms, {answer['cpu']:.0f} µs of server CPU"


async def restrict(cluster: Cluster) -> None:
    """A namespace where every create is charged, defaulted and given a priority."""
    async with Client(config.load(str(cluster.internal_kubeconfig))) as client:
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": FULL}})
        await client.create(
            priority.PRIORITY_CLASS.untyped,
            {"metadata": {"name": "usual"}, "value": 100, "globalDefault": True},
        )
        hard = {
            "pods": "30000",
            "requests.cpu": "30000",
            "requests.memory": "30000Gi",
            "limits.cpu": "30000",
            "count/configmaps": "30",
        }
        await client.create(
            core.RESOURCE_QUOTA.untyped, {"metadata": {"name": "all"}, "spec": {"hard": hard}}, FULL
        )
        limits = [
            {
                "type": "Container",
                "default": {"cpu": "1"},
                "defaultRequest": {"memory": "1Gi"},
                "max": {"cpu": "4"},
            }
        ]
        await client.create(
            core.LIMIT_RANGE.untyped,
            {"metadata": {"name": "each"}, "spec": {"limits": limits}},
            FULL,
        )
        for _ in range(200):
            quota = await client.get(core.RESOURCE_QUOTA.untyped, "all", FULL)
            if (
                quota.get("status", {}).get("hard")
                and (await client.list(core.SERVICE_ACCOUNT, FULL)).items
            ):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("the quota's status or the service account did not appear within 10 s")


async def refusals(cluster: Cluster) -> str:
    """Shows that the checks are on: what is over a quota or a limit is refused.  Returns what the
    quota counts."""
    async with Client(config.load(str(cluster.internal_kubeconfig))) as client:
        for cpu in ("5", "29000"):
            container = {
                "name": "main",
                "image": "pause",
                "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}},
            }
            try:
                await client.create(
                    core.POD.untyped,
                    {"metadata": {"name": "over"}, "spec": {"containers": [container]}},
                    FULL,
                )
            except Forbidden:
                continue
            raise AssertionError(
                f"a pod of {cpu} cpus was let in: quota and limit range are not at work"
            )
        pod = await client.get(core.POD.untyped, "pod-0", FULL)
        assert pod["spec"]["priority"] == 100 and pod["spec"]["serviceAccountName"] == "default", (
            "priority or account was not filled in"
        )
        for _ in range(200):
            used = (
                (await client.get(core.RESOURCE_QUOTA.untyped, "all", FULL))
                .get("status", {})
                .get("used", {})
                .get("pods", "0")
            )
            if used == str(COUNT + 1000):
                break
            await asyncio.sleep(0.05)
        return f"the quota counts {used} pods"
