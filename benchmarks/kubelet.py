"""The kubelet alone with the API server: whole lives of fake pods, and of pods that are
processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.clusters import cluster
from benchmarks.end_to_end import Pods
from benchmarks.figure import Figure
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster

FIGURES = ("agent.fake", "agent.process")
FAKE, FAKE_NODES = 5000, 100
PROCESSES, AT_ONCE = 500, 50


def measure(names: set[str]) -> Iterator[Figure]:
    if "agent.fake" in names:
        with cluster(nodes=0, fake_nodes=FAKE_NODES) as made:
            yield asyncio.run(fake(made))
    if "agent.process" in names:
        with cluster(nodes=1) as made:
            yield asyncio.run(processes(made))


def pod(name: str, command: list[str], **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": command}
    account = {"automountServiceAccountToken": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            **account,
            **spec,
        },
    }


def nowhere(name: str, command: list[str]) -> dict[str, Any]:
    """A pod that no scheduler takes: the benchmark binds it itself."""
    return pod(name, command, schedulerName="nobody")


async def bind(client: Client, name: str, node: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    await client.post(core.POD, name, "default", "binding", body)


async def fake(made: Cluster) -> Figure:
    """5,000 fake pods: created, bound, Running, Succeeded, deleted, as fast as everything goes."""
    async with (
        Client(config.load(str(made.internal_kubeconfig)), pool=32) as client,
        Pods(client) as pods,
    ):
        nodes = [node.metadata.name for node in (await client.list(core.NODE)).items]
        turns = asyncio.Semaphore(64)

        async def live(index: int) -> None:
            async with turns:
                await client.create(core.POD.untyped, nowhere(f"fake-{index}", ["true"]), "default")
                await bind(client, f"fake-{index}", nodes[index % len(nodes)])

        began = time.perf_counter()
        await asyncio.gather(*map(live, range(FAKE)))
        await pods.until("succeeded", FAKE, 300)
        succeeded = time.perf_counter() - began
        await client.delete_collection(core.POD, "default")
        await pods.until_gone(300)
        seconds = time.perf_counter() - began
    conditions = f"{FAKE} pods on {FAKE_NODES} nodes, all Succeeded after {succeeded:.1f} s"
    return Figure("agent.fake", 60 * FAKE / seconds, "pods/min", conditions)


async def processes(made: Cluster) -> Figure:
    """Pods of one `true` each, at most 50 of them unfinished: from the first bind to the last
    Succeeded."""
    async with (
        Client(config.load(str(made.internal_kubeconfig)), pool=16) as client,
        Pods(client) as pods,
    ):
        (node,) = (node.metadata.name for node in (await client.list(core.NODE)).items)
        for index in range(PROCESSES):
            await client.create(core.POD.untyped, nowhere(f"process-{index}", ["true"]), "default")
        began = time.perf_counter()
        for index in range(PROCESSES):
            if index >= AT_ONCE:
                await pods.until_at_least("succeeded", index - AT_ONCE, 60)
            await bind(client, f"process-{index}", node)
        await pods.until("succeeded", PROCESSES, 120)
        seconds = time.perf_counter() - began
    return Figure(
        "agent.process",
        PROCESSES / seconds,
        "pods/s",
        f"{PROCESSES} pods of one `true`, {AT_ONCE} at once",
    )
