"""Stories of gangs evicted for gangs: which break, which stay whole, and what a domain of the
network adds to that."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World, policy
from tests.engine.fairness.stage import CAPACITY, cluster, group, play, quiet, running, submitted


def gangs(action: str, slots: int = 4) -> World:
    return cluster(slots, 2, tiers=CAPACITY, actions=f"enqueue, allocate, {action}")


@pytest.mark.scenario("plugins-fairness", 196)
@pytest.mark.parametrize(
    ("victims", "preemptor", "kept"),
    [
        ([(4, 2)], 2, [2]), ([(2, 1), (2, 1)], 2, [1, 1]), ([(2, 2), (2, 2)], 2, [0, 2]), ([(2, 2), (2, 2)], 4, [0, 0]), ([(4, 4)], 2, [0]),
    ],
    ids=["GP-1", "GP-2", "GP-3", "GP-4", "GP-5"],
)  # fmt: skip
def test_gangs_preempt(victims: list[tuple[int, int]], preemptor: int, kept: list[int]) -> None:
    """GP-5: the gang of four breaks as a whole; all its pods go."""
    world = gangs("gangpreempt")
    for number, (pods, least) in enumerate(victims):
        submitted(world, f"v{number}", pods, least, priority="low")
    play(world)
    submitted(world, "claims", preemptor, priority="high")
    play(world)
    assert running(world, "claims") == preemptor
    assert sorted(running(world, f"v{number}") for number in range(len(victims))) == kept


@pytest.mark.scenario("plugins-fairness", 196)
def test_gangs_preempt_nobody_in_other_queues_or_of_their_own_rank() -> None:
    """GP-6, GP-7."""
    for queue, priority in (("fixed", "low"), ("default", "high")):
        world = gangs("gangpreempt")
        world.queue("fixed", reclaimable=False)
        submitted(world, "v", 4, 2, priority=priority, queue=queue)
        play(world)
        submitted(world, "claims", 2, priority="high")
        assert quiet(world)
        assert (running(world, "v"), running(world, "claims")) == (4, 0)
        assert (
            "No victim because 1 domain has no running pod of lesser jobs of queue default"
            in world.why("claims")
        )


@pytest.mark.scenario("plugins-fairness", 196)
def test_gangs_leave_what_would_not_be_enough() -> None:
    """GP-8."""
    world = gangs("gangpreempt")
    submitted(world, "great", 2, priority="high")
    submitted(world, "small", 2, priority="low")
    play(world)
    submitted(world, "claims", 4, priority="mid")
    assert quiet(world)
    assert [running(world, name) for name in ("great", "small", "claims")] == [2, 2, 0]


def evicting(kind: str, slots: int = 4) -> tuple[World, dict[str, Any], dict[str, Any]]:
    """A world for preempting or reclaiming, and what victim and preemptor are."""
    world = gangs(f"gang{kind}", slots)
    world.queue("theirs", deserved={"cpu": slots // 2})
    world.queue("ours", deserved={"cpu": slots // 2})
    queue = "theirs" if kind == "reclaim" else "ours"
    return world, {"priority": "low", "queue": queue}, {"priority": "high", "queue": "ours"}


KINDS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("preempt", marks=pytest.mark.scenario("plugins-fairness", 197)),
        pytest.param("reclaim", marks=pytest.mark.scenario("plugins-fairness", 200)),
    ],
)


@KINDS
def test_a_role_at_its_minimum_stays(kind: str) -> None:
    """GP-R1, GR-R1: ps 1 of 1, worker 3 of 2."""
    world, theirs, ours = evicting(kind)
    notes = {"minTaskMember": {"ps": 1, "worker": 2}}
    group(world, "v", min_available=3, phase="Pending", group=notes, **theirs)
    for role, count in (("ps", 1), ("worker", 3)):
        for number in range(count):
            world.pod(f"v-{role}-{number}", job="v", role=role, cpu=1)
    play(world)
    submitted(world, "claims", 1, **ours)
    gone = [one.pod for decisions in play(world) for one in decisions.evictions]
    assert [pod.rpartition("-")[0] for pod in gone] == ["default/v-worker"]
    assert running(world, "claims") == 1


@KINDS
def test_one_sub_group_is_enough(kind: str) -> None:
    """GP-S1, GR-S1: two sub-groups of two, one of which must stay whole."""
    world, theirs, ours = evicting(kind)
    rule = {"name": "p", "matchLabelKeys": ["part"], "subGroupSize": 2, "minSubGroups": 1}
    group(world, "v", min_available=2, phase="Pending", group={"subGroupPolicy": [rule]}, **theirs)
    for number in range(4):
        world.pod(f"v-{number}", job="v", labels={"part": "ab"[number // 2]}, cpu=1)
    play(world)
    submitted(world, "claims", 2, **ours)
    gone = {one.pod for decisions in play(world) for one in decisions.evictions}
    assert gone in ({"default/v-0", "default/v-1"}, {"default/v-2", "default/v-3"})
    assert running(world, "claims") == 2


@pytest.mark.scenario("plugins-fairness", 199)
@pytest.mark.parametrize(
    ("victims", "kept"), [([(4, 2)], [2]), ([(2, 2), (2, 2)], [0, 2])], ids=["GR-1", "GR-2"]
)
def test_gangs_reclaim(victims: list[tuple[int, int]], kept: list[int]) -> None:
    """GR-3 is as GR-1."""
    world, theirs, ours = evicting("reclaim")
    for number, (pods, least) in enumerate(victims):
        submitted(world, f"v{number}", pods, least, **theirs)
    play(world)
    submitted(world, "claims", 2, **ours)
    play(world)
    assert running(world, "claims") == 2
    assert sorted(running(world, f"v{number}") for number in range(len(victims))) == kept


@pytest.mark.scenario("plugins-fairness", 199)
@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("GR-4", "1 domain has only pods that capacity spares"),
        ("GR-5", "1 domain has no running pod of other queues that may be evicted"),
        ("GR-6", "1 domain has too little room even without all victims"),
        ("GR-7", "queue ours would hold more than its share: cpu=0 held and 2 asked of deserved 1"),
    ],
)
def test_gangs_reclaim_nothing(case: str, why: str) -> None:
    world, theirs, ours = evicting("reclaim")
    pods = 2 if case == "GR-7" else 4
    if case == "GR-4":
        world.queue("theirs", deserved={"cpu": 4})
    if case == "GR-5":
        world.queue("theirs", reclaimable=False, deserved={"cpu": 2})
    if case == "GR-6":
        world.queue("theirs", deserved={"cpu": 2}, guarantee={"cpu": 2})
        world.queue("ours", deserved={"cpu": 4}, guarantee={"cpu": 2})
    if case == "GR-7":
        world.queue("ours", deserved={"cpu": 1})
        world.nodes("n0", "n1", cpu=1, memory="64Gi")
    submitted(world, "v", pods, 1 if case == "GR-6" else 2, **theirs)
    play(world)
    submitted(world, "claims", 4 if case == "GR-6" else 2, **ours)
    if case == "GR-6":
        world.nodes("n0", "n1", cpu=2, memory="64Gi")
        world.queue("theirs", deserved={"cpu": 2}, guarantee={"cpu": 2})
        world.queue("ours", deserved={"cpu": 4})
        why = "queue ours would hold more than its share: cpu=0 held and 4 asked of capability 2"
    assert quiet(world)
    assert (running(world, "v"), running(world, "claims")) == (pods, 0)
    assert world.why("claims").endswith(f"No victim because {why}.")


def racks(kind: str) -> tuple[World, dict[str, Any], dict[str, Any]]:
    """Two racks of two nodes of 2 cpu each below one row, all of it filled by the victim."""
    world, theirs, ours = evicting(kind, 8)
    world.policy = policy(
        tiers=[CAPACITY[0], [*CAPACITY[1], "network-topology-aware"]],
        actions=f"enqueue, allocate, gang{kind}",
    )
    for number in range(4):
        world.nodes(f"n{number}", cpu=2, memory="64Gi")
    for name, tier, members, of in (
        ("r0", 1, ["n0", "n1"], "Node"),
        ("r1", 1, ["n2", "n3"], "Node"),
        ("row", 2, ["r0", "r1"], "HyperNode"),
    ):
        listed = [{"type": of, "selector": {"exactMatch": {"name": one}}} for one in members]
        world.state.upsert_other(
            "HyperNode", {"metadata": {"name": name}, "spec": {"tier": tier, "members": listed}}
        )
    submitted(world, "v", 8, 2, **theirs)
    play(world)
    return world, theirs, ours


def nodes_of(world: World, job: str) -> set[str]:
    pods = (
        one
        for one in world.pods.values()
        if one["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == job
    )
    return {one["spec"]["nodeName"] for one in pods}


TOPOLOGIES = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("preempt", marks=pytest.mark.scenario("plugins-fairness", 198)),
        pytest.param("reclaim", marks=pytest.mark.scenario("plugins-fairness", 200)),
    ],
)


@TOPOLOGIES
@pytest.mark.parametrize(
    ("tier", "pods", "one_rack"),
    [(1, 3, True), (2, 4, False), (2, 2, True)],
    ids=["T1", "T3", "T4"],
)
def test_room_in_a_domain(kind: str, tier: int, pods: int, one_rack: bool) -> None:
    world, _, ours = racks(kind)
    topology = {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}
    submitted(world, "claims", pods, group=topology, **ours)
    play(world)
    assert running(world, "claims") == pods
    assert running(world, "v") == 8 - pods
    if one_rack:
        assert nodes_of(world, "claims") in (
            {"n0"},
            {"n1"},
            {"n2"},
            {"n3"},
            {"n0", "n1"},
            {"n2", "n3"},
        )


@TOPOLOGIES
def test_a_domain_that_is_too_small(kind: str) -> None:
    """T2: 5 cpu do not go into a rack of 4."""
    world, _, ours = racks(kind)
    if kind == "reclaim":
        world.queue("ours", deserved={"cpu": 8})
    submitted(
        world,
        "claims",
        5,
        group={"networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
        **ours,
    )
    assert quiet(world)
    assert (running(world, "v"), running(world, "claims")) == (8, 0)


@pytest.mark.scenario("plugins-fairness", 200)
def test_reclaiming_more_than_is_deserved_is_refused_whatever_the_topology() -> None:
    """GR-T3 as its note has it: three asked, two deserved."""
    world, _, ours = racks("reclaim")
    world.queue("ours", deserved={"cpu": 2})
    submitted(
        world,
        "claims",
        3,
        group={"networkTopology": {"mode": "hard", "highestTierAllowed": 2}},
        **ours,
    )
    assert quiet(world)
    assert "3 asked of deserved 2" in world.why("claims")
