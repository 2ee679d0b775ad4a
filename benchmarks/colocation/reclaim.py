"""How long an online service waits for the processors that offline work has, when it suddenly needs all
of them: by weight, and by eviction above a watermark."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.clusters import cluster
from benchmarks.colocation.node import CORES, Node, example
from benchmarks.figure import Aim, Figure
from benchmarks.processes import tell
from benchmarks.waiting import until

WEIGHT, EVICTION = "agent.reclaim", "agent.reclaim.eviction"
FIGURES = (WEIGHT, EVICTION)
AIMS = [
    Aim(
        EVICTION,
        "<= 10",
        "s",
        8,
        "from the online spike above a watermark to the offline pod's eviction",
    ),
]
SPIKES, LASTS = 7, 0.6
"""Spikes, and seconds of one."""
LOOK, WINDOW = 0.004, 0.04
"""Seconds between two looks at the counters, and over which a share is taken."""
FULL = 0.95
"""Of what both get: the rest is the weight of best-effort pods, and what clocks do not tell."""
WATERMARK = 50
"""Percent of the node's cpu; the offline work beside which the spike comes has 25."""
WAITER = f"""
import os, signal, time
for _ in range({CORES} - 1):
    if os.fork() == 0:
        break
def burn(*_):
    ends = time.monotonic() + lasts
    while time.monotonic() < ends:
        pass
lasts = {LASTS}
signal.signal(signal.SIGUSR1, burn)
def burn_long(*_):
    global lasts
    lasts = 60
    burn()
signal.signal(signal.SIGUSR2, burn_long)
print("waits", flush=True)
while True:
    signal.pause()
"""


def measure(names: set[str]) -> Iterator[Figure]:
    with cluster(nodes=1, colocation=True) as made:
        weights, eviction = asyncio.run(spikes(Node(made), EVICTION in names))
    evicted = f"eviction above a watermark after {eviction:.1f} s" if eviction else ""
    if WEIGHT in names:
        yield Figure(
            WEIGHT,
            1000 * median(weights),
            "ms",
            f"until {100 * FULL:.0f} % of {CORES} processors in {1000 * WINDOW:.0f} ms, median of {SPIKES} spikes, "
            f"longest {1000 * max(weights):.0f} ms" + (f"; {evicted}" if evicted else ""),
        )
    if EVICTION in names:
        yield Figure(
            EVICTION,
            eviction,
            "s",
            f"looks every second, six in a row above {WATERMARK} % of the node's cpu",
        )


def service() -> dict[str, Any]:
    """A pod that does nothing until it is told, and then all that it can."""
    *_, shop, _ = example("online.yaml")
    (container,) = shop["spec"]["containers"]
    del container["readinessProbe"]
    container["command"] = ["python3", "-c", WAITER]
    return shop


async def spikes(node: Node, eviction: bool) -> tuple[list[float], float]:
    async with node:
        await node.all_is_lent()
        shop, (job,) = service(), example("offline.yaml")
        config_map = example("online.yaml")[0]
        await node.apply(config_map, shop, job)
        await node.running("shop", 1)
        await node.running("render", CORES * 4 - 1)
        await until("the service waits", lambda: waits(node))
        (pod,) = await node.pods("shop")
        pids = [pid for pid in node.processes(pod.metadata.uid) if is_python(pid)]
        weights = []
        for _ in range(SPIKES):
            weights.append(spike(node, pids))
            await asyncio.sleep(LASTS)
        return weights, await evicted(node, pids) if eviction else 0.0


async def waits(node: Node) -> bool:
    return (await node.log("shop")).count("waits") == CORES


def is_python(pid: int) -> bool:
    """Rather than the shim above it."""
    return Path(f"/proc/{pid}/comm").read_text().startswith("python")


def spike(node: Node, pids: list[int]) -> float:
    """Seconds until the service has had its full share for a whole window, that included."""
    seen: deque[tuple[float, float, float]] = deque()
    tell(pids, signal.SIGUSR1)
    began = time.monotonic()
    while (now := time.monotonic()) < began + LASTS:
        seen.append((now, node.spent("burstable"), node.spent("besteffort")))
        while now - seen[0][0] > WINDOW + LOOK:
            seen.popleft()
        first, last = seen[0], seen[-1]
        online, offline = last[1] - first[1], last[2] - first[2]
        if last[0] - first[0] >= WINDOW and online >= FULL * (online + offline):
            return last[0] - began
        time.sleep(LOOK)
    return LASTS


async def evicted(node: Node, pids: list[int]) -> float:
    """Seconds from a spike that stays until an offline pod is gone, on a node whose watermark is
    below it: offline work has a quarter of the node before."""
    await node.delete("Job", "render")

    async def gone() -> bool:
        return not await node.pods("render")

    await until("the job is gone", gone)
    (job,) = example("offline.yaml")
    job["spec"]["tasks"][0]["replicas"] = CORES
    await node.apply(job)
    await node.running("render", CORES)
    await node.annotate(evicting_cpu_high_watermark=str(WATERMARK), evicting_cpu_low_watermark="20")
    await asyncio.sleep(2.0)
    before = {pod.metadata.uid for pod in await node.pods("render")}
    tell(pids, signal.SIGUSR2)
    began = time.monotonic()

    async def one_left() -> bool:
        return bool(before - {pod.metadata.uid for pod in await node.pods("render")})

    await until("an offline pod is evicted", one_left)
    return time.monotonic() - began
