"""Kueue's performance tests of its scheduler, simulated: cohorts of queues, workloads of three
classes that are admitted, run for a moment and end.

The numbers are those of `test/performance/scheduler/configs` in kubernetes-sigs/kueue.  There a
workload is quota alone; here it is a pod, and a cohort is a queue above those of its members.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figure import Figure
from hekla.api.trees import Tree
from hekla.engine.framework.policy import Policy
from hekla.engine.world import policy
from hekla.simulator.outcome import mean, wait_of
from hekla.simulator.run import Run
from hekla.simulator.simulation import simulate
from hekla.simulator.workload import Role, SimulatedJob, Workload, node, queue

MILLISECONDS = 1_000
NOMINAL, BORROWING = 20, 100
"""Of each queue: what is its own, and what it may have of its cohort's beside it."""
CLASSES = {"small": (50, 1), "medium": (100, 5), "large": (200, 20)}
"""Class -> its priority and how much quota a workload takes."""


@dataclass(frozen=True)
class Case:
    """`sets`: class -> how many workloads each queue gets, how often one, and how long it runs
    (milliseconds)."""

    cohorts: int
    """All alike, and with nothing in common: one of them is simulated."""
    queues: int
    sets: dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Placed:
    """A class of workloads that mind the topology: racks of nodes in one block."""

    count: int
    every: int
    runs: int
    priority: int
    cpu: int
    pods: int
    topology: str
    """`required` (a rack), `preferred` (a rack, else the block), or `balanced`: each slice in a rack."""
    slice: int = 0


RACKS, RACK, CPUS = 10, 64, 96
"""Racks of the block, nodes of each, cpus of a node."""
PLACED_QUEUES = 6
PLACED = {
    "small-required-rack": Placed(50, 200, 10_000, 50, 2, 4, "required"),
    "medium-required-rack": Placed(30, 500, 15_000, 100, 4, 8, "required"),
    "large-required-rack": Placed(20, 1000, 20_000, 200, 8, 16, "required"),
    "small-preferred-rack": Placed(30, 300, 12_000, 100, 2, 4, "preferred"),
    "medium-preferred-block": Placed(20, 400, 16_000, 150, 4, 8, "preferred"),
    "medium-balanced-rack": Placed(15, 600, 18_000, 200, 4, 16, "balanced", 4),
    "large-balanced-rack": Placed(10, 800, 25_000, 250, 8, 32, "balanced", 8),
}
TAS_WALL, TAS_SLOWEST = "kueue.tas.wall", "kueue.tas.slowest"
CASES = {
    "baseline": Case(
        5, 6, {"small": (350, 100, 200), "medium": (100, 500, 500), "large": (50, 1200, 1000)}
    ),
    "large-scale": Case(
        20, 100, {"small": (20, 20, 50), "medium": (7, 50, 100), "large": (3, 200, 200)}
    ),
}
FIGURES = (
    *(
        f"kueue.{case}.{what}"
        for case in CASES
        for what in ("wall", "usage", *CLASSES, "simulated")
    ),
    TAS_WALL,
    TAS_SLOWEST,
)


def measure(names: set[str]) -> Iterator[Figure]:
    """One simulation for each case."""
    if names & {TAS_WALL, TAS_SLOWEST}:
        yield from placed(names)
    for name, case in CASES.items():
        wanted = [one for one in FIGURES if one in names and one.startswith(f"kueue.{name}.")]
        if not wanted:
            continue
        began = time.perf_counter()
        (run,) = simulate(workload(case), [rules()])
        took = time.perf_counter() - began
        found = {f"kueue.{name}.{key}": value for key, value in figures(case, run).items()}
        found[f"kueue.{name}.simulated"] = (took, "s")
        said = (
            f"{len(run.jobs):,} workloads in the {case.queues} queues of one of {case.cohorts} "
            f"cohorts that are all alike, {run.cycles:,} cycles"
        )
        for figure in wanted:
            yield Figure(figure, *found[figure], said)


def placed(names: set[str]) -> Iterator[Figure]:
    """All workloads end, and how long the class waited that waited longest in the mean."""
    rules = policy(
        plugins=["priority", "gang", "predicates", "capacity", "network-topology-aware"],
        actions="allocate, backfill",
    )
    (run,) = simulate(racked(), [rules])
    waits = {
        name: 1000 * mean([wait_of(one) for one in run.jobs if one.job.priority_class == name])
        for name in PLACED
    }
    slowest = max(waits, key=lambda name: (waits[name], name))
    ended = sum(1 for one in run.jobs if one.ended is not None)
    said = f"{ended:,} of {len(run.jobs):,} workloads ended, {RACKS * RACK} nodes, {run.cycles:,} cycles"
    if TAS_WALL in names:
        yield Figure(TAS_WALL, run.until / MILLISECONDS, "ms", said)
    if TAS_SLOWEST in names:
        yield Figure(TAS_SLOWEST, waits[slowest], "ms", f"{said}; it is {slowest}")


def racked() -> Workload:
    """The nodes in their HyperNodes, and all workloads."""
    cluster: list[Tree] = [
        {"kind": "PriorityClass", "metadata": {"name": name}, "value": kind.priority}
        for name, kind in PLACED.items()
    ]
    for rack in range(RACKS):
        names = [f"node-{rack}-{number}" for number in range(RACK)]
        cluster += [node(name, {"cpu": str(CPUS), "pods": "110"}) for name in names]
        cluster.append(hyper_node(f"rack-{rack}", 1, "Node", names))
    cluster.append(hyper_node("block", 2, "HyperNode", [f"rack-{rack}" for rack in range(RACKS)]))
    jobs: list[SimulatedJob] = []
    for number in range(PLACED_QUEUES):
        cluster.append(queue(f"cq-{number}", spec={"deserved": {"cpu": "8500"}}))
        for name, kind in PLACED.items():
            for at in range(kind.count):
                called = f"cq-{number}-{name}-{at}"
                jobs.append(placed_job(called, name, kind, f"cq-{number}", at * kind.every))
    return Workload(jobs, cluster)


def hyper_node(name: str, tier: int, kind: str, members: list[str]) -> Tree:
    chosen = [{"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members]
    return {
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": chosen},
    }


def placed_job(name: str, of: str, kind: Placed, queued: str, submit: int) -> SimulatedJob:
    rack = {"mode": "hard", "highestTierAllowed": 1}
    spec: Tree = {"networkTopology": rack if kind.topology == "required" else {"mode": "soft"}}
    roles: list[Role] = []
    requests = {"cpu": str(kind.cpu)}
    if kind.topology == "balanced":
        slices = range(kind.pods // kind.slice)
        spec = {
            "subGroupPolicy": [
                {
                    "name": "slice",
                    "subGroupSize": kind.slice,
                    "minSubGroups": len(slices),
                    "matchLabelKeys": ["slice"],
                    "networkTopology": rack,
                }
            ]
        }
        roles = [
            Role(f"slice-{at}", kind.slice, requests, {"labels": {"slice": f"{at}"}})
            for at in slices
        ]
    return SimulatedJob(
        name,
        submit=submit * MILLISECONDS,
        duration=kind.runs * MILLISECONDS,
        requests=requests,
        pods=kind.pods,
        min_available=kind.pods,
        queue=queued,
        priority_class=of,
        roles=roles,
        overlay={"spec": spec},
        processors=kind.cpu * kind.pods,
    )


def figures(case: Case, run: Run) -> dict[str, tuple[float, str]]:
    """What Kueue's tests look at, in milliseconds and percent.  Usage is that of the nominal quota
    over the whole run, of all queues together."""
    wall = run.until / MILLISECONDS
    quota = NOMINAL * case.queues * run.until / 1e6
    found = {"wall": (wall, "ms"), "usage": (100 * run.used["cpu"] / 1000 / quota, "%")}
    for name in CLASSES:
        waits = [wait_of(one) for one in run.jobs if one.job.priority_class == name]
        found[name] = (1000 * mean(waits), "ms")
    return found


def rules() -> Policy:
    """The queue that holds least of its quota first, and in it the highest priority."""
    return policy(
        plugins=[
            "priority",
            "gang",
            "predicates",
            {"name": "capacity", "enableHierarchy": True},
        ],
        actions="allocate, backfill",
    )


def workload(case: Case) -> Workload:
    """One cohort, on a node with the quota of its members."""
    quota = {"cpu": str(NOMINAL * case.queues)}
    cluster: list[Tree] = [
        {"kind": "PriorityClass", "metadata": {"name": name}, "value": priority}
        for name, (priority, _) in CLASSES.items()
    ]
    cluster += [
        node("all", {**quota, "pods": quota["cpu"]}),
        queue("root"),
        queue("cohort", spec={"parent": "root", "capability": quota, "deserved": quota}),
    ]
    jobs: list[SimulatedJob] = []
    for number in range(case.queues):
        name = f"cq-{number}"
        own = {
            "parent": "cohort",
            "deserved": {"cpu": str(NOMINAL)},
            "capability": {"cpu": str(NOMINAL + min(BORROWING, NOMINAL * (case.queues - 1)))},
        }
        cluster.append(queue(name, spec=own))
        jobs += [
            SimulatedJob(
                f"{name}-{kind}-{at}",
                submit=at * every * MILLISECONDS,
                duration=runs * MILLISECONDS,
                requests={"cpu": str(CLASSES[kind][1])},
                queue=name,
                priority_class=kind,
                processors=CLASSES[kind][1],
            )
            for kind, (count, every, runs) in case.sets.items()
            for at in range(count)
        ]
    return Workload(jobs, cluster)
