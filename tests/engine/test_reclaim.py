"""reclaim: what a queue takes back from others.  Reference: scheduler-core 10.8."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World, policy
from tests.engine.flags import only

FAIR = only("proportion", "Reclaimable", "QueueOrder", "Preemptive")
TIER = [only("conformance", "Reclaimable"), only("gang", "Reclaimable", "JobStarving"), FAIR]
PRIORITY = only("priority", "Reclaimable", "JobOrder", "TaskOrder")


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


def world(plugins: list[Any] | None = None) -> World:
    made = World(policy(plugins=plugins or TIER, actions="reclaim"))
    for name, value in (("low", 10), ("mid", 50), ("high", 100)):
        made.priority_class(name, value)
    return made


def evicted(here: World) -> list[str]:
    return [one.pod.removeprefix("default/") for one in here.decisions.evictions]


def pipelined(here: World) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.node for one in here.decisions.pipelined}


@core(77)
def test_the_one_pod_that_may_go() -> None:
    here = world()
    here.queue("q1")
    here.queue("q2")
    here.nodes("n1", cpu=3)
    here.job("holder", pods=0, min_available=0, queue="q1")
    for number, may in enumerate((False, True, False)):
        here.pod(f"holder-task-{number}", job="holder", node="n1", cpu=1, preemptable=may)
    here.job("preemptor", cpu=1, queue="q2")
    here.run()
    assert evicted(here) == ["holder-task-1"]


@core(78)
def test_priority_of_jobs_plays_no_part_across_queues() -> None:
    here = world([*TIER, PRIORITY])
    for name in ("q1", "q2", "q3"):
        here.queue(name)
    here.nodes("n1", cpu=4)
    here.job("first", pods=2, min_available=0, priority="mid", cpu=1, on=["n1"] * 2, queue="q1")
    here.job("second", pods=2, min_available=0, priority="low", cpu=1, on=["n1"] * 2, queue="q2")
    here.job("preemptor", cpu=1, priority="high", queue="q3")
    here.run()
    assert len(evicted(here)) == 1
    assert evicted(here)[0].startswith("second")


@core(78)
def test_of_equal_shares_the_younger_queue_loses_first_whatever_its_jobs() -> None:
    here = world([*TIER, PRIORITY])
    for name in ("q2", "q1", "q3"):
        here.queue(name)
    here.nodes("n1", cpu=4)
    here.job("first", pods=2, min_available=0, priority="mid", cpu=1, on=["n1"] * 2, queue="q1")
    here.job("second", pods=2, min_available=0, priority="low", cpu=1, on=["n1"] * 2, queue="q2")
    here.job("preemptor", cpu=1, priority="high", queue="q3")
    here.run()
    assert len(evicted(here)) == 1
    assert evicted(here)[0].startswith("first")


@core(79)
def test_the_queue_of_lower_priority_loses_first() -> None:
    here = world([*TIER, PRIORITY])
    here.queue("q1", priority=5)
    here.queue("q2", priority=10)
    here.queue("q3", priority=1)
    here.nodes("n1", cpu=4)
    here.job("five", pods=2, min_available=0, cpu=1, on=["n1"] * 2, queue="q1")
    here.job("ten", pods=2, min_available=0, cpu=1, on=["n1"] * 2, queue="q2")
    here.job("preemptor", cpu=1, queue="q3")
    here.run()
    assert len(evicted(here)) == 1
    assert evicted(here)[0].startswith("five")


@core(80)
def test_who_never_preempts_reclaims_nothing() -> None:
    here = world()
    here.queue("q1")
    here.queue("q2")
    here.nodes("n1", cpu=3)
    here.job("holder", pods=3, min_available=0, cpu=1, on=["n1"] * 3, queue="q1")
    here.job("preemptor", cpu=1, queue="q2", spec={"preemptionPolicy": "Never"})
    here.run()
    assert evicted(here) == []


@core(81)
@pytest.mark.parametrize("fair", ["proportion", "capacity"])
def test_a_closed_queue_reclaims_nothing(fair: str) -> None:
    here = world([*TIER[:2], only(fair, "Reclaimable", "QueueOrder", "Preemptive")])
    here.queue("q1", deserved={"cpu": 1, "memory": "1Gi"})
    here.queue("q2", state="Closed", deserved={"cpu": 2, "memory": "1Gi"})
    here.nodes("n1", cpu=3)
    here.job("holder", pods=3, min_available=0, cpu=1, on=["n1"] * 3, queue="q1")
    here.job("preemptor", cpu=1, queue="q2")
    here.run()
    assert evicted(here) == []


@core(82)
def test_what_the_node_has_free_counts() -> None:
    here = world()
    here.queue("q1")
    here.queue("q2")
    here.nodes("n1", cpu=10, memory="4G")
    here.job("holder", pods=2, min_available=0, cpu=1, memory="1G", on=["n1"] * 2, queue="q1")
    here.pod("holder-kept-0", job="holder", node="n1", cpu=1, memory="1G", preemptable=False)
    here.job("preemptor", cpu=1, memory="2G", queue="q2")
    here.run()
    assert len(evicted(here)) == 1


@core(83)
def test_a_task_that_never_preempts_does_not_stop_the_next() -> None:
    here = world([*TIER, PRIORITY])
    here.queue("q1")
    here.queue("q2")
    here.nodes("n1", cpu=4)
    here.job("holder", pods=0, min_available=0, queue="q1")
    for number, may in enumerate((True, False, False, False)):
        here.pod(f"holder-task-{number}", job="holder", node="n1", cpu=1, preemptable=may)
    here.job("preemptor", pods=0, min_available=2, queue="q2")
    here.pod(
        "preemptor-never-0",
        job="preemptor",
        cpu=1,
        spec={"preemptionPolicy": "Never", "priority": 10},
    )
    here.pod("preemptor-takes-0", job="preemptor", cpu=1, spec={"priority": 5})
    here.run()
    assert evicted(here) == ["holder-task-0"]
    assert list(pipelined(here)) == ["preemptor-takes-0"]


@core(84)
def test_a_node_with_room_takes_the_claimer_without_an_eviction() -> None:
    here = world()
    here.queue("q1")
    here.queue("q2")
    here.nodes("n1", cpu=4)
    here.job("holder", pods=3, min_available=0, cpu=1, on=["n1"] * 3, queue="q1")
    here.job("preemptor", cpu=1, queue="q2")
    here.run()
    assert evicted(here) == []
    assert pipelined(here) == {"preemptor-task-0": "n1"}


@pytest.mark.parametrize("heard", [(0, 1, 2, 3), (2, 3, 1, 0)])
def test_who_leaves_does_not_hang_on_who_was_seen_to_run_first(heard: tuple[int, ...]) -> None:
    here = world()
    here.queue("q1")
    here.queue("q2")
    here.nodes("n1", cpu=4)
    here.job("holder", pods=0, min_available=0, queue="q1")
    for number in range(4):
        here.pod(f"holder-task-{number}", job="holder", node="n1", cpu=1)
    trees = {number: here.pods[f"default/holder-task-{number}"] for number in range(4)}
    for number in heard:
        here.state.upsert_pod(trees[number])
    here.job("preemptor", cpu=1, queue="q2")
    here.run()
    assert evicted(here) == ["holder-task-0"]
