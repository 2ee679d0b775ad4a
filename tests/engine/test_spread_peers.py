"""Pods that state no spread constraints are spread among their peers: who they are, how they count,
and that a gang is placed by it."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.placement.placer import Placer, placer_of
from hekla.engine.world import World, policy

ZONE = "topology.kubernetes.io/zone"
WEB = {"app": "web"}
OTHER_SCORES = (
    "leastrequested",
    "balancedresource",
    "nodeaffinity",
    "podaffinity",
    "tainttoleration",
    "imagelocality",
)


def spreading(**arguments: Any) -> World:
    """A world whose nodes are scored by nothing but spread."""
    chosen = {f"{name}.weight": 0 for name in OTHER_SCORES} | {"podtopologyspread.weight": 1}
    return World(
        policy(
            plugins=[
                "gang",
                "predicates",
                {"name": "nodeorder", "arguments": {**chosen, **arguments}},
            ],
            actions="allocate",
        )
    )


def scores(here: World, pod: str) -> dict[str, float]:
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    nodes = here.state.nodes
    total = placer_of(session).scores.total(
        session, here.state.tasks[f"default/{pod}"], np.arange(len(nodes))
    )
    return dict(zip(nodes.names, total.tolist()))


def three_nodes(here: World) -> None:
    """Two nodes in zone a, one in zone b; two web pods on the first, one on the second."""
    here.nodes("a1", "a2", labels={ZONE: "a"})
    here.nodes("b1", labels={ZONE: "b"})
    for number, node in enumerate(("a1", "a1", "a2")):
        here.pod(f"there{number}", node=node, labels=WEB)


def by_hand(host: tuple[int, ...], zone: tuple[int | None, ...], zones: int) -> list[int]:
    """The page's formula: counts on each node and in its zone, None where it is in no zone."""
    raw = [
        math.floor(
            on * math.log(len(host) + 2)
            + 2
            + (around * math.log(zones + 2) + 4 if around is not None else 0)
            + 0.5,
        )
        for on, around in zip(host, zone)
    ]
    return [100 * (max(raw) + min(raw) - one) // max(raw) for one in raw]


@pytest.mark.parametrize(
    ("kind", "owner"),
    [("Service", ""), ("ReplicaSet", "ReplicaSet/web"), ("StatefulSet", "StatefulSet/web"),
     ("ReplicationController", "ReplicationController/web")],
)  # fmt: skip
def test_who_selects_a_pod_decides_among_whom_it_is_spread(kind: str, owner: str) -> None:
    here = spreading()
    three_nodes(here)
    here.selector(kind, "web", WEB)
    here.pod("new", labels=WEB, owner=owner)
    assert list(scores(here, "new").values()) == by_hand((2, 1, 0), (3, 3, 0), 2)


@pytest.mark.parametrize("owner", ["", "ReplicaSet/other", "Job/web"])
def test_a_pod_that_nobody_selects_is_not_spread(owner: str) -> None:
    here = spreading()
    three_nodes(here)
    here.selector("Service", "web", {"app": "else"})
    here.selector("Service", "web", WEB, namespace="elsewhere")
    here.selector("ReplicaSet", "web", WEB)
    here.pod("new", labels=WEB, owner=owner)
    assert set(scores(here, "new").values()) == {0}


def test_of_an_owner_only_the_controller_of_the_right_group_counts() -> None:
    here = spreading()
    three_nodes(here)
    here.selector("ReplicaSet", "web", WEB)
    for number, reference in enumerate(
        (
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": False},
            {
                "apiVersion": "example.com/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "controller": True,
            },
        )
    ):
        here.pod(f"new{number}", labels=WEB)
        tree = here.pods[f"default/new{number}"]
        tree["metadata"]["ownerReferences"] = [reference]
        here.state.upsert_pod(tree)
        assert set(scores(here, f"new{number}").values()) == {0}


def test_all_services_and_the_owner_are_one_selector() -> None:
    here = spreading()
    three_nodes(here)
    here.pod("blue", node="b1", labels={**WEB, "colour": "blue"})
    here.selector("Service", "web", WEB)
    here.selector("Service", "colour", {"colour": "blue"})
    here.pod("new", labels={**WEB, "colour": "blue"})
    assert list(scores(here, "new").values()) == by_hand((0, 0, 1), (0, 0, 1), 2)

    here.selector("Service", "colour", None)
    assert list(scores(here, "new").values()) == by_hand((2, 1, 1), (3, 3, 1), 2)


def test_pods_on_their_way_out_and_pods_elsewhere_do_not_count() -> None:
    here = spreading()
    three_nodes(here)
    here.selector("Service", "web", WEB)
    here.pod("far", node="b1", labels=WEB, namespace="elsewhere")
    here.pod("done", node="b1", labels=WEB, phase="Succeeded")
    leaving = here.pods["default/there0"]
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    here.state.upsert_pod(leaving)
    here.pod("new", labels=WEB)
    assert list(scores(here, "new").values()) == by_hand((1, 1, 0), (2, 2, 0), 2)


def test_a_node_without_a_zone_is_a_candidate_and_a_zone_of_its_own() -> None:
    here = spreading()
    three_nodes(here)
    here.nodes("bare")
    here.selector("Service", "web", WEB)
    here.pod("new", labels=WEB)
    assert list(scores(here, "new").values()) == by_hand((2, 1, 0, 0), (3, 3, 0, None), 3)


def test_pods_where_the_new_one_could_not_be_do_not_count_for_the_zone() -> None:
    here = spreading()
    here.nodes("a1", labels={ZONE: "a", "disk": "ssd"})
    here.nodes("a2", labels={ZONE: "a"})
    here.nodes("b1", labels={ZONE: "b", "disk": "ssd"})
    here.pod("there", node="a2", labels=WEB)
    here.selector("Service", "web", WEB)
    here.job("one", pods=0, min_available=1)
    here.pod("new", job="one", cpu=1, labels=WEB, spec={"nodeSelector": {"disk": "ssd"}})
    found = scores(here, "new")
    assert found["a1"] == found["b1"] == 100  # The first candidate of equals takes it.
    assert here.run().bound() == {"default/new": "a1"}


def test_constraints_of_its_own_or_a_weight_of_nothing_end_it() -> None:
    own = {
        "topologySpreadConstraints": [
            {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        ]
    }
    for weight, spec in ((1, own), (0, {})):
        here = spreading(**{"podtopologyspread.weight": weight})
        three_nodes(here)
        here.selector("Service", "web", WEB)
        here.pod("new", labels=WEB, spec=spec)
        assert set(scores(here, "new").values()) == {0}


def test_a_selector_that_cannot_be_read_is_told_and_selects_nobody() -> None:
    here = spreading()
    three_nodes(here)
    meta = {"name": "web", "namespace": "default"}
    here.state.upsert_other("Service", {"metadata": meta, "spec": {"selector": {"app": 5}}})
    here.state.upsert_other(
        "ReplicaSet",
        {
            "metadata": meta,
            "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
        },
    )
    assert set(here.state.rejected) == {("Service", "default/web"), ("ReplicaSet", "default/web")}
    here.pod("new", labels=WEB, owner="ReplicaSet/web")
    assert set(scores(here, "new").values()) == {0}


def test_a_gang_behind_a_service_is_spread_over_zones() -> None:
    here = spreading()
    here.nodes("a1", "a2", "a3", labels={ZONE: "a"})
    here.nodes("b1", labels={ZONE: "b"})
    here.selector("Service", "gang", {"gang": "yes"})
    here.job("gang", pods=6, cpu=1, labels={"gang": "yes"})
    assert Counter(here.run().bound().values()) == {"b1": 2, "a1": 2, "a2": 1, "a3": 1}


# ------------------------------------------------------------------------------------- many at once

SIZES = st.tuples(st.integers(1, 8), st.integers(1, 16))
PLACES = st.sampled_from([{}, {ZONE: "a"}, {ZONE: "b"}, {ZONE: "c"}, {ZONE: "a", "disk": "ssd"}])
NODES = st.lists(st.tuples(SIZES, st.integers(0, 3), PLACES, st.booleans()), min_size=1, max_size=8)
PLUGINS = st.sampled_from([
    ["predicates", "nodeorder"],
    ["predicates", "nodeorder", "binpack"],
    ["predicates", {"name": "nodeorder", "arguments": {"podtopologyspread.weight": 7, "leastrequested.weight": 0}}, "binpack"],
    ["predicates", {"name": "nodeorder", "arguments": {"podtopologyspread.weight": -2, "tainttoleration.weight": 9}}],
])  # fmt: skip
PREFERENCE = {
    "weight": 7,
    "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
}
PREFERS = {
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERENCE]}}
}
PODS = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from([0.25, 0.5, 1, 2]),
        "memory": st.sampled_from(["1Gi", "3Gi"]),
        "port": st.sampled_from([0, 0, 9000]),
        "spec": st.sampled_from([{}, PREFERS, {"nodeSelector": {"disk": "ssd"}}]),
    }
)


def build(
    nodes: list, plugins: list, pods: int, pod: dict, seed: int, selected: dict[str, str]
) -> World:
    world = World(policy(plugins=["gang", *plugins], actions="allocate"))
    world.policy = type(world.policy)(world.policy.actions, world.policy.tiers, {}, {}, seed)
    world.selector("Service", "all", selected)
    for number, ((cpu, memory), used, labels, soft) in enumerate(nodes):
        world.nodes(
            f"n{number}",
            cpu=cpu,
            memory=f"{memory}Gi",
            pods=9,
            labels=labels,
            taints=["later=:PreferNoSchedule"] if soft else [],
        )
        for held in range(min(used, cpu)):
            world.pod(
                f"held-{number}-{held}",
                job="held",
                node=f"n{number}",
                cpu=1,
                labels=WEB if held % 2 else {},
            )
    world.job("held", pods=0)
    world.job("many", pods=pods, min_available=1, labels={**WEB, "job": "many"}, **pod)
    return world


def bound(world: World, *, at_once: bool) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patched:
        if not at_once:
            patched.setattr(Placer, "changes_others", lambda *_: True)
            patched.setattr(Placer, "steps", lambda *_: None)
        return world.run().bound()


@settings(max_examples=300, deadline=None)
@given(
    nodes=NODES,
    plugins=PLUGINS,
    pods=st.integers(2, 25),
    pod=PODS,
    seed=st.integers(0, 2),
    selected=st.sampled_from([WEB, {"job": "many"}, {"job": "many", **WEB}]),
)
def test_many_at_once_are_spread_as_one_at_a_time(
    nodes: list, plugins: list, pods: int, pod: dict, seed: int, selected: dict
) -> None:
    plain = bound(build(nodes, plugins, pods, pod, seed, selected), at_once=False)
    assert bound(build(nodes, plugins, pods, pod, seed, selected), at_once=True) == plain


# --------------------------------------------------------------------------------- who is whose peers

LABELS = st.fixed_dictionaries(
    {},
    optional={
        "app": st.sampled_from("ab"),
        "job": st.sampled_from("xyz"),
        "colour": st.sampled_from("rg"),
    },
)
OWNER_KINDS = ("ReplicaSet", "StatefulSet", "ReplicationController")


def expected_peers(
    world: World, selectors: dict[tuple[str, str], dict[str, str]], tree: dict[str, Any]
) -> dict[str, int] | None:
    """Node -> pods that count, worked out from the objects; None for a pod without peers."""
    labels, namespace = tree["metadata"]["labels"], tree["metadata"]["namespace"]
    wanted: set[tuple[str, str]] = set()
    for (kind, _), selector in selectors.items():
        if kind == "Service" and selector.items() <= labels.items():
            wanted |= selector.items()
    for owner in tree["metadata"].get("ownerReferences", ()):
        wanted |= selectors.get((owner["kind"], owner["name"]), {}).items()
    if not wanted or namespace != "default":
        return None
    alive = (
        one
        for key, one in world.pods.items()
        if key in world.state.tasks
        and "deletionTimestamp" not in one["metadata"]
        and one["status"]["phase"] in ("Pending", "Running")
    )
    return dict(
        Counter(
            one["spec"]["nodeName"]
            for one in alive
            if one["metadata"]["namespace"] == "default"
            and one["spec"]["nodeName"]
            and wanted <= one["metadata"]["labels"].items()
        )
    )


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(5, 60))
def test_peers_are_those_that_the_objects_say_and_where_they_are(seed: int, length: int) -> None:
    world, draw = (
        World(policy(plugins=["gang", "predicates", "nodeorder"], actions="allocate")),
        random.Random(seed),
    )
    world.state._compact_at = 3
    world.nodes("n0", "n1", cpu=8)
    selectors: dict[tuple[str, str], dict[str, str]] = {}
    for number in range(length):
        kind = draw.randrange(7)
        labels = {
            key: draw.choice(values)
            for key, values in (("app", "ab"), ("job", "xy"), ("colour", "rg"))
            if draw.random() < 0.7
        }
        if kind < 2:
            owner = f"{draw.choice(OWNER_KINDS)}/{draw.choice('mn')}" if draw.random() < 0.4 else ""
            node = draw.choice(["", "", "n0", "n1", "late"])
            world.pod(
                f"p{number}",
                labels=labels,
                owner=owner,
                node=node,
                cpu="100m",
                scheduler="default-scheduler",
            )
        elif kind == 2:
            chosen = (draw.choice(["Service", *OWNER_KINDS]), draw.choice("mn"))
            selector = draw.choice([labels, labels, None])
            world.selector(*chosen, selector)
            selectors.pop(chosen, None)
            if selector:
                selectors[chosen] = selector
        elif kind == 3 and world.pods:
            key = draw.choice(sorted(world.pods))
            del world.pods[key]
            world.state.remove_pod(key)
        elif kind == 4 and world.pods:
            tree = world.pods[draw.choice(sorted(world.pods))]
            if draw.random() < 0.5 and tree["spec"]["nodeName"]:
                tree["status"]["phase"] = draw.choice(["Running", "Succeeded"])
            else:
                tree["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            world.state.upsert_pod(tree)
        else:
            world.now += 1
            world.run()
            world.settle()
    world.state.count_changes()
    names = world.state.nodes.names
    for key, task in world.state.tasks.items():
        peers = task.labels.peers
        found = (
            None
            if peers is None
            else {names[row]: count for row, count in (peers.rows or {}).items()}
        )
        assert found == expected_peers(world, selectors, world.pods[key]), key
