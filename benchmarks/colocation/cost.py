"""What the colocation agent takes of a node with 110 pods."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.clusters import cluster
from benchmarks.colocation.node import Node
from benchmarks.figure import Figure
from benchmarks.kubelet import pod
from benchmarks.processes import pid_of, stopped
from benchmarks.waiting import until
from hekla.local.cluster.cluster import Cluster

COST, RSS = "agent.cost", "agent.rss"
FIGURES = (COST, RSS)
PODS, SECONDS = 110, 30
SAMPLING = "10s"


def measure(names: set[str]) -> Iterator[Figure]:
    with cluster(nodes=1, colocation=True) as made, agent(made) as process:
        spent, resident = asyncio.run(watched(made, process))
    conditions = f"{PODS} pods, a third of them offline, a look every {SAMPLING}, {SECONDS} s"
    if COST in names:
        yield Figure(COST, 100 * spent / SECONDS, "% of a core", conditions)
    if RSS in names:
        yield Figure(RSS, resident / 1e6, "MB", conditions)


@contextmanager
def agent(made: Cluster) -> Iterator[psutil.Process]:
    """The cluster's agent with the interval that it has on other clusters, in place of the one that
    the supervisor keeps: that is only stopped, because it would be started again."""
    (program,) = (one for one in made.programs(made.settings()) if one.name == "agent")
    flags = [f"--sampling-interval={SAMPLING}", f"--state-dir={made.run / 'bench-agent'}"]
    with stopped(pid_of(made, "agent")):
        with open(made.logs / "bench-agent.log", "wb") as log:
            process = subprocess.Popen(
                [*program.command, *flags],
                stdout=log,
                stderr=log,
                env={**os.environ, **dict(program.environment)},
            )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(10)


def body(index: int) -> dict[str, Any]:
    """Every third is offline, with batch resources."""
    made = pod(f"p-{index}", ["sleep", "1000"])
    resources = {"kubernetes.io/batch-cpu": 10} if index % 3 == 0 else {"cpu": "5m"}
    made["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    if index % 3 == 0:
        made["metadata"]["annotations"] = {"volcano.sh/qos-level": "BE"}
        made["spec"]["schedulerName"] = "volcano"
    return made


async def watched(made: Cluster, process: psutil.Process) -> tuple[float, int]:
    """Seconds of processor time of the agent in SECONDS, once every pod runs; and its memory."""
    async with Node(made) as node:

        async def lends() -> bool:
            return await node.lent() > 10 * PODS

        await until("cpu is lent", lends)
        await node.apply(*map(body, range(PODS)))
        await node.running("p-", PODS)
        await asyncio.sleep(3.0)  # their settings are written
        before, began = on_cpu(process.pid), time.monotonic()
        await asyncio.sleep(SECONDS)
        used, lasted = on_cpu(process.pid) - before, time.monotonic() - began
        return used * SECONDS / lasted, process.memory_info().rss


def on_cpu(pid: int) -> float:
    """Seconds for which its threads have run; the usual counters are too coarse for so little."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in threads) / 1e9
