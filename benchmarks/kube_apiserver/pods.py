"""The scheduler's daemon alone on a real kube-apiserver with etcd: pods that wait there are bound,
beside that server's own limit.

`benchmarks.kube_apiserver.jobs` takes jobs the whole way, so that it mostly says what a job's creates, statuses
and webhooks cost such a server.  Here pods and PodGroups stand before the scheduler starts, and the
nodes are there but silent: from the first bind to the last the server does for it what it did for
the client that costs nothing, and sends it what it watches.  A figure is the share of the limit of
binds that is reached; the share of the tighter limit, which is that of creates as a rule, is
printed with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.apiserver import Raw
from benchmarks.end_to_end import SHAPES, Pods, job
from benchmarks.figure import Aim, Figure
from benchmarks.kube_apiserver.jobs import (
    COUNT,
    NODES,
    Limits,
    Spans,
    each,
    first_limits,
    limits,
    ready,
)
from hekla.api import scheduling
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config

if TYPE_CHECKING:
    from tests.kubernetes.reference import Reference

OWN = {
    "live.scheduler.1x1000": "e2e.1x1000",
    "live.scheduler.20x50": "e2e.20x50",
    "live.scheduler.1000x1": "e2e.1000x1",
}
FIGURES = tuple(OWN)
AIMS = [
    Aim(
        name,
        ">= 80",
        "%",
        3,
        f"binds of {OWN[name]}'s pods, which wait on a kube-apiserver with etcd: of its limit",
    )
    for name in OWN
]
SECONDS = 120.0
"""For the binds of one shape."""


class Placed(NamedTuple):
    """How the binds went."""

    first: float
    """Seconds from the scheduler's start until the first bind was seen."""
    binding: float
    """Binds a second, from the first to the last."""
    cpu: float
    """Processors' seconds of the scheduler, its start included."""


def measure(names: set[str]) -> Iterator[Figure]:
    return each([name for name in OWN if name in names], measured)


def measured(name: str) -> Figure:
    """One shape between two looks at the server's limits."""
    from tests.kubernetes.reference import reference

    jobs, tasks, _ = SHAPES[OWN[name]]
    with reference(durable=True) as server:
        with Raw() as raw:
            before = first_limits(server, raw)
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}")
        server.add_scheduler()
        asyncio.run(ready(server.kubeconfig))
        server.processes.end("kubelet", "scheduler", "controllers")
        asyncio.run(pile_up(server, jobs, tasks))
        placed = asyncio.run(place(server))
        server.processes.end("scheduler")
        with Raw() as raw:
            after = limits(server, raw, "after")
    return figure(name, placed, before, after)


def figure(name: str, placed: Placed, before: Limits, after: Limits) -> Figure:
    """The share, and how it came about."""
    jobs, tasks, _ = SHAPES[OWN[name]]
    creates, binds = (
        2 * COUNT / (before.creating + after.creating),
        2 * COUNT / (before.binding + after.binding),
    )
    conditions = (
        f"{placed.binding:,.0f} binds/s of {binds:,.0f}; of the tighter limit, {min(creates, binds):,.0f}/s, "
        f"{placed.binding / min(creates, binds):.0%}; first bind {placed.first:.2f} s after the scheduler's start, "
        f"its processor time a pod {1000 * placed.cpu / COUNT:.1f} ms; {jobs} x {tasks} that wait, {NODES} silent nodes"
    )
    return Figure(name, 100 * placed.binding / binds, "%", conditions)


async def pile_up(server: Reference, jobs: int, tasks: int) -> None:
    """Makes PodGroups and their pods as the job controller does, while there is nobody to place
    them."""
    async with Client(config.load(str(server.kubeconfig)), pool=32) as client:
        await asyncio.gather(
            *(
                client.create(scheduling.POD_GROUP.untyped, group(f"bench-{n}", tasks), "default")
                for n in range(jobs)
            )
        )
        await asyncio.gather(
            *(
                client.create(core.POD.untyped, pod(f"bench-{n}", index), "default")
                for n in range(jobs)
                for index in range(tasks)
            )
        )


def group(name: str, tasks: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"minMember": tasks, "queue": "default", "minTaskMember": {"work": tasks}},
    }


def pod(group: str, index: int) -> dict[str, Any]:
    """Pod `index` of the job of that name, as `benchmarks.end_to_end` describes it."""
    [task] = job(group, 1, 1)["spec"]["tasks"]
    annotations = {
        "scheduling.k8s.io/group-name": group,
        "volcano.sh/task-spec": task["name"],
        "volcano.sh/task-index": str(index),
    }
    return {
        "metadata": {"name": f"{group}-{task['name']}-{index}", "annotations": annotations},
        "spec": {"schedulerName": "volcano", **task["template"]["spec"]},
    }


async def place(server: Reference) -> Placed:
    """Starts the scheduler, and waits for the last bind.  Raises TimeoutError."""
    async with Client(config.load(str(server.kubeconfig))) as client, Pods(client) as pods:
        spans = Spans()
        pods.cache.on_change(spans.note)
        began = time.perf_counter()
        server.start_scheduler()
        await pods.until("bound", COUNT, SECONDS)
        return Placed(
            spans.bound[0] - began,
            Spans.speed(spans.bound),
            server.processes.cpu_seconds()["scheduler"],
        )
