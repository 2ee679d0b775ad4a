"""Cases of kube-scheduler's own performance tests (test/integration/scheduler_perf in
kubernetes/kubernetes) on 5,000 nodes: through all programs, and the engine alone.

There, pods are created on an API server and counted as they are bound.  The figures that end with
`live` do the same with ours; the others are the engine's part, from objects of the API to
decisions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.clusters import cluster
from benchmarks.end_to_end import Pods
from benchmarks.figure import Figure
from hekla.api.kubernetes import core
from hekla.api.trees import Json, Tree
from hekla.engine import State, cycle
from hekla.engine.framework.policy import Policy
from hekla.engine.policies import default_policy
from hekla.engine.world import policy
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster

BASIC, APART, SPREAD, PREEMPT = (
    f"kubescheduler.{name}" for name in ("basic", "antiaffinity", "spread", "preempt")
)
LIVE = {f"{name}.live": name for name in (BASIC, APART, SPREAD)}
FIGURES = (BASIC, APART, SPREAD, PREEMPT, *LIVE)
NODES, ZONES = 5_000, 3
SMALL = {"cpu": "100m", "memory": "500Mi"}
SCHEDULER = "default-scheduler"
BETWEEN = 114
"""Measured pods for each preemptor: at the published threshold, 570 a second, with 5 preemptors a
second."""


@dataclass(frozen=True)
class Case:
    """Pods that run before, those that are measured, and what these are like."""

    before: int
    pods: int
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Tree = field(default_factory=dict)
    alike: bool = False
    """Whether those before are like the measured ones."""


def cases() -> dict[str, Case]:
    return {
        BASIC: Case(1_000, 10_000),
        APART: Case(1_000, 2_000, {"color": "green"}, apart(), alike=True),
        SPREAD: Case(5_000, 5_000, {"color": "blue"}, over_zones()),
    }


def measure(names: set[str]) -> Iterator[Figure]:
    """Each on nodes made afresh, one run."""
    for name, case in cases().items():
        if name in names:
            state = nodes()
            like = (case.labels, case.spec) if case.alike else ({}, {})
            for number in range(case.before):
                state.upsert_pod(pod(f"init-{number}", SMALL, *like, node=f"node-{number}"))
            took = placed(state, default_policy(), case)
            said = f"{case.before:,} pods run, {case.pods:,} are placed in {took:.2f} s; chart's policy"
            yield Figure(name, case.pods / took, "pods/s", said)
    if PREEMPT in names:
        yield preempting()
    for figure, name in LIVE.items():
        if figure in names:
            with cluster(nodes=0, fake_nodes=NODES) as made:
                yield asyncio.run(live(made, figure, cases()[name]))


def nodes() -> State:
    """4 cpus and 32 GiB each, in three zones."""
    state = State(bare_pod_schedulers=[SCHEDULER])
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    for number in range(NODES):
        name = f"node-{number}"
        labels = {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": f"moon-{number % ZONES + 1}",
        }
        state.upsert_node(
            {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": room}}
        )
    state.upsert_queue(
        {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    )
    return state


def pod(
    name: str,
    requests: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    spec: Tree | None = None,
    node: str = "",
) -> Json:
    """A plain pod; it runs where it has a node."""
    return {
        "metadata": {
            "name": name,
            "namespace": "bench",
            "uid": name,
            "labels": dict(labels or {}),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "nodeName": node,
            "containers": [
                {"name": "main", "image": "pause", "resources": {"requests": dict(requests)}}
            ],
            **(spec or {}),
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def apart() -> dict[str, Any]:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"color": "green"}},
    }
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def over_zones() -> dict[str, Any]:
    constraint = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 5,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }
    return {"topologySpreadConstraints": [constraint]}


def placed(state: State, rules: Policy, case: Case) -> float:
    """Seconds from the first pod that is told until all have a node."""
    trees = [
        pod(f"measured-{number}", SMALL, case.labels, case.spec) for number in range(case.pods)
    ]
    began, bound = time.perf_counter(), 0
    for tree in trees:
        state.upsert_pod(tree)
    for _ in range(20):
        bound += len(cycle(state, rules, 0.0).binds)
        if bound == case.pods:
            return time.perf_counter() - began
    raise RuntimeError(f"{bound} of {case.pods} pods were placed")


def preempting() -> Figure:
    """Four pods of low priority fill 3.6 of the 4 cpus of each node; one that needs 3 comes with
    every so many that fit."""
    state = nodes()
    for name, value in (("low", 1), ("high", 10)):
        state.upsert_priority_class({"metadata": {"name": name}, "value": value})
    for number in range(4 * NODES):
        low = {"priority": 1, "priorityClassName": "low"}
        room = {"cpu": "900m", "memory": "500Mi"}
        state.upsert_pod(pod(f"low-{number}", room, spec=low, node=f"node-{number % NODES}"))
    rules = policy(
        plugins=[
            "priority",
            {"name": "gang", "enablePreemptable": False},
            "conformance",
            "predicates",
            "nodeorder",
        ],
        actions="allocate, preempt, backfill",
    )
    cycle(state, rules, 0.0)
    measured = [pod(f"measured-{number}", SMALL) for number in range(5_000)]
    high = {"priority": 10, "priorityClassName": "high"}
    waiting: dict[str, Json] = {}
    began, bound, evicted, claims = time.perf_counter(), 0, 0, 0
    for first in range(0, len(measured), BETWEEN):
        claim = pod(f"high-{first}", {"cpu": "3", "memory": "500Mi"}, spec=high)
        claims += 1
        for tree in (claim, *measured[first : first + BETWEEN]):
            waiting[f"bench/{tree['metadata']['name']}"] = tree
            state.upsert_pod(tree)
        for _ in range(3):  # evicted; placed; settled
            decided = cycle(state, rules, 0.0)
            for eviction in decided.evictions:
                state.remove_pod(eviction.pod)
            for bind in decided.binds:
                tree = waiting.pop(bind.pod)
                tree["spec"]["nodeName"], tree["status"]["phase"] = bind.node, "Running"
                state.upsert_pod(tree)
            bound += len(decided.binds)
            evicted += len(decided.evictions)
    took = time.perf_counter() - began
    if waiting:
        raise RuntimeError(f"{len(waiting)} pods were not placed, such as {min(waiting)}")
    said = f"20,000 pods run; {claims} preemptors, {evicted} evicted, {took:.2f} s"
    return Figure(PREEMPT, (bound - claims) / took, "pods/s", said)


async def live(made: Cluster, figure: str, case: Case) -> Figure:
    """Plain pods on fake nodes, from the first create to the last bind."""
    async with (
        Client(config.load(str(made.internal_kubeconfig)), pool=64) as client,
        Pods(client) as seen,
    ):
        here = [one.metadata.name for one in (await client.list(core.NODE)).items]
        while len(here) < NODES:
            await asyncio.sleep(0.5)
            here = [one.metadata.name for one in (await client.list(core.NODE)).items]
        await asyncio.gather(
            *(
                client.patch(core.NODE.untyped, name, zoned(number))
                for number, name in enumerate(here)
            )
        )
        await create(client, "init", case.before, case if case.alike else Case(0, 0))
        await seen.until_running(case.before, 120)
        began = time.perf_counter()
        await create(client, "measured", case.pods, case)
        created = time.perf_counter() - began
        await seen.until("bound", case.before + case.pods, 300)
        took = time.perf_counter() - began
    said = f"{case.before:,} pods run; {case.pods:,} created after {created:.1f} s, bound after {took:.1f} s"
    return Figure(figure, case.pods / took, "pods/s", said)


def zoned(number: int) -> Json:
    """The label of the zone that a node is in."""
    return {"metadata": {"labels": {"topology.kubernetes.io/zone": f"moon-{number % ZONES + 1}"}}}


async def create(client: Client, prefix: str, count: int, like: Case) -> None:
    """That many plain pods, as fast as the client may."""
    trees = (
        pod(f"{prefix}-{number}", SMALL, like.labels, {**like.spec, "schedulerName": "volcano"})
        for number in range(count)
    )
    made = ({**tree, "metadata": {**tree["metadata"], "namespace": "default"}} for tree in trees)
    await asyncio.gather(*(client.create(core.POD.untyped, one, "default") for one in made))
