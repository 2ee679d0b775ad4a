"""capacity without a tree: who may take back from whom, by the page's cases."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.plugins.fairness.capacity import Capacity
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import (
    bound,
    evicted,
    gauges,
    group,
    lone,
    names,
    opened,
    pipelined,
    task,
)
from tests.engine.flags import only

A100 = "nvidia.com/a100"
PLUGINS = ["capacity", "predicates", only("gang", "JobStarving")]


def flat(actions: str = "allocate, reclaim", plugins: list[Any] | None = None) -> World:
    return World(policy(plugins=plugins or PLUGINS, actions=actions), default_queue=False)


def branches(world: World) -> Any:
    opened(world)
    (plugin,) = [one for one in world.state.hooks.plugins if isinstance(one, Capacity)]
    return plugin.branches


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        pytest.param(
            {"cpu": 2, "memory": "2Gi"},
            {"p2": "n1"},
            marks=pytest.mark.scenario("plugins-fairness", 38),
        ),
        pytest.param(
            {"cpu": "1500m", "memory": "1536Mi"},
            {},
            marks=pytest.mark.scenario("plugins-fairness", 39),
        ),
    ],
)
def test_within_the_ceiling(capability: dict[str, Any], expected: dict[str, str]) -> None:
    world = flat()
    world.queue("q1", capability=capability)
    world.nodes("n1", cpu=2, memory="4Gi", labels={"selector": "worker"})
    world.nodes("n2", cpu=2, memory="4Gi")
    lone(world, "p1", "q1", node="n2", cpu=1, memory="1Gi")
    lone(world, "p2", "q1", cpu=1, memory="1Gi", spec={"nodeSelector": {"selector": "worker"}})
    assert bound(world.run()) == expected
    if not expected:
        found = world.decisions.explanations["default/pg-p2"]
        assert [(one.resource, one.held, one.most, one.missing) for one in found.shortages] == [
            ("cpu", "1", "1500m", "500m"),
            ("memory", "1Gi", "1.5Gi", "512Mi"),
        ]


@pytest.mark.scenario("plugins-fairness", 40)
def test_what_was_lent_is_taken_back() -> None:
    world = flat()
    world.nodes("n1", "n2", cpu=2, memory="4Gi", pods=10)
    for name in ("q3", "q4"):
        world.queue(name, deserved={"cpu": 2, "memory": "4Gi"})
    group(world, "pg5", queue="q3")
    world.pod("p5", job="pg5", node="n1", cpu=2, memory="4Gi", preemptable=False)
    world.pod("p6", job="pg5", node="n2", cpu=2, memory="4Gi")
    lone(world, "p7", "q4", cpu=2, memory="4Gi")
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions), bound(decisions)) == (
        ["p6"],
        {"p7": "n2"},
        {},
    )


@pytest.mark.scenario("plugins-fairness", 41)
def test_only_the_resource_that_is_asked_for_counts() -> None:
    """q6 holds twice the cpu and memory that it deserves, and none of its cards."""
    world = flat()
    world.nodes("n3", "n4", cpu=4, memory="8Gi", pods=10, **{A100: 10})
    world.queue("q5", deserved={A100: 10})
    world.queue("q6", deserved={"cpu": 2, "memory": "4Gi", A100: 10})
    group(world, "pg8", queue="q5")
    world.pod("p8", job="pg8", node="n3", preemptable=False, **{A100: 10})
    world.pod("p9", job="pg8", node="n4", **{A100: 10})
    lone(world, "p10", "q6", node="n3", cpu=4, memory="8Gi")
    lone(world, "p11", "q6", **{A100: 10})
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p9"], {"p11": "n4"})


@pytest.mark.scenario("plugins-fairness", 42)
def test_the_queue_with_the_higher_priority_takes_the_free_node() -> None:
    world = flat()
    world.nodes("n5", "n6", cpu=2, memory="4Gi")
    for name, priority in (("q7", 5), ("q8", 1), ("q9", 10)):
        world.queue(name, priority=priority)
    lone(world, "p13", "q7", node="n5", cpu=2, memory="4Gi")
    lone(world, "p14", "q8", cpu=2, memory="4Gi")
    lone(world, "p15", "q9", cpu=2, memory="4Gi")
    decisions = world.run()
    assert (bound(decisions), evicted(decisions)) == ({"p15": "n6"}, [])


@pytest.mark.scenario("plugins-fairness", 43)
def test_one_resource_that_is_still_deserved_is_enough() -> None:
    """cpu: 1 + 1 of 2; that memory would be 4 of 2 does not matter."""
    world = flat()
    world.nodes("n1", cpu=2, memory="4Gi")
    world.queue("q10", deserved={"cpu": 2, "memory": "2Gi"})
    world.queue("q11", deserved={"cpu": 0, "memory": 0})
    lone(world, "p16", "q10", node="n1", cpu=1, memory="3Gi")
    lone(world, "p18", "q11", node="n1", cpu=1, memory="1Gi")
    lone(world, "p17", "q10", cpu=1, memory="1Gi")
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p18"], {"p17": "n1"})


@pytest.mark.scenario("plugins-fairness", 44)
def test_and_none_is_not() -> None:
    """cpu 1 + 1 of 1, memory 1 + 2 of 2."""
    world = flat()
    world.nodes("n1", cpu=2, memory="3Gi")
    world.queue("q12", deserved={"cpu": 1, "memory": "2Gi"})
    world.queue("q13")
    lone(world, "p19", "q12", node="n1", cpu=1, memory="1Gi")
    lone(world, "p20", "q13", node="n1", cpu=1, memory="2Gi")
    lone(world, "p21", "q12", cpu=1, memory="2Gi")
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == ([], {})
    assert world.why("pg-p21").endswith(
        "No victim because queue q12 would hold more than its share: "
        "cpu=1 held and 1 asked of deserved 1, memory=1Gi held and 2Gi asked of deserved 2Gi."
    )


@pytest.mark.scenario("plugins-fairness", 45)
def test_victims_that_do_not_make_room_stay() -> None:
    world = flat()
    world.nodes("n7", cpu=4, memory="5Gi", gpu=2)
    world.queue("q14", deserved={"cpu": 2, "memory": "4Gi"})
    world.queue("q15")
    world.queue("q16", deserved={"cpu": 2, "memory": "4Gi", "nvidia.com/gpu": 2})
    lone(world, "p22", "q14", node="n7", cpu=2, memory="4Gi")
    lone(world, "p23", "q15", node="n7", gpu=1)
    lone(world, "p24", "q16", node="n7", cpu=2, memory="1Gi", gpu=1)
    lone(world, "p25", "q16", cpu=2, memory="3Gi", gpu=1)
    session = opened(world)
    assert names(
        session.votes.reclaimable(task(world, "p25"), [task(world, "p22"), task(world, "p23")])
    ) == ["p23"]
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 46)
def test_of_three_only_the_one_that_holds_more_than_its_queue_may() -> None:
    world = flat()
    world.nodes("n8", cpu=2, memory="4Gi", gpu=1)
    world.queue("q17", deserved={"cpu": 2, "memory": "2Gi"})
    world.queue("q18", deserved={"cpu": 1, "nvidia.com/gpu": 1})
    lone(world, "p26", "q17", node="n8", memory="4Gi")
    lone(world, "p27", "q17", node="n8", cpu=1)
    lone(world, "p28", "q17", node="n8", gpu=1)
    lone(world, "p30", "q18", cpu=1, gpu=1)
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p28"], {"p30": "n8"})


@pytest.mark.scenario("plugins-fairness", 47)
def test_cpu_counts_for_nothing_in_a_queue_that_deserves_cards() -> None:
    world = flat()
    world.nodes("n9", cpu=4, memory="4Gi", gpu=1)
    world.queue("q19", deserved={"nvidia.com/gpu": 1})
    world.queue("q20", deserved={"cpu": 1, "memory": "1Gi"})
    lone(world, "p31", "q19", node="n9", cpu=4, memory="4Gi", gpu=1)
    lone(world, "p32", "q20", cpu=1, memory="1Gi")
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 48)
def test_nobody_takes_back_past_its_ceiling() -> None:
    """cpu 7 + 2 of 8, although memory 90 + 5 of 100 would be deserved."""
    world = flat()
    limits = {"cpu": 8, "memory": "100Gi"}
    world.nodes("n10", cpu=9, memory="100Gi")
    world.queue("q21", deserved=limits, capability=limits)
    world.queue("q22")
    lone(world, "p33", "q21", node="n10", cpu=7, memory="90Gi")
    lone(world, "p34", "q22", node="n10", cpu=2, memory="5Gi")
    lone(world, "p35", "q21", cpu=2, memory="5Gi")
    assert evicted(world.run()) == []
    assert "capability 8" in world.why("pg-p35")


def enqueue_and_allocate() -> World:
    world = flat(
        "enqueue, allocate",
        [only("capacity", "JobEnqueued", "Preemptive", "Allocatable", "Overused")],
    )
    world.nodes("n1", "n2", cpu=3, memory="3G", pods=10)
    limits = {"cpu": 2, "memory": "2G"}
    world.queue("q1", deserved=limits, capability=limits)
    world.queue("q2", deserved=limits, capability={"cpu": 3, "memory": "3G"})
    world.queue("q3", deserved=limits, capability=limits, state="Closed")
    lone(
        world,
        "pod1",
        "q1",
        node="n1",
        cpu=1,
        memory="3G",
        about={"phase": "Running", "min_resources": {"cpu": 1, "memory": "3G"}},
    )
    lone(
        world,
        "pod2",
        "q2",
        node="n2",
        cpu=3,
        memory="1G",
        about={"phase": "Running", "min_resources": {"cpu": 3, "memory": "1G"}},
    )
    return world


@pytest.mark.parametrize(
    ("queue", "asked", "expected"),
    [
        pytest.param(
            "q1", {"cpu": 1}, {"new": "n1"}, marks=pytest.mark.scenario("plugins-fairness", 49)
        ),
        pytest.param(
            "q2",
            {"memory": "1G"},
            {"new": "n2"},
            marks=pytest.mark.scenario("plugins-fairness", 50),
        ),
        pytest.param(
            "q1", {"cpu": 1, "memory": "1G"}, {}, marks=pytest.mark.scenario("plugins-fairness", 51)
        ),
        pytest.param("q3", {"cpu": 1}, {}, marks=pytest.mark.scenario("plugins-fairness", 52)),
    ],
)
def test_let_in_and_placed(queue: str, asked: dict[str, Any], expected: dict[str, str]) -> None:
    world = enqueue_and_allocate()
    lone(world, "new", queue, about={"phase": "Pending", "min_resources": asked}, **asked)
    assert bound(world.run()) == expected


NO: dict[str, Any] = {}
TWO = {"cpu": 2, "memory": "2Gi"}
LONG = {"cpu": 2, "memory": "4Gi"}


@pytest.mark.scenario("plugins-fairness", 53)
@pytest.mark.parametrize(
    ("deserved", "allocated", "asked", "share"),
    [
        (NO, NO, NO, 1), (NO, {"cpu": 1, "memory": "1Gi"}, NO, 1), (NO, NO, {"cpu": 1}, 1), (NO, {"cpu": 1}, {"cpu": 3}, 1),
        (NO, {"cpu": 1}, NO, 1), (NO, {"memory": "1Gi"}, NO, 1),
        (TWO, NO, NO, 0), (TWO, {"cpu": 1, "memory": "1Gi"}, NO, 0.5), (TWO, {"cpu": 2, "memory": "2Gi"}, NO, 1),
        (TWO, {"cpu": 3, "memory": "2Gi"}, NO, 1.5), (TWO, NO, {"cpu": 2}, 0), (TWO, {"cpu": 1, "memory": "1Gi"}, {"cpu": 4}, 0.5),
        (LONG, {"cpu": 1, "memory": "3Gi"}, NO, 0.75), (LONG, {"cpu": "1500m", "memory": "2Gi"}, NO, 0.75),
        ({"cpu": 0, "memory": 0}, NO, NO, 1), ({"cpu": 0, "memory": 0}, {"cpu": 1}, NO, 1), ({"pods": 2}, {"cpu": 1}, NO, 1),
    ],
)  # fmt: skip
def test_shares(
    deserved: dict[str, Any], allocated: dict[str, Any], asked: dict[str, Any], share: float
) -> None:
    world = flat()
    world.nodes("n1", cpu=64, memory="64Gi")
    world.queue("q", deserved=deserved)
    group(world, "g", queue="q", min_available=0)
    if allocated:
        world.pod("has", job="g", node="n1", **allocated)
    if asked:
        world.pod("wants", job="g", **asked)
    assert branches(world)["q"].share() == share


def test_deserved_is_bounded_by_the_ceiling_and_below_by_the_guarantee() -> None:
    world = flat()
    world.nodes("n1", cpu=10, memory="10Gi")
    world.queue(
        "q",
        deserved={"cpu": 8, "memory": "1Gi"},
        capability={"cpu": 4},
        guarantee={"cpu": 1, "memory": "2Gi"},
    )
    world.queue("empty", guarantee={"cpu": 3})
    group(world, "g", queue="q")
    (own,) = branches(world).values()
    assert own.real_capability == {"cpu": 4000, "memory": 10 * 2**30, "pods": 110}
    assert own.deserved == {"cpu": 4000, "memory": 2 * 2**30}


def test_gauges() -> None:
    world = enqueue_and_allocate()
    decisions = world.run()
    assert gauges(decisions, "queue_deserved_milli_cpu") == {"q1": 2000, "q2": 2000, "q3": 2000}
    assert gauges(decisions, "queue_capacity_milli_cpu") == {"q1": 2000, "q2": 3000, "q3": 2000}
    assert gauges(decisions, "queue_real_capacity_milli_cpu") == {
        "q1": 2000,
        "q2": 3000,
        "q3": 2000,
    }
    assert gauges(decisions, "queue_allocated_memory_bytes") == {"q1": 3e9, "q2": 1e9, "q3": 0}
    assert gauges(decisions, "queue_request_memory_bytes") == {"q1": 3e9, "q2": 1e9, "q3": 0}
    assert gauges(decisions, "queue_share") == {"q1": 1.5, "q2": 1.5}
    assert gauges(decisions, "queue_overused") == {"q1": 1, "q2": 1}
    assert gauges(decisions, "queue_weight") == {}


def test_a_guarantee_is_never_touched() -> None:
    """Three of four may go: with the fourth the borrower would fall below its guarantee of one."""
    world = flat()
    world.nodes("n1", cpu=4)
    world.queue("owner", deserved={"cpu": 4})
    world.queue("borrower", guarantee={"cpu": 1})
    group(world, "guest", queue="borrower", min_available=0)
    for number in range(4):
        world.pod(f"g{number}", job="guest", node="n1", cpu=1)
    lone(world, "all", "owner", cpu=4)
    lone(world, "most", "owner", cpu=3)
    session = opened(world)
    candidates = [task(world, f"g{number}") for number in range(4)]
    assert len(session.votes.reclaimable(task(world, "most"), candidates)) == 3
    assert len(evicted(world.run())) == 3


def test_keys_of_devices_are_not_in_the_way() -> None:
    """A guarantee of claimed devices protects nobody's cpu; a deserved one is no share of cpu."""
    world = flat()
    world.nodes("n1", cpu=2)
    world.queue("owner", deserved={"cpu": 2})
    world.queue(
        "borrower", guarantee={"deviceclass/gpu.com": 1}, deserved={"deviceclass/gpu.com": 1}
    )
    group(world, "guest", queue="borrower", min_available=0)
    world.pod("g0", job="guest", node="n1", cpu=2)
    lone(world, "mine", "owner", cpu=2)
    assert branches(world)["borrower"].share() == 1
    assert evicted(world.run()) == ["g0"]
