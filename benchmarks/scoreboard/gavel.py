"""Gavel's continuous trace of jobs of one GPU, drawn as its paper says (Narayanan et al., OSDI 2020,
section 7.1), under least attained service.

A job lasts 10^x minutes, x uniform from 1.5 to 3 for four jobs of five and from 3 to 4 for the
others; the times between arrivals are exponential.  Jobs 4,000 to 5,000 are looked at, so that the
cluster is neither empty before nor after.  No random numbers are shared with Gavel's own generator,
so a seed here is not its seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.figure import Figure
from hekla.engine.world import policy
from hekla.simulator.outcome import mean
from hekla.simulator.simulation import simulate
from hekla.simulator.workload import MICROSECONDS, SimulatedJob, Workload, microseconds, node, queue

LIGHT = "gavel.las.light"
FIGURES = (LIGHT,)
GPUS, BETWEEN, SEEDS = 36, 4500.0, (0, 1, 2)
FIRST, LAST = 4_000, 5_000


def measure(names: set[str]) -> Iterator[Figure]:
    """The mean of three seeds."""
    if LIGHT not in names:
        return
    times = [completion(drawn(seed)) for seed in SEEDS]
    said = ", ".join(f"{one:,.0f}" for one in times)
    yield Figure(LIGHT, mean(times), "s", f"one job each {BETWEEN:g} s; seeds {SEEDS}: {said}")


def drawn(seed: int) -> Workload:
    chance = random.Random(f"gavel/{seed}")
    jobs, now = [], 0.0
    for number in range(LAST):
        low, high = (1.5, 3.0) if chance.random() < 0.8 else (3.0, 4.0)
        lasts = 60 * 10 ** chance.uniform(low, high)
        jobs.append(
            SimulatedJob(
                f"job-{number:04d}", microseconds(now), microseconds(lasts), {"nvidia.com/gpu": "1"}
            )
        )
        now += chance.expovariate(1 / BETWEEN)
    nodes = [node(f"node-{at}", {"nvidia.com/gpu": "4", "pods": "110"}) for at in range(GPUS // 4)]
    return Workload(jobs, [*nodes, queue("default")])


def completion(workload: Workload) -> float:
    """Mean seconds from arrival to end, of the jobs that are looked at."""
    rules = policy(
        plugins=[
            "least-attained-service",
            {"name": "gang", "enablePreemptable": False},
            "predicates",
        ],
        actions="allocate, gangpreempt",
    )
    (run,) = simulate(workload, [rules])
    ended = [one.ended - one.job.submit for one in run.jobs[FIRST:] if one.ended is not None]
    assert len(ended) == LAST - FIRST
    return mean(ended) / MICROSECONDS
