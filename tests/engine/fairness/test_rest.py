"""Random clusters of queues under every policy of eviction: they come to rest, keep guarantees and
ceilings, and evict for a purpose."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.model.tasks import Status
from hekla.engine.plugins.fairness.capacity import Capacity
from hekla.engine.world import World, policy

SEEDS = st.integers(0, 2**40)
PLACING = ["predicates", "nodeorder"]
POLICIES: dict[str, tuple[list[Any], str]] = {
    "preempt": (
        [["priority", "gang", "conformance"], ["proportion", *PLACING]],
        "enqueue, allocate, backfill, preempt",
    ),
    "reclaim": (
        [["gang", "conformance", "proportion"], ["priority", *PLACING]],
        "enqueue, allocate, backfill, reclaim",
    ),
    "capacity": (
        [["priority", "gang", "conformance", "capacity"], PLACING],
        "enqueue, allocate, backfill, preempt, reclaim",
    ),
    "gangs": (
        [["priority", "gang", "conformance", "capacity"], PLACING],
        "enqueue, allocate, backfill, gangpreempt, gangreclaim",
    ),
    "all": (
        [["priority", "gang", "conformance", "capacity"], ["drf", *PLACING]],
        "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim",
    ),
    "tree": (
        [
            [
                "priority",
                "gang",
                "conformance",
                {
                    "name": "capacity",
                    "enableHierarchy": True,
                    "arguments": {"ancestorReclaimLevel": 1},
                },
            ],
            PLACING,
        ],
        "enqueue, allocate, backfill, reclaim, gangreclaim",
    ),
    "drf": (
        [["gang", {"name": "drf", "enableHierarchy": True}], PLACING],
        "enqueue, allocate, backfill, preempt, reclaim",
    ),
}
CYCLES = 20


def drawn(name: str, seed: int) -> World:
    """Up to five nodes, four queues, eight jobs."""
    draw = random.Random(seed)
    tiers, actions = POLICIES[name]
    world = World(policy(tiers=tiers, actions=actions), default_queue=False)
    for level, value in (("low", 1), ("mid", 50), ("high", 100)):
        world.priority_class(level, value)
    count = draw.randint(1, 5)
    world.nodes(
        *(f"n{number}" for number in range(count)), cpu=4, memory="8Gi", pods=draw.choice([3, 110])
    )
    queues = ["qa", "qb", "qc", "qd"][: draw.randint(2, 4)]
    if name == "tree":
        world.queue("root")
        world.queue("top", parent="root", deserved={"cpu": draw.randint(1, 4 * count)})
    for queue in queues:
        spec: dict[str, Any] = {
            "weight": draw.choice([1, 2, 5]),
            "priority": draw.choice([0, 0, 1]),
        }
        if draw.random() < 0.7:
            spec["deserved"] = {"cpu": draw.randint(0, 4 * count)}
        if draw.random() < 0.3:
            spec["guarantee"] = {"cpu": draw.randint(0, 2)}
        if draw.random() < 0.4:
            spec["capability"] = {"cpu": draw.randint(1, 4 * count)}
        if draw.random() < 0.2:
            spec["reclaimable"] = False
        if name == "tree":
            spec["parent"] = draw.choice(["root", "top"])
        world.queue(queue, **spec)
    for number in range(draw.randint(2, 8)):
        pods = draw.randint(1, 5)
        cpu = draw.choice([1, 1, 1, 2, 3, None])
        least = draw.randint(0, pods)
        minimum = None if draw.random() < 0.5 or cpu is None else {"cpu": cpu * least}
        world.job(
            f"j{number}",
            pods=pods,
            min_available=least,
            queue=draw.choice(queues),
            phase="Pending",
            cpu=cpu,
            min_resources=minimum,
            priority=draw.choice(["low", "mid", "high"]),
            preemptable=draw.choice([None, None, True, False]),
            spec=draw.choice([{}, {}, {}, {"preemptionPolicy": "Never"}]),
        )
        if draw.random() < 0.6:
            world.now += 2
            world.run()
            world.settle()
    return world


def held(world: World) -> dict[str, float]:
    """cpu that each queue's pods hold, as Kubernetes would count."""
    result = dict.fromkeys(world.state.queues, 0.0)
    for task in world.state.tasks.values():
        if (
            task.job is not None
            and task.row >= 0
            and task.status in (Status.RUNNING, Status.BINDING, Status.BOUND)
        ):
            result[task.job.queue] += task.request.amounts["cpu"]
    return result


def guaranteed(world: World) -> dict[str, float]:
    return {name: queue.guarantee.get("cpu", 0.0) for name, queue in world.state.queues.items()}


def ceilings(world: World) -> dict[str, float]:
    return {
        name: queue.capability.get("cpu", 0.0) or float("inf")
        for name, queue in world.state.queues.items()
    }


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_a_cluster_comes_to_rest_and_keeps_its_promises(name: str, seed: int) -> None:
    world = drawn(name, seed)
    counts_quota = any(isinstance(plugin, Capacity) for plugin in _plugins(world))
    for _ in range(CYCLES):
        world.now += 2
        before = held(world)
        decisions = world.run()
        assert decisions.problems == [], seed
        after = held(world)
        for row in range(len(world.state.nodes)):
            bound_here = any(bind.node == world.state.nodes.names[row] for bind in decisions.binds)
            if bound_here:
                assert (
                    world.state.nodes.used[:, row] <= world.state.nodes.allocatable[:, row] + 0.1
                ).all(), seed
        bound_to = {world.state.jobs[bind.job].queue for bind in decisions.binds}
        for queue in bound_to:
            if counts_quota or "proportion" in name:
                assert after[queue] <= max(ceilings(world)[queue], before[queue]), (seed, queue)
        for bind in decisions.binds:
            job = world.state.jobs[bind.job]
            assert (
                job.counts.ready + job.counts.pending_best_effort >= job.min_available
                or job.counts.statuses[Status.RELEASING]
            ), seed
        if counts_quota:
            victims = {
                world.state.jobs[one.job].queue
                for one in decisions.evictions
                if one.reason in ("reclaim", "gangreclaim")
            }
            preempted = {
                world.state.jobs[one.job].queue
                for one in decisions.evictions
                if one.reason in ("preempt", "gangpreempt")
            }
            for queue in victims - preempted:
                assert after[queue] >= min(guaranteed(world)[queue], before[queue]) - 0.1, (
                    seed,
                    queue,
                )
        if decisions.evictions:
            assert decisions.pipelined, f"{seed}: evicted for nobody"
        world.settle()
        if not decisions.binds and not decisions.evictions:
            return
    raise AssertionError(f"{seed}: still {decisions.binds} {decisions.evictions}")


def _plugins(world: World) -> list[Any]:
    world.run("backfill")
    return list(world.state.hooks.plugins)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_what_is_freed_is_taken_by_whom_it_was_freed_for(name: str, seed: int) -> None:
    """Where the victims of a cycle leave and nothing else happens, those that were promised their
    room are bound next.

    Best-effort pods come last, with backfill, and may find their node's last place taken.
    """
    world = drawn(name, seed)
    for _ in range(CYCLES):
        world.now += 2
        decisions = world.run()
        preemptors = {
            one.pod for one in decisions.pipelined if not world.state.tasks[one.pod].best_effort
        }
        world.settle()
        if decisions.evictions and preemptors:
            world.now += 2
            following = world.run()
            assert preemptors & set(following.bound()), (seed, decisions.evictions, preemptors)
            world.settle()
        elif not decisions.binds and not decisions.evictions:
            return


def story(name: str, seed: int) -> str:
    """A digest of all that is decided in a random cluster."""
    from hekla.engine.tape import encoded

    world = drawn(name, seed)
    digest = hashlib.sha256()
    for _ in range(6):
        world.now += 2
        digest.update(encoded(world.run()))
        world.settle()
    return digest.hexdigest()


def digests() -> str:
    return " ".join(story(name, seed) for name in POLICIES for seed in range(12))


def test_every_process_decides_the_same() -> None:
    told = {digests()}
    for seed in ("0", "1", "4242"):
        code = "from tests.engine.fairness.test_rest import digests; print(digests())"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"}
        told.add(
            subprocess.run(
                [sys.executable, "-c", code],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
        )
    assert len(told) == 1
