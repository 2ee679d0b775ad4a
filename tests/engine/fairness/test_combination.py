"""How the victims that several plugins name become one list."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.framework.plugin import ABSTAIN, Plugin, Victims
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import job, lone, names, opened, task


def says(name: str, *pods: str, vote: int = 1) -> type[Plugin]:
    """A plugin that always names these pods."""

    class Fixed(Plugin):
        def evictable(self, kind: str, job: Any, candidates: list[Any]) -> Victims:
            return Victims([one for one in candidates if one.name in pods], vote)

    Fixed.name = name
    return Fixed


def victims(*tiers: list[type[Plugin]]) -> list[str]:
    plugins = [one for tier in tiers for one in tier]
    world = World(policy(tiers=[[one.name for one in tier] for tier in tiers], custom=plugins))
    world.nodes("n1")
    for name in "abc":
        lone(world, name, node="n1")
    lone(world, "claims")
    session = opened(world)
    return names(
        session.votes.evictable(
            "gangpreempt", job(world, "pg-claims"), [task(world, name) for name in "abc"]
        )
    )


@pytest.mark.scenario("plugins-fairness", 19)
def test_two_lists_of_a_tier_intersect() -> None:
    assert victims([says("one", "a", "b"), says("two", "b", "c")]) == ["b"]


@pytest.mark.scenario("plugins-fairness", 20)
def test_who_abstains_is_not_counted() -> None:
    assert victims([says("one", vote=ABSTAIN), says("two", "a")]) == ["a"]


@pytest.mark.scenario("plugins-fairness", 21)
def test_an_empty_list_ends_its_tier() -> None:
    assert victims([says("one"), says("two", "b")], [says("three", "a")]) == ["a"]


@pytest.mark.scenario("plugins-fairness", 22)
def test_without_a_plugin_nobody_is_a_victim() -> None:
    assert victims([]) == []


def test_an_intersection_that_is_empty_ends_its_tier() -> None:
    assert victims([says("one", "a"), says("two", "b"), says("three", "c")]) == []
    assert victims(
        [says("one", "a"), says("two", "b"), says("three", "c")], [says("four", "a")]
    ) == ["a"]


def test_a_budget_does_not_turn_priorities_round() -> None:
    """The lower of two is under a budget: its answer and that of priority miss each other, and the
    higher one is nobody's victim."""
    world = World(policy(plugins=["priority", "pdb", "conformance"], actions="preempt"))
    for name, value in (("low", 1), ("mid", 5), ("high", 10)):
        world.priority_class(name, value)
    world.nodes("n1", cpu=2)
    lone(world, "lesser", priority="low", node="n1", cpu=1, labels={"app": "kept"})
    lone(world, "greater", priority="high", node="n1", cpu=1, labels={"app": "free"})
    lone(world, "claims", priority="mid", cpu=1)
    world.state.others.setdefault("PodDisruptionBudget", {})["default/kept"] = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": 0},
    }
    assert world.run().evictions == []


def test_a_tier_that_has_decided_is_the_last_one_asked() -> None:
    assert victims([says("one", "a", "b")], [says("two", "b")]) == ["a", "b"]


@pytest.mark.scenario("plugins-fairness", 23)
def test_plugins_are_told_for_whom_and_why() -> None:
    seen: dict[tuple[str, str, str], None] = {}

    class Curious(Plugin):
        name = "curious"

        def evictable(self, kind: str, job: Any, candidates: list[Any]) -> Victims:
            seen[kind, job.key, ",".join(one.name for one in candidates)] = None
            return Victims()

    for action in ("gangpreempt", "gangreclaim"):
        world = World(
            policy(plugins=["curious", "gang", "predicates"], actions=action, custom=[Curious])
        )
        world.priority_class("high", 10)
        world.nodes("n1", cpu=1)
        world.queue("other")
        lone(world, "held", "default" if action == "gangpreempt" else "other", node="n1", cpu=1)
        lone(world, "claims", priority="high", cpu=1)
        world.run()
    assert list(seen) == [
        ("gangpreempt", "default/pg-claims", "held"),
        ("gangreclaim", "default/pg-claims", "held"),
    ]
