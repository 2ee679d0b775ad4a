"""Cluster states for the engine's benchmarks: nodes of one size, gangs, jobs of many shapes, full
clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.engine import State


def add_nodes(state: State, count: int) -> None:
    for number in range(count):
        state.upsert_node(
            {
                "metadata": {
                    "name": f"node-{number}",
                    "labels": {
                        "kubernetes.io/hostname": f"node-{number}",
                        "zone": f"zone-{number % 10}",
                    },
                },
                "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
            }
        )


def add_queue(state: State, name: str) -> None:
    state.upsert_queue(
        {"metadata": {"name": name}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    )


def add_gang(
    state: State,
    name: str,
    pods: int,
    *,
    queue: str,
    phase: str = "Pending",
    nodes: int = 0,
    spec: Mapping[str, Any] | None = None,
    cpu: str = "1",
    memory: str = "1Gi",
) -> None:
    state.upsert_pod_group(
        {
            "metadata": {
                "name": name,
                "namespace": "bench",
                "uid": name,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "minMember": pods,
                "queue": queue,
                "minResources": {"cpu": str(pods), "memory": f"{pods}Gi"},
            },
            "status": {"phase": phase},
        }
    )
    for number in range(pods):
        node = f"node-{(hash_of(name) + number) % nodes}" if nodes else ""
        state.upsert_pod(
            {
                "metadata": {
                    "name": f"{name}-{number}",
                    "namespace": "bench",
                    "uid": f"{name}-{number}",
                    "labels": {"volcano.sh/job-name": name},
                    "annotations": {
                        "scheduling.k8s.io/group-name": name,
                        "volcano.sh/task-spec": "worker",
                    },
                },
                "spec": {
                    "schedulerName": "volcano",
                    "nodeName": node,
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox",
                            "resources": {"requests": {"cpu": cpu, "memory": memory}},
                        }
                    ],
                    **(spec or {}),
                },
                "status": {"phase": "Running" if nodes else "Pending"},
            }
        )


def apart() -> dict[str, Any]:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"volcano.sh/job-name": "gang-0"}},
    }
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def over_zones() -> dict[str, Any]:
    selector = {"matchLabels": {"volcano.sh/job-name": "gang-0"}}
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    return {"topologySpreadConstraints": [constraint]}


def constrained(pods: int, nodes: int, spec: Mapping[str, Any]) -> State:
    state = State()
    add_nodes(state, nodes)
    add_queue(state, "default")
    add_gang(state, "gang-0", pods, queue="default", spec=spec)
    return state


def shapes(jobs: int, pods: int, shapes: int, nodes: int) -> State:
    """Jobs of so many shapes, in four queues."""
    state = State()
    add_nodes(state, nodes)
    for number in range(4):
        add_queue(state, f"queue-{number}")
    for number in range(jobs):
        shape = number % shapes
        asked: dict[str, Any] = {
            "cpu": f"{250 + 50 * shape}m",
            "memory": f"{256 + 64 * (shape % 7)}Mi",
        }
        add_gang(
            state, f"job-{number}", pods, queue=f"queue-{number % 4}", phase="Inqueue", **asked
        )
    return state


def hash_of(name: str) -> int:
    """A number that is the same in every process."""
    return int(name.rpartition("-")[2] or 0) * 10


def gang(pods: int, nodes: int) -> State:
    state = State()
    add_nodes(state, nodes)
    add_queue(state, "default")
    add_gang(state, "gang-0", pods, queue="default")
    return state


def one_pod_jobs(jobs: int, queues: int, nodes: int) -> State:
    state = State()
    add_nodes(state, nodes)
    for number in range(queues):
        add_queue(state, f"queue-{number}")
    for number in range(jobs):
        add_gang(state, f"job-{number}", 1, queue=f"queue-{number % queues}")
    return state


def full(nodes: int, pods: int) -> State:
    state = State()
    add_nodes(state, nodes)
    add_queue(state, "default")
    for number in range(pods // 10):
        add_gang(state, f"job-{number}", 10, queue="default", phase="Running", nodes=nodes)
    return state
