"""Jobs on a tree of three tiers: s0 to s3 of two nodes each, s4 over s0 and s1, s5 over s2 and s3,
s6 over all.  A node has 8 cpus."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.model.hypernodes import ROOT, tree_of
from hekla.engine.world import World, policy

PLUGINS = [
    "priority",
    "gang",
    "conformance",
    "predicates",
    "proportion",
    "nodeorder",
    "binpack",
    "network-topology-aware",
]
NODES = [f"n{number}" for number in range(8)]


def hyper(
    here: World, name: str, tier: int, *members: Any, kind: str = "Node", tier_name: str = ""
) -> None:
    """Members are names, or selectors as the API writes them."""
    chosen = [{"exactMatch": {"name": one}} if isinstance(one, str) else one for one in members]
    here.state.upsert_other(
        "HyperNode",
        {
            "metadata": {"name": name},
            "spec": {
                "tier": tier,
                "tierName": tier_name,
                "members": [{"type": kind, "selector": one} for one in chosen],
            },
        },
    )


def cluster(**used: Any) -> World:
    """`n3=4`: so many cpus of that node are taken; `rest=2`: of all that are not named."""
    here = World(policy(plugins=PLUGINS, actions="enqueue, allocate, backfill"))
    here.nodes(*NODES, cpu=8, memory="8Gi")
    for number in range(4):
        hyper(here, f"s{number}", 1, f"n{2 * number}", f"n{2 * number + 1}")
    hyper(here, "s4", 2, "s0", "s1", kind="HyperNode")
    hyper(here, "s5", 2, "s2", "s3", kind="HyperNode")
    hyper(here, "s6", 3, "s4", "s5", kind="HyperNode", tier_name="row")
    rest = used.pop("rest", 0)
    for node in NODES:
        if used.get(node, rest):
            here.job(f"load-{node}", pods=1, on=[node], phase="Running", cpu=used.get(node, rest))
    return here


def wanted(mode: str, tier: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "networkTopology": {
            "mode": mode,
            **({} if tier is None else {"highestTierAllowed": tier}),
            **more,
        }
    }


def parts(
    size: int,
    mode: str,
    tier: int | None = None,
    minimum: int | None = None,
    job: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Partitions by label `part`, of this size."""
    one = {"name": "part", "subGroupSize": size, "matchLabelKeys": ["part"], **wanted(mode, tier)}
    if minimum is not None:
        one["minSubGroups"] = minimum
    return {"subGroupPolicy": [one], **(job or {})}


def job(
    here: World,
    pods: int,
    cpu: int,
    group: dict[str, Any],
    *,
    minimum: int | None = None,
    size: int = 0,
    name: str = "train",
) -> None:
    here.job(name, pods=0, min_available=pods if minimum is None else minimum, group=group)
    for number in range(pods):
        here.pod(
            f"{name}-{number}",
            job=name,
            cpu=cpu,
            labels={"part": f"p{number // size}"} if size else {},
        )


def nodes(here: World, name: str = "train") -> list[str]:
    return sorted(bind.node for bind in here.run().binds if bind.job == f"default/{name}")


def domain(node: str) -> str:
    return f"s{int(node[1:]) // 2}"


def by_part(here: World, size: int) -> list[set[str]]:
    """For each partition, the domains of tier 1 that it went to."""
    found: dict[int, set[str]] = {}
    for bind in here.run().binds:
        found.setdefault(int(bind.pod.rpartition("-")[2]) // size, set()).add(domain(bind.node))
    return [found[part] for part in sorted(found)]


# ---------------------------------------------------------------------------- the job in one domain


@pytest.mark.scenario("plugins-placement", 57)
def test_the_fuller_domain_that_fits_is_taken():
    here = cluster(n2=1, n3=1)
    job(here, 2, 2, wanted("hard", 1))
    found = nodes(here)
    assert len(found) == 2 and {domain(node) for node in found} == {"s1"}


@pytest.mark.scenario("plugins-placement", 58)
def test_a_domain_without_room_is_left_out():
    """Two pods of 4 fill what s1 has left, so it is the fullest; where only the emptier rest has
    room it is s2."""
    here = cluster(n2=6, n3=6, n4=1)
    job(here, 2, 4, wanted("hard", 1))
    assert {domain(node) for node in nodes(here)} == {"s2"}


@pytest.mark.scenario("plugins-placement", 58)
def test_what_would_be_fullest_wins():
    here = cluster(n2=4, n3=4, n4=1)
    job(here, 2, 4, wanted("hard", 1))
    assert {domain(node) for node in nodes(here)} <= {"s1", "s2"}


@pytest.mark.scenario("plugins-placement", 59)
def test_two_pods_that_fit_arithmetically_start():
    here = cluster(n0=4, n2=8, n3=4, n4=4, n6=8, n7=4)
    job(here, 2, 2, wanted("hard", 1))
    assert len({domain(node) for node in nodes(here)}) == 1


@pytest.mark.scenario("plugins-placement", 60)
def test_two_domains_under_one_switch():
    here = cluster(n0=4, n2=4, n4=4, n6=4, n5=1)
    job(here, 2, 4, wanted("hard", 2))
    found = nodes(here)
    assert len(found) == 2 and {domain(node) for node in found} <= {"s2", "s3"}


@pytest.mark.scenario("plugins-placement", 61)
def test_empty_nodes_under_one_switch_are_enough():
    here = cluster(n0=4, n1=4, n2=4, n4=4, n5=1, n6=1)
    job(here, 2, 2, wanted("hard", 2))
    found = {domain(node) for node in nodes(here)}
    assert found <= {"s0", "s1"} or found <= {"s2", "s3"}


@pytest.mark.scenario("plugins-placement", 62)
def test_a_pod_that_is_lost_comes_back_to_its_domain():
    here = cluster(n4=1, n5=1)
    job(here, 2, 3, wanted("hard", 1))
    assert {domain(node) for node in nodes(here)} == {"s2"}
    here.settle()
    here.run()
    here.settle()
    gone = here.pods.pop("default/train-0")
    here.state.remove_pod(gone)
    here.pod("train-9", job="train", cpu=3)
    assert {domain(node) for node in nodes(here)} == {"s2"}


@pytest.mark.scenario("plugins-placement", 63)
def test_soft_takes_the_nearest_domain_that_holds_it():
    here = cluster(n0=6, n2=6, n4=6, n6=6, n1=4, n3=4, n7=4, n5=5)
    job(here, 2, 3, wanted("soft"))
    assert nodes(here) == ["n5", "n7"]


# --------------------------------------------------------------------------------------- partitions


@pytest.mark.scenario("plugins-placement", 64)
def test_partitions_of_a_job_that_stays_in_one_domain():
    here = cluster(n2=1, n3=1)
    job(here, 4, 2, parts(2, "hard", 1, job=wanted("hard", 1)), size=2)
    found = nodes(here)
    assert len(found) == 4 and {domain(node) for node in found} == {"s1"}
    full = cluster(rest=6)
    job(full, 2, 4, parts(1, "hard", 1, job=wanted("hard", 1)), size=1)
    assert nodes(full) == []
    half = cluster(n0=6, n2=6, n4=6, n6=6, n1=2, n3=2, n5=2, n7=2)
    job(half, 2, 4, parts(1, "hard", 1, job=wanted("hard", 1)), size=1)
    assert nodes(half) == []  # each domain holds one


@pytest.mark.scenario("plugins-placement", 65)
def test_partitions_in_domains_under_one_switch():
    # One pod a node, so a partition a domain; s4 is the fuller switch.
    here = cluster(n0=4, n2=4, rest=3)
    job(here, 4, 3, parts(2, "hard", 1, job=wanted("hard", 2)), size=2)
    found = by_part(here, 2)
    assert all(len(one) == 1 for one in found) and {name for one in found for name in one} == {
        "s0",
        "s1",
    }
    full = cluster(rest=6)
    job(full, 2, 4, parts(1, "hard", 1, job=wanted("hard", 2)), size=1)
    assert nodes(full) == []
    exact = cluster(rest=4)
    job(exact, 2, 4, parts(1, "hard", 1, job=wanted("hard", 2)), size=1)
    assert len(nodes(exact)) == 2  # it fits exactly
    crowded = cluster(n0=8, n1=8, n4=8, n5=8, n6=8, n7=8)
    job(crowded, 4, 3, parts(2, "hard", 1, job=wanted("hard", 2)), size=2)
    assert {domain(node) for node in nodes(crowded)} == {"s1"}


@pytest.mark.scenario("plugins-placement", 65)
def test_a_pod_of_a_partition_comes_back_to_its_domain():
    here = cluster()
    job(here, 4, 3, parts(2, "hard", 1, job=wanted("hard", 2)), size=2)
    first = by_part(here, 2)[0]
    here.settle()
    here.run()
    here.settle()
    here.state.remove_pod(here.pods.pop("default/train-1"))
    here.pod("train-8", job="train", cpu=3, labels={"part": "p0"})
    assert {domain(node) for node in nodes(here)} == first


@pytest.mark.scenario("plugins-placement", 66)
def test_soft_partitions_under_one_switch():
    here = cluster(n0=3, n1=3, n2=3, n3=5, n4=2, n6=2)
    job(here, 4, 4, parts(2, "soft", job=wanted("hard", 2)), size=2)
    found = nodes(here)
    assert len(found) == 4 and {domain(node) for node in found} <= {"s2", "s3"}
    loaded = cluster(n2=1, n3=1)
    job(loaded, 4, 2, parts(2, "soft", job=wanted("hard", 2)), size=2)
    assert {domain(node) for node in nodes(loaded)} == {"s1"}


@pytest.mark.scenario("plugins-placement", 67)
def test_no_switch_holds_four():
    here = cluster(n0=6, n4=6, rest=2)
    job(here, 4, 4, parts(2, "soft", job=wanted("hard", 2)), size=2)
    assert nodes(here) == []


@pytest.mark.scenario("plugins-placement", 68)
@pytest.mark.parametrize("whole", [wanted("soft"), {}])
def test_hard_partitions_of_a_job_that_may_go_far(whole):
    here = cluster(n0=5, n4=5, n2=8, n3=8, n6=8, n7=8)
    job(here, 4, 3, parts(2, "hard", 1, job=whole), size=2)
    found = by_part(here, 2)
    assert (
        len(found) == 2
        and all(len(one) == 1 for one in found)
        and {name for one in found for name in one} == {"s0", "s2"}
    )
    each = cluster(rest=2)
    job(each, 3, 4, parts(1, "hard", 1, job=whole), size=1)
    assert len(nodes(each)) == 3


@pytest.mark.scenario("plugins-placement", 69)
def test_so_many_partitions_must_be_whole():
    here = cluster(n2=1, n3=1)
    job(here, 4, 2, parts(2, "hard", 1, minimum=2, job=wanted("hard", 1)), size=2)
    assert {domain(node) for node in nodes(here)} == {"s1"}
    wide = cluster(n2=3, n3=3, n4=8, n5=8, n6=8, n7=8)
    job(wide, 8, 3, parts(4, "hard", 1, minimum=1, job=wanted("hard", 2)), size=4, minimum=4)
    counts = [domain(node) for node in nodes(wide)]
    assert counts.count("s0") == 4


@pytest.mark.scenario("plugins-placement", 70)
@pytest.mark.parametrize(("minimum", "partitions"), [(6, 2), (4, 4)])
def test_what_one_domain_cannot_hold_waits(minimum, partitions):
    here = cluster()
    job(
        here,
        12,
        3,
        parts(2, "hard", 1, minimum=partitions, job=wanted("hard", 1)),
        size=2,
        minimum=minimum,
    )
    assert nodes(here) == []


@pytest.mark.scenario("plugins-placement", 71)
def test_only_the_partition_that_was_lost_is_placed_again():
    here = cluster()
    job(here, 4, 3, parts(2, "hard", 1, minimum=2, job=wanted("hard", 2)), size=2)
    before = by_part(here, 2)
    here.settle()
    here.run()
    here.settle()
    for number in (0, 1):
        here.state.remove_pod(here.pods.pop(f"default/train-{number}"))
        here.pod(f"train-{number + 4}", job="train", cpu=3, labels={"part": "p0"})
    decisions = here.run()
    assert (
        {domain(bind.node) for bind in decisions.binds} == before[0]
        and len(decisions.binds) == 2
        and not decisions.evictions
    )


# ----------------------------------------------------------------------------------------- the tree


@pytest.mark.scenario("plugins-placement", 50)
def test_members_by_name_pattern_and_label():
    here = World(policy(plugins=["gang"]))
    here.nodes("node-0", "node-1", "my-node-1-b", "node-2")
    here.nodes("fast", labels={"net": "ib"})
    here.nodes("slow", labels={"net": "eth"})
    hyper(here, "exact", 1, "node-0", "nowhere")
    hyper(here, "pattern", 1, {"regexMatch": {"pattern": "node-[01]"}})
    hyper(here, "broken", 1, {"regexMatch": {"pattern": "node-["}})
    operators = {
        "in": ("In", ["ib"]),
        "not-in": ("NotIn", ["ib"]),
        "exists": ("Exists", None),
        "absent": ("DoesNotExist", None),
    }
    for name, (operator, values) in operators.items():
        expression = {"key": "net", "operator": operator, **({"values": values} if values else {})}
        hyper(here, name, 1, {"labelMatch": {"matchExpressions": [expression]}})
    hyper(here, "empty", 1, {"labelMatch": {}})
    tree = tree_of(here.state)
    found = {
        name: {here.state.nodes.names[row] for row in one.rows}
        for name, one in tree.by_name.items()
    }
    assert found["exact"] == {"node-0"}
    assert found["pattern"] == {"node-0", "node-1", "my-node-1-b"}
    assert found["in"] == {"fast"} and "fast" not in found["not-in"] and "slow" in found["not-in"]
    assert found["exists"] == {"fast", "slow"} and not found["absent"] & {"fast", "slow"}
    assert found["empty"] == set() and found["broken"] == set()
    here.nodes("nowhere")
    assert here.state.nodes.rows["nowhere"] in tree_of(here.state).by_name["exact"].rows


@pytest.mark.scenario("plugins-placement", 51)
def test_a_cycle_and_its_end():
    here = cluster()
    hyper(here, "s0", 1, "s4", kind="HyperNode")
    assert "cyclic dependency" in str(tree_of(here.state).left_out)
    hyper(here, "s0", 1, "n0", "n1")
    assert not tree_of(here.state).left_out and tree_of(here.state).common("s0", "s1") == "s4"


@pytest.mark.scenario("plugins-placement", 52)
def test_two_parents_and_their_end():
    here = cluster()
    hyper(here, "s5", 2, "s1", "s2", "s3", kind="HyperNode")
    assert "already has a parent" in str(tree_of(here.state).left_out)
    hyper(here, "s4", 2, "s0", kind="HyperNode")
    tree = tree_of(here.state)
    assert not tree.left_out and set(tree.by_name["s5"].rows) == set(range(2, 8))


@pytest.mark.scenario("plugins-placement", 53)
def test_a_domain_moves_to_another_parent():
    here = cluster()
    assert set(tree_of(here.state).by_name["s4"].rows) == {0, 1, 2, 3}
    hyper(here, "s4", 2, "s0", kind="HyperNode")
    hyper(here, "s5", 2, "s1", "s2", "s3", kind="HyperNode")
    tree = tree_of(here.state)
    assert set(tree.by_name["s4"].rows) == {0, 1} and set(tree.by_name["s5"].rows) == set(
        range(2, 8)
    )
    assert set(tree.by_name["s6"].rows) == set(range(8))
    hyper(here, "s6", 7, "s4", "s5", kind="HyperNode")
    moved = tree_of(here.state)
    assert (
        moved.tier_of("s6") == 7
        and moved.tiers == [1, 2, 7, 8]
        and set(moved.by_name["s6"].rows) == set(range(8))
    )


@pytest.mark.scenario("plugins-placement", 54)
def test_nodes_come_and_go_under_a_pattern():
    here = World(policy(plugins=["gang"]))
    here.nodes("rack-1")
    hyper(here, "leaf", 1, {"regexMatch": {"pattern": "^rack"}})
    hyper(here, "top", 2, "leaf", kind="HyperNode")
    assert len(tree_of(here.state).by_name["top"].rows) == 1
    here.nodes("rack-2", "other")
    assert {here.state.nodes.names[row] for row in tree_of(here.state).by_name["top"].rows} == {
        "rack-1",
        "rack-2",
    }
    here.state.remove_node("rack-1")
    assert {here.state.nodes.names[row] for row in tree_of(here.state).by_name["top"].rows} == {
        "rack-2"
    }


@pytest.mark.scenario("plugins-placement", 55)
def test_the_closest_domain_of_two():
    tree = tree_of(cluster().state)
    assert (
        tree.common("s0", "s1") == "s4"
        and tree.common("s0", "s2") == "s6"
        and tree.common("", "s0") == "s0"
    )
    assert tree.tier_of(ROOT) == 4 and tree.by_name["s6"].parent == ROOT
    assert tree.common("unknown", "unknown") == "unknown"


@pytest.mark.scenario("plugins-placement", 73)
def test_a_tier_name_that_nobody_has_is_no_constraint():
    here = cluster(rest=5)
    job(here, 6, 3, wanted("hard", None, highestTierName="moon"))
    assert len(nodes(here)) == 6
    named = cluster(rest=5)
    job(named, 6, 3, wanted("hard", None, highestTierName="row"))
    assert len(nodes(named)) == 6
    broken = cluster()
    hyper(broken, "s0", 1, "s4", kind="HyperNode")
    job(broken, 2, 1, wanted("soft"))
    assert len(nodes(broken)) == 2, (
        "a circle holds nobody back who does not need it (decision 0067)"
    )
