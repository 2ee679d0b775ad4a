"""Stories of queues that take back what is theirs: who gives, who does not, and that it ends."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World
from tests.engine.fairness.stage import CAPACITY, cluster, play, quiet, running, sees, submitted


@pytest.mark.scenario("plugins-fairness", 176)
def test_reclaim_until_both_have_their_half() -> None:
    tiers = [
        ["priority", "gang", "conformance", "proportion"],
        ["overcommit", "drf", "predicates", "nodeorder"],
    ]
    world = cluster(8, tiers=tiers, actions="enqueue, allocate, reclaim, backfill")
    world.queue("q1")
    world.queue("q2")
    submitted(world, "first", 8, 1, queue="q1")
    play(world)
    submitted(world, "second", 4, 4, queue="q2")
    play(world)
    assert (running(world, "first"), running(world, "second")) == (4, 4)


RECLAIMING = [
    ["priority", "gang", "conformance", "proportion"],
    ["overcommit", "drf", "predicates", "nodeorder", "binpack"],
]


def reclaiming(
    slots: int, nodes: int = 2, *queues: str, tiers: list[Any] | None = None, **spec: Any
) -> World:
    world = cluster(
        slots, nodes, tiers=tiers or RECLAIMING, actions="enqueue, allocate, reclaim, backfill"
    )
    for name in queues:
        world.queue(name, **spec)
    return world


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_1_room_for_all() -> None:
    world = reclaiming(8, 2, "q1", "q2", "q3")
    for name in ("q1", "q2", "q3"):
        submitted(world, f"in-{name}", 2, queue=name)
    assert quiet(world)
    assert [running(world, f"in-{name}") for name in ("q1", "q2", "q3")] == [2, 2, 2]


@pytest.mark.scenario("plugins-fairness", 190)
@pytest.mark.parametrize("priority", ["", "high"])
def test_reclaim_4_and_5_a_queue_that_is_not_there(priority: str) -> None:
    world = reclaiming(2, 1, "q1")
    submitted(world, "in-q1", 2, 1, queue="q1")
    submitted(world, "lost", 1, queue="nowhere", priority=priority)
    assert quiet(world)
    assert running(world, "lost") == 0
    assert world.decisions.explanations["default/lost"].constraint == "queue", (
        "it is told that there is none"
    )


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_6_everybody_has_its_share() -> None:
    world = reclaiming(6, 2, "q1", "q2", "q3")
    for name in ("q1", "q2", "q3"):
        submitted(world, f"in-{name}", 2, 1, queue=name)
    play(world)
    submitted(world, "more", 1, queue="q3")
    assert quiet(world)
    assert (sees(world, "more"), running(world, "more")) == ("Inqueue", 0)
    assert [running(world, f"in-{name}") for name in ("q1", "q2", "q3")] == [2, 2, 2]


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_7_a_node_that_is_not_there() -> None:
    world = reclaiming(4, 2, "q1", "q2")
    submitted(world, "in-q1", 4, 1, queue="q1")
    play(world)
    submitted(
        world, "wants", 1, queue="q2", spec={"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
    )
    assert quiet(world)
    assert (running(world, "wants"), running(world, "in-q1")) == (0, 4)


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_8_larger_than_any_node() -> None:
    world = reclaiming(4, 4, "q1", "q2")
    submitted(world, "in-q1", 4, 1, queue="q1")
    play(world)
    submitted(world, "wants", 1, queue="q2", cpu=4)
    assert quiet(world)
    assert (sees(world, "wants"), running(world, "in-q1")) == ("Inqueue", 4)


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_9_nobody_gives_back() -> None:
    world = reclaiming(6, 2, "q1", "q2", reclaimable=False)
    world.queue("q3")
    for name in ("q1", "q2"):
        submitted(world, f"in-{name}", 2, 1, queue=name)
    play(world)
    submitted(world, "wants", 3, 1, queue="q3")
    assert quiet(world)
    assert running(world, "wants") == 2


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_10_two_new_queues() -> None:
    world = reclaiming(4, 2, "q1", "q2", "q3", "q4")
    for name in ("q1", "q2"):
        submitted(world, f"in-{name}", 2, 1, queue=name)
    play(world)
    for name in ("q3", "q4"):
        submitted(world, f"in-{name}", 1, queue=name)
    play(world)
    assert [running(world, f"in-{name}") for name in ("q1", "q2", "q3", "q4")] == [1, 1, 1, 1]


@pytest.mark.scenario("plugins-fairness", 191)
def test_reclaim_11_by_what_queues_name() -> None:
    world = reclaiming(8, 2, tiers=CAPACITY)
    for name, cpu in (("q1", 1), ("q2", 1), ("q3", 2), ("q4", 4)):
        world.queue(name, deserved={"cpu": cpu})
    for name in ("q1", "q2"):
        submitted(world, f"in-{name}", 4, 1, queue=name)
    play(world)
    submitted(world, "in-q3", 1, queue="q3", cpu=2)
    for number, cpu in enumerate((2, 1, 1)):
        submitted(world, f"in-q4-{number}", 1, queue="q4", cpu=cpu)
    play(world)
    assert [
        running(world, name)
        for name in ("in-q1", "in-q2", "in-q3", "in-q4-0", "in-q4-1", "in-q4-2")
    ] == [1, 1, 1, 1, 1, 1]


@pytest.mark.scenario("plugins-fairness", 192)
def test_reclaim_12_in_a_tree() -> None:
    """q2 holds 7 of 4; q11 and q12 deserve 2 each, and take back what they ask for."""
    tiers = [
        ["priority", "gang", "conformance", {"name": "capacity", "enableHierarchy": True}],
        ["predicates", "nodeorder"],
    ]
    world = reclaiming(8, 2, tiers=tiers)
    world.queue("root")
    world.queue("q1", parent="root", deserved={"cpu": 4})
    world.queue("q11", parent="q1", deserved={"cpu": 2})
    world.queue("q12", parent="q1", deserved={"cpu": 2})
    world.queue("q2", parent="root", deserved={"cpu": 4})
    submitted(world, "first-q11", 1, queue="q11")
    submitted(world, "in-q2", 7, 1, queue="q2")
    play(world)
    submitted(world, "in-q12", 1, queue="q12")
    submitted(world, "second-q11", 1, queue="q11")
    play(world)
    assert [running(world, name) for name in ("first-q11", "second-q11", "in-q12", "in-q2")] == [
        1,
        1,
        1,
        5,
    ]
