"""The action reclaim with proportion and capacity: whose pod goes, and when none does."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World, policy
from tests.engine.fairness.stage import evicted, group, lone, pipelined
from tests.engine.flags import only

PROPORTION = only("proportion", "QueueOrder", "Preemptive", "Reclaimable")
CAPACITY = only("capacity", "QueueOrder", "Preemptive", "Reclaimable")


def reclaiming(quota: Any = PROPORTION) -> World:
    plugins = [
        "conformance",
        only("gang", "JobStarving", "Reclaimable"),
        quota,
        only("priority", "JobOrder", "TaskOrder"),
    ]
    world = World(policy(plugins=plugins, actions="reclaim"), default_queue=False)
    for name, value in (("low", 10), ("mid", 100), ("high", 1000)):
        world.priority_class(name, value)
    return world


def held(
    world: World, name: str, queue: str, *preemptable: bool, priority: str = "mid", least: int = 1
) -> None:
    """A job of so many pods of 1 cpu and 1G on n1."""
    group(world, name, queue=queue, priority=priority, min_available=least)
    for number, may in enumerate(preemptable):
        world.pod(f"{name}-{number + 1}", job=name, node="n1", cpu=1, memory="1G", preemptable=may)


@pytest.mark.scenario("plugins-fairness", 128)
def test_the_only_one_that_may_go() -> None:
    world = reclaiming()
    world.nodes("n1", cpu=3, memory="3Gi", pods=10)
    world.queue("q1")
    world.queue("q2")
    held(world, "h", "q1", False, True, False)
    lone(world, "claims", "q2", cpu=1, memory="1G")
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["h-2"], {"claims": "n1"})


@pytest.mark.scenario("plugins-fairness", 129)
def test_of_equal_queues_the_later_one_gives() -> None:
    """Whatever the priorities of their jobs are."""
    world = reclaiming()
    world.nodes("n1", cpu=4, memory="4Gi", pods=10)
    for name in ("q1", "q2", "q3"):
        world.queue(name)
    held(world, "h1", "q1", True, True, priority="mid")
    held(world, "h2", "q2", True, False, priority="low")
    lone(world, "claims", "q3", cpu=1, memory="1G", priority="high")
    assert evicted(world.run()) == ["h2-1"]


@pytest.mark.scenario("plugins-fairness", 130)
def test_the_queue_of_lower_priority_gives() -> None:
    world = reclaiming()
    world.nodes("n1", cpu=4, memory="4Gi", pods=10)
    for name, priority in (("q1", 5), ("q2", 10), ("q3", 1)):
        world.queue(name, priority=priority)
    held(world, "h1", "q1", True, False)
    held(world, "h2", "q2", True, False)
    lone(world, "claims", "q3", cpu=1, memory="1G")
    assert evicted(world.run()) == ["h1-1"]


@pytest.mark.scenario("plugins-fairness", 131)
def test_who_never_preempts() -> None:
    world = reclaiming()
    world.nodes("n1", cpu=2, memory="2Gi", pods=10)
    world.queue("q1")
    world.queue("q2")
    held(world, "h", "q1", True, True)
    lone(world, "claims", "q2", cpu=1, memory="1G", spec={"preemptionPolicy": "Never"})
    assert evicted(world.run()) == []


@pytest.mark.parametrize(
    "quota",
    [
        pytest.param(PROPORTION, marks=pytest.mark.scenario("plugins-fairness", 132)),
        pytest.param(CAPACITY, marks=pytest.mark.scenario("plugins-fairness", 133)),
    ],
)
@pytest.mark.parametrize("state", ["Open", "Closed", "Closing", ""])
def test_only_an_open_queue_takes_back(quota: Any, state: str) -> None:
    world = reclaiming(quota)
    world.nodes("n1", cpu=2, memory="2Gi", pods=10)
    world.queue("q1")
    world.queue("q2", state=state, deserved={"cpu": 1, "memory": "1Gi"})
    held(world, "h", "q1", True, True)
    lone(world, "claims", "q2", cpu=1, memory="1G")
    # Of a new queue nobody has said anything yet.
    assert len(evicted(world.run())) == (state in ("Open", ""))
    if state == "Closed":
        assert world.why("pg-claims").endswith("No victim because queue q2 is not open but Closed.")


@pytest.mark.scenario("plugins-fairness", 134)
def test_what_is_free_counts_towards_the_room() -> None:
    """8 cpu are free; 1G is not, and one victim frees it."""
    world = reclaiming()
    world.nodes("n1", cpu=10, memory="2Gi", pods=10)
    for name, priority, weight in (("q1", 1, 1), ("q2", 2, 1), ("q3", 0, 3)):
        world.queue(name, priority=priority, weight=weight)
    held(world, "h1", "q1", True, least=0)
    held(world, "h2", "q2", True, least=0)
    lone(world, "claims", "q3", cpu=2, memory="1G")
    assert evicted(world.run()) == ["h1-1"]


@pytest.mark.scenario("plugins-fairness", 135)
def test_the_second_task_may_what_the_first_may_not() -> None:
    world = reclaiming()
    world.nodes("n1", cpu=3, memory="3Gi", pods=10)
    world.queue("q1")
    world.queue("q2")
    held(world, "h", "q1", True, True, True)
    group(world, "claims", queue="q2")
    world.pod("c1", job="claims", cpu=1, memory="1G", spec={"preemptionPolicy": "Never"})
    world.pod("c2", job="claims", cpu=1, memory="1G")
    decisions = world.run()
    assert len(evicted(decisions)) == 1
    assert set(pipelined(decisions)) == {"c2"}


def test_the_layout_of_tiers_decides_whether_shares_protect() -> None:
    """Where gang and conformance sit in a tier before, the quota plugin is not asked about victims."""
    outcomes = []
    for tiers in (
        [["conformance", "gang", "proportion"]],
        [["conformance", "gang"], ["proportion"]],
    ):
        world = World(policy(tiers=tiers, actions="reclaim"), default_queue=False)
        world.nodes("n1", cpu=4, memory="4Gi", pods=10)
        for name in ("q1", "q2", "q3"):
            world.queue(name, weight={"q1": 1, "q2": 9, "q3": 9}[name])
        held(world, "h2", "q2", True, True, least=0)
        held(world, "h1", "q1", True, True, least=0)
        lone(world, "claims", "q3", cpu=1, memory="1G")
        outcomes.append(evicted(world.run()))
    assert outcomes[0][0].startswith("h1"), "q2 deserves what it holds"
    assert len(outcomes[1]) == 1


def test_a_deployment_s_group_takes_one_pod_back_and_no_more() -> None:
    """6.13: eight pods each of 1 cpu and 4Gi; a minimum of one is met by the first."""
    world = World(
        policy(
            tiers=[["priority", "gang", "conformance"], ["predicates", "capacity"]],
            actions="allocate, reclaim",
        )
    )
    world.nodes("n1", "n2", cpu=4, memory="16Gi")
    world.queue("queue1", deserved={"cpu": 2, "memory": "8Gi"})
    world.queue("queue2", deserved={"cpu": 6, "memory": "24Gi"})
    world.job(
        "one",
        pods=8,
        min_available=1,
        queue="queue1",
        cpu=1,
        memory="4Gi",
        on=["n1"] * 4 + ["n2"] * 4,
    )
    world.job("two", pods=8, min_available=1, queue="queue2", cpu=1, memory="4Gi")
    assert len(world.run().evictions) == 1


@pytest.mark.parametrize("how", ["minimum", "starving"])
def test_six_and_two(how: str) -> None:
    """6.13: with a minimum of six, or where priority alone says who starves: 7 cpu would be more
    than 6 and 28Gi more than 24Gi."""
    gang: Any = "gang" if how == "minimum" else {"name": "gang", "enableJobStarving": False}
    world = World(
        policy(
            tiers=[["priority", gang, "conformance"], ["predicates", "capacity"]],
            actions="allocate, reclaim",
        )
    )
    world.nodes("n1", "n2", cpu=4, memory="16Gi")
    world.queue("queue1", deserved={"cpu": 2, "memory": "8Gi"})
    world.queue("queue2", deserved={"cpu": 6, "memory": "24Gi"})
    world.job(
        "one",
        pods=8,
        min_available=1,
        queue="queue1",
        cpu=1,
        memory="4Gi",
        on=["n1"] * 4 + ["n2"] * 4,
    )
    world.job(
        "two",
        pods=8,
        min_available=6 if how == "minimum" else 1,
        queue="queue2",
        cpu=1,
        memory="4Gi",
    )
    assert len(world.run().evictions) == 6
