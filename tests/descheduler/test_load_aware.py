"""LoadAware: the behaviour scenarios E to R of the behaviour reference (descheduler 16.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hekla.descheduler.classification import Class, Load, completed, loads
from hekla.descheduler.policy.policy import Policy
from hekla.descheduler.tables import Pod, Tables, Taint, percent_of
from tests.descheduler.stories import NOW, measured, node, pod, profile, run

METRICS = "metrics: {type: metrics_server}"
STANDARD = "thresholds: {cpu: 30}, targetThresholds: {cpu: 80}"


def policy(arguments: str = STANDARD, evictor: str = "{}") -> Policy:
    return profile("LoadAware", f"{{{METRICS}, {arguments}}}", evictor, "balance")


def cluster(pods: Sequence[Pod] = (), **c: Any) -> Tables:
    """A, B and C with ten cores each; on A four pods, if none are given."""
    given = pods or [pod(name, "a", 100) for name in ("a1", "a2", "a3", "a4")]
    return Tables([node("a", 10000), node("b", 10000), node("c", 10000, **c)], given)


USED = {"a1": (300.0, 0.0), "a2": (700.0, 0.0), "a3": (500.0, 0.0), "a4": (100.0, 0.0)}
SKEWED = measured({"a": (9000, 0), "b": (5000, 0), "c": (1000, 0)}, USED)


@pytest.mark.scenario("descheduler", "A")
def test_percentages_refer_to_what_is_allocatable() -> None:
    memory = 3287692 * 1024
    assert [percent_of(1220, 1930), percent_of(3038982964, memory), percent_of(11, 29)] == [
        63,
        90,
        37,
    ]


@pytest.mark.scenario("descheduler", "B")
def test_nodes_that_are_furthest_over_come_first() -> None:
    memory = 3287692 * 1024
    used = {
        "node1": (1730, 3038982964, 25),
        "node2": (1220, 3038982964, 11),
        "node3": (1530, 5038982964, 20),
    }
    found = [
        Load(
            node(name, 1930, memory, 29),
            {"cpu": cpu, "memory": bytes_, "pods": pods},
            {},
            {"cpu": 1930, "memory": memory, "pods": 29},
        )
        for name, (cpu, bytes_, pods) in used.items()
    ]
    ordered = sorted(found, key=lambda one: -one.overshoot())
    assert [one.node.name for one in ordered] == ["node3", "node1", "node2"]


@pytest.mark.scenario("descheduler", "E")
def test_the_hot_node_is_relieved_largest_first_until_it_is_not_hot() -> None:
    ran = run(policy(), cluster(), SKEWED)
    assert ran.names == ["a2", "a3"]  # 9000 - 700 - 500 = 7800
    assert ran.evictions[0].reason == "node a is over its target: cpu 90% > 80%"
    assert ran.report.classes["b", "LoadAware"] == Class.APPROPRIATE
    assert ran.report.ratios["a", "cpu"] == pytest.approx(0.9)


@pytest.mark.scenario("descheduler", "F")
def test_more_under_used_nodes_than_numberofnodes() -> None:
    assert run(policy(f"{STANDARD}, numberOfNodes: 1"), cluster(), SKEWED).names == []
    two = measured({"a": (9000, 0), "b": (2000, 0), "c": (1000, 0)}, USED)
    assert run(policy(f"{STANDARD}, numberOfNodes: 1"), cluster(), two).names == ["a2", "a3"]


@pytest.mark.scenario("descheduler", "G")
def test_a_cordoned_node_takes_nothing_but_may_be_relieved() -> None:
    assert run(policy(), cluster(unschedulable=True), SKEWED).names == []
    hot = cluster()
    hot.nodes["a"].unschedulable = True
    assert run(policy(), hot, SKEWED).names == ["a2", "a3"]


@pytest.mark.scenario("descheduler", "H")
def test_all_cool_or_none_hot() -> None:
    for a in (2000.0, 7000.0):
        usage = measured({"a": (a, 0), "b": (2000, 0), "c": (1000, 0)}, USED)
        assert run(policy(), cluster(), usage).names == []


@pytest.mark.scenario("descheduler", "I")
def test_nobody_tolerates_the_taint() -> None:
    assert run(policy(), cluster(taints=(Taint("gpu", "", "NoSchedule"),)), SKEWED).names == []


@pytest.mark.scenario("descheduler", "J")
def test_excluded_namespaces_count_as_load_but_stay() -> None:
    pods = [pod("a1", "a", 100, namespace="kube-system"), pod("a2", "a", 100)]
    excluded = f"{STANDARD}, evictableNamespaces: {{exclude: [kube-system]}}"
    assert run(policy(excluded), cluster(pods), SKEWED).names == ["a2"]


@pytest.mark.scenario("descheduler", "K")
def test_a_pod_without_a_sample_is_last_and_counts_as_it_requests() -> None:
    asked = {"new": 600, "a1": 100, "a4": 100, "later": 100, "last": 0}
    pods = [pod(name, "a", cpu, qos="Burstable") for name, cpu in asked.items()]
    pods[-1].created = NOW - 10**6
    # 9000 - 300 - 100 as measured, - 100 - 600 as requested: 7900
    assert run(policy(), cluster(pods), SKEWED).names == ["a1", "a4", "later", "new"]


@pytest.mark.scenario("descheduler", "L")
def test_a_node_that_is_hot_itself_is_no_place_to_go() -> None:
    tables = Tables(
        [node("a", 10000), node("b", 20000), node("c", 1000)],
        [pod("a2", "a", 3000)],
    )
    usage = measured({"a": (9000, 0), "b": (19000, 0), "c": (100, 0)}, {"a2": (700, 0)})
    assert run(policy(), tables, usage).names == ["a2"]
    assert run(policy(f"{STANDARD}, nodeFit: true"), tables, usage).names == []


@pytest.mark.scenario("descheduler", "M")
def test_a_node_without_measurement_is_unknown_not_idle() -> None:
    ran = run(policy(), cluster(), measured({"a": (9000, 0), "b": (5000, 0)}, USED))
    assert ran.names == []
    assert ran.report.classes["c", "LoadAware"] == Class.UNKNOWN


def test_nothing_is_evicted_without_measurements() -> None:
    ran = run(policy(), cluster(), measured({}))
    assert ran.names == []
    assert ran.report.problems == ["LoadAware evicts nothing: no node is measured"]


@pytest.mark.scenario("descheduler", "O")
def test_what_is_not_configured_never_decides() -> None:
    usage = measured({"a": (1000, 2990), "b": (1000, 10), "c": (1000, 10)}, USED)
    assert run(policy(), cluster(), usage).names == []


@pytest.mark.scenario("descheduler", "P")
def test_deviation_from_the_measured_mean() -> None:
    low, high = completed({"cpu": 10}, {"cpu": 10}, deviation=True)
    nodes = [(node(str(cpu), 100), {"cpu": float(cpu)}) for cpu in (40, 41, 60, 61, 48)]
    kinds = {one.node.name: one.classed() for one in loads(nodes, low, high, deviation=True)}
    assert kinds == {
        "40": Class.UNDER, "41": Class.APPROPRIATE, "60": Class.APPROPRIATE, "61": Class.OVER, "48": Class.APPROPRIATE,
    }  # fmt: skip


@pytest.mark.scenario("descheduler", "Q")
def test_the_destinations_fill_up() -> None:
    tables = Tables(
        [node("a", 10000), node("b", 10000), node("c", 1000)],
        [pod(f"a{number}", "a", 100) for number in range(9)],
    )
    usage = measured(
        {"a": (10000, 0), "b": (5000, 0), "c": (300, 0)},
        {f"a{number}": (200, 0) for number in range(9)},
    )
    ran = run(policy(), tables, usage)
    assert ran.names == ["a0", "a1"]  # 300 + 200 + 200 = 700, and 800 is the target
    assert (
        ran.report.refused["LoadAware", "it would put every under-used node over its target"] == 7
    )


def test_what_would_make_its_new_node_hot_stays_and_a_smaller_one_goes() -> None:
    tables = Tables(
        [node("a", 10000), node("b", 10000), node("c", 10000)],
        [pod("big", "a", 100), pod("small", "a", 100)],
    )
    usage = measured(
        {"a": (9900, 0), "b": (5000, 0), "c": (2500, 0)}, {"big": (6000, 0), "small": (900, 0)}
    )
    assert run(policy(), tables, usage).names == ["small"]


@pytest.mark.scenario("descheduler", "R")
def test_exactly_at_the_limits() -> None:
    low, high = completed({"cpu": 29}, {"cpu": 80})
    found = loads([(node("u", 100), {"cpu": 29.0}), (node("o", 100), {"cpu": 80.0})], low, high)
    assert [one.classed() for one in found] == [Class.UNDER, Class.APPROPRIATE]


def test_the_least_important_go_first_unless_usage_is_to_decide() -> None:
    pods = [
        pod("big", "a", 100, priority=100),
        pod("offered", "a", 100, priority=500, preemptable=True),
        pod("small", "a", 100),
    ]
    usage = measured(
        {"a": (9000, 0), "b": (5000, 0), "c": (1000, 0)},
        {"big": (800, 0), "offered": (100, 0), "small": (100, 0)},
    )
    assert run(policy(), cluster(pods), usage).names == ["offered", "small", "big"]
    assert run(policy(f"{STANDARD}, order: usage"), cluster(pods), usage).names == [
        "big",
        "offered",
        "small",
    ]


def test_a_node_is_measured_again_before_it_is_drained_further() -> None:
    assert run(policy(), cluster(), SKEWED, settling={"a": NOW - 10}).names == []
    assert run(policy(), cluster(), SKEWED, settling={"a": NOW - 20}).names == ["a2", "a3"]


def test_one_pod_a_cycle_goes_where_nothing_says_what_pods_use() -> None:
    pods = [pod(name, "a") for name in ("a1", "a2", "a3", "a4")]
    nodes_alone = measured({"a": (9000, 0), "b": (5000, 0), "c": (1000, 0)}, {})
    assert len(run(policy(), cluster(pods), nodes_alone).names) == 1
    # what they request is a guess that ends: 9000 - 600 - 600
    guessed = [pod(name, "a", 600) for name in ("a1", "a2", "a3", "a4")]
    assert len(run(policy(), cluster(guessed), nodes_alone).names) == 2


def test_pods_on_their_way_out_are_waited_for_but_not_for_ever() -> None:
    here = cluster()
    here.put_pod(pod("going", "a", 100, terminating=True, ending=NOW + 30))
    assert run(policy(), here, SKEWED).names == []
    here.put_pod(pod("going", "a", 100, terminating=True, ending=NOW - 61))
    assert run(policy(), here, SKEWED).names == ["a2", "a3"]


def test_the_node_selector_limits_both_sides() -> None:
    tables = cluster(labels={"pool": "x"})
    assert run(policy(f"{STANDARD}, nodeSelector: pool=x"), tables, SKEWED).names == []
    tables.nodes["a"].labels = {"pool": "x"}
    assert run(policy(f"{STANDARD}, nodeSelector: pool=x"), tables, SKEWED).names == ["a2", "a3"]
