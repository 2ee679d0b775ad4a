"""What the policy of `hekla up` does with pods of different priorities: as Kubernetes' own
scheduler, and gangs stay whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import hekla.local.cluster
from hekla.engine.policies import read_policy
from hekla.engine.world import World
from tests.engine.trees import hard, hyper

POLICY = read_policy(
    yaml.safe_load(Path(hekla.local.cluster.__file__).with_name("policy.yaml").read_text())
)
CLASSES = {"low": 10, "mid": 100, "high": 1000}


def world(cpu: int = 2) -> World:
    made = World(POLICY)
    made.state.pods.bare_pod_schedulers = frozenset({"default-scheduler"})
    for name, value in CLASSES.items():
        made.priority_class(name, value)
    made.nodes("n1", cpu=cpu)
    return made


def lone(
    made: World, name: str, priority: str, *, node: str = "", cpu: int = 1, **more: Any
) -> None:
    spec = {"priority": CLASSES[priority], "priorityClassName": priority, **more.pop("spec", {})}
    made.pod(name, node=node, cpu=cpu, scheduler="default-scheduler", spec=spec, **more)


def evicted(made: World) -> set[str]:
    made.run()
    return {one.pod.removeprefix("default/") for one in made.decisions.evictions}


def test_the_lowest_goes_and_the_claimer_is_promised_its_node() -> None:
    made = world()
    lone(made, "l", "low", node="n1")
    lone(made, "m", "mid", node="n1")
    lone(made, "h", "high")
    assert evicted(made) == {"l"}
    assert [(one.pod, one.nominated_node) for one in made.decisions.conditions] == [
        ("default/h", "n1")
    ]
    made.settle()
    made.run()
    assert [(one.pod, one.node) for one in made.decisions.binds] == [("default/h", "n1")]
    made.settle()
    assert evicted(made) == set()


def test_not_for_an_equal_nor_for_a_policy_of_never() -> None:
    made = world()
    lone(made, "l", "mid", node="n1")
    lone(made, "m", "mid", node="n1")
    lone(made, "equal", "mid")
    lone(made, "never", "high", spec={"preemptionPolicy": "Never"})
    assert evicted(made) == set()


def test_a_budget_spares_the_lower_and_nobody_higher_goes_for_it() -> None:
    made = world()
    lone(made, "l", "low", node="n1", labels={"app": "kept"})
    lone(made, "h", "high", node="n1")
    lone(made, "m", "mid")
    made.state.upsert_other(
        "PodDisruptionBudget",
        {
            "metadata": {"name": "kept", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "kept"}}},
            "status": {"disruptionsAllowed": 0},
        },
    )
    assert evicted(made) == set()


def test_a_gang_stays_whole_and_gives_what_is_beyond_its_minimum() -> None:
    made = world(cpu=3)
    made.job(
        "gang", pods=3, min_available=2, cpu=1, on=["n1"] * 3, priority="low", spec={"priority": 10}
    )
    lone(made, "first", "high")
    lone(made, "second", "high")
    assert len(evicted(made)) == 1
    made.settle()
    assert evicted(made) == set()
    assert made.state.jobs["default/gang"].counts.ready == 2


def test_not_across_queues() -> None:
    made = world()
    made.queue("other")
    made.job(
        "theirs",
        pods=2,
        min_available=1,
        cpu=1,
        on=["n1"] * 2,
        queue="other",
        priority="low",
        spec={"priority": 10},
    )
    lone(made, "h", "high")
    made.run()
    assert {one.reason for one in made.decisions.evictions} <= {"reclaim"}


def test_a_critical_pod_takes_room() -> None:
    made = world(cpu=1)
    lone(made, "h", "high", node="n1")
    critical = {"priority": 2_000_000_000, "priorityClassName": "system-cluster-critical"}
    lone(made, "critical", "high", spec=critical)
    assert evicted(made) == {"h"}


def test_three_of_which_two_make_room() -> None:
    """As Kubernetes' spec over ReplicaSets: what is lowest goes first, and no more of it than it
    takes."""
    made = world(cpu=10)
    lone(made, "p1", "low", node="n1", cpu=2)
    lone(made, "p2", "mid", node="n1", cpu=3)
    lone(made, "p3", "mid", node="n1", cpu=5)
    lone(made, "p4", "high", cpu=5)
    assert evicted(made) in ({"p1", "p2"}, {"p1", "p3"}, {"p3"})


def test_a_hard_topology_is_minded() -> None:
    """Two racks have the room for four pods together, and for two each."""
    made = world()
    made.nodes("n2", cpu=2)
    hyper(made, "rack-1", 1, "n1")
    hyper(made, "rack-2", 1, "n2")
    made.job("wide", pods=4, cpu=1, group=hard(1))
    decisions = made.run()
    assert not decisions.binds
    assert not [one for one in decisions.events if one.reason == "Ignored"]
