"""What holds in every cluster: nothing overfull, gangs whole or absent, and tables that are what
the objects say."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine import State
from hekla.engine.model.resources import empty
from hekla.engine.model.tasks import READY, Status
from hekla.engine.world import World, policy

FULL = {
    "tiers": [
        ["priority", "gang", "conformance"],
        ["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"],
    ],
    "actions": "enqueue, allocate, backfill, preempt, reclaim",
}  # fmt: skip


def step(world: World, draw: random.Random, number: int) -> None:
    """Something happens in the cluster."""
    kind = draw.randrange(10)
    if kind < 3:
        pods = draw.randint(1, 5)
        world.job(
            f"job{number}",
            pods=pods,
            min_available=draw.randint(0, pods),
            queue=draw.choice(["default", "other", "third"]),
            phase=draw.choice(["Pending", "Inqueue"]),
            priority=draw.choice(["", "high"]),
            min_resources=draw.choice([None, {"cpu": pods}]),
            cpu=draw.choice([None, 0.5, 1, 2]),
            port=draw.choice([0, 0, 0, 80]),
            labels={"app": draw.choice("ab")},
            spec=draw.choice([{}, {}, {"nodeSelector": {"zone": "a"}}, apart()]),
            preemptable=draw.choice([None, True]),
        )
    elif kind == 3:
        world.nodes(
            f"n{draw.randrange(6)}",
            cpu=draw.randint(1, 6),
            pods=6,
            labels={"zone": draw.choice("ab")},
        )
    elif kind == 4:
        world.state.remove_node(f"n{draw.randrange(6)}")
        world.gone.add(f"n{number}")  # type: ignore[attr-defined]
    elif kind == 5 and world.pods:
        key = draw.choice(sorted(world.pods))
        del world.pods[key]
        world.state.remove_pod(key)
    elif kind == 6 and world.pods:
        tree = world.pods[draw.choice(sorted(world.pods))]
        if tree["spec"]["nodeName"]:
            tree["status"]["phase"] = draw.choice(["Running", "Succeeded", "Failed"])
            world.state.upsert_pod(tree)
    else:
        world.now += 1
        world.run()
        check(world)
        if draw.random() < 0.8:
            world.settle()
        else:
            for bind in world.decisions.binds:
                world.state.bind_failed(bind.pod)
            for eviction in world.decisions.evictions:
                world.state.evict_failed(eviction.pod)


def apart() -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "b"}}}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def check(world: World) -> None:
    decisions, state = world.decisions, world.state
    assert decisions.problems == []
    # A best-effort pod takes no room, and may go to a node that has shrunk below what it holds.
    rows = {
        state.nodes.rows[bind.node]
        for bind in decisions.binds
        if not state.tasks[bind.pod].best_effort
    }
    for row in rows:
        assert (state.nodes.used[:, row] <= state.nodes.allocatable[:, row] + 0.1).all()
    for key in {bind.job for bind in decisions.binds}:
        job = state.jobs[key]
        held = job.counts.of(*READY) + job.counts.pending_best_effort
        assert held >= job.min_available or job.counts.statuses[Status.RELEASING]
    assert not any(
        task.status in (Status.ALLOCATED, Status.PIPELINED) for task in state.tasks.values()
    )


def same_as_fresh(world: World) -> None:
    """Every sum and column is what a state gives that sees the present objects for the first time."""
    fresh = State(bare_pod_schedulers=["default-scheduler"])
    for queue in world.queue_trees:  # type: ignore[attr-defined]
        fresh.upsert_queue(queue)
    for row in world.state.nodes.rows.values():
        facts = world.state.nodes.facts[row]
        if facts is not None:
            fresh.nodes.upsert(facts)
    for tree in (*world.groups.values(), *world.pods.values()):
        (fresh.upsert_pod if "containers" in tree["spec"] else fresh.upsert_pod_group)(tree)
    for job in world.state.jobs.values():
        fresh.jobs[job.key].phase = job.phase
        fresh.job_table.mark_changed(fresh.jobs[job.key])
    fresh.count_changes()
    world.state.count_changes()
    present = {name: row for name, row in fresh.nodes.rows.items() if fresh.nodes.ready[row]}
    for name, row in present.items():
        other = world.state.nodes.rows[name]
        for column in ("used", "releasing", "pipelined", "requested", "nonzero"):
            mine = getattr(world.state.nodes, column)[:, other]
            theirs = getattr(fresh.nodes, column)[:, row]
            assert (mine[: len(theirs)] == theirs[: len(mine)]).all(), (name, column)
        assert world.state.nodes.pods[other] == fresh.nodes.pods[row]
    for name, queue in fresh.queues.items():
        for sums in ("allocated", "request", "inqueue", "elastic"):
            assert nonzero(getattr(queue, sums)) == nonzero(
                getattr(world.state.queues[name], sums)
            ), (name, sums)
    assert nonzero(fresh.job_table.reserved) == nonzero(world.state.job_table.reserved)
    for key, term in fresh.terms.terms.items():
        other_term = world.state.terms.terms[key]
        for name, row in present.items():
            counts = (other_term.matched, other_term.anti)
            mine_counts = [
                int(one[world.state.nodes.rows[name]])
                if world.state.nodes.rows[name] < len(one)
                else 0
                for one in counts
            ]
            theirs_counts = [
                int(one[row]) if row < len(one) else 0 for one in (term.matched, term.anti)
            ]
            assert mine_counts == theirs_counts, (key, name)


def nonzero(of: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in {**empty(), **of}.items() if value}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(5, 40))
def test_a_cluster_in_motion_stays_true(seed: int, length: int) -> None:
    draw = random.Random(seed)
    world = World(policy(**FULL), default_queue=False)
    world.gone = set()  # type: ignore[attr-defined]
    trees: list[dict[str, Any]] = []
    world.queue_trees = trees  # type: ignore[attr-defined]
    for name, weight in (("default", 1), ("other", 2), ("third", 1)):
        tree = {"metadata": {"name": name}, "spec": {"weight": weight}, "status": {"state": "Open"}}
        trees.append(tree)
        world.state.upsert_queue(tree)
    world.priority_class("high", 100)
    world.nodes("n0", "n1", cpu=4, pods=6, labels={"zone": "a"})
    for number in range(length):
        step(world, draw, number)
    world.run()
    world.settle()
    same_as_fresh(world)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_steady_cluster_comes_to_rest(seed: int) -> None:
    """With nothing new, evictions and placements end."""
    draw = random.Random(seed)
    world = World(policy(**FULL))
    world.queue("other", weight=2)
    world.queue("third")
    world.priority_class("high", 100)
    world.nodes("n0", "n1", "n2", cpu=4, labels={"zone": "a"})
    world.gone = set()  # type: ignore[attr-defined]
    for number in range(12):
        pods = draw.randint(1, 5)
        world.job(
            f"job{number}",
            pods=pods,
            min_available=draw.randint(1, pods),
            queue=draw.choice(["default", "other", "third"]),
            priority=draw.choice(["", "high"]),
            cpu=1,
            preemptable=True,
        )
    for _ in range(60):
        world.now += 2
        decisions = world.run()
        if not decisions.binds and not decisions.evictions:
            return
        world.settle()
    pytest.fail(f"still {decisions.binds} and {decisions.evictions}")
