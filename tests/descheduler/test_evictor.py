"""Which pods may be evicted, where they may land, and how many."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.descheduler.evictions import Eviction
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


def gang(*, size: int = 4, **odd: Any) -> Tables:
    """A gang that needs all of its members, the first two of them on n1 and old."""
    ages = {number: NOW - 1000 if number < 2 else NOW for number in range(size)}
    pods = [
        pod(
            f"g{number}",
            "n1" if number < 2 else "n2",
            400,
            group="train",
            created=ages[number],
            **(odd if number == 3 else {}),
        )
        for number in range(size)
    ]
    here = Tables([node("n1"), node("n2"), node("n3", cpu=1600)], pods)
    here.minimum["default/train"] = size
    return here


WHOLE = "{gangPolicy: wholeGroup, nodeFit: true}"


def test_a_gang_may_go_as_a_whole() -> None:
    ran = run(old(WHOLE), gang())
    assert ran.names == ["g0", "g1", "g2", "g3"]
    assert ran.evictions[1].reason.startswith(
        "its gang default/train goes as a whole: it is 1000 s old"
    )
    assert run(old("{nodeFit: true}"), gang()).names == []


@pytest.mark.parametrize(
    ("more", "odd", "n3", "reason"),
    [
        (
            "",
            {"local_storage": True},
            1600,
            "a member of its gang may not be evicted, and it goes as a whole",
        ),
        ("", {}, 1000, "the other nodes would not take its whole gang"),
        ("maxNoOfPodsToEvictTotal: 3", {}, 1600, ""),
    ],
)
def test_all_of_a_gang_or_nobody(more: str, odd: dict[str, Any], n3: int, reason: str) -> None:
    here = gang(**odd)
    for name in ("n1", "n2"):
        here.nodes[name].allocatable = {"cpu": 800, "pods": 10}
    here.nodes["n3"].allocatable = {"cpu": n3, "pods": 10}
    ran = run(old(WHOLE, more), here)
    assert ran.names == []
    assert not reason or ran.report.refused["PodLifeTime", reason] == 2


def test_a_gang_whose_first_member_the_server_keeps_stays_whole() -> None:
    asked: list[str] = []

    def keep(eviction: Eviction) -> bool:
        asked.append(eviction.pod.name)
        return False

    assert run(old(WHOLE), gang(), taken=keep).names == []
    assert asked == ["g0", "g1"]  # each old pod is tried, and nobody else


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
