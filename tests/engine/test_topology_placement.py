"""Where jobs with a network topology go.  Reference: scheduler-core 10.3."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World
from tests.engine.trees import PLUGINS, SOFT, bare, hard, hyper, named, racks, tree_a, tree_b


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


def count(world: World) -> int:
    return len(world.run().binds)


@core(20)
def test_soft_three_pods_over_both_racks() -> None:
    world = tree_a()
    world.job("wide", pods=3, cpu=2, group=SOFT)
    assert count(world) == 3


@core(21)
def test_soft_more_pods_than_the_minimum() -> None:
    world = tree_a()
    world.job("pair", pods=2, min_available=1, cpu=2, group=SOFT)
    assert count(world) == 2


@core(22)
@core(27)
@pytest.mark.parametrize("topology", [SOFT, hard(1)])
def test_a_node_that_only_one_rack_has(topology: dict[str, Any]) -> None:
    world = tree_a()
    world.nodes("s1-n2", cpu=2, labels={"disk": "fast"})
    hyper(world, "s1", 1, "s1-n3", "s1-n4", "s1-n2")
    world.job("picky", cpu=2, spec={"nodeSelector": {"disk": "fast"}}, group=topology)
    assert world.run().nodes_of("picky") == {"s1-n2"}


@core(23)
@pytest.mark.parametrize("minimum", [2, 3])
def test_soft_a_job_grows_out_of_its_rack(minimum: int) -> None:
    world = tree_a()
    world.job("grown", pods=3, min_available=minimum, cpu=2, on=["s0-n1", "s0-n2"], group=SOFT)
    assert count(world) == 1
    assert racks(world) == ["s1"]


@core(23)
def test_soft_it_grows_in_a_deeper_tree() -> None:
    world = tree_b()
    world.job("grown", pods=3, min_available=2, cpu=2, on=["s3-n1", "s3-n2"], group=SOFT)
    assert count(world) == 1


@core(24)
@core(25)
@pytest.mark.parametrize(("tier", "binds"), [(1, 0), (2, 3)])
def test_hard_three_pods(tier: int, binds: int) -> None:
    world = tree_a()
    world.job("big", pods=3, cpu=2, group=hard(tier))
    assert count(world) == binds


@core(26)
@pytest.mark.parametrize("minimum", [1, 2])
def test_hard_a_pair_within_one_rack(minimum: int) -> None:
    world = tree_a()
    world.job("pair", pods=2, min_available=minimum, cpu=2, group=hard(1))
    assert count(world) == 2
    assert len(set(racks(world))) == 1


@core(28)
@core(29)
@pytest.mark.parametrize(("tier", "binds"), [(1, 0), (2, 1)])
@pytest.mark.parametrize("minimum", [2, 3])
def test_hard_it_grows_as_far_as_its_tier(tier: int, binds: int, minimum: int) -> None:
    world = tree_a()
    world.job(
        "grown", pods=3, min_available=minimum, cpu=2, on=["s0-n1", "s0-n2"], group=hard(tier)
    )
    assert count(world) == binds


@core(28)
@core(29)
@pytest.mark.parametrize(("tier", "binds"), [(1, 0), (2, 1)])
def test_hard_in_the_deeper_tree(tier: int, binds: int) -> None:
    world = tree_b()
    world.job("grown", pods=3, min_available=2, cpu=2, on=["s3-n1", "s3-n2"], group=hard(tier))
    assert count(world) == binds
    assert set(racks(world)) <= {"s4"}


@core(30)
def test_without_a_common_parent_the_whole_cluster_is_the_next_tier() -> None:
    world = tree_a(top=False)
    world.job("grown", pods=3, min_available=2, cpu=2, on=["s0-n1", "s0-n2"], group=hard(2))
    assert count(world) == 1


@core(31)
@pytest.mark.parametrize(
    ("tier", "pods", "minimum", "on", "binds"),
    [
        ("rack", 3, 3, [], 0), ("rack", 2, 2, [], 2), ("rack", 2, 1, [], 2), ("rack", 3, 2, ["s0-n1", "s0-n2"], 0),
        ("switch", 3, 3, [], 3), ("switch", 3, 2, ["s0-n1", "s0-n2"], 1), ("nowhere", 3, 2, ["s0-n1", "s0-n2"], 1),
    ],
)  # fmt: skip
def test_a_tier_by_its_name(tier: str, pods: int, minimum: int, on: list[str], binds: int) -> None:
    world = tree_a(names=("rack", "switch"))
    world.job("named", pods=pods, min_available=minimum, cpu=2, on=on, group=named(tier))
    assert count(world) == binds


@core(32)
def test_packing_prefers_the_rack_that_is_half_full() -> None:
    world = bare([*PLUGINS, "binpack"])
    world.nodes("s0-n1", "s0-n2", "s1-n3", "s1-n4", cpu=4)
    hyper(world, "s0", 1, "s0-n1", "s0-n2")
    hyper(world, "s1", 1, "s1-n3", "s1-n4")
    world.job("there", cpu=2, on=["s0-n1"])
    world.job("pair", pods=0, min_available=2, group=hard(1))
    world.pod("pair-small-0", job="pair", cpu=2)
    world.pod("pair-large-0", job="pair", cpu=4)
    assert world.run().bound() == {"default/pair-small-0": "s0-n1", "default/pair-large-0": "s0-n2"}


@core(33)
def test_four_pods_fill_two_racks() -> None:
    world = bare()
    for rack in ("s0", "s1", "s2"):
        world.nodes(f"{rack}-n1", f"{rack}-n2", cpu=4)
        hyper(world, rack, 1, f"{rack}-n1", f"{rack}-n2")
    hyper(world, "s3", 2, "s0", "s1", "s2", kind="HyperNode")
    world.job("four", pods=4, cpu=4, group=hard(2))
    assert count(world) == 4
    assert sorted(racks(world).count(rack) for rack in set(racks(world))) == [2, 2]
