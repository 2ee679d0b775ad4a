"""How long a cluster takes to come up, and the memory that it holds when full."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator

from benchmarks.clusters import cluster, hekla, resident
from benchmarks.end_to_end import Pods, job
from benchmarks.figure import Figure
from hekla.api import batch
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster

FIGURES = ("cluster.up", "cluster.rss")
NODES, JOBS, PODS = 1000, 100, 100


def measure(names: set[str]) -> Iterator[Figure]:
    """cluster.up by the command itself; cluster.rss on 1,000 fake nodes with 10,000 running pods,
    each process singly."""
    if "cluster.up" in names:
        times = [up() for _ in range(3)]
        yield Figure(
            "cluster.up",
            statistics.median(times),
            "s",
            "median of 3, empty directory, `hekla up` as a process",
        )
    if "cluster.rss" in names:
        with cluster(nodes=1, fake_nodes=NODES) as full:
            asyncio.run(fill(full))
            time.sleep(5)
            by_name = resident(full)
        single = ", ".join(
            f"{name} {size:.0f}"
            for name, size in sorted(by_name.items(), key=lambda item: -item[1])
        )
        yield Figure(
            "cluster.rss",
            sum(by_name.values()),
            "MB",
            f"{NODES} fake nodes, {JOBS * PODS} running pods: {single}",
        )


def up() -> float:
    """Seconds of one `hekla up` in an empty directory."""
    with tempfile.TemporaryDirectory(prefix="hekla-bench-") as home:
        environment = dict(os.environ, XDG_STATE_HOME=home)
        began = time.perf_counter()
        subprocess.run(hekla("up"), env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        subprocess.run(
            hekla("down", "--delete"), env=environment, check=True, stdout=subprocess.DEVNULL
        )
    return seconds


async def fill(full: Cluster) -> None:
    """Runs 10,000 pods in 100 jobs and waits until all are Running."""
    async with Client(config.load(str(full.internal_kubeconfig))) as client, Pods(client) as pods:
        await asyncio.gather(
            *(
                client.create(batch.JOB, job(f"fill-{n}", PODS, PODS), "default")
                for n in range(JOBS)
            )
        )
        await pods.until_running(JOBS * PODS, 600)
