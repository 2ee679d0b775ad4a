"""p99 of an online service beside offline work that fills the machine, and what that work gets of what
the service leaves; and the same on a cluster without the agent, where offline work is pods without
requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.clusters import cluster
from benchmarks.colocation.node import CORES, TASK, Node, example, idle_seconds, online, p99
from benchmarks.figure import Aim, Figure
from benchmarks.processes import stopped
from hekla.local.cluster.cluster import Cluster

ONLINE, OFFLINE, WITHOUT = "agent.online", "agent.offline", "agent.online.without"
FIGURES = (ONLINE, OFFLINE, WITHOUT)
AIMS = [
    Aim(
        WITHOUT,
        ">= 1",
        "ratio",
        8,
        "p99 beside offline work / alone on a cluster without the agent",
    ),
]
TURNS, TURN, PAUSE = 8, 6.0, 0.3
"""Turns of each kind, and seconds of one and of what is left out at its beginning."""


class Measured(NamedTuple):
    alone: float
    beside: float
    """Milliseconds: the p99 of all turns together."""
    share: float
    """Percent of what the service left idle that offline work got."""
    tasks: int

    @property
    def ratio(self) -> float:
        return self.beside / self.alone

    def __str__(self) -> str:
        return f"p99 {self.alone:.1f} ms alone, {self.beside:.1f} ms beside {self.tasks} tasks"


def measure(names: set[str]) -> Iterator[Figure]:
    without = None
    if names & {ONLINE, WITHOUT}:
        with cluster(nodes=1) as made:
            without = asyncio.run(turns(made, lent=False))
    with cluster(nodes=1, colocation=True) as made:
        found = asyncio.run(turns(made, lent=True))
    if without is not None:
        told = str(without)
        if WITHOUT in names:
            yield Figure(WITHOUT, without.ratio, "ratio", told)
        if ONLINE in names:
            yield Figure(
                ONLINE,
                found.ratio,
                "ratio",
                f"{found}; of {TURNS} turns of {TURN:.0f} s; without the agent {without.ratio:.2f} ({told})",
            )
    if OFFLINE in names:
        yield Figure(
            OFFLINE, found.share, "%", f"{found.tasks} tasks of {TASK}m on {CORES} processors"
        )


def offline(lent: bool) -> dict[str, Any]:
    """The example's job; where nothing is lent, as pods without requests."""
    (job,) = example("offline.yaml")
    if not lent:
        job["spec"]["tasks"][0]["replicas"] = CORES * 1000 // TASK
        del job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    return job


async def turns(made: Cluster, lent: bool) -> Measured:
    async with Node(made) as node:
        if lent:
            await node.all_is_lent()
        await node.apply(*online())
        await node.running("shop", 1)
        await node.running("client", 1)
        tasks = CORES * 1000 // TASK - lent  # what the service uses by then is not lent
        await node.apply(offline(lent))
        await node.running("render", tasks)
        pids = [
            pid for pod in await node.pods("render") for pid in node.processes(pod.metadata.uid)
        ]
        alone, beside, got, left = [], [], 0.0, 0.0
        for _ in range(TURNS):
            with stopped(*pids):
                await asyncio.sleep(PAUSE)
                began = time.time()
                await asyncio.sleep(TURN)
                alone.append((began, time.time()))
            await asyncio.sleep(PAUSE)
            began, spent, idle = time.time(), node.spent("besteffort"), idle_seconds()
            await asyncio.sleep(TURN)
            beside.append((began, time.time()))
            got += node.spent("besteffort") - spent
            left += idle_seconds() - idle
        answers = await node.answers()

    def within(spans: list[tuple[float, float]]) -> float:
        return p99(took for due, took in answers if any(start <= due < end for start, end in spans))

    share = 100 * got / (got + left) if got else 0.0
    return Measured(within(alone), within(beside), share, tasks)
