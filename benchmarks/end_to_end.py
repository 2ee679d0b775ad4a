"""Jobs through the whole system on fake nodes: from the first create to the last bind, every
process on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import msgspec

from benchmarks.clusters import cluster
from benchmarks.figure import Figure
from hekla.api import batch
from hekla.api.kinds import read_as
from hekla.api.kubernetes.core import POD
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster

SHAPES = {
    "e2e.1x1000": (1, 1000, 100),
    "e2e.20x50": (20, 50, 100),
    "e2e.1000x1": (1000, 1, 100),
    "e2e.5x1000.1000": (5, 1000, 1000),
    "e2e.10x1000.5000": (10, 1000, 5000),
}
"""Figure -> (jobs, tasks of each, fake nodes)."""

FIGURES = tuple(SHAPES)


class Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""


class Status(msgspec.Struct, gc=False):
    phase: str = ""


class Pod(msgspec.Struct, gc=False):
    """What the measurement looks at."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)


class Created(msgspec.Struct, gc=False):
    """What is read of a job that was created."""

    metadata: Metadata


JOB = read_as(batch.JOB, Created)


class Pods:
    """Counts bound and running pods as their events come."""

    def __init__(self, client: Client) -> None:
        self.cache = Cache(client, read_as(POD, Pod), namespace="default")
        self.cache.on_change(self.count)
        self.bound = self.running = self.succeeded = 0
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.cache.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cache.stop()

    def count(self, old: Pod | None, new: Pod | None) -> None:
        for pod, sign in ((old, -1), (new, 1)):
            if pod is not None:
                self.bound += sign * bool(pod.spec.node_name)
                self.running += sign * (pod.status.phase == "Running")
                self.succeeded += sign * (pod.status.phase == "Succeeded")
        self.changed.set()

    async def until(self, what: str, count: int, seconds: float) -> None:
        """Waits for exactly `count`; raises TimeoutError that says how far it came."""
        await self.until_true(what, lambda now: now == count, count, seconds)

    async def until_at_least(self, what: str, count: int, seconds: float) -> None:
        await self.until_true(what, lambda now: now >= count, count, seconds)

    async def until_true(
        self, what: str, enough: Callable[[int], bool], count: int, seconds: float
    ) -> None:
        deadline = time.monotonic() + seconds
        while not enough(getattr(self, what)):
            self.changed.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"{getattr(self, what)} of {count} pods {what} after {seconds:.0f} s"
                )
            try:
                async with asyncio.timeout(left):
                    await self.changed.wait()
            except TimeoutError:
                continue

    async def until_running(self, count: int, seconds: float) -> None:
        await self.until("running", count, seconds)

    async def until_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.cache):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.cache)} pods are still there")
            await asyncio.sleep(0.05)


def job(name: str, replicas: int, min_available: int) -> dict[str, Any]:
    """A gang of pods that run for ever."""
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    template = {
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "nodeSelector": {"type": "kwok"},
        }
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": min_available,
            "tasks": [{"name": "work", "replicas": replicas, "template": template}],
        },
    }


def plain_pod(name: str) -> dict[str, Any]:
    """A pod of `job` by itself."""
    template = job(name, 1, 1)["spec"]["tasks"][0]["template"]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**template["spec"], "schedulerName": "volcano"},
    }


async def create_all(client: Client, prefix: str, jobs: int, tasks: int) -> None:
    """Creates that many jobs of so many tasks each, or plain pods where they have no tasks, as fast
    as the client may."""
    names = (f"{prefix}-{number}" for number in range(jobs))
    await asyncio.gather(
        *(
            client.create(JOB, job(name, tasks, tasks), "default")
            if tasks
            else client.create(POD.untyped, plain_pod(name), "default")
            for name in names
        )
    )


def measure(names: set[str]) -> Iterator[Figure]:
    """Each shape asked for, one after another; shapes of one size share a cluster."""
    for nodes in sorted({size for _, _, size in SHAPES.values()}):
        here = [name for name, shape in SHAPES.items() if name in names and shape[2] == nodes]
        if here:
            with cluster(nodes=0, fake_nodes=nodes) as made:
                for name in here:
                    yield asyncio.run(run(made, name))


async def run(made: Cluster, name: str) -> Figure:
    """Creates the jobs, waits for the last bind, and cleans up."""
    jobs, tasks, nodes = SHAPES[name]
    total = jobs * tasks
    async with (
        Client(config.load(str(made.internal_kubeconfig)), pool=32) as client,
        Pods(client) as pods,
    ):
        began = time.perf_counter()
        await create_all(client, "bench", jobs, tasks)
        created = time.perf_counter() - began
        await pods.until("bound", total, 300)
        bound = time.perf_counter() - began
        await pods.until_running(total, 300)
        running = time.perf_counter() - began
        await client.delete_collection(batch.JOB, "default", propagation="Background")
        await pods.until_gone(300)
    conditions = f"{nodes} fake nodes; jobs created after {created:.2f} s, all bound after {bound:.2f} s, all running after {running:.2f} s"
    return Figure(name, total / bound, "pods/s", conditions)
