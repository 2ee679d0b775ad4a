"""Where a pod may not go, and the words for it."""

from __future__ import annotations

from collections import Counter

import pytest

from hekla.engine.world import World, policy


@pytest.fixture
def world() -> World:
    return World(policy(plugins=["gang", "predicates", "nodeorder"], actions="allocate, backfill"))


def anti(key: str = "kubernetes.io/hostname", **labels: str) -> dict:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def near(key: str = "kubernetes.io/hostname", **labels: str) -> dict:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def message(world: World, pod: str) -> str:
    return {one.pod: one.message for one in world.decisions.conditions}[f"default/{pod}"]


@pytest.mark.scenario("plugins-placement", 1)
def test_a_host_port_is_taken_once_a_node(world: World) -> None:
    world.nodes("n1", "n2")
    world.job("web", pods=4, min_available=2, cpu=1, port=8080)
    assert sorted(world.run().bound().values()) == ["n1", "n2"]
    assert message(world, "web-task-2") == (
        "0/2 nodes are unavailable: 2 node(s) didn't have free ports for the requested pod ports."
    )


@pytest.mark.scenario("plugins-placement", 2)
def test_node_affinity_by_name(world: World) -> None:
    world.nodes("n1", "n2", cpu=4)
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": fields}]
        }
    }
    world.job("pinned", pods=4, cpu=1, spec={"affinity": {"nodeAffinity": required}})
    assert set(world.run().bound().values()) == {"n2"}


@pytest.mark.scenario("plugins-placement", 3)
def test_the_first_pod_of_a_group_that_wants_itself_may_start_it(world: World) -> None:
    world.nodes("n1", "n2", cpu=4)
    world.job("close", pods=4, cpu=1, labels={"app": "close"}, spec=near(app="close"))
    assert len(set(world.run().bound().values())) == 1


@pytest.mark.scenario("plugins-placement", 4)
def test_pods_that_avoid_each_other_go_to_different_nodes(world: World) -> None:
    world.nodes("n1", "n2", cpu=4)
    world.job(
        "apart", pods=3, min_available=2, cpu=1, labels={"app": "apart"}, spec=anti(app="apart")
    )
    assert sorted(world.run().bound().values()) == ["n1", "n2"]
    assert (
        message(world, "apart-task-2")
        == "0/2 nodes are unavailable: 2 node(s) didn't match pod anti-affinity rules."
    )


def test_a_pod_that_avoids_others_is_avoided_by_them(world: World) -> None:
    world.nodes("n1", "n2", cpu=4)
    world.pod("hermit", node="n1", cpu=1, spec=anti(app="crowd"))
    world.job("crowd", pods=2, cpu=1, labels={"app": "crowd"})
    assert set(world.run().bound().values()) == {"n2"}


@pytest.mark.scenario("plugins-placement", 7)
def test_a_gang_that_fails_gives_the_place_back(world: World) -> None:
    world.nodes("n1", cpu=2)
    world.job("apart", pods=2, cpu=1, labels={"app": "apart"}, spec=anti(app="apart"))
    world.job("alone", cpu=2)
    assert set(world.run().bound()) == {"default/alone-task-0"}


@pytest.mark.scenario("plugins-placement", 5)
@pytest.mark.scenario("plugins-placement", 6)
def test_taints_keep_away_whom_they_do_not_tolerate(world: World) -> None:
    world.nodes("n1", taints=["gpu=only:NoSchedule"])
    tolerations = [{"key": "gpu", "operator": "Equal", "value": "only", "effect": "NoSchedule"}]
    world.job("plain", cpu=1)
    world.job("special", cpu=1, spec={"tolerations": tolerations})
    assert set(world.run().bound()) == {"default/special-task-0"}
    assert (
        message(world, "plain-task-0")
        == "0/1 nodes are unavailable: 1 node(s) had untolerated taint(s)."
    )

    world.nodes("n1")

    assert set(world.run().bound()) == {"default/plain-task-0"}


@pytest.mark.scenario("plugins-placement", 8)
def test_a_node_holds_so_many_pods(world: World) -> None:
    world.nodes("n1", pods=2)
    world.job("small", pods=3, min_available=1)
    assert len(world.run().binds) == 2
    assert (
        message(world, "small-task-2")
        == "0/1 nodes are unavailable: 1 node(s) pod number exceeded."
    )


def test_spread_keeps_the_skew(world: World) -> None:
    for zone in ("a", "b", "c"):
        world.nodes(f"{zone}1", f"{zone}2", cpu=8, labels={"zone": zone})
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }
    world.job(
        "even",
        pods=9,
        cpu=1,
        labels={"app": "even"},
        spec={"topologySpreadConstraints": [constraint]},
    )
    zones = Counter(node[0] for node in world.run().bound().values())
    assert zones == {"a": 3, "b": 3, "c": 3}


def test_preferred_affinity_pulls(world: World) -> None:
    world.nodes("n1", "n2", "n3", cpu=8)
    world.pod("cache", node="n2", cpu=1, labels={"app": "cache"})
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "cache"}},
    }
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": term}
        ]
    }
    world.job("reader", cpu=1, spec={"affinity": {"podAffinity": preferred}})
    assert set(world.run().bound().values()) == {"n2"}


def test_an_image_at_hand_decides_between_equals(world: World) -> None:
    world.nodes("n1", cpu=8)
    world.nodes("n2", cpu=8, images={"big:1": 900_000_000})
    container = [{"name": "main", "image": "big:1", "resources": {"requests": {"cpu": "1"}}}]
    world.job("heavy", spec={"containers": container})
    assert set(world.run().bound().values()) == {"n2"}


def test_best_effort_pods_are_backfilled(world: World) -> None:
    world.nodes("n1", cpu=1)
    world.job("full", cpu=1, on=["n1"])
    world.job("tiny", pods=2)
    assert len(world.run().binds) == 2


@pytest.mark.scenario("plugins-placement", 18)
def test_binpack_fills_a_node_first() -> None:
    world = World(policy(plugins=["gang", "predicates", "binpack"], actions="allocate"))
    world.nodes("n1", "n2", "n3", cpu=4)
    world.job("first", cpu=1, on=["n2"])
    world.job("second", pods=6, cpu=0.5)
    assert set(world.run().bound().values()) == {"n2"}


def test_two_small_pods_share_a_node() -> None:
    world = World(policy(plugins=["gang", "predicates", "binpack"]))
    world.nodes("n1", "n2", cpu=4)
    world.job("train", pods=2, cpu=1, min_available=2)

    decisions = world.run("allocate")

    assert decisions.nodes_of("train") == {"n1"}
