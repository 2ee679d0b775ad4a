"""From a process that begins to burn a processor to those who read what pods use: the resource metrics
API, and the plugin `usage` of the scheduler, by the scheduler's own snapshot."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.clusters import cluster
from benchmarks.figure import Aim, Figure
from benchmarks.kubelet import pod
from hekla.api.kubernetes import core
from hekla.api.names import SNAPSHOT_CONFIG_MAP, SNAPSHOT_PATH, SNAPSHOT_SERVER
from hekla.api.text import quantity
from hekla.api.text.times import instant
from hekla.engine.tape import Reader
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import ApiError, NotFound
from hekla.local.cluster.cluster import Cluster

METRICS, SCHEDULER = "usage.pipeline.metrics", "usage.pipeline"
FIGURES = (METRICS, SCHEDULER)
AIMS = [
    Aim(METRICS, "<= 15", "s", 8, "from a process burning CPU to metrics.k8s.io"),
]
ROUNDS = 4
PATIENCE = 60.0
SEEN = 100
"""Millicores that count as seen."""
POLICY = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: usage
metrics:
  type: metrics_server
  interval: 5s
"""


def measure(names: set[str]) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        policy = Path(directory) / "policy.yaml"
        policy.write_text(POLICY)
        with cluster(nodes=1, scheduler_conf=str(policy)) as made:
            told, planned = asyncio.run(rounds(made))
    conditions = f"slowest of {ROUNDS} pods that burn; seen is {SEEN}m"
    if METRICS in names:
        yield Figure(METRICS, max(told), "s", conditions)
    if SCHEDULER in names:
        yield Figure(SCHEDULER, max(planned), "s", f"{conditions}; the scheduler asks every 5 s")


async def rounds(made: Cluster) -> tuple[list[float], list[float]]:
    """For each pod the seconds until metrics.k8s.io, and until the scheduler, had seen it work."""
    async with Client(config.load(str(made.internal_kubeconfig))) as client:
        (node,) = (node.metadata.name for node in (await client.list(core.NODE)).items)
        await until(lambda: used(client, f"nodes/{node}"))
        told, planned = [], []
        for index in range(ROUNDS):
            # begun at another point of the metrics server's interval each time
            await asyncio.sleep(2.5 * index)
            first, second = await one_round(made, client, node, f"burner-{index}")
            told.append(first)
            planned.append(second)
    return told, planned


async def one_round(made: Cluster, client: Client, node: str, name: str) -> tuple[float, float]:
    body = pod(name, ["python3", "-c", "while True: pass"], nodeName=node)
    await client.create(core.POD.untyped, body, "default")
    await until(lambda: running(client, name))
    began = time.monotonic()
    await until(lambda: used(client, f"namespaces/default/pods/{name}"))
    told = time.monotonic() - began
    at = await moment(client, node)
    await until(lambda: known_since(made, client, node, at))
    planned = time.monotonic() - began
    await client.delete(core.POD, name, "default")
    return told, planned


async def until(look: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not seen within {PATIENCE:.0f} s")
        await asyncio.sleep(0.1)


async def running(client: Client, name: str) -> bool:
    return (await client.get(core.POD, name, "default")).status.phase == "Running"


async def metrics(client: Client, what: str) -> dict[str, Any]:
    answer = await client.request("GET", f"/apis/metrics.k8s.io/v1beta1/{what}")
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def used(client: Client, what: str) -> bool:
    """Whether it is told to use a processor."""
    try:
        found = await metrics(client, what)
    except ApiError:
        return False
    usages = [one["usage"] for one in found.get("containers") or [found]]
    return sum(quantity.milli(usage["cpu"]) for usage in usages) >= SEEN


async def moment(client: Client, node: str) -> float:
    """When the node was measured as it is told now."""
    return instant((await metrics(client, f"nodes/{node}"))["timestamp"])


async def known_since(made: Cluster, client: Client, node: str, at: float) -> bool:
    """Whether the scheduler's plugin has that measurement or a later one."""
    try:
        said = (await client.get(core.CONFIG_MAP.untyped, SNAPSHOT_CONFIG_MAP, "kube-system"))[
            "data"
        ]
    except NotFound:
        return False
    host, _, port = said["address"].rpartition(":")
    user = config.load(str(made.kubeconfig))
    connection = user.beside(host, int(port), said["authority"], SNAPSHOT_SERVER)
    reader = Reader("snapshot")
    async with Client(connection, pool=1) as asking:
        stream = await asking.stream("GET", SNAPSHOT_PATH)
        async with stream:
            frames = [frame async for piece in stream for frame in reader.feed(piece)]
    return any(
        frame[0] == "upsert_other"
        and frame[1] == "NodeUsage"
        and frame[2]["metadata"]["name"] == node
        and frame[2]["time"] >= at
        for frame in frames
    )
