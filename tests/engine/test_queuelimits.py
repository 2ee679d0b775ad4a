"""What pods say whom their queue keeps out, what jobs say that nothing was tried for, and what
those that run say no more."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World, policy
from tests.engine.trees import hard, tree_a


def world_of(quota: str = "proportion", **queue: Any) -> World:
    world = World(
        policy(
            tiers=[["priority", "gang"], ["predicates", quota]],
            actions="enqueue, allocate, backfill",
        )
    )
    world.nodes("n1", cpu=4)
    world.queue("small", **queue)
    return world


def said(world: World, job: str) -> dict[str, str]:
    """What the pods of a job say in PodScheduled=False: reason to message."""
    return {
        one.reason: one.message
        for one in world.decisions.conditions
        if one.pod.startswith(f"default/{job}-")
    }


@pytest.mark.parametrize("quota", ["proportion", "capacity"])
def test_whom_only_the_capability_of_the_queue_keeps_out_asks_for_no_nodes(quota: str) -> None:
    world = world_of(quota, capability={"cpu": 1})
    world.job("holds", cpu=1, queue="small", on=["n1"])
    world.job("more", cpu=1, queue="small")
    world.run()
    assert said(world, "more") == {
        "QueueLimited": "Queue small has reached its capability of cpu; more nodes would not help."
    }
    assert world.why("more").startswith("more: queue small may not take another cpu=1 now")


@pytest.mark.parametrize("quota", ["proportion", "capacity"])
def test_nor_does_a_gang_that_is_larger_than_the_queue(quota: str) -> None:
    world = world_of(quota, capability={"cpu": 2})
    world.job("gang", pods=3, cpu=1, queue="small")
    world.run()
    assert "QueueLimited" in said(world, "gang")
    assert "Unschedulable" not in said(world, "gang")


def test_nor_a_group_that_may_not_enter() -> None:
    world = world_of(capability={"cpu": 1})
    world.job("holds", cpu=1, queue="small", on=["n1"])
    world.job("more", cpu=1, queue="small", phase="Pending", min_resources={"cpu": "1"})
    world.run()
    assert set(said(world, "more")) == {"QueueLimited"}


def test_nor_one_whose_queue_is_closed() -> None:
    world = world_of(state="Closed")
    world.job("late", cpu=1, queue="small")
    world.run()
    assert said(world, "late") == {
        "QueueLimited": "Queue small is not open but Closed; more nodes would not help."
    }


@pytest.mark.parametrize("quota", ["proportion", "capacity"])
def test_a_part_of_the_cluster_grows_with_it(quota: str) -> None:
    """The queue holds all that there is: an autoscaler has to make more."""
    world = world_of(quota)
    world.job("holds", pods=4, cpu=1, queue="small", on=["n1"] * 4)
    world.job("more", cpu=1, queue="small")
    world.run()
    assert set(said(world, "more")) == {"Unschedulable"}


def test_who_finds_no_node_asks_for_nodes_also_below_a_capability() -> None:
    world = world_of(capability={"cpu": 100})
    world.job("large", cpu=8, queue="small")
    world.run()
    assert set(said(world, "large")) == {"Unschedulable"}


def test_without_its_queue_or_its_group_a_pod_asks_for_no_nodes() -> None:
    world = World(policy())
    world.nodes("n1", cpu=4)
    world.job("lost", cpu=1, queue="nowhere")
    world.run()
    assert set(said(world, "lost")) == {"QueueNotFound"}


def test_a_job_that_runs_says_no_more_that_it_could_not() -> None:
    world = World(
        policy(plugins=["priority", "gang", "predicates"], actions="enqueue, allocate, backfill")
    )
    world.nodes("n1", cpu=1)
    world.job("train", pods=2, cpu=1)
    world.run()
    job = world.state.jobs["default/train"]
    assert [one["type"] for one in job.conditions if one["status"] == "True"] == [
        "Unschedulable",
        "Waiting",
    ]
    world.nodes("n2", cpu=1)
    world.run()
    world.settle()
    world.run()
    assert job.phase == "Running"
    assert [one["type"] for one in job.conditions if one["status"] == "True"] == ["Scheduled"]


def test_a_job_whose_hypernode_has_gone_says_so() -> None:
    world = tree_a()
    world.job("grown", pods=2, min_available=1, cpu=1, on=["s0-n1"], group=hard(1))
    world.state.remove_other("HyperNode", {"metadata": {"name": "s0"}})
    world.run()
    assert world.why("grown") == (
        "grown has 1 pod on s0-n1, and no HyperNode of tier 1 or lower holds them any more, so no more may join them. "
        "It goes on once such a HyperNode is there again, its tier is raised, or all of its pods are made anew."
    )


def test_nobody_waits_for_a_turn_that_no_action_gives() -> None:
    world = World(policy(plugins=["gang", "predicates"], actions="enqueue, backfill"))
    world.nodes("n1", cpu=4)
    world.job("alone", cpu=1)
    world.run()
    assert world.why("alone") == (
        'alone waits: the scheduler\'s policy has no action that places pods. It is looked at once "actions" names allocate.'
    )
