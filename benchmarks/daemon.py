"""The scheduler as a daemon: what it costs at rest, how soon one pod is bound, how many writes that
takes.

All on one cluster of 1,000 fake nodes of 4 cpus.  A pod asks for 0.8, so five fill a node; 4,999
one-pod jobs leave room for one, and a job that no node could ever take waits.  Volcano was measured
in the same state.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.clusters import cluster
from benchmarks.end_to_end import Pods, job
from benchmarks.figure import Figure
from benchmarks.processes import pid_of, stopped
from hekla.api import batch
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster

FIGURES = ("daemon.idle", "daemon.rss", "e2e.one", "e2e.writes", "e2e.5000x1.1000")
NODES, JOBS = 1000, 5000
REST = 60.0
ONES = 20
QUIET = 2.5
"""Seconds after which nothing more is written about a pod."""
BATCH = 500
"""Jobs made at once while the cluster is filled."""
_WRITES = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\d+)$", re.MULTILINE)
_OWN = ("leases", "nodes")
"""What nodes and daemons write whether or not a pod comes."""


def measure(names: set[str]) -> Iterator[Figure]:
    """The throughput of plain pods on a cluster of its own, the rest on the full one."""
    if "e2e.5000x1.1000" in names:
        with cluster(nodes=0, fake_nodes=NODES) as made:
            yield asyncio.run(plain(made))
    if names - {"e2e.5000x1.1000"}:
        with cluster(nodes=0, fake_nodes=NODES, fake_node_cpu="4") as made:
            yield from full(made, names)


def full(made: Cluster, names: set[str]) -> Iterator[Figure]:
    filled = asyncio.run(fill(made))
    scheduler = psutil.Process(pid_of(made, "scheduler"))
    where = f"{NODES} fake nodes, {filled} one-pod jobs, one unschedulable job pending"
    if "daemon.idle" in names:
        time.sleep(10)  # what the last jobs set off has come to rest
        before = scheduler.cpu_times()
        time.sleep(REST)
        after = scheduler.cpu_times()
        used = after.user + after.system - before.user - before.system
        yield Figure("daemon.idle", 100 * used / REST, "% of a core", f"over {REST:.0f} s; {where}")
    if "daemon.rss" in names:
        yield Figure("daemon.rss", scheduler.memory_info().rss / 1e6, "MB", where)
    if "e2e.one" in names:
        before_cpu = scheduler.cpu_times()
        times = asyncio.run(one_by_one(made))
        spent = scheduler.cpu_times()
        cpu = 1000 * (spent.user + spent.system - before_cpu.user - before_cpu.system) / ONES
        spread = f"from {min(times):.0f} to {max(times):.0f} ms, {cpu:.0f} ms of the scheduler's CPU a pod"
        yield Figure(
            "e2e.one", statistics.median(times), "ms", f"median of {ONES}, {spread}; {where}"
        )
    if "e2e.writes" in names:
        until, later = asyncio.run(writes(made))
        conditions = f"{ONES} plain pods, the kubelet stopped meanwhile: {shown(until)}; then, with the node's: {shown(later)}"
        yield Figure("e2e.writes", sum(until.values()) / ONES, "writes/pod", conditions)


def client_of(made: Cluster) -> Client:
    return Client(config.load(str(made.internal_kubeconfig)), pool=32)


def small(name: str, cpu: str = "800m") -> dict[str, Any]:
    """A job of one pod."""
    made = job(name, 1, 1)
    made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": cpu, "memory": "128Mi"}
    }
    return made


def pod(name: str, cpu: str = "800m") -> dict[str, Any]:
    """A pod by itself, for the batch scheduler."""
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
    }
    spec = {
        "schedulerName": "volcano",
        "containers": [container],
        "restartPolicy": "Never",
        "nodeSelector": {"type": "kwok"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


async def fill(made: Cluster) -> int:
    """Fills all nodes but for the room of one pod, and leaves a job waiting; gives how many run."""
    async with client_of(made) as client, Pods(client) as pods:
        for first in range(0, JOBS - 1, BATCH):
            numbers = range(first, min(first + BATCH, JOBS - 1))
            await asyncio.gather(
                *(client.create(batch.JOB, small(f"fill-{n}"), "default") for n in numbers)
            )
        await pods.until_running(JOBS - 1, 600)
        await client.create(batch.JOB, small("never", "64"), "default")
        await asyncio.sleep(3)
    return JOBS - 1


async def one_by_one(made: Cluster) -> list[float]:
    """Milliseconds from the create of a pod to the event of its bind, one pod after another on the
    last free place."""
    times = []
    async with client_of(made) as client, Pods(client) as pods:
        there = pods.bound
        for number in range(ONES):
            began = time.perf_counter()
            await client.create(core.POD.untyped, pod(f"one-{number}"), "default")
            await pods.until("bound", there + 1, 30)
            times.append(1000 * (time.perf_counter() - began))
            await client.delete(core.POD, f"one-{number}", "default", grace=0)
            await pods.until("bound", there, 30)
            await asyncio.sleep(1.0)
    return times


async def writes(made: Cluster) -> tuple[Counter[str], Counter[str]]:
    """Writes by kind that the server took for all pods: from create to bound, and in the seconds
    after that with the node's own."""
    until: Counter[str] = Counter()
    later: Counter[str] = Counter()
    async with client_of(made) as client, Pods(client) as pods:
        kubelet = pid_of(made, "kubelet")
        await quiet(client)
        for number in range(ONES):
            with stopped(kubelet):  # shortly, or the nodes would count as lost
                there, before = pods.bound, await written(client)
                await client.create(core.POD.untyped, pod(f"write-{number}", "1m"), "default")
                await pods.until("bound", there + 1, 30)
                bound = await written(client)
            await asyncio.sleep(QUIET)
            until += bound - before
            later += await written(client) - bound
    return until, later


async def quiet(client: Client) -> None:
    """Waits until nobody tells of what happened before; raises TimeoutError."""
    async with asyncio.timeout(300):
        before = await written(client)
        while True:
            await asyncio.sleep(QUIET)
            now = await written(client)
            if now == before:
                return
            before = now


def shown(counts: Counter[str]) -> str:
    """What was written how often for one pod."""
    return ", ".join(f"{name} {number / ONES:.2g}" for name, number in sorted(counts.items()))


async def written(client: Client) -> Counter[str]:
    """Writes since the server's start, by verb and resource."""
    text = (await client.request("GET", "/metrics")).body.decode()
    counts: Counter[str] = Counter()
    for found in _WRITES.finditer(text):
        labels = dict(part.split("=", 1) for part in found["labels"].replace('"', "").split(","))
        if (
            labels["verb"] in ("POST", "PUT", "PATCH", "DELETE")
            and labels["code"].startswith("2")
            and labels["resource"] not in _OWN
        ):
            name = " ".join(
                filter(None, (labels["verb"], labels["resource"], labels.get("subresource", "")))
            )
            counts[name] += int(found["count"])
    return counts


async def plain(made: Cluster) -> Figure:
    """5,000 pods by themselves: first create to last bind."""
    async with client_of(made) as client, Pods(client) as pods:
        began = time.perf_counter()
        await asyncio.gather(
            *(
                client.create(core.POD.untyped, pod(f"plain-{n}", "100m"), "default")
                for n in range(JOBS)
            )
        )
        created = time.perf_counter() - began
        await pods.until("bound", JOBS, 300)
        bound = time.perf_counter() - began
    conditions = f"{NODES} fake nodes; created after {created:.2f} s, all bound after {bound:.2f} s"
    return Figure("e2e.5000x1.1000", JOBS / bound, "pods/s", conditions)
