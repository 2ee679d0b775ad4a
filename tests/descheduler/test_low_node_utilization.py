"""LowNodeUtilization by requests: the numbers of the behaviour reference (descheduler 16.4)."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.descheduler.policy.policy import Policy
from hekla.descheduler.tables import Owner, Pod, Tables
from tests.descheduler.stories import affine, measured, node, pod, profile, run, selecting

THRESHOLDS = "thresholds: {cpu: 30, pods: 30}, targetThresholds: {cpu: 50, pods: 50}"
SETS = ("p1", "p2", "p3", "p4", "p5")


def low(arguments: str = THRESHOLDS, evictor: str = "{}") -> Policy:
    return profile("LowNodeUtilization", f"{{{arguments}}}", evictor, "balance")


def on_n1(**each: Any) -> list[Pod]:
    """Eight pods of 400m, five of which may go."""
    return [
        *(pod(name, "n1", 400, **each) for name in SETS),
        pod("p6", "n1", 400, owners=(Owner("DaemonSet", "d"),), **each),
        pod("p7", "n1", 400, owners=(), mirror=True, local_storage=True, **each),
        pod("p8", "n1", 400, priority=2_000_000_000, **each),
    ]


def cluster(pods: list[Pod], p9: Pod | None = None, **n2: Any) -> Tables:
    return Tables(
        [node("n1", pods=9), node("n2", pods=10, **n2), node("n3", pods=10, unschedulable=True)],
        [*pods, p9 or pod("p9", "n2", 400)],
    )


def changed(pods: list[Pod], names: tuple[str, ...], **more: Any) -> list[Pod]:
    for one in pods:
        if one.name in names:
            for field, value in more.items():
                setattr(one, field, value)
    return pods


def test_base() -> None:
    ran = run(low(), cluster(on_n1()))
    assert len(ran.names) == 4
    assert ran.evictions[0].reason == "node n1 is over its target: cpu 80% > 50%, pods 89% > 44%"


def test_only_pods_that_may_not_go() -> None:
    assert run(low(), cluster([one for one in on_n1() if one.name not in SETS])).names == []


@pytest.mark.parametrize(("excluded", "evicted"), [(SETS, 0), (("p1", "p2", "p3"), 2)])
def test_excluded_namespaces(excluded: tuple[str, ...], evicted: int) -> None:
    policy = low(f"{THRESHOLDS}, evictableNamespaces: {{exclude: [spared]}}")
    tables = cluster(changed(on_n1(), excluded, namespace="spared"))
    assert len(run(policy, tables).names) == evicted


def test_room_at_the_destination_runs_out() -> None:
    assert len(run(low(), cluster(on_n1(memory=300), pod("p9", "n2", 400, 2100))).names) == 3


def test_the_lowest_priority_first() -> None:
    pods = on_n1()
    for one, priority in zip(pods, (500, 100, 400, 200, 300), strict=False):
        one.priority = priority
    assert run(low(), cluster(pods)).names == ["p2", "p4", "p5", "p3"]


def test_best_effort_first() -> None:
    names = ("p1", "p2", "p4", "p5")
    tables = cluster(changed(on_n1(), names, qos="BestEffort"))
    assert sorted(run(low(), tables).names) == sorted(names)


def test_an_extended_resource() -> None:
    policy = low(
        "thresholds: {example.com/x: 30, pods: 30}, targetThresholds: {example.com/x: 50, pods: 80}"
    )
    extended = {"example.com/x": 8.0}
    asked: dict[str, Any] = {"extended": {"example.com/x": 1.0}}
    pods = [pod(name, "n1", **asked) for name in (*SETS, "p6", "p7")]
    both = [
        node("n1", extended=extended),
        node("n2", extended=extended),
        node("n3", unschedulable=True),
    ]
    assert len(run(policy, Tables(both, [*pods, pod("p9", "n2", **asked)])).names) == 3
    alone = [node("n1", extended=extended), node("n2"), node("n3", unschedulable=True)]
    assert run(policy, Tables(alone, [*pods, pod("p9", "n2")])).names == []


def test_the_destination_is_cordoned() -> None:
    assert run(low(), cluster(on_n1(), unschedulable=True)).names == []


@pytest.mark.parametrize("placement", [selecting(disk="ssd"), affine(disk="ssd")])
def test_pods_that_fit_nowhere_else_stay(placement: Any) -> None:
    tables = cluster(changed(on_n1(), ("p4", "p5"), placement=placement))
    ran = run(low(evictor="{nodeFit: true}"), tables)
    assert sorted(ran.names) == ["p1", "p2", "p3"]
    assert ran.report.refused["LowNodeUtilization", "no other node would take it"] == 2


def test_deviation() -> None:
    policy = low(
        "useDeviationThresholds: true, thresholds: {cpu: 5, pods: 5}, targetThresholds: {cpu: 5, pods: 5}"
    )
    # the mean of pods is 33 %: n2 may have three, and has one
    assert len(run(policy, cluster(on_n1())).names) == 2


def test_by_measured_use_requests_do_not_matter() -> None:
    policy = low(
        f"{THRESHOLDS.replace(', pods: 30', '').replace(', pods: 50', '')}, metricsUtilization: {{source: KubernetesMetrics}}"
    )
    tables = cluster(on_n1())
    assert run(policy, tables, measured({"n1": (400, 0), "n2": (400, 0), "n3": (0, 0)})).names == []
    hot = measured(
        {"n1": (2400, 0), "n2": (400, 0), "n3": (0, 0)}, {"p1": (300, 0), "p2": (100, 0)}
    )
    assert run(policy, tables, hot).names == ["p1", "p2"]


def test_what_the_server_refuses_does_not_count() -> None:
    ran = run(low(), cluster(on_n1()), taken=lambda eviction: eviction.pod.name != "p3")
    assert sorted(ran.names) == ["p1", "p2", "p4", "p5"]
    assert ran.report.evictions["error", "LowNodeUtilization", "default", "n1"] == 1
