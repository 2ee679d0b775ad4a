"""Jobs stay within the domains that they name."""

from __future__ import annotations

import pytest

from hekla.engine.model.hypernodes import tree_of
from hekla.engine.world import World, policy


def hyper(
    world: World, name: str, tier: int, *members: str, kind: str = "Node", tier_name: str = ""
) -> None:
    world.state.upsert_other(
        "HyperNode",
        {
            "metadata": {"name": name},
            "spec": {
                "tier": tier,
                "tierName": tier_name,
                "members": [
                    {"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members
                ],
            },
        },
    )


@pytest.fixture
def racks() -> World:
    """Two racks of two nodes under one switch; a pod fills a node."""
    world = World(
        policy(plugins=["gang", "predicates", "network-topology-aware"], actions="allocate")
    )
    world.nodes("s0-n1", "s0-n2", "s1-n3", "s1-n4", cpu=2)
    hyper(world, "s0", 1, "s0-n1", "s0-n2")
    hyper(world, "s1", 1, "s1-n3", "s1-n4")
    hyper(world, "s2", 2, "s0", "s1", kind="HyperNode", tier_name="switch")
    return world


def hard(tier: int) -> dict:
    return {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}


def racks_of(world: World) -> set[str]:
    return {node.split("-")[0] for node in world.decisions.bound().values()}


@pytest.mark.scenario("scheduler-core", 20)
def test_soft_goes_anywhere(racks: World) -> None:
    racks.job("wide", pods=3, cpu=2, group={"networkTopology": {"mode": "soft"}})
    assert len(racks.run().binds) == 3


@pytest.mark.scenario("scheduler-core", 24)
def test_a_gang_larger_than_a_rack_waits(racks: World) -> None:
    racks.job("big", pods=3, cpu=2, group=hard(1))
    assert racks.run().binds == []


@pytest.mark.scenario("scheduler-core", 25)
def test_it_fits_under_the_switch(racks: World) -> None:
    racks.job("big", pods=3, cpu=2, group=hard(2))
    assert len(racks.run().binds) == 3


@pytest.mark.scenario("scheduler-core", 26)
def test_a_pair_stays_in_one_rack(racks: World) -> None:
    racks.job("pair", pods=2, cpu=2, group=hard(1))
    assert len(racks.run().binds) == 2
    assert len(racks_of(racks)) == 1


@pytest.mark.scenario("scheduler-core", 29)
def test_a_job_whose_rack_is_full_waits(racks: World) -> None:
    racks.job("grown", pods=3, min_available=2, cpu=2, on=["s0-n1", "s0-n2"], group=hard(1))
    assert racks.run().binds == []


@pytest.mark.scenario("scheduler-core", 28)
def test_it_grows_within_its_switch(racks: World) -> None:
    racks.job("grown", pods=3, min_available=2, cpu=2, on=["s0-n1", "s0-n2"], group=hard(2))
    assert len(racks.run().binds) == 1


@pytest.mark.scenario("scheduler-core", 31)
def test_a_tier_by_name(racks: World) -> None:
    racks.job(
        "named",
        pods=3,
        cpu=2,
        group={"networkTopology": {"mode": "hard", "highestTierName": "switch"}},
    )
    assert len(racks.run().binds) == 3


@pytest.mark.scenario("scheduler-core", 36)
def test_each_sub_group_in_a_rack_of_its_own(racks: World) -> None:
    def policy_of(name: str, size: int) -> dict:
        return {
            "name": name,
            "subGroupSize": size,
            "matchLabelKeys": [name],
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        }

    racks.state.remove_node("s1-n4")
    group = {
        "subGroupPolicy": [policy_of("master", 2), policy_of("worker", 1)],
        "networkTopology": {"mode": "soft"},
    }
    racks.job("parts", pods=0, min_available=3, group=group)
    for number in range(2):
        racks.pod(f"parts-m-{number}", job="parts", cpu=2, labels={"master": "a"})
    racks.pod("parts-w-0", job="parts", cpu=2, labels={"worker": "a"})
    bound = racks.run().bound()
    assert len(bound) == 3
    assert bound["default/parts-w-0"] == "s1-n3"


@pytest.mark.scenario("scheduler-core", 141)
def test_a_cycle_holds_back_only_what_needs_it(racks: World) -> None:
    hyper(racks, "s0", 1, "s2", kind="HyperNode")
    for name in ("pair", "other"):
        racks.job(name, pods=2, cpu=2, group=hard(1))
    racks.run()
    assert racks_of(racks) == {"s1"} and len(racks.decisions.binds) == 2
    waits = next(
        name
        for name in ("pair", "other")
        if f"default/{name}-task-0" not in racks.decisions.bound()
    )
    assert "cyclic dependency detected" in racks.why(waits)
    hyper(racks, "s0", 1, "s0-n1", "s0-n2")
    assert len(racks.run().binds) == 2 and racks_of(racks) == {"s0"}


@pytest.mark.scenario("scheduler-core", 145)
def test_the_closest_common_domain(racks: World) -> None:
    racks.state.count_changes()
    tree = tree_of(racks.state)
    assert tree.common("s0", "s1") == "s2"
    assert tree.common("s0", "s2") == "s2"
    assert tree.common("s0", "s0") == "s0"
    assert tree.common("", "s1") == "s1"
    assert tree.common("s0", "nowhere") == ""


def test_a_pod_that_found_no_room_in_its_domain_names_the_domain(racks: World) -> None:
    racks.job("job", pods=0, min_available=1, group=hard(1))
    racks.pod("first", job="job", cpu=2, node="s0-n1")
    racks.pod("next", job="job", cpu=4)
    said = {one.pod: one.message for one in racks.run().conditions}
    assert said["default/next"] == "In hyperNode s0: 0/2 nodes are unavailable: 2 Insufficient cpu."


def test_where_the_whole_cluster_is_searched_no_domain_is_named(racks: World) -> None:
    racks.job("job", pods=1, cpu=4, group={"networkTopology": {"mode": "soft"}})
    said = {one.message for one in racks.run().conditions}
    assert said == {"0/4 nodes are unavailable: 4 Insufficient cpu."}


def test_pods_beyond_the_minimum_are_placed_alike_whether_others_wait_or_not() -> None:
    """Each is a turn of its own: with a tier that does not exist nothing keeps it near the one
    before."""
    for others in (0, 1):
        world = World(policy(plugins=["predicates", "network-topology-aware"], actions="allocate"))
        world.nodes("s0-n1", "s1-n3", "s0-n2", cpu=1)
        hyper(world, "s0", 1, "s0-n1", "s0-n2")
        hyper(world, "s1", 1, "s1-n3")
        topology = {"networkTopology": {"mode": "hard", "highestTierName": "nowhere"}}
        world.job("wide", pods=2, min_available=1, cpu=1, group=topology)
        for number in range(others):
            world.job(f"other-{number}", cpu=8)
        assert world.run().bound() == {
            "default/wide-task-0": "s0-n1",
            "default/wide-task-1": "s1-n3",
        }
