"""Which pods may be evicted, where they may land, and how many."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.descheduler.tables import Owner, Tables, Taint
from tests.descheduler.stories import NOW, node, pod, profile, run, tolerating

OLD = "{maxPodLifeTimeSeconds: 60}"


def tables(*pods: Any, **other: Any) -> Tables:
    return Tables([node("n1"), node("n2", **other)], pods)


def old(evictor: str = "{}", more: str = "") -> Any:
    """A policy that evicts every pod that may be."""
    return profile("PodLifeTime", OLD, evictor, more=more)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"owners": (Owner("DaemonSet", "d"),)}, "pod is a DaemonSet pod"),
        ({"mirror": True}, "pod is a mirror pod"),
        ({"static": True}, "pod is a static pod"),
        ({"terminating": True}, "pod is terminating"),
        ({"owners": ()}, "pod does not have any ownerRefs"),
        ({"priority": 2_000_000_000}, "pod has system critical priority"),
        ({"local_storage": True}, "pod has local storage and descheduler is not configured with evictLocalStoragePods"),
        ({"preemptable": False}, "pod is not preemptable"),
        ({"cooldown": 600.0, "started": NOW - 599}, "pod is in its cooldown"),
    ],
)  # fmt: skip
def test_pods_that_stay(more: dict[str, Any], reason: str) -> None:
    ran = run(old(), tables(pod("p", "n1", **more)))
    assert ran.names == []
    assert ran.report.refused == {("PodLifeTime", reason): 1}
    if not more.get("preemptable", True):
        return
    assert run(old(), tables(pod("p", "n1", marked=True, **more))).names == ["p"]


@pytest.mark.parametrize(
    ("evictor", "more", "evicted"),
    [
        ("{evictLocalStoragePods: true}", {"local_storage": True}, True),
        ("{ignorePvcPods: true}", {"claims": True}, False),
        ("{}", {"claims": True}, True),
        ("{evictSystemCriticalPods: true}", {"priority": 2_000_000_000}, True),
        ("{priorityThreshold: {value: 100}}", {"priority": 100}, False),
        ("{priorityThreshold: {value: 100}}", {"priority": 99}, True),
        ("{priorityThreshold: {value: 100}}", {"priority": None}, True),
        ("{priorityThreshold: {name: high}}", {"priority": 1000}, False),
        ("{priorityThreshold: {name: high}}", {"priority": 999}, True),
        ("{evictFailedBarePods: true}", {"owners": ()}, False),
        ("{evictFailedBarePods: true}", {"owners": (), "phase": "Failed"}, True),
        ("{labelSelector: {matchLabels: {a: b}}}", {}, False),
        ("{labelSelector: {matchLabels: {a: b}}}", {"labels": {"a": "b"}}, True),
        ("{minPodAge: 2m}", {"created": NOW - 100}, False),
        ("{minPodAge: 90s}", {"created": NOW - 100}, True),
    ],
)
def test_settings(evictor: str, more: dict[str, Any], evicted: bool) -> None:
    here = tables(pod("p", "n1", **more))
    here.priorities["high"] = 1000
    assert run(old(evictor), here).names == (["p"] if evicted else [])


def test_a_priority_class_that_is_not_there_stops_the_profile() -> None:
    ran = run(old("{priorityThreshold: {name: high}}"), tables(pod("p", "n1")))
    assert ran.names == []
    assert ran.report.problems == [
        "profile p evicts nothing: priorityThreshold.name: there is no PriorityClass 'high'"
    ]


@pytest.mark.parametrize(
    ("other", "placement", "evicted"),
    [
        ({}, None, True),
        ({"unschedulable": True}, None, False),
        ({"ready": False}, None, False),
        ({"cpu": 199}, None, False),
        ({"cpu": 200}, None, True),
        ({"pods": 0}, None, False),
        ({"taints": (Taint("gpu", "", "NoExecute"),)}, None, False),
        ({"taints": (Taint("gpu", "", "NoExecute"),)}, tolerating("gpu"), True),
        ({"taints": (Taint("gpu", "", "PreferNoSchedule"),)}, None, True),
    ],
)
def test_another_node_has_to_take_it(other: dict[str, Any], placement: Any, evicted: bool) -> None:
    more = {} if placement is None else {"placement": placement}
    here = Tables(
        [node("n1"), node("n2", **other), node("n3", cpu=0)], [pod("p", "n1", 200, **more)]
    )
    assert run(old("{nodeFit: true}"), here).names == (["p"] if evicted else [])


def test_an_extended_resource_that_no_other_node_has() -> None:
    here = tables(pod("p", "n1", extended={"example.com/x": 1.0}))
    assert run(old("{nodeFit: true}"), here).names == []


def test_room_is_promised_once() -> None:
    here = tables(*(pod(f"p{number}", "n1", 400) for number in range(5)), cpu=1000)
    assert len(run(old("{nodeFit: true}"), here).names) == 2


def test_a_gang_keeps_its_minimum() -> None:
    gang = [pod(f"g{number}", "n1", group="train") for number in range(4)]
    here = tables(*gang, pod("ended", "n1", group="train", phase="Succeeded"))
    here.minimum["default/train"] = 3
    ran = run(old(), here)
    assert sorted(set(ran.names) - {"ended"}) == ["g0"]
    assert ran.report.refused["PodLifeTime", "its gang would fall below minMember"] == 3


def test_a_gang_of_one_is_none() -> None:
    here = tables(pod("p", "n1", group="alone"))
    here.minimum["default/alone"] = 1
    assert run(old(), here).names == ["p"]


@pytest.mark.parametrize(
    ("more", "evicted"),
    [
        ("maxNoOfPodsToEvictPerNode: 2", 4),
        ("maxNoOfPodsToEvictPerNamespace: 3", 3),
        ("maxNoOfPodsToEvictTotal: 1", 1),
        ("maxNoOfPodsToEvictPerNode: 0", 0),
        ("", 8),
    ],
)
def test_limits(more: str, evicted: int) -> None:
    here = tables(*(pod(f"p{number}", f"n{1 + number % 2}") for number in range(8)))
    ran = run(old(more=more), here)
    assert len(ran.names) == evicted
    assert (
        sum(ran.report.evictions.values()) == 8
    )  # the others are counted by the limit that held them


def test_one_node_is_too_few() -> None:
    ran = run(old(), Tables([node("n1")], [pod("p", "n1")]))
    assert ran.names == [] and "cluster size is 0 or 1" in ran.report.skipped
