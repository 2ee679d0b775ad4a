"""Why no domain of the network holds a gang, where it has to stay within one."""

from __future__ import annotations

from typing import Any

from hekla.engine.model.reasons import Shortage
from hekla.engine.world import World, policy


def world() -> World:
    made = World(
        policy(
            plugins=["priority", "gang", "predicates", "network-topology-aware"],
            actions="allocate, reclaim",
        )
    )
    made.nodes("a1", "a2", "b1", "b2", cpu=4)
    domain(made, "A", 1, "Node", "a1", "a2")
    domain(made, "B", 1, "Node", "b1", "b2")
    domain(made, "all", 2, "HyperNode", "A", "B")
    return made


def domain(made: World, name: str, tier: int, kind: str, *members: str) -> None:
    listed = [{"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members]
    made.state.upsert_other(
        "HyperNode", {"metadata": {"name": name}, "spec": {"tier": tier, "members": listed}}
    )


def hard(tier: int) -> dict[str, Any]:
    return {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}


def short(made: World) -> Shortage:
    (one,) = made.decisions.explanations["default/train"].shortages
    return one


def test_domains_that_are_too_small_say_how_much_they_hold():
    made = world()
    made.job("train", pods=3, cpu=4, group=hard(1))

    made.run()

    assert made.decisions.explanations["default/train"].constraint == "topology"
    assert made.why("train").startswith(
        "train needs room for 3 pods of cpu=4 in one domain of tier 1 or lower: of 2, A has the most, for 2; even empty none has it for "
        "more than 2. It starts once a domain holds 3 of them, or its tier is raised."
    )


def test_domains_that_are_too_full_say_how_much_they_lack():
    made = world()
    made.job("busy", pods=3, cpu=4, min_available=1, on=["a1", "b1", "b2"])
    made.job("train", pods=2, cpu=4, group=hard(1))

    made.run()

    assert made.why("train").startswith(
        "train needs room for 2 pods of cpu=4 in one domain of tier 1 or lower: of 2, A has the most, for 1. "
        "It starts when one has room for 1 more."
    )
    assert short(made) == Shortage("pods", "", "domain A", "2", "", "1", "1", "1")


def test_a_tier_that_is_not_there():
    made = world()
    made.job("train", pods=2, cpu=4, group=hard(0))

    made.run()

    assert made.why("train").startswith(
        "train needs room for 2 pods of cpu=4 in one domain of tier 0 or lower; there is none. "
        "It starts once HyperNodes of such a tier are there, or its tier is raised."
    )
    assert short(made) == Shortage("pods", "", "domain", "2", "", "0", "0", "2")


def test_nodes_are_counted_once_however_many_pods_look_at_them():
    made = world()
    made.job("train", pods=3, cpu=4, group=hard(1))

    made.run()

    assert made.why("train").endswith(
        "No victim because 4 nodes have no running pod of other queues that may be evicted."
    )
