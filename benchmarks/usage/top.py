"""`kubectl top pods -A` of 10,000 fake pods, as a whole process; and the list alone that it asks for."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.clusters import cluster
from benchmarks.end_to_end import Pods
from benchmarks.figure import Aim, Figure
from benchmarks.kubelet import pod
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster

TOP, LIST = "top", "top.list"
FIGURES = (TOP, LIST)
AIMS = [
    Aim(TOP, "<= 1", "s", 8, "`kubectl top pods -A` with 10,000 fake pods"),
    Aim(LIST, "<= 1", "s", 8, "the list of their metrics over HTTPS, without kubectl"),
]
PODS, NODES = 10_000, 100
TIMES = 5
METRICS = "/apis/metrics.k8s.io/v1beta1/pods"


def measure(names: set[str]) -> Iterator[Figure]:
    conditions = f"{PODS} pods on {NODES} fake nodes, median of {TIMES}"
    with cluster(nodes=0, fake_nodes=NODES, fake_node_pods=2 * PODS // NODES) as made:
        lasted, size = asyncio.run(listed(made))
        kubectl = shutil.which("kubectl")
        if TOP in names and kubectl is not None:
            yield Figure(TOP, top(made, kubectl), "s", conditions)
        elif TOP in names:
            yield Figure(TOP, lasted, "s", f"{conditions}; no kubectl here, the list alone")
        if LIST in names:
            yield Figure(LIST, lasted, "s", f"{conditions}, {size / 1e6:.1f} MB")


async def listed(made: Cluster) -> tuple[float, int]:
    """Makes the pods.  Seconds for a list of all their metrics, and its bytes."""
    async with (
        Client(config.load(str(made.internal_kubeconfig)), pool=32) as client,
        Pods(client) as pods,
    ):
        nodes = [node.metadata.name for node in (await client.list(core.NODE)).items]
        turns = asyncio.Semaphore(64)

        async def make(index: int) -> None:
            async with turns:
                body = pod(f"fake-{index}", ["sleep"], nodeName=nodes[index % len(nodes)])
                await client.create(core.POD.untyped, body, "default")

        await asyncio.gather(*map(make, range(PODS)))
        await pods.until("running", PODS, 120)
        size = 0
        while size < 100 * PODS:
            size = len((await client.request("GET", METRICS)).body)
    async with Client(config.load(str(made.kubeconfig))) as client:
        seconds = []
        for _ in range(TIMES):
            began = time.perf_counter()
            size = len((await client.request("GET", METRICS)).body)
            seconds.append(time.perf_counter() - began)
    return median(seconds), size


def top(made: Cluster, kubectl: str) -> float:
    """Seconds of `kubectl top pods -A`, once its cache of the API's kinds is there."""
    with tempfile.TemporaryDirectory() as home:
        command = [kubectl, "--kubeconfig", str(made.kubeconfig), "top", "pods", "-A"]

        def run() -> None:
            done = subprocess.run(
                command, env={**os.environ, "HOME": home}, capture_output=True, check=True
            )
            rows = done.stdout.count(b"\n") - 1
            if rows != PODS:
                raise RuntimeError(f"kubectl shows {rows} pods of {PODS}")

        run()
        return median(lasting(run) for _ in range(TIMES))


def lasting(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
