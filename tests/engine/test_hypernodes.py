"""The tree of domains follows its objects and the nodes.  Reference: scheduler-core 10.12."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hekla.engine.model.hypernodes import ROOT, HyperTree, tree_of
from hekla.engine.world import World, policy
from tests.engine.trees import hard, hyper


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


@pytest.fixture
def world() -> World:
    return World(
        policy(plugins=["gang", "predicates", "network-topology-aware"], actions="allocate")
    )


LEVELS = [
    ("s0", 1, ("n0", "n1"), "Node"),
    ("s1", 1, ("n2", "n3"), "Node"),
    ("s2", 1, ("n4", "n5"), "Node"),
    ("s3", 1, ("n6", "n7"), "Node"),
    ("s4", 2, ("s0", "s1"), "HyperNode"),
    ("s5", 2, ("s2", "s3"), "HyperNode"),
    ("s6", 3, ("s4", "s5"), "HyperNode"),
]


def build(world: World, levels: Any = LEVELS) -> HyperTree:
    world.nodes(*(f"n{number}" for number in range(8)), cpu=2)
    for name, tier, members, kind in levels:
        hyper(world, name, tier, *members, kind=kind)
    return tree_of(world.state)


def nodes(world: World, name: str) -> set[str]:
    found = tree_of(world.state).by_name.get(name)
    return set() if found is None else {world.state.nodes.names[row] for row in found.rows}


def some(*numbers: int) -> set[str]:
    return {f"n{number}" for number in numbers}


def parent(world: World, name: str) -> str:
    return tree_of(world.state).by_name[name].parent


@core(139)
@pytest.mark.parametrize("order", list(itertools.permutations(range(7)))[::700])
def test_the_order_in_which_they_come_does_not_matter(world: World, order: tuple[int, ...]) -> None:
    tree = build(world, [LEVELS[number] for number in order])
    assert nodes(world, "s4") == some(0, 1, 2, 3)
    assert nodes(world, "s6") == some(*range(8))
    assert [parent(world, name) for name in ("s0", "s4", "s6")] == ["s4", "s6", ROOT]
    assert {name: one.tier for name, one in tree.by_name.items() if name != ROOT} == {
        name: tier for name, tier, *_ in LEVELS
    }
    assert not tree.left_out


@core(140)
def test_what_changed_in_name_alone_changes_no_set(world: World) -> None:
    build(world)
    hyper(world, "s0", 1, "n0", "n1", tier_name="rack")
    assert (nodes(world, "s0"), parent(world, "s0")) == (some(0, 1), "s4")


@core(140)
def test_another_tier_moves_it(world: World) -> None:
    build(world)
    hyper(world, "s6", 5, "s4", "s5", kind="HyperNode")
    tree = tree_of(world.state)
    assert tree.tier_of("s6") == 5
    assert tree.root_tier == 6
    assert nodes(world, "s6") == some(*range(8))


@core(140)
@core(143)
def test_other_members_change_all_above(world: World) -> None:
    build(world)
    hyper(world, "s0", 1, "n0")
    assert (nodes(world, "s0"), nodes(world, "s4"), nodes(world, "s6")) == (
        some(0),
        some(0, 2, 3),
        some(0, *range(2, 8)),
    )


def select(world: World, name: str, tier: int, **selector: Any) -> None:
    member = {"type": "Node", "selector": selector}
    world.state.upsert_other(
        "HyperNode", {"metadata": {"name": name}, "spec": {"tier": tier, "members": [member]}}
    )


@core(140)
@core(144)
@pytest.mark.parametrize(
    "selector",
    [{"regexMatch": {"pattern": "^r.*"}}, {"labelMatch": {"matchLabels": {"rack": "r"}}}],
)
def test_patterns_and_labels_follow_the_nodes(world: World, selector: dict[str, Any]) -> None:
    build(world)
    select(world, "wild", 1, **selector)
    hyper(world, "above", 2, "wild", kind="HyperNode")
    assert nodes(world, "wild") == set()
    world.nodes("r1", "r2", cpu=2, labels={"rack": "r"})
    assert (nodes(world, "wild"), nodes(world, "above"), nodes(world, "s0")) == (
        {"r1", "r2"},
        {"r1", "r2"},
        some(0, 1),
    )
    world.state.remove_node("r1")
    assert (nodes(world, "wild"), nodes(world, "above")) == ({"r2"}, {"r2"})
    if "labelMatch" in selector:
        world.nodes("r2", cpu=2)
        assert nodes(world, "wild") == set()


@core(141)
def test_a_circle_is_left_out_and_the_rest_works(world: World) -> None:
    """It takes from no job what it does not need: s1, s2, s3 and s5 stand as before."""
    build(world)
    hyper(world, "s0", 1, "s6", kind="HyperNode")
    tree = tree_of(world.state)
    assert tree.left_out.keys() == {"s0", "s4", "s6"} and all(
        "cyclic" in why for why in tree.left_out.values()
    )
    assert {kind for kind, _ in world.state.rejected} == {"HyperNode"} and len(
        world.state.rejected
    ) == 3, "each is told"
    assert (
        tree.by_name.keys() == {"s1", "s2", "s3", "s5", ROOT}
        and parent(world, "s1") == parent(world, "s5") == ROOT
    )
    world.job("near", pods=2, cpu=2, group=hard(1))
    world.job("wide", pods=4, cpu=2, group=hard(2))
    world.job("plain", cpu=1)
    assert len(world.run().bound()) == 7
    world.job("far", pods=4, cpu=2, group=hard(3))
    assert not world.run().bound()
    assert "HyperNode s0 and 2 more cannot be used as written: cyclic dependency" in world.why(
        "far"
    )


@core(141)
def test_a_circle_can_be_broken(world: World) -> None:
    build(world)
    hyper(world, "s0", 1, "s6", kind="HyperNode")
    assert tree_of(world.state).left_out
    hyper(world, "s0", 1, "n0", "n1")
    assert not tree_of(world.state).left_out and not world.state.rejected
    assert nodes(world, "s6") == some(*range(8))


@pytest.mark.parametrize("named", [("s1",), ("s0", "s1", "s2")])
def test_hypernodes_that_name_each_other_or_themselves(
    world: World, named: tuple[str, ...]
) -> None:
    """Soft jobs too were held back by it."""
    build(world)
    for name, other in zip(named, (*named[1:], named[0]), strict=True):
        hyper(world, name, 1, other, kind="HyperNode")
    assert tree_of(world.state).left_out.keys() >= set(named)
    world.job("hard", pods=2, cpu=2, group=hard(1))
    assert len(world.run().bound()) == 2
    world.job("soft", pods=2, cpu=2, group={"networkTopology": {"mode": "soft"}})
    assert len(world.run().bound()) == 2


@core(141)
def test_a_second_parent_is_named_and_can_give_it_up(world: World) -> None:
    """Until then the child stays with the parent that comes first by name."""
    build(world)
    hyper(world, "s5", 2, "s2", "s3", "s0", kind="HyperNode")
    assert "s0 already has a parent" in tree_of(world.state).left_out["s5"]
    assert parent(world, "s0") == "s4" and nodes(world, "s5") == some(4, 5, 6, 7)
    world.job("near", pods=2, cpu=2, group=hard(1))
    assert len(world.run().bound()) == 2
    hyper(world, "s5", 2, "s2", "s3", kind="HyperNode")
    assert not tree_of(world.state).left_out
    assert nodes(world, "s5") == some(4, 5, 6, 7)


@core(142)
def test_without_a_middle_its_children_stand_alone(world: World) -> None:
    build(world)
    world.state.remove_other("HyperNode", "s4")
    assert [parent(world, name) for name in ("s0", "s1")] == [ROOT, ROOT]
    assert nodes(world, "s6") == some(4, 5, 6, 7)
    hyper(world, "s4", 2, "s0", "s1", kind="HyperNode")
    assert (nodes(world, "s6"), parent(world, "s0")) == (some(*range(8)), "s4")


@core(142)
def test_without_a_leaf_all_above_shrink(world: World) -> None:
    build(world)
    world.state.remove_other("HyperNode", "s0")
    assert (nodes(world, "s4"), nodes(world, "s6")) == (some(2, 3), some(*range(2, 8)))
    hyper(world, "s0", 1, "n0", "n1")
    assert nodes(world, "s4") == some(0, 1, 2, 3)


@core(142)
def test_without_the_top_there_are_two_trees(world: World) -> None:
    build(world)
    world.state.remove_other("HyperNode", "s6")
    assert [parent(world, name) for name in ("s4", "s5")] == [ROOT, ROOT]
    assert (nodes(world, "s4"), nodes(world, "s5")) == (some(0, 1, 2, 3), some(4, 5, 6, 7))
    hyper(world, "s6", 3, "s4", "s5", kind="HyperNode")
    assert nodes(world, "s6") == some(*range(8))


@core(143)
def test_a_domain_that_lost_its_members(world: World) -> None:
    build(world)
    hyper(world, "s3", 1)
    assert (nodes(world, "s3"), nodes(world, "s5"), nodes(world, "s6")) == (
        set(),
        some(4, 5),
        some(*range(6)),
    )


@core(143)
def test_a_domain_that_moved(world: World) -> None:
    build(world)
    hyper(world, "s5", 2, "s3", kind="HyperNode")
    hyper(world, "s4", 2, "s0", "s1", "s2", kind="HyperNode")
    assert (nodes(world, "s4"), nodes(world, "s5"), parent(world, "s2")) == (
        some(*range(6)),
        some(6, 7),
        "s4",
    )


@core(145)
def test_the_closest_domain_of_two(world: World) -> None:
    tree = build(world)
    hyper(world, "alone", 1, "n9")
    assert tree.common("s0", "s1") == "s4"
    assert tree.common("s0", "s4") == "s4"
    assert tree.common("s4", "s0") == "s4"
    assert tree.common("s2", "s2") == "s2"
    assert tree.common("", "s2") == "s2"


@core(145)
def test_trees_that_share_nothing_meet_in_the_whole_cluster_alone(world: World) -> None:
    build(world)
    hyper(world, "alone", 1, "n9")
    tree = tree_of(world.state)
    assert tree.common("alone", "s0") == ROOT
    assert tree.common("s0", "unknown") == ""


@core(146)
@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ({"matchLabels": {"rack": "a"}}, {"x", "y"}),
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}, {"x"}),
        ({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["1"]}]}, {"y", "z"}),
        ({"matchExpressions": [{"key": "rack", "operator": "Exists"}]}, {"x", "y"}),
        ({"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}, {"z"}),
        ({}, set()), (None, set()),
    ],
)  # fmt: skip
def test_members_by_label(world: World, selector: Any, chosen: set[str]) -> None:
    world.nodes("x", cpu=1, labels={"rack": "a", "zone": "1"})
    world.nodes("y", cpu=1, labels={"rack": "a", "zone": "2"})
    world.nodes("z", cpu=1)
    select(world, "wild", 1, labelMatch=selector)
    assert nodes(world, "wild") == chosen


@core(147)
def test_a_node_belongs_to_a_domain_of_the_lowest_tier(world: World) -> None:
    tree = build(world)
    assert tree.leaf(world.state.nodes.rows["n3"]) == "s1"
    world.nodes("stray", cpu=1)
    assert tree_of(world.state).leaf(world.state.nodes.rows["stray"]) == ""
