"""Several schedulers share a cluster: each keeps to its nodes, or prefers them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.engine.model.decisions import ShardStatus
from hekla.engine.model.shards import Shard
from hekla.engine.world import World, policy

ALLOCATE = ["gang", "predicates", {"name": "nodeorder", "arguments": {"leastrequested.weight": 1}}]
TIER = [
    "conformance",
    {"name": "gang", "enableJobPipelined": False},
    {"name": "priority", "enableReclaimable": False},
    "predicates",
]


def world(mode: str, plugins: list[Any], actions: str = "allocate") -> World:
    here = World(policy(plugins=plugins, actions=actions))
    here.state.shard = Shard(mode, "volcano")
    here.priority_class("low", 10)
    here.priority_class("high", 1000)
    return here


def shard(
    here: World,
    name: str = "volcano",
    *,
    desired: Sequence[str] = (),
    used: Sequence[str] = (),
    add: Sequence[str] = (),
) -> None:
    here.state.upsert_other(
        "NodeShard",
        {
            "metadata": {"name": name, "uid": f"shard-{name}"},
            "spec": {"nodesDesired": list(desired)},
            "status": {"nodesInUse": list(used), "nodesToAdd": list(add)},
        },
    )


@pytest.mark.scenario("scheduler-core", 19)
def test_hard_a_larger_node_outside_is_out_of_the_question() -> None:
    here = world("hard", ALLOCATE)
    here.nodes("n1", cpu=10)
    here.nodes("n3", cpu=20)
    here.nodes("n4", cpu=5)
    shard(here, desired=["n1", "n4"])
    here.job("one", cpu=1)
    assert here.run().nodes_of("one") == {"n1"}


@pytest.mark.scenario("scheduler-core", 19)
def test_soft_the_shard_comes_first_and_others_after_it() -> None:
    here = world("soft", ALLOCATE)
    here.nodes("n1", cpu=10)
    here.nodes("n3", cpu=20)
    here.nodes("n4", cpu=5)
    shard(here, desired=["n1", "n4"])
    here.job("one", cpu=1)
    assert here.run().nodes_of("one") == {"n1"}
    here.settle()
    here.job("large", cpu=15)
    assert here.run().nodes_of("large") == {"n3"}


@pytest.mark.scenario("scheduler-core", 19)
def test_soft_of_identical_nodes_the_one_inside() -> None:
    here = world("soft", ALLOCATE)
    here.nodes("n0", "n1", cpu=10)
    shard(here, desired=["n1"])
    here.job("one", cpu=1)
    assert here.run().nodes_of("one") == {"n1"}


def test_who_waits_is_told_of_the_shard() -> None:
    here = world("hard", ALLOCATE)
    here.nodes("n1", "n2", cpu=1)
    shard(here, desired=["n1"])
    here.job("big", cpu=2)
    here.run()
    (condition,) = [one for one in here.decisions.conditions if one.pod == "default/big-task-0"]
    assert (
        condition.message
        == "0/2 nodes are unavailable: 1 Insufficient cpu, 1 node isn't in scheduler node shard."
    )


@pytest.mark.scenario("scheduler-core", 59)
@pytest.mark.parametrize(
    ("mode", "outside", "cpu"), [("hard", "n3", 20), ("soft", "n3", 20), ("soft", "n0", 4)]
)
def test_backfill_keeps_to_the_shard(mode: str, outside: str, cpu: int) -> None:
    here = world(mode, ALLOCATE, "backfill")
    here.nodes(outside, cpu=cpu)
    here.nodes("n1", cpu=4)
    shard(here, desired=["n1"])
    here.job("light")
    assert here.run().nodes_of("light") == {"n1"}


@pytest.mark.scenario("scheduler-core", 76)
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_preempt_evicts_within_the_shard(mode: str) -> None:
    here = world(mode, TIER, "preempt")
    here.nodes("n2", "n1", cpu=1)
    shard(here, desired=["n1"])
    here.job("a", min_available=0, priority="low", cpu=1, on=["n2"])
    here.job("b", min_available=0, priority="low", cpu=1, on=["n1"])
    here.job("urgent", priority="high", cpu=1)
    assert [one.node for one in here.run().evictions] == ["n1"]


@pytest.mark.scenario("scheduler-core", 85)
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_reclaim_evicts_within_the_shard(mode: str) -> None:
    here = world(mode, [*TIER, "proportion"], "reclaim")
    here.queue("q1")
    here.queue("q2")
    here.nodes("n2", "n1", cpu=1)
    shard(here, desired=["n1"])
    here.job("a", min_available=0, cpu=1, on=["n2"], queue="q1")
    here.job("b", min_available=0, cpu=1, on=["n1"], queue="q1")
    here.job("preemptor", cpu=1, queue="q2")
    assert [one.node for one in here.run().evictions] == ["n1"]


@pytest.mark.scenario("scheduler-core", 158)
def test_what_others_use_is_waited_for() -> None:
    here = world("hard", ALLOCATE)
    shard(here, desired=["1", "2", "3", "4"])
    shard(here, "second", used=["2"])
    shard(here, "third", used=["3", "4"])
    assert here.run().shards == [
        ShardStatus("volcano", "shard-volcano", ["1"], ["2", "3", "4"], [])
    ]


@pytest.mark.scenario("scheduler-core", 158)
def test_what_nobody_uses_is_taken() -> None:
    here = world("hard", ALLOCATE)
    shard(here, desired=["3", "4"])
    shard(here, "second", used=["2"])
    assert here.run().shards == [ShardStatus("volcano", "shard-volcano", ["3", "4"], [], [])]


@pytest.mark.scenario("scheduler-core", 158)
def test_a_status_that_is_right_is_not_written() -> None:
    here = world("hard", ALLOCATE)
    shard(here, desired=["1", "2"], used=["1"], add=["2"])
    shard(here, "second", used=["2"])
    assert here.run().shards == []


@pytest.mark.scenario("scheduler-core", 158)
def test_a_shard_that_goes_leaves_the_nodes_as_they_are() -> None:
    here = world("hard", ALLOCATE)
    here.nodes("n1", "n2", cpu=2)
    shard(here, desired=["n1"])
    here.run()
    here.state.remove_other("NodeShard", "volcano")
    here.job("one", cpu=1)
    decisions = here.run()
    assert decisions.shards == []
    assert decisions.nodes_of("one") == {"n1"}
    assert decisions.problems == [
        "NodeShard volcano does not exist; the nodes in use are still the 1 of before"
    ]


@pytest.mark.scenario("scheduler-core", 158)
def test_the_status_is_decided_with_the_cycle_and_not_within_it() -> None:
    """What a cycle uses stays the same to its end: the new status is one of its decisions."""
    here = world("hard", ALLOCATE)
    here.nodes("n1", "n2", cpu=2)
    shard(here, desired=["n1"], used=["n1"])
    here.job("one", cpu=1)
    assert here.run().shards == []
    shard(here, desired=["n2"], used=["n1"])
    assert here.run().shards == [ShardStatus("volcano", "shard-volcano", ["n2"], [], [])]


def test_the_shard_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scheduler" / "sharding.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    here = world("hard", ALLOCATE)
    here.nodes("n3", cpu=10)
    here.nodes("n1", "n2", cpu=1)
    here.state.upsert_other("NodeShard", yaml.safe_load(example))
    here.job("pair", pods=2, cpu=1)
    assert here.run().nodes_of("pair") == {"n1", "n2"}
