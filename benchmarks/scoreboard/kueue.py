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
from hekla.simulator.workload import SimulatedJob, Workload, node, queue

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


CASES = {
    "baseline": Case(
        5, 6, {"small": (350, 100, 200), "medium": (100, 500, 500), "large": (50, 1200, 1000)}
    ),
    "large-scale": Case(
        20, 100, {"small": (20, 20, 50), "medium": (7, 50, 100), "large": (3, 200, 200)}
    ),
}
FIGURES = tuple(
    f"kueue.{case}.{what}" for case in CASES for what in ("wall", "usage", *CLASSES, "simulated")
)


def measure(names: set[str]) -> Iterator[Figure]:
    """One simulation for each case."""
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
