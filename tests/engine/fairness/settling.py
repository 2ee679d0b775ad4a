"""Clusters in which evicted pods come back, as controllers see to: how long it takes until nobody
is evicted any more."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

from hekla.engine.framework.policy import Policy
from hekla.engine.model.decisions import Decisions
from hekla.engine.model.resources import CPU, MEMORY
from hekla.engine.world import World, policy

PLACING = ["predicates", "nodeorder"]
TREE = {"name": "capacity", "enableHierarchy": True, "arguments": {"ancestorReclaimLevel": 1}}
RECLAIM = "enqueue, allocate, backfill, reclaim"
GANGS = "enqueue, allocate, backfill, gangpreempt, gangreclaim"
BOTH = "enqueue, allocate, backfill, preempt, reclaim"
ALL = "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim"
LAYOUTS: dict[str, tuple[list[Any], str]] = {
    "page": ([["priority", "gang", "conformance"], ["predicates", "capacity", "nodeorder"]], RECLAIM),
    "page, tree": ([["priority", "gang", "conformance"], ["predicates", TREE, "nodeorder"]], RECLAIM),
    "upstream": ([["priority", {"name": "gang", "enablePreemptable": False}, "conformance"],
                  [{"name": "drf", "enablePreemptable": False}, "predicates", "capacity", "nodeorder"]], RECLAIM),
    "advised": ([["priority", {"name": "gang", "enableReclaimable": False}, "conformance", "capacity"], PLACING], RECLAIM),
    "first tier": ([["priority", "gang", "conformance", "capacity"], PLACING], RECLAIM),
    "no gang": ([["conformance", "capacity"], ["priority", *PLACING]], RECLAIM),
    "gangreclaim": ([["priority", "gang", "conformance"], ["predicates", "capacity", "nodeorder"]], GANGS),
    "gangreclaim, first tier": ([["priority", "gang", "conformance", "capacity"], PLACING], GANGS),
    "gangreclaim, tree": ([["priority", "gang", "conformance"], ["predicates", TREE, "nodeorder"]], GANGS),
    "all actions": ([["priority", "gang", "conformance", "capacity"], ["drf", *PLACING]], ALL),
    "all actions, tree": ([["priority", "gang", "conformance", TREE], PLACING], ALL),
    "proportion": ([["priority", "gang", "conformance"], ["overcommit", "drf", "predicates", "proportion", "nodeorder"]], RECLAIM),
    "proportion, first tier": ([["gang", "conformance", "proportion"], ["priority", *PLACING]], BOTH),
    "proportion, gangs": ([["priority", "gang", "conformance"], ["predicates", "proportion", "nodeorder"]], GANGS),
    "drf": ([["gang", {"name": "drf", "enableHierarchy": True}], PLACING], BOTH),
}  # fmt: skip
RESCHEDULING = {
    "name": "rescheduling",
    "arguments": {
        "interval": "0s",
        "metricsPeriod": "10m",
        "strategies": [
            {
                "name": "lowNodeUtilization",
                "params": {
                    "thresholds": {"cpu": 40, "memory": 60},
                    "targetThresholds": {"cpu": 60, "memory": 80},
                },
            }
        ],
    },
}
"""At each cycle."""
CALM = "enqueue, allocate, backfill, shuffle"
MOVING: dict[str, tuple[list[Any], str]] = {
    "rescheduling": ([["priority", "gang", RESCHEDULING], ["predicates", "usage", "nodeorder"]], CALM),
    "rescheduling, packed": ([["priority", "gang", RESCHEDULING], ["predicates", "binpack"]], CALM),
    "rescheduling, capacity": ([["priority", "gang", "conformance", RESCHEDULING],
                                ["predicates", "capacity", "usage", "nodeorder"]], f"{RECLAIM}, shuffle"),
    "rescheduling, proportion": ([["priority", "gang", "conformance", RESCHEDULING],
                                  ["overcommit", "drf", "proportion", "usage", *PLACING]], f"{BOTH}, shuffle"),
    "rescheduling, all actions": ([["priority", "gang", "conformance", "capacity", RESCHEDULING],
                                   ["drf", "usage", *PLACING]], f"shuffle, {ALL}"),
}  # fmt: skip
"""Layouts in which pods are moved off busy nodes."""
MOST_CYCLES = 60


class Settled(NamedTuple):
    """What came of one cluster."""

    evictions: int
    cycles: int
    quiet: bool
    world: World


def turn(world: World) -> Decisions:
    """One cycle; all that is evicted comes back at once."""
    world.now += 1
    if "shuffle" in world.policy.actions:
        measure(world)
    decisions = world.run()
    assert decisions.problems == []
    world.settle(coming_back=True)
    return decisions


def measure(world: World) -> None:
    """Each pod uses half of what it asks for to half as much again, by its name."""
    nodes = world.state.nodes
    usage: dict[str, Mapping[str, Any]] = {}
    for name, row in nodes.rows.items():
        percent = [0.0, 0.0]
        for task in nodes.tasks[row].values():
            part = 0.5 + crc32(task.key.encode()) % 101 / 100
            for number, resource in enumerate((CPU, MEMORY)):
                whole = nodes.capacity(nodes.space.column(resource))[row]
                percent[number] += 100 * part * task.request.amounts.get(resource, 0.0) / whole
        usage[name] = {
            "cpu_usage_avg_percent": {"10m": percent[0]},
            "memory_usage_avg_percent": {"10m": percent[1]},
            "metrics_age_seconds": 0,
        }
    world.state.others["NodeUsage"] = usage
    world.state.version += 1


def settled(world: World, most: int = MOST_CYCLES, still_for: int = 2) -> Settled:
    """Cycles until so many in a row decide nothing."""
    evictions = still = 0
    for number in range(most):
        decisions = turn(world)
        evictions += len(decisions.evictions)
        moved = decisions.evictions or decisions.binds or decisions.notices
        still = 0 if moved else still + 1
        if still == still_for:
            return Settled(evictions, number + 1, True, world)
    return Settled(evictions, most, False, world)


def played(layout: str, seed: int) -> Settled:
    """A random cluster into which jobs come in two waves."""
    world = drawn(layout, seed)
    first = settled(world)
    more_jobs(world, seed)
    second = settled(world)
    return Settled(
        first.evictions + second.evictions,
        first.cycles + second.cycles,
        first.quiet and second.quiet,
        world,
    )


def two_queues(
    layout: str,
    *,
    pods: int = 1,
    least: int = 1,
    memory: str = "100Mi",
    rules: Policy | None = None,
) -> World:
    """The set-up of the report: 8 nodes of 4 cpu, two queues that deserve 12 each, and each asks
    for all 32."""
    tiers, actions = (LAYOUTS | MOVING)[layout]
    world = World(rules or policy(tiers=tiers, actions=actions), default_queue=False)
    world.nodes(*(f"n{number}" for number in range(8)), cpu=4, memory="64Gi")
    world.queue("root")
    for queue in ("qx", "qy"):
        world.queue(queue, deserved={"cpu": 12, "memory": "24Gi"})
    for queue in ("qx", "qy"):
        for number in range(16 // pods):
            world.job(
                f"{queue}-{number}",
                pods=pods,
                min_available=least,
                queue=queue,
                phase="Pending",
                cpu=2,
                memory=memory,
                min_resources={"cpu": 2 * least, "memory": memory},
            )
        for _ in range(3 if queue == "qx" else 0):
            world.now += 1
            world.run()
            world.settle(coming_back=True)
    return world


def drawn(layout: str, seed: int) -> World:
    """Up to six nodes, five queues, twelve jobs, of every kind that makes queues disagree."""
    draw = random.Random(seed)
    tiers, actions = (LAYOUTS | MOVING)[layout]
    world = World(policy(tiers=tiers, actions=actions), default_queue=False)
    for level, value in (("low", 1), ("mid", 50), ("high", 100)):
        world.priority_class(level, value)
    count = draw.randint(1, 6)
    cpu, memory = draw.choice([2, 4, 8]), draw.choice([4, 8, 16])
    for number in range(count):
        world.nodes(
            f"n{number}",
            cpu=draw.choice([cpu, cpu, 4]),
            memory=f"{draw.choice([memory, memory, 8])}Gi",
            pods=draw.choice([4, 110, 110]),
        )
    world.queue("root")
    parents = ["root"]
    if "tree" in layout:
        for name in ("top", "other")[: draw.randint(1, 2)]:
            world.queue(name, parent="root", **_share(draw, count * cpu, count * memory))
            parents.append(name)
    queues = ["qa", "qb", "qc", "qd", "qe"][: draw.randint(2, 5)]
    for queue in queues:
        spec = {
            "weight": draw.choice([1, 2, 5]),
            "priority": draw.choice([0, 0, 1]),
            **_share(draw, count * cpu // len(queues) + 1, count * memory // len(queues) + 1),
        }
        if draw.random() < 0.1:
            spec["reclaimable"] = False
        world.queue(queue, parent=draw.choice(parents), **spec)
    _jobs(world, draw, "a", queues)
    return world


def more_jobs(world: World, seed: int) -> None:
    """The second wave."""
    _jobs(
        world,
        random.Random(-seed - 1),
        "b",
        [name for name in world.state.queues if name.startswith("q")],
    )


def _jobs(world: World, draw: random.Random, name: str, queues: list[str]) -> None:
    some = draw.sample(queues, draw.randint(1, len(queues)))
    for number in range(draw.randint(1, 10)):
        pods = draw.choice([1, 1, 2, 3, 4, 8])
        asked = draw.choice([1, 1, 2, 2, 3, None])
        least = draw.choice([1, 1, pods, (pods + 1) // 2])
        kept = draw.choice(["100Mi", "1Gi", "2Gi", "3Gi", None])
        minimum = None if draw.random() < 0.5 or asked is None else {"cpu": asked * least}
        world.job(
            f"{name}{number}",
            pods=pods,
            min_available=least,
            queue=draw.choice(some),
            phase="Pending",
            cpu=asked,
            memory=kept,
            min_resources=minimum,
            priority=draw.choice(["low", "mid", "high"]),
            preemptable=draw.choice([None, None, None, None, False]),
        )


def _share(draw: random.Random, cpu: int, memory: int) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draw.random() < 0.85:
        spec["deserved"] = {"cpu": draw.randint(0, 2 * cpu)}
        if draw.random() < 0.6:
            spec["deserved"]["memory"] = f"{draw.randint(0, 2 * memory)}Gi"
    if draw.random() < 0.2:
        spec["guarantee"] = {"cpu": draw.randint(0, max(cpu // 2, 1))}
    if draw.random() < 0.3:
        spec["capability"] = {"cpu": draw.randint(1, 3 * cpu)}
    return spec
