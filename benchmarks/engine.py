"""How fast the engine decides, alone, in one process: whole cycles from state to decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.figure import Figure
from hekla.engine import Policy, State, cycle

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
            best = min(_cycle_time(_gang(pods, nodes), pods) for _ in range(RUNS))
            yield Figure(name, pods / best, "pods/s", f"chart's default policy, one cycle of {best * 1e3:.0f} ms")
    if JOBS in names:
        best = min(_all_cycles(_one_pod_jobs(10_000, 10, 1_000)) for _ in range(RUNS))
        yield Figure(JOBS, 10_000 / best, "pods/s", f"chart's default policy, {best * 1e3:.0f} ms")
    if APART in names:
        yield _rate(APART, 2_000, _constrained(2_000, 5_000, _apart()))
    if SPREAD in names:
        yield _rate(SPREAD, 5_000, _constrained(5_000, 5_000, _over_zones()))
    if MIXED in names:
        yield _rate(MIXED, 10_000, _shapes(500, 20, 50, 5_000))
    if names & {IDLE, ONE}:
        yield from _steady(names)


def _rate(name: str, pods: int, state: State) -> Figure:
    took = _all_cycles(state, pods)
    return Figure(name, pods / took, "pods/s", f"chart's default policy, {took * 1e3:.0f} ms, one run")


def _steady(names: set[str]) -> Iterator[Figure]:
    state, policy = _full(10_000, 100_000), Policy.default()
    cycle(state, policy, 0.0)
    cycle(state, policy, 0.0)
    where = "10,000 nodes, 100,000 running pods in 10,000 jobs, chart's default policy"
    if IDLE in names:
        yield Figure(IDLE, 1e3 * min(_timed(lambda: cycle(state, policy, 1.0)) for _ in range(20)), "ms", where)
    if ONE in names:
        times = []
        for number in range(20):
            _add_gang(state, f"late-{number}", 1, queue="default")
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
    policy = Policy.default()
    began = time.perf_counter()
    bound = len(cycle(state, policy, 0.0).binds)
    took = time.perf_counter() - began
    if bound != pods:
        raise RuntimeError(f"{bound} of {pods} pods were bound")
    return took


def _all_cycles(state: State, pods: int = 10_000) -> float:
    policy, bound = Policy.default(), 0
    began = time.perf_counter()
    for _ in range(20):
        bound += len(cycle(state, policy, 0.0).binds)
        if bound == pods:
            return time.perf_counter() - began
    raise RuntimeError(f"{bound} of {pods} pods were bound")


def _nodes(state: State, count: int) -> None:
    for number in range(count):
        state.upsert_node({
            "metadata": {
                "name": f"node-{number}",
                "labels": {"kubernetes.io/hostname": f"node-{number}", "zone": f"zone-{number % 10}"},
            },
            "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
        })  # fmt: skip


def _queue(state: State, name: str) -> None:
    state.upsert_queue({"metadata": {"name": name}, "spec": {"weight": 1}, "status": {"state": "Open"}})


def _add_gang(
    state: State, name: str, pods: int, *, queue: str, phase: str = "Pending", nodes: int = 0,
    spec: Mapping[str, Any] | None = None, cpu: str = "1", memory: str = "1Gi",
) -> None:
    state.upsert_pod_group({
        "metadata": {"name": name, "namespace": "bench", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"minMember": pods, "queue": queue, "minResources": {"cpu": str(pods), "memory": f"{pods}Gi"}},
        "status": {"phase": phase},
    })  # fmt: skip
    for number in range(pods):
        node = f"node-{(hash_of(name) + number) % nodes}" if nodes else ""
        state.upsert_pod({
            "metadata": {
                "name": f"{name}-{number}", "namespace": "bench", "uid": f"{name}-{number}",
                "labels": {"volcano.sh/job-name": name},
                "annotations": {"scheduling.k8s.io/group-name": name, "volcano.sh/task-spec": "worker"},
            },
            "spec": {
                "schedulerName": "volcano", "nodeName": node,
                "containers": [
                    {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
                ],
                **(spec or {}),
            },
            "status": {"phase": "Running" if nodes else "Pending"},
        })  # fmt: skip


def _apart() -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"volcano.sh/job-name": "gang-0"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _over_zones() -> dict[str, Any]:
    selector = {"matchLabels": {"volcano.sh/job-name": "gang-0"}}
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


def _constrained(pods: int, nodes: int, spec: Mapping[str, Any]) -> State:
    state = State()
    _nodes(state, nodes)
    _queue(state, "default")
    _add_gang(state, "gang-0", pods, queue="default", spec=spec)
    return state


def _shapes(jobs: int, pods: int, shapes: int, nodes: int) -> State:
    """Jobs of so many shapes, in four queues."""
    state = State()
    _nodes(state, nodes)
    for number in range(4):
        _queue(state, f"queue-{number}")
    for number in range(jobs):
        shape = number % shapes
        asked: dict[str, Any] = {"cpu": f"{250 + 50 * shape}m", "memory": f"{256 + 64 * (shape % 7)}Mi"}
        _add_gang(state, f"job-{number}", pods, queue=f"queue-{number % 4}", phase="Inqueue", **asked)
    return state


def hash_of(name: str) -> int:
    """A number that is the same in every process."""
    return int(name.rpartition("-")[2] or 0) * 10


def _gang(pods: int, nodes: int) -> State:
    state = State()
    _nodes(state, nodes)
    _queue(state, "default")
    _add_gang(state, "gang-0", pods, queue="default")
    return state


def _one_pod_jobs(jobs: int, queues: int, nodes: int) -> State:
    state = State()
    _nodes(state, nodes)
    for number in range(queues):
        _queue(state, f"queue-{number}")
    for number in range(jobs):
        _add_gang(state, f"job-{number}", 1, queue=f"queue-{number % queues}")
    return state


def _full(nodes: int, pods: int) -> State:
    state = State()
    _nodes(state, nodes)
    _queue(state, "default")
    for number in range(pods // 10):
        _add_gang(state, f"job-{number}", 10, queue="default", phase="Running", nodes=nodes)
    return state
