"""The plugins that look at pods one by one, by the numbers of the behaviour reference (descheduler
11 and 16.4)."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.selectors import of_map
from hekla.descheduler.evictions import Eviction
from hekla.descheduler.plugins import registry
from hekla.descheduler.policy.policy import Policy
from hekla.descheduler.policy.reader import read
from hekla.descheduler.tables import AntiAffinity, Node, Owner, Pod, Tables, Taint
from tests.descheduler.stories import (
    NOW,
    affine,
    node,
    pod,
    profile,
    run,
    selecting,
    spread,
    tolerating,
)

RESTARTS, SPREAD = "RemovePodsHavingTooManyRestarts", "RemovePodsViolatingTopologySpreadConstraint"


def restarting() -> list[Pod]:
    more: dict[int, dict[str, Any]] = {
        6: {"owners": (Owner("DaemonSet", "d"),)},
        7: {"local_storage": True},
        8: {"mirror": True},
    }
    return [
        pod(f"p{i}", "n1", 100, restarts=20 * i, init_restarts=5 * i, **more.get(i, {}))
        for i in range(10)
    ]


@pytest.mark.parametrize(
    ("threshold", "init", "evicted"),
    [
        (10000, True, 0), (1, True, 6), (25, True, 6), (25, False, 5), (20, True, 6), (20, False, 6),
        (126, True, 1), (101, False, 1),
    ],
)  # fmt: skip
def test_restarts(threshold: int, init: bool, evicted: int) -> None:
    arguments = (
        f"{{podRestartThreshold: {threshold}, includingInitContainers: {str(init).lower()}}}"
    )
    here = Tables([node("n1"), node("n2")], restarting())
    assert len(run(profile(RESTARTS, arguments), here).names) == evicted


@pytest.mark.parametrize(
    ("other", "evicted"),
    [
        ({"taints": (Taint("a", "", "NoSchedule"),)}, 0),
        ({"unschedulable": True}, 0),
        ({"cpu": 50}, 0),
        ({}, 3),
    ],
)
def test_restarts_within_a_limit_and_with_node_fit(other: dict[str, Any], evicted: int) -> None:
    policy = profile(
        RESTARTS, "{podRestartThreshold: 1}", "{nodeFit: true}", more="maxNoOfPodsToEvictPerNode: 3"
    )
    here = Tables([node("n1"), node("n2", **other)], restarting())
    assert len(run(policy, here).names) == evicted


def test_life_time() -> None:
    here = Tables(
        [node("n1"), node("n2")],
        [
            pod("at-the-limit", "n1", created=NOW - 600),
            pod("old", "n1", created=NOW - 601),
            pod("older", "n2", created=NOW - 900, phase="Pending"),
            pod(
                "creating", "n2", created=NOW - 800, phase="Pending", waiting=("ContainerCreating",)
            ),
        ],
    )
    assert run(profile("PodLifeTime", "{maxPodLifeTimeSeconds: 600}"), here).names == [
        "older",
        "creating",
        "old",
    ]
    waiting = profile("PodLifeTime", "{maxPodLifeTimeSeconds: 600, states: [ContainerCreating]}")
    assert run(waiting, here).names == ["creating"]
    ran = run(
        profile("PodLifeTime", "{maxPodLifeTimeSeconds: 600, namespaces: {include: [other]}}"), here
    )
    assert ran.names == []


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("{}", ["full", "init"]),
        ("{minPodLifetimeSeconds: 10}", ["full", "init", "young"]),
        ("{reasons: [OutOfcpu]}", ["full"]),
        ("{reasons: [Error], includingInitContainers: true}", ["init"]),
        ("{reasons: [Error]}", []),
        ("{excludeOwnerKinds: [ReplicaSet]}", []),
    ],
)
def test_failed_pods(arguments: str, names: list[str]) -> None:
    here = Tables(
        [node("n1"), node("n2")],
        [
            pod("full", "n1", phase="Failed", reasons=("OutOfcpu",)),
            pod("init", "n1", phase="Failed", init_reasons=("Error",)),
            pod("young", "n1", phase="Failed", created=NOW - 60),
            pod("bare", "n1", phase="Failed", owners=()),
            pod("runs", "n1"),
        ],
    )
    assert run(profile("RemoveFailedPods", arguments), here).names == names


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("{}", ["plain"]),
        ("{excludedTaints: [gpu=only]}", []),
        ("{excludedTaints: [gpu]}", []),
        ("{excludedTaints: [gpu], includePreferNoSchedule: true}", ["plain", "tolerates"]),
    ],
)
def test_taints(arguments: str, names: list[str]) -> None:
    taints = (
        Taint("gpu", "only", "NoSchedule"),
        Taint("soft", "", "PreferNoSchedule"),
        Taint("x", "", "NoExecute"),
    )
    here = Tables(
        [node("n1", taints=taints), node("n2")],
        [
            pod("plain", "n1"),
            pod("tolerates", "n1", placement=tolerating("gpu")),
            pod("free", "n2"),
        ],
    )
    assert run(profile("RemovePodsViolatingNodeTaints", arguments), here).names == names


@pytest.mark.scenario("descheduler", "W")
def test_a_taint_that_comes_between_two_cycles() -> None:
    policy = profile("RemovePodsViolatingNodeTaints")
    here = Tables(
        [node("n1"), node("n2")],
        [pod("p", "n1"), pod("tolerates", "n1", placement=tolerating("gpu"))],
    )
    assert run(policy, here).names == []
    here.put_node(node("n1", taints=(Taint("gpu", "", "NoSchedule"),)))
    assert run(policy, here).names == ["p"]


def test_node_affinity() -> None:
    arguments = "{nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}"
    here = Tables(
        [node("n1"), node("n2", labels={"disk": "ssd"})],
        [
            pod("lost", "n1", placement=affine(disk="ssd")),
            pod("nowhere", "n1", placement=affine(disk="tape")),
            pod("right", "n2", placement=affine(disk="ssd")),
            pod("plain", "n1"),
        ],
    )
    assert run(profile("RemovePodsViolatingNodeAffinity", arguments), here).names == ["lost"]


def test_anti_affinity_leaves_one_of_two_enemies() -> None:
    hates = (AntiAffinity(of_map({"app": "db"}), frozenset({"default"}), "kubernetes.io/hostname"),)
    more: dict[str, Any] = {"labels": {"app": "db"}, "anti_affinity": hates}
    here = Tables(
        [node("n1"), node("n2")],
        [
            pod("first", "n1", priority=10, **more),
            pod("second", "n1", priority=5, **more),
            pod("first", "n1", namespace="other", labels={"app": "db"}),
            pod("alone", "n2", **more),
        ],
    )
    assert run(profile("RemovePodsViolatingInterPodAntiAffinity"), here).names == ["second"]


@pytest.mark.scenario("descheduler", "X")
def test_duplicates() -> None:
    policy = profile("RemoveDuplicates", point="balance")
    pods = [pod(f"p{number}", "n1", images=("web",)) for number in range(3)]
    here = Tables([node("n1"), node("n2")], [*pods, pod("other", "n1", images=("db",))])
    ran = run(policy, here)
    assert ran.names == ["p2"]
    assert "3 pods of ReplicaSet web, 2 would be its share of 2 nodes" in ran.evictions[0].reason
    alone = Tables([node("n1"), node("n2", taints=(Taint("a", "", "NoSchedule"),))], pods)
    assert run(policy, alone).names == []


def test_high_node_utilization_empties_what_is_nearly_empty() -> None:
    policy = profile("HighNodeUtilization", "{thresholds: {cpu: 20}}", "{nodeFit: true}", "balance")
    here = Tables(
        [node("idle"), node("nearly", cpu=1000), node("busy")],
        [pod("small", "nearly", 100), pod("big", "busy", 3000)],
    )
    assert run(policy, here).names == ["small"]
    assert run(policy, Tables(here.nodes.values(), [pod("small", "nearly", 100)])).names == []


# Topology spread.


def zones(sizes: list[int], *, labels: bool = True, **more: Any) -> Tables:
    """A node and so many pods a zone."""
    nodes = [
        node(f"n{zone}", pods=1000, cpu=10**6, labels={"zone": f"z{zone}"})
        for zone in range(len(sizes))
    ]
    pods = [
        pod(f"p{zone}-{number:03}", f"n{zone}", 100, labels={"app": "web"}, **more)
        for zone, size in enumerate(sizes)
        for number in range(size)
    ]
    return Tables(nodes, pods)


def spreading(arguments: str = "{}", evictor: str = "{nodeFit: true}") -> Policy:
    return profile(SPREAD, arguments, evictor, "balance")


@pytest.mark.parametrize(
    ("sizes", "max_skew", "evicted"),
    [
        ([2, 1], 1, 0), ([3, 1], 1, 1), ([5, 2], 1, 1), ([4, 0], 1, 2), ([0, 1, 100], 1, 66), ([0, 1, 3, 5], 1, 3),
        ([2, 6], 2, 1), ([8, 7, 0], 1, 5), ([5, 5, 5], 1, 0),
    ],
)  # fmt: skip
def test_spread(sizes: list[int], max_skew: int, evicted: int) -> None:
    here = zones(sizes, spreads=spread(max_skew, app="web"))
    assert len(run(spreading(), here).names) == evicted


@pytest.mark.parametrize(
    "change",
    [{"taints": (Taint("a", "", "NoSchedule"),)}, {"allocatable": {"cpu": 50, "pods": 10}}],
)
def test_spread_where_the_small_domain_takes_nothing(change: dict[str, Any]) -> None:
    here = zones([2, 6], spreads=spread(2, app="web"))
    for field, value in change.items():
        setattr(here.nodes["n0"], field, value)
    assert run(spreading(), here).names == []


@pytest.mark.parametrize(("effect", "evicted"), [("NoSchedule", 0), ("PreferNoSchedule", 1)])
def test_spread_over_a_tainted_domain(effect: str, evicted: int) -> None:
    here = zones([2, 0], spreads=spread(app="web"))
    here.nodes["n1"].taints = (Taint("a", "", effect),)
    assert len(run(spreading(), here).names) == evicted


def test_spread_of_soft_constraints_only_where_they_are_wanted() -> None:
    here = zones([4, 0], spreads=spread(hard=False, app="web"))
    assert run(spreading(), here).names == []
    assert len(run(spreading("{includeSoftConstraints: true}"), here).names) == 2


def test_spread_keeps_pinned_pods_and_ignores_terminating_ones() -> None:
    here = zones([4, 0], spreads=spread(app="web"))
    for name in ("p0-002", "p0-003"):
        here.pods[f"default/{name}"].placement = selecting(zone="z0")
    here.nodes["n0"].labels = {"zone": "z0"}
    assert run(spreading(), here).names == ["p0-001", "p0-000"]
    here.pods["default/p0-000"].owners = ()
    assert run(spreading(), here).names == ["p0-001"], (
        "of two that are pinned and one that nobody makes anew"
    )
    here = zones([4, 2], spreads=spread(app="web"))
    for name in ("p0-000", "p0-001"):
        here.pods[f"default/{name}"].terminating = True
    assert run(spreading(), here).names == []


def test_spread_over_hosts_and_zones_together() -> None:
    nodes = [
        node(f"n{number}", labels={"host": f"n{number}", "zone": f"z{number // 3}"})
        for number in range(6)
    ]
    both = (*spread(app="web"), *spread(key="host", app="web"))
    pods = [
        pod(f"p{number}", f"n{number}", 100, labels={"app": "web"}, spreads=both)
        for number in range(4)
    ]
    assert len(run(spreading(), Tables(nodes, pods)).names) == 1


# Profiles.

TWO = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: first
  pluginConfig:
  - {name: RemoveFailedPods}
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 60}}
  - {name: RemoveDuplicates}
  plugins:
    deschedule: {enabled: [PodLifeTime, RemoveFailedPods]}
    balance: {enabled: [RemoveDuplicates]}
"""


@pytest.mark.scenario("descheduler", "Y")
def test_plugins_run_as_they_are_enabled_and_a_pod_goes_once() -> None:
    here = Tables(
        [node("n1"), node("n2")],
        [
            pod("failed", "n1", phase="Failed"),
            *(pod(f"p{i}", "n1", images=("web",)) for i in range(3)),
        ],
    )
    ran = run(read(TWO), here)
    assert {one.strategy for one in ran.evictions} == {"PodLifeTime"}
    assert len(ran.names) == len(set(ran.names)) == 4


def test_a_broken_deschedule_plugin_leaves_balance_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> list[Eviction]:
        raise KeyError("spoiled")

    monkeypatch.setitem(registry.PLUGINS, "PodLifeTime", broken)  # type: ignore[arg-type]
    here = Tables([node("n1"), node("n2")], [pod(f"p{i}", "n1", images=("web",)) for i in range(3)])
    ran = run(read(TWO), here)
    assert ran.names == []
    assert ran.report.problems == ["PodLifeTime of profile first has failed: 'spoiled'"]


def test_nodes_of_the_selector_alone_are_handled() -> None:
    nodes: list[Node] = [
        node("n1", labels={"pool": "a"}),
        node("n2", labels={"pool": "a"}),
        node("n3"),
    ]
    here = Tables(nodes, [pod("in", "n1"), pod("out", "n3")])
    policy = profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", more='nodeSelector: "pool=a"')
    assert run(policy, here).names == ["in"]
