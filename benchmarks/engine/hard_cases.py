"""What is hard for the engine: topologies, evictions, reasons, shared cards, memory.  Alone, in one
process, on one core."""

from __future__ import annotations

import csv
import gzip
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from hekla.engine.world import World, policy

HARD, HYPERNODES = "engine.topology.hard", "engine.hypernodes"
ONE, GANG, PREEMPT = "engine.reclaim.one", "engine.reclaim.gang", "engine.preempt.700"
VERDICT, RSS, SHARES = "engine.verdict", "engine.rss", "engine.fgd"
FIGURES = (HARD, HYPERNODES, ONE, GANG, PREEMPT, VERDICT, RSS, SHARES)
OPENB = Path(__file__).parents[3] / "shared" / "traces" / "openb"
GIVING: list[Any] = [{"name": "gang", "enablePreemptable": False, "enableReclaimable": False}]
"""gang as the chart has it where victims are whole jobs."""
USUAL: list[Any] = [
    "priority",
    *GIVING,
    "conformance",
    {"name": "drf", "enablePreemptable": False},
    "predicates",
    "nodeorder",
]


def measure(names: set[str]) -> Iterator[Figure]:
    """Each of a cluster made afresh; what is timed is one cycle, of three runs the fastest."""
    for name, prepare, said in (
        (
            HARD,
            racks,
            "1,000 pods that fill 1,000 nodes, each sub-group of 10 in one rack of 10, the job under one switch",
        ),
        (
            HYPERNODES,
            fat_tree,
            "32 nodes' worth of 64 pods; domains of 1, 2, 12 and 60 nodes; nothing smaller than 60 holds it",
        ),
        (ONE, lambda: reclaiming(1, 1), "one GPU of 4,000 held by one-GPU jobs; capacity"),
        (GANG, lambda: reclaiming(500, 8), "500 pods x 8 GPUs, 4,000 victims; capacity"),
        (PREEMPT, preempting, "700 pods of lower priority on 700 of 2,000 full nodes"),
        (
            VERDICT,
            refused,
            "10 pods x 8 GPUs, 500 nodes full of jobs of the same priority: one cycle and its explanation",
        ),
    ):
        if name in names:
            yield fastest(name, prepare, said)
    if RSS in names:
        yield Figure(
            RSS, memory(), "MB", "after two cycles of the chart's policy; 10,000 jobs of 10 pods"
        )
    if SHARES in names:
        yield from shares()


def fastest(
    name: str, prepare: Callable[[], tuple[World, Callable[[World], bool]]], said: str
) -> Figure:
    seconds = []
    for _ in range(3):
        world, done = prepare()
        began = time.perf_counter()
        world.run()
        seconds.append(time.perf_counter() - began)
        if not done(world):
            raise RuntimeError(
                f"{name}: the cycle did not decide what it had to: {world.decisions.explanations}"
            )
    return Figure(name, min(seconds), "s", said)


def hyper_node(world: World, name: str, tier: int, kind: str, members: list[str]) -> None:
    chosen = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    world.state.upsert_other(
        "HyperNode", {"metadata": {"name": name}, "spec": {"tier": tier, "members": chosen}}
    )


def racks() -> tuple[World, Callable[[World], bool]]:
    world = World(
        policy(plugins=[*USUAL, "network-topology-aware"], actions="enqueue, allocate, backfill")
    )
    for rack in range(100):
        nodes = [f"r{rack}-n{number}" for number in range(10)]
        world.nodes(*nodes, cpu=8)
        hyper_node(world, f"rack-{rack}", 1, "Node", nodes)
    hyper_node(world, "switch", 2, "HyperNode", [f"rack-{rack}" for rack in range(100)])
    part = {
        "name": "part",
        "subGroupSize": 10,
        "minSubGroups": 100,
        "matchLabelKeys": ["part"],
        "networkTopology": hard(1),
    }
    world.job(
        "wide",
        pods=0,
        min_available=1000,
        group={"subGroupPolicy": [part], "networkTopology": hard(2)},
    )
    for number in range(1000):
        world.pod(
            f"wide-{number}", job="wide", cpu=8, memory="1Gi", labels={"part": f"p{number // 10}"}
        )
    return world, lambda world: len(world.decisions.binds) == 1000


def hard(tier: int) -> dict[str, Any]:
    return {"mode": "hard", "highestTierAllowed": tier}


def fat_tree() -> tuple[World, Callable[[World], bool]]:
    """6,000 nodes in 6,000 + 3,000 + 500 + 100 HyperNodes."""
    world = World(
        policy(plugins=[*USUAL, "network-topology-aware"], actions="enqueue, allocate, backfill")
    )
    below, kind = [f"node-{number}" for number in range(6000)], "Node"
    world.nodes(*below, cpu=64, gpu=8)
    for tier, size in ((1, 1), (2, 2), (3, 6), (4, 5)):
        names = [f"t{tier}-{number}" for number in range(len(below) // size)]
        for number, name in enumerate(names):
            hyper_node(world, name, tier, kind, below[number * size : (number + 1) * size])
        below, kind = names, "HyperNode"
    world.run()
    world.job("large", pods=64, cpu=8, memory="1Gi", gpu=4, group={"networkTopology": hard(4)})
    return world, lambda world: len(world.decisions.binds) == 64


def gpu_cluster(nodes: int, *, actions: str, plugins: list[Any]) -> World:
    world = World(policy(plugins=plugins, actions=actions))
    world.nodes(*(f"node-{number}" for number in range(nodes)), cpu=128, memory="1024Gi", gpu=8)
    return world


def reclaiming(pods: int, gpus: int) -> tuple[World, Callable[[World], bool]]:
    """Queue `theirs` holds every GPU; `ours` deserves them all."""
    plugins = ["priority", *GIVING, "conformance", "capacity", "predicates", "nodeorder"]
    world = gpu_cluster(500, actions="enqueue, allocate, reclaim, backfill", plugins=plugins)
    world.queue("theirs", deserved={"nvidia.com/gpu": "0"}, reclaimable=True)
    world.queue("ours", deserved={"cpu": "64000", "memory": "512000Gi", "nvidia.com/gpu": "4000"})
    for number in range(4000):
        world.job(
            f"held-{number}",
            queue="theirs",
            pods=1,
            min_available=1,
            on=[f"node-{number // 8}"],
            phase="Running",
            cpu=1,
            memory="1Gi",
            gpu=1,
            preemptable=True,
        )
    world.job("claim", queue="ours", pods=pods, cpu=1, memory="1Gi", gpu=gpus)
    world.run("enqueue")
    return world, lambda world: len(world.decisions.evictions) == pods * gpus


def preempting() -> tuple[World, Callable[[World], bool]]:
    """One 8-GPU job against nodes that each hold one 8-GPU pod: of lower priority on 700, of higher
    on the rest."""
    world = gpu_cluster(2000, actions="enqueue, allocate, preempt, backfill", plugins=USUAL)
    for name, value in (("low", 10), ("middle", 100), ("high", 1000)):
        world.priority_class(name, value)
    for number in range(2000):
        lower = number < 700
        spec = {"priority": 10 if lower else 1000}
        world.job(
            f"held-{number}",
            pods=1,
            min_available=1,
            on=[f"node-{number}"],
            phase="Running",
            priority="low" if lower else "high",
            cpu=1,
            memory="1Gi",
            gpu=8,
            preemptable=True,
            spec=spec,
        )
    world.job(
        "urgent", pods=1, priority="middle", cpu=1, memory="1Gi", gpu=8, spec={"priority": 100}
    )
    world.run("enqueue")
    return world, lambda world: len(world.decisions.evictions) == 1


def refused() -> tuple[World, Callable[[World], bool]]:
    world = gpu_cluster(500, actions="enqueue, allocate, preempt, reclaim, backfill", plugins=USUAL)
    for number in range(4000):
        on = [f"node-{number // 8}"]
        world.job(
            f"held-{number}",
            pods=1,
            min_available=1,
            on=on,
            phase="Running",
            cpu=1,
            memory="1Gi",
            gpu=1,
        )
    world.job("waits", pods=10, cpu=1, memory="1Gi", gpu=8)
    return world, lambda world: not world.decisions.binds and "nvidia.com/gpu" in world.why("waits")


def memory() -> float:
    """Resident MB of a process of its own that holds the large cluster."""
    program = (
        "import psutil; from benchmarks.engine.cluster_states import full\n"
        "from hekla.engine import cycle; from hekla.engine.policies import default_policy\n"
        "state, policy = full(10_000, 100_000), default_policy()\n"
        "cycle(state, policy, 0.0); cycle(state, policy, 1.0)\n"
        "print(psutil.Process().memory_info().rss / 1e6)"
    )
    return float(
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        ).stdout
    )


def shares() -> Iterator[Figure]:
    """The trace's pods in its order, each arriving alone; nothing ends, until the cluster has
    refused 50."""
    if not OPENB.exists():
        return
    plugins = ["gang", "predicates", "nodeorder"]
    arguments = {
        "deviceshare.VGPUEnable": True,
        "deviceshare.SchedulePolicy": "binpack",
        "deviceshare.ScheduleWeight": 10,
    }
    world = World(
        policy(
            plugins=[*plugins, {"name": "deviceshare", "arguments": arguments}],
            actions="enqueue, allocate",
        )
    )
    for row in trace("openb_node_list_gpu_node.csv.gz"):
        count = int(row["gpu"])
        cards = "".join(
            f"{row['sn']}-{card},10,1000,NVIDIA-{row['model']},true,hami-core:"
            for card in range(count)
        )
        room: dict[str, Any] = {
            "cpu": f"{row['cpu_milli']}m",
            "memory": f"{row['memory_mib']}Mi",
            "volcano.sh/vgpu-number": 10 * count,
            "volcano.sh/vgpu-memory": 1000 * count,
            "volcano.sh/vgpu-cores": 100 * count,
        }
        world.nodes(
            row["sn"],
            labels={"model": row["model"]},
            annotations={"volcano.sh/node-vgpu-register": cards},
            **room,
        )
    seconds, waiting = [], 0
    for row in trace("openb_pod_list_default.csv.gz"):
        add_pod(world, row)
        began = time.perf_counter()
        world.run()
        seconds.append(time.perf_counter() - began)
        if world.decisions.binds:
            world.settle()
            continue
        waiting += 1
        world.state.remove_pod(f"default/{row['name']}")
        world.state.remove_pod_group(f"default/{row['name']}")
        if waiting == 50:
            break
    placed = f"{len(seconds) - waiting} pods placed before the 50th had no place"
    tail = sorted(seconds)[int(0.99 * len(seconds))]
    yield Figure(
        SHARES,
        1000 * statistics.mean(seconds),
        "ms",
        f"{placed}, each cycle with one arrival; p99 {1000 * tail:.1f} ms",
    )


def trace(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(OPENB / name, "rt") as lines:
        yield from csv.DictReader(lines)


def add_pod(world: World, row: dict[str, str]) -> None:
    """One pod of the trace as a job of its own; its GPU share is memory of 1,000 units a card."""
    limits = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
    count = int(row["num_gpu"])
    if count:
        limits |= {
            "volcano.sh/vgpu-number": str(count),
            "volcano.sh/vgpu-memory": row["gpu_milli"] if count == 1 else "1000",
        }
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    }
    models = [one for one in row["gpu_spec"].split("|") if one]
    if models:
        terms = [{"matchExpressions": [{"key": "model", "operator": "In", "values": models}]}]
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
    world.job(row["name"], pods=0, min_available=1)
    world.pod(row["name"], job=row["name"], spec=spec)
