"""How fast the engine decides, alone, in one process: whole cycles from state to decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.engine import cluster_states
from benchmarks.figure import Figure
from hekla.engine import State, cycle
from hekla.engine.policies import default_policy

GANGS = {
    "engine.gang.1000x1000": (1_000, 1_000),
    "engine.gang.10000x5000": (10_000, 5_000),
    "engine.gang.10000x10000": (10_000, 10_000),
    "engine.gang.10000x20000": (10_000, 20_000),
}
JOBS = "engine.jobs.10000x1"
IDLE, ONE = "engine.idle", "engine.one"
APART, SPREAD, MIXED = "engine.antiaffinity", "engine.spread", "engine.mixed"
FIGURES = (*GANGS, JOBS, IDLE, ONE, APART, SPREAD, MIXED)
RUNS = 3


def measure(names: set[str]) -> Iterator[Figure]:
    """The best of three runs each, because the machine does other things too."""
    for name, (pods, nodes) in GANGS.items():
        if name in names:
            best = min(_cycle_time(cluster_states.gang(pods, nodes), pods) for _ in range(RUNS))
            yield Figure(
                name,
                pods / best,
                "pods/s",
                f"chart's default policy, one cycle of {best * 1e3:.0f} ms",
            )
    if JOBS in names:
        best = min(_all_cycles(cluster_states.one_pod_jobs(10_000, 10, 1_000)) for _ in range(RUNS))
        yield Figure(JOBS, 10_000 / best, "pods/s", f"chart's default policy, {best * 1e3:.0f} ms")
    if APART in names:
        yield _rate(APART, 2_000, cluster_states.constrained(2_000, 5_000, cluster_states.apart()))
    if SPREAD in names:
        yield _rate(
            SPREAD, 5_000, cluster_states.constrained(5_000, 5_000, cluster_states.over_zones())
        )
    if MIXED in names:
        yield _rate(MIXED, 10_000, cluster_states.shapes(500, 20, 50, 5_000))
    if names & {IDLE, ONE}:
        yield from _steady(names)


def _rate(name: str, pods: int, state: State) -> Figure:
    took = _all_cycles(state, pods)
    return Figure(
        name, pods / took, "pods/s", f"chart's default policy, {took * 1e3:.0f} ms, one run"
    )


def _steady(names: set[str]) -> Iterator[Figure]:
    state, policy = cluster_states.full(10_000, 100_000), default_policy()
    cycle(state, policy, 0.0)
    cycle(state, policy, 0.0)
    where = "10,000 nodes, 100,000 running pods in 10,000 jobs, chart's default policy"
    if IDLE in names:
        yield Figure(
            IDLE,
            1e3 * min(_timed(lambda: cycle(state, policy, 1.0)) for _ in range(20)),
            "ms",
            where,
        )
    if ONE in names:
        times = []
        for number in range(20):
            cluster_states.add_gang(state, f"late-{number}", 1, queue="default")
            began = time.perf_counter()
            decided = cycle(state, policy, 2.0)
            while not decided.binds:
                decided = cycle(state, policy, 2.0)
            times.append(time.perf_counter() - began)
        yield Figure(ONE, 1e3 * sorted(times)[10], "ms", f"{where}; median of 20 arrivals")


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _cycle_time(state: State, pods: int) -> float:
    policy = default_policy()
    began = time.perf_counter()
    bound = len(cycle(state, policy, 0.0).binds)
    took = time.perf_counter() - began
    if bound != pods:
        raise RuntimeError(f"{bound} of {pods} pods were bound")
    return took


def _all_cycles(state: State, pods: int = 10_000) -> float:
    policy, bound = default_policy(), 0
    began = time.perf_counter()
    for _ in range(20):
        bound += len(cycle(state, policy, 0.0).binds)
        if bound == pods:
            return time.perf_counter() - began
    raise RuntimeError(f"{bound} of {pods} pods were bound")
