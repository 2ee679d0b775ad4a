"""What descheduling is worth on a running cluster: API server, metrics server, controllers, scheduler and descheduler as
processes, 1,000 fake nodes, and what pods use by their annotations.

What is evicted is made anew by its ReplicaSet and placed by the scheduler where least is asked for, and pods ask for more or less than
they use.  The descheduler asks the scheduler's engine, and works until nothing moves.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import pstdev

from benchmarks.clusters import cluster, hekla
from benchmarks.descheduler.quality import least
from benchmarks.figure import Aim, Figure
from benchmarks.waiting import until
from hekla.api.kubernetes import apps, core
from hekla.api.text import quantity
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster

SPREAD, EVICTIONS = "descheduler.live_spread", "descheduler.live_evictions"
FIGURES = (SPREAD, EVICTIONS)
AIMS = [
    Aim(SPREAD, "<= 0.33", "ratio", 8, "descheduler.spread on a running cluster"),
    Aim(EVICTIONS, "<= 1.2", "ratio", 8, "descheduler.evictions on a running cluster"),
]
NODES, CORES = 1000, 32000
STEP = 500
"""Millicores between two ReplicaSets: each has pods of one use."""
MISTAKEN = (0.8, 1.0, 1.25)
"""What pods ask for, of what they use: others of each ReplicaSet."""
SEED = 1
INTERVAL = 20
"""Seconds: what was evicted has to show in the mean of 15 s that is measured, at its new place, too."""
PATIENCE, LOOK = 240.0, 0.5
"""Seconds that each thing may take, and between two looks at it."""
USE = "kwok.x-k8s.io/usage-cpu"

SCHEDULER = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: predicates
  - name: nodeorder
    arguments: {leastrequested.weight: 10, balancedresource.weight: 0}
"""
DESCHEDULER = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: even
  pluginConfig:
  - {name: DefaultEvictor, args: {nodeFit: engine}}
  - name: LoadAware
    args:
      metrics: {type: metrics_server}
      useDeviationThresholds: true
      thresholds: {cpu: 5}
      targetThresholds: {cpu: 5}
  plugins:
    balance: {enabled: [LoadAware]}
"""


def drawn() -> list[list[int]]:
    """Millicores of the pods of each node."""
    chance = random.Random(SEED)
    nodes = []
    for _ in range(NODES):
        busy = CORES * min(chance.lognormvariate(-1.1, 0.6), 0.98)
        pods: list[int] = []
        while (left := busy - sum(pods)) >= STEP:
            use = min(chance.lognormvariate(7.8, 0.6), left)
            pods.append(max(STEP, int(use / STEP) * STEP))
        nodes.append(pods)
    return nodes


def template(use: int) -> Json:
    asked = int(use * MISTAKEN[use // STEP % len(MISTAKEN)])
    resources = {"requests": {"cpu": f"{asked}m", "memory": "1Gi"}}
    container = {"name": "main", "image": "busybox", "resources": resources}
    return {
        "metadata": {"labels": {"use": str(use)}, "annotations": {USE: f"{use}m"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


async def furnish(client: Client, wanted: list[list[int]]) -> dict[str, list[int]]:
    """Makes the pods where they are to be, and the ReplicaSets that adopt them.  Node -> use of its pods."""
    names = sorted(node.metadata.name for node in (await client.list(core.NODE)).items)
    turns = asyncio.Semaphore(64)

    async def make(name: str, node: str, use: int) -> None:
        async with turns:
            made = template(use)
            body = {
                "metadata": {"name": name, **made["metadata"]},
                "spec": {**made["spec"], "nodeName": node},
            }
            await client.create(core.POD.untyped, body, "default")

    given = dict(zip(names, wanted, strict=True))
    uses = [(node, use) for node, listed in given.items() for use in listed]
    await asyncio.gather(*(make(f"first-{at}", node, use) for at, (node, use) in enumerate(uses)))
    for use in sorted({use for _, use in uses}):
        spec = {
            "replicas": sum(one == use for _, one in uses),
            "selector": {"matchLabels": {"use": str(use)}},
            "template": template(use),
        }
        await client.create(
            apps.REPLICA_SET.untyped, {"metadata": {"name": f"use-{use}"}, "spec": spec}, "default"
        )
    return given


async def standing(client: Client) -> tuple[dict[str, list[int]], int]:
    """Node -> use of its pods; and how many pods run that an owner has."""
    nodes: dict[str, list[int]] = {
        node.metadata.name: [] for node in (await client.list(core.NODE)).items
    }
    owned = 0
    for pod in (await client.list(core.POD.untyped, "default")).items:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        if node and not meta.get("deletionTimestamp"):
            nodes[node].append(int(meta["annotations"][USE].removesuffix("m")))
            owned += bool(meta.get("ownerReferences")) and pod["status"].get("phase") == "Running"
    return nodes, owned


async def measured(client: Client) -> float:
    """Millicores that the metrics server tells of all nodes."""
    found = json.loads((await client.request("GET", "/apis/metrics.k8s.io/v1beta1/nodes")).body)
    return sum(quantity.milli(one["usage"]["cpu"]) for one in found["items"])


async def settled(log: Path, process: subprocess.Popen[bytes]) -> int:
    """Waits for a cycle in which nothing moves; gives the number of those before."""
    counts: list[int] = []

    async def rests() -> bool:
        counts[:] = map(int, re.findall(r"totalEvicted=(\d+)", log.read_text()))
        if process.poll() is not None:
            raise RuntimeError("the descheduler has ended")
        return bool(counts) and not counts[-1]

    try:
        await until("a cycle in which nothing moves", rests, PATIENCE, LOOK)
    except (TimeoutError, RuntimeError) as error:
        raise RuntimeError(f"{error}: {counts}\n{log.read_text()[-2000:]}") from error
    print(f"evictions of its cycles: {counts}", file=sys.stderr)
    return len(counts) - 1


async def run(
    made: Cluster, directory: Path
) -> tuple[dict[str, list[int]], dict[str, list[int]], str, int]:
    async with Client(config.load(str(made.internal_kubeconfig)), pool=32) as client:
        began = time.monotonic()
        before = await furnish(client, drawn())
        pods = sum(map(len, before.values()))

        async def all_run() -> bool:
            return (await standing(client))[1] >= pods

        async def all_measured() -> bool:
            return await measured(client) >= 0.99 * sum(map(sum, before.values()))

        await until("all pods run", all_run, PATIENCE, LOOK)
        await until("what they use is measured", all_measured, PATIENCE, LOOK)
        print(f"furnished after {time.monotonic() - began:.0f} s", file=sys.stderr)
        policy, log = directory / "policy.yaml", directory / "log"
        policy.write_text(DESCHEDULER)
        with log.open("wb") as output:
            process = subprocess.Popen(
                hekla("descheduler", f"--kubeconfig={made.kubeconfig}", f"--policy-config-file={policy}",
                      f"--descheduling-interval={INTERVAL}s", "--secure-port=0"),
                stdout=output, stderr=output,
            )  # fmt: skip
        try:
            cycles = await settled(log, process)
        finally:
            process.terminate()
            process.wait(10)
        after, there = await standing(client)
        if there != pods:
            raise RuntimeError(f"{there} of {pods} pods run at the end")
        return before, after, log.read_text(), cycles


def unevenness(nodes: dict[str, list[int]]) -> float:
    return pstdev(sum(pods) for pods in nodes.values())


def measure(names: set[str]) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "scheduler.yaml").write_text(SCHEDULER)
        flags = {
            "nodes": 0,
            "fake_nodes": NODES,
            "fake_node_cpu": str(CORES // 1000),
            "scheduler_conf": str(directory / "scheduler.yaml"),
        }
        with cluster(**flags) as made:
            before, after, said, cycles = asyncio.run(run(made, directory))
    evicted = re.findall(r"Evicted pod: pod=default/(\S+)", said)
    again = sum(not name.startswith("first-") for name in evicted)
    bound = least(before)
    conditions = (
        f"{NODES} fake nodes, {sum(map(len, before.values()))} pods, seed {SEED}, {cycles} cycles, {len(evicted)} evictions, "
        f"{bound} at least, {again} of pods that had been moved before"
    )
    if SPREAD in names:
        yield Figure(SPREAD, unevenness(after) / unevenness(before), "ratio", conditions)
    if EVICTIONS in names:
        yield Figure(EVICTIONS, len(evicted) / bound, "ratio", conditions)
