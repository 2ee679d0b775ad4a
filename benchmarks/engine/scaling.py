"""How a cycle's cost grows: with nodes, with pods of one gang, with jobs of one pod, with running
pods that nothing happens to.

Each figure is the exponent of a power law through its points (1 is linear, 0 constant); the points
stand beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.engine import cluster_states
from benchmarks.figure import Aim, Figure
from hekla.engine import Policy, State, cycle
from hekla.engine.policies import default_policy

NODES, PODS, JOBS, RUNNING = "curve.nodes", "curve.pods", "curve.jobs", "curve.running"
FIGURES = (NODES, PODS, JOBS, RUNNING)
AIMS = [
    Aim(NODES, "<= 1.1", "exponent", 3, "a gang of 10,000 pods on 1,000 to 20,000 nodes"),
    Aim(PODS, "<= 1.1", "exponent", 3, "a gang of 1,000 to 100,000 pods on 10,000 nodes"),
    Aim(
        JOBS, "<= 1.1", "exponent", 3, "1,000 to 20,000 jobs of one pod in 10 queues on 2,000 nodes"
    ),
    Aim(
        RUNNING,
        "<= 1.1",
        "exponent",
        3,
        "one pod arrives among 1,000 to 100,000 running ones on 10,000 nodes",
    ),
]


def measure(names: set[str]) -> Iterator[Figure]:
    """The fastest of two runs for each point."""
    if NODES in names:
        yield figure(NODES, (1000, 2000, 5000, 10_000, 20_000), lambda nodes: gang(10_000, nodes))
    if PODS in names:
        yield figure(PODS, (1000, 5000, 20_000, 50_000, 100_000), lambda pods: gang(pods, 10_000))
    if JOBS in names:
        yield figure(JOBS, (1000, 2000, 5000, 10_000, 20_000), one_pod_jobs)
    if RUNNING in names:
        yield figure(RUNNING, (1000, 5000, 20_000, 100_000), arrival)


def figure(name: str, sizes: tuple[int, ...], run: Callable[[int], float]) -> Figure:
    seconds = [min(run(size) for _ in range(2)) for size in sizes]
    exponent, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    points = ", ".join(f"{size:,}: {1000 * value:.1f} ms" for size, value in zip(sizes, seconds))
    return Figure(name, float(exponent), "exponent", points)


def timed(state: State, policy: Policy, pods: int) -> float:
    """Seconds until so many pods are bound."""
    bound, began = 0, time.perf_counter()
    while bound < pods:
        bound += len(cycle(state, policy, 1.0).binds)
    return time.perf_counter() - began


def gang(pods: int, nodes: int) -> float:
    return timed(cluster_states.gang(pods, nodes), default_policy(), pods)


def one_pod_jobs(jobs: int) -> float:
    return timed(cluster_states.one_pod_jobs(jobs, 10, 2000), default_policy(), jobs)


def arrival(running: int) -> float:
    state, policy = cluster_states.full(10_000, running), default_policy()
    cycle(state, policy, 0.0)
    cycle(state, policy, 0.5)
    cluster_states.add_gang(state, "late-0", 1, queue="default")
    return timed(state, policy, 1)
