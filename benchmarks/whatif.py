"""What a question of the kind "what if" costs: whoever asks, and the scheduler that hands out the copy.

The server of the second figure is this process too, as bodies of pages that are made before; decoding
them is the scheduler's work and is counted.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import msgspec

from benchmarks.figure import Aim, Figure
from hekla.api.kinds import Kind, Listing
from hekla.api.kubernetes import core
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.engine.model.state import State
from hekla.engine.policies import default_policy
from hekla.engine.tape import MOMENT, Writer, frames, header
from hekla.kube.client import Client
from hekla.kube.daemon import GARBAGE_THRESHOLD
from hekla.scheduler.informers import sources
from hekla.scheduler.policy_file import PolicyFile
from hekla.scheduler.snapshots.snapshot import Snapshots
from hekla.simulator.whatif.answer import ask
from hekla.simulator.whatif.changes import read_change
from hekla.simulator.whatif.copy import ClusterCopy

NOW_STARTS, LATER, MEMORY, PAUSE = "whatif.now", "whatif.later", "whatif.rss", "whatif.pause"
FIGURES = (NOW_STARTS, LATER, MEMORY, PAUSE)
AIMS = [
    Aim(NOW_STARTS, "<= 5", "s", 9, "processor time from a snapshot of 1,000 nodes and 10,000 pods to an answer: it starts now"),
    Aim(LATER, "<= 15", "s", 9, "the same for a job that starts once some of 1,000 jobs have ended"),
    Aim(MEMORY, "<= 500", "MB", 9, "the largest resident memory of a process that does both"),
    Aim(PAUSE, "<= 50", "ms", 9, "longest time that the scheduler's event loop waits while it makes a snapshot of 100,000 pods"),
]  # fmt: skip
SETTINGS: dict[str, Any] = {"scheduler_names": ["volcano"]}
NOW = 1_790_000_000.0
NODES, PODS_EACH, JOBS = 1000, 10, 1000
KEY = "lab/asked"


def measure(names: set[str]) -> Iterator[Figure]:
    if names & {NOW_STARTS, LATER, MEMORY}:
        for figure in answers():
            if figure.name in names:
                yield figure
    if PAUSE in names:
        yield pause()


def node(number: int) -> Json:
    name = f"n{number}"
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}},
    }


def group(name: str, pods: int, cpu: int, minutes: int, phase: str) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"group-{name}",
            "creationTimestamp": stamp(NOW - 300),
            "annotations": {"hekla.io/walltime": f"{minutes}m"},
        },
        "spec": {"minMember": pods, "queue": "default", "minResources": {"cpu": str(pods * cpu)}},
        "status": {"phase": phase},
    }


def pod(job: str, number: int, cpu: int, on: str = "") -> Json:
    spec: Json = {
        "schedulerName": "volcano",
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "command": ["sleep", "600"],
                "env": [{"name": f"E{one}", "value": "x" * 20} for one in range(10)],
                "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}},
            }
        ],
    }
    status: Json = {"phase": "Pending"}
    if on:
        spec["nodeName"] = on
        status = {"phase": "Running", "startTime": stamp(NOW - 300)}
    return {
        "metadata": {
            "name": f"{job}-{number}",
            "namespace": "lab",
            "uid": f"{job}-{number}",
            "creationTimestamp": stamp(NOW - 300),
            "annotations": {"scheduling.k8s.io/group-name": job},
            "labels": {"volcano.sh/job-name": job},
        },
        "spec": spec,
        "status": status,
    }


def snapshot() -> bytes:
    """1,000 nodes that 10,000 pods of 1,000 jobs fill but for two cpus each, and a job that waits."""
    writer = Writer()
    calls = [("upsert_node", node(number)) for number in range(NODES)]
    queue = {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    calls.append(("upsert_queue", queue))
    for job in range(JOBS):
        name = f"job{job}"
        calls.append(("upsert_pod_group", group(name, PODS_EACH, 3, 10 + job % 90, "Running")))
        calls += [
            ("upsert_pod", pod(name, number, 3, f"n{(job + 97 * number) % NODES}"))
            for number in range(PODS_EACH)
        ]
    calls.append(("upsert_pod_group", group("asked", 20, 16, 60, "Pending")))
    calls += [("upsert_pod", pod("asked", number, 16)) for number in range(20)]
    told = [header("benchmark", SETTINGS), *calls, (MOMENT, NOW)]
    return b"".join(writer.frame(*one) for one in told) + writer.end()


def answers() -> Iterator[Figure]:
    body, policy = snapshot(), default_policy()
    for name, changes in ((NOW_STARTS, ["node=add:20x n0"]), (LATER, [])):
        began = time.process_time()
        copy = ClusterCopy.of(frames("snapshot", [body]), "snapshot")
        for change in changes:
            read_change(change).apply(copy)
        answer = ask(copy, policy, KEY)
        took = time.process_time() - began
        said = "never" if answer.start is None else f"in {answer.start:.0f} s"
        yield Figure(name, took, "s", f"it starts {said}; a snapshot of {len(body) / 1e6:.1f} MB")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Figure(MEMORY, used, "MB", "with the snapshot's own making")


class Pages:
    """A client that gives pages out of bodies: of one page of pods, as often as it takes."""

    def __init__(self, pods: int) -> None:
        self.pods = pods

    async def pages(
        self, kind: Kind[Any], namespace: str | None = None, *, fields: str = "", limit: int = 500
    ) -> AsyncIterator[Listing[Any]]:
        plurals = {core.NODE.plural: NODES, core.POD.plural: self.pods}
        for first in range(0, plurals.get(kind.plural, 0), limit):
            numbers = range(first, first + limit)
            items = [
                node(one)
                if kind.plural == core.NODE.plural
                else pod("job", one, 3, f"n{one % NODES}")
                for one in numbers
            ]
            body = msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})
            await asyncio.sleep(0)
            self.began = time.perf_counter()
            page = kind.decode_list(body)
            PAUSES.append(time.perf_counter() - self.began)
            yield page
            await asyncio.sleep(0)


PAUSES: list[float] = []


def pause() -> Figure:
    pods = 100_000
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)  # as daemons have it
    state = State(**SETTINGS)
    for number in range(NODES):
        state.upsert_node(node(number))
    state.upsert_pod_group(group("job", 1, 3, 60, "Running"))
    for number in range(pods):
        state.upsert_pod(pod("job", number, 3, f"n{number % NODES}"))
    client = cast("Client", Pages(pods))
    snapshots = Snapshots(client, state, SETTINGS, PolicyFile(""), sources)
    size, took = asyncio.run(_written(snapshots))
    longest = 1000 * max(PAUSES)
    return Figure(
        PAUSE,
        longest,
        "ms",
        f"p99 {1000 * sorted(PAUSES)[len(PAUSES) * 99 // 100]:.1f} ms; {took:.1f} s in {len(PAUSES)} slices; {size / 1e6:.1f} MB",
    )


async def _written(snapshots: Snapshots) -> tuple[int, float]:
    """Bytes and seconds of all slices; each is timed from when the loop gave it the word."""
    size = 0
    pieces = snapshots.pieces()
    while True:
        decoded = len(PAUSES)
        began = time.perf_counter()
        try:
            piece = await anext(pieces)
        except StopAsyncIteration:
            return size, sum(PAUSES)
        if len(PAUSES) == decoded:  # What makes a page is the server's, and is counted by itself.
            PAUSES.append(time.perf_counter() - began)
        size += len(piece)
