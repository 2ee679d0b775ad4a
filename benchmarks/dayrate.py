"""A day of 300,000 pods, live: jobs come to a local cluster of 200 fake nodes at that day's rate, 3.5
pods a second, in the sizes of `examples/simulate/day.yaml`.

Lengths are a tenth of the day's, so that within minutes as many pods end as come.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.clusters import cluster
from benchmarks.end_to_end import JOB, Pod, Pods
from benchmarks.figure import Aim, Figure
from hekla.api import scheduling
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.supervisor import read_status
from hekla.simulator.outcome import quantile

SHORT, LONG = "live.dayrate", "live.dayrate.long"
FIGURES = (SHORT, LONG)
SECONDS = {SHORT: 180, LONG: 600}
AIMS = [
    Aim(SHORT, "<= 2", "s", 9, "p99 from a job's creation to a pod's start, three minutes"),
    Aim(LONG, "<= 2", "s", 9, "the same, ten minutes"),
]
NODES, TEAMS, DAY = 200, 15, 86_400
KINDS = ((1000, 1, "4", "12Gi", 120), (500, 8, "4", "12Gi", 90), (200, 25, "2", "6Gi", 90), (100, 100, "2", "6Gi", 90))  # fmt: skip
"""Jobs of a team and day, pods of each, what a pod asks for, and the median of its seconds."""
SIGMA = 0.8


def measure(names: set[str]) -> Iterator[Figure]:
    for name in FIGURES:
        if name in names:
            with cluster(nodes=0, fake_nodes=NODES) as made:
                yield asyncio.run(day(made, name, SECONDS[name]))


class Starts(Pods):
    """When each pod was first seen to run."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.started: dict[str, float] = {}

    def count(self, old: Pod | None, new: Pod | None) -> None:
        super().count(old, new)
        if new is not None and new.status.phase in ("Running", "Succeeded"):
            self.started.setdefault(new.metadata.name, time.monotonic())


def arrivals(seconds: float) -> list[tuple[float, dict[str, Any]]]:
    """Jobs and when they come: the same in each run."""
    chance = random.Random(0)
    weights = [kind[0] for kind in KINDS]
    every = DAY / (TEAMS * sum(weights))
    found: list[tuple[float, dict[str, Any]]] = []
    now = 0.0
    while (now := now + chance.expovariate(1 / every)) < seconds:
        ((_, pods, cpu, memory, median),) = chance.choices(KINDS, weights)
        lasts = median * chance.lognormvariate(0, SIGMA)
        queue = f"team-{chance.randrange(TEAMS)}"
        found.append((now, job(f"job-{len(found)}", queue, pods, cpu, memory, lasts)))
    return found


def job(name: str, queue: str, pods: int, cpu: str, memory: str, seconds: float) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", f"{seconds:.0f}"],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "queue": queue,
            "minAvailable": pods,
            "tasks": [{"name": "work", "replicas": pods, "template": template}],
        },
    }


async def day(made: Cluster, name: str, length: float) -> Figure:
    """So many seconds of it.  Each job is made at its moment, whether or not those before it have
    started."""
    coming = arrivals(length)
    total = sum(one["spec"]["minAvailable"] for _, one in coming)
    async with (
        Client(config.load(str(made.internal_kubeconfig)), pool=16) as client,
        Starts(client) as pods,
    ):
        for team in range(TEAMS):
            spec = {"weight": 1 + team % 3}
            await client.create(
                scheduling.QUEUE, {"metadata": {"name": f"team-{team}"}, "spec": spec}
            )
        before, began = processor_seconds(made), time.monotonic()
        created: dict[str, float] = {}
        for moment, one in coming:
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            created[one["metadata"]["name"]] = time.monotonic()
            await client.create(JOB, one, "default")
        while len(pods.started) < total and time.monotonic() < began + length + 60:
            await asyncio.sleep(0.1)
        took = time.monotonic() - began
        spent = {key: value - before[key] for key, value in processor_seconds(made).items()}
    waits = sorted(at - created[key.split("-work-")[0]] for key, at in pods.started.items())
    if len(waits) < total:
        raise RuntimeError(f"{len(waits)} of {total} pods started within {took:.0f} s")
    busiest = ", ".join(
        f"{key} {100 * value / took:.0f} %"
        for key, value in sorted(spent.items(), key=lambda one: -one[1])[:4]
    )
    said = (
        f"{total:,} pods in {len(coming)} jobs of {TEAMS} queues in {length:.0f} s, {total / length:.1f} a second; "
        f"median {quantile(waits, 0.5):.2f} s, longest {waits[-1]:.2f} s; of a core: {busiest}"
    )
    return Figure(name, quantile(waits, 0.99), "s", said)


def processor_seconds(made: Cluster) -> dict[str, float]:
    """Of each process of the cluster, since it started."""
    status = read_status(made)
    assert status is not None
    found = {}
    for one in status.processes:
        spent = psutil.Process(one.pid).cpu_times()
        found[one.name] = spent.user + spent.system
    return found
