"""Filters and scores of nodegroup, by the numbers of the reference's examples."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.engine.world import World, policy
from tests.engine.placements import scores, verdicts, world

IN = "DuringSchedulingIgnoredDuringExecution"


def affinity(required=(), preferred=(), anti_required=(), anti_preferred=()) -> dict[str, Any]:
    return {
        "nodeGroupAffinity": {f"required{IN}": list(required), f"preferred{IN}": list(preferred)},
        "nodeGroupAntiAffinity": {
            f"required{IN}": list(anti_required),
            f"preferred{IN}": list(anti_preferred),
        },
    }


def grouped(
    arguments: Any = None, *, stated: Any = None, limits: str = "", parent: str = "", **flags: bool
) -> World:
    """Nodes n1 to n4 of groups 1 to 4, n5 of none; a queue `q` with this affinity."""
    here = world("nodegroup", arguments, **flags)
    for number in range(1, 5):
        here.nodes(
            f"n{number}",
            cpu=8,
            memory="64Gi",
            labels={"volcano.sh/nodegroup-name": f"group{number}"},
        )
    here.nodes("n5", cpu=8, memory="64Gi")
    spec: dict[str, Any] = {"affinity": stated} if stated is not None else {}
    here.state.upsert_queue(
        {
            "metadata": {
                "name": "q",
                "annotations": {"volcano.sh/nodegroup-resource-limits": limits} if limits else {},
            },
            "spec": {**spec, **({"parent": parent} if parent else {})},
            "status": {"state": "Open"},
        }
    )
    return here


def member(here: World, name: str, *, cpu: int = 1, memory: str = "1Gi", on: str = "") -> None:
    here.job(
        f"job-{name}", pods=0, min_available=1, queue="q", phase="Running" if on else "Inqueue"
    )
    here.pod(name, job=f"job-{name}", cpu=cpu, memory=memory, node=on)


UNLABELLED, UNSTATED = "node group label not found", "node group affinity not specified"
UNSATISFIED, EXCEEDED = (
    "node does not satisfy the node group affinity",
    "node group resource limit exceeded",
)


@pytest.mark.scenario("plugins-placement", 26)
def test_groups_of_a_queue():
    here = grouped(
        stated=affinity(["group1", "group3"], ["group3"], ["group2", "group4"], ["group4"])
    )
    member(here, "p")
    assert scores(here, "p") == {"n1": 100, "n2": 0, "n3": 150, "n4": -1, "n5": 0}
    assert verdicts(here, "p") == {
        "n1": "",
        "n2": UNSATISFIED,
        "n3": "",
        "n4": "",
        "n5": UNLABELLED,
    }
    other = grouped(stated=affinity(["group1"], ["group3"], (), ["group4"]))
    member(other, "p")
    assert [scores(other, "p")[node] for node in ("n1", "n3", "n4")] == [100, 50, -1]
    ordered = grouped({"enablePreferredOrder": True}, stated=affinity((), ["group1", "group3"]))
    member(ordered, "p")
    assert [scores(ordered, "p")[node] for node in ("n1", "n3")] == [50, 25]


@pytest.mark.scenario("plugins-placement", 26)
@pytest.mark.parametrize("stated", [None, affinity()])
def test_a_queue_that_says_nothing(stated):
    strict = grouped(stated=stated)
    member(strict, "p")
    assert verdicts(strict, "p") == {
        **dict.fromkeys(["n1", "n2", "n3", "n4"], UNSTATED),
        "n5": UNLABELLED,
    }
    loose = grouped({"strict": False}, stated=stated)
    member(loose, "p")
    assert verdicts(loose, "p") == {**dict.fromkeys(["n1", "n2", "n3", "n4"], UNSTATED), "n5": ""}


@pytest.mark.scenario("plugins-placement", 27)
def test_a_child_has_the_affinity_of_the_nearest_above_it():
    for hierarchy in (True, False):
        here = grouped(parent="parent", enableHierarchy=hierarchy)
        here.queue("grand", affinity=affinity(["group2"]), parent="root")
        here.queue("parent", parent="grand")
        member(here, "p")
        expected = {"n1": UNSATISFIED, "n2": ""} if hierarchy else {"n1": UNSTATED, "n2": UNSTATED}
        assert {node: verdicts(here, "p")[node] for node in expected} == expected
        here.queue("parent", parent="grand", affinity=affinity(["group1"]))
        expected = {"n1": "", "n2": UNSATISFIED} if hierarchy else {"n1": UNSTATED, "n2": UNSTATED}
        assert {node: verdicts(here, "p")[node] for node in expected} == expected
        here.queue("parent", parent="grand", affinity=affinity())  # says nothing, and says it
        assert verdicts(here, "p")["n2"] == UNSTATED


@pytest.mark.scenario("plugins-placement", 28)
@pytest.mark.parametrize(
    ("limits", "memory", "running", "first"),
    [
        ({"group1": {"cpu": "3", "memory": "8Gi"}}, "4Gi", 0, ""),
        ({"group1": {"cpu": "3"}}, "60Gi", 0, ""),
        ({"group1": {"cpu": "1"}}, "4Gi", 0, EXCEEDED),
        ({"group1": {"cpu": "3", "memory": "8Gi"}}, "4Gi", 2, EXCEEDED),
    ],
)
def test_a_queue_has_limits_in_a_group(limits, memory, running, first):
    here = grouped(stated=affinity(["group1", "group2"]), limits=json.dumps(limits))
    if running:
        member(here, "there", cpu=running, memory="4Gi", on="n1")
    member(here, "p", cpu=2, memory=memory)
    assert [verdicts(here, "p")[node] for node in ("n1", "n2")] == [first, ""]


@pytest.mark.scenario("plugins-placement", 28)
def test_limits_that_cannot_be_read_close_every_node():
    here = grouped(stated=affinity(["group1"]), limits="{")
    member(here, "p")
    assert set(verdicts(here, "p").values()) == {"node group resource limit annotation invalid"}


@pytest.mark.scenario("plugins-placement", 29)
def test_what_is_placed_in_a_cycle_counts_in_it():
    here = World(policy(plugins=["gang", "predicates", "nodegroup"], actions="allocate"))
    here.nodes("n1", cpu=8, labels={"volcano.sh/nodegroup-name": "group1"})
    here.state.upsert_queue(
        {
            "metadata": {
                "name": "q",
                "annotations": {"volcano.sh/nodegroup-resource-limits": '{"group1": {"cpu": "3"}}'},
            },
            "spec": {"affinity": affinity(["group1"])},
            "status": {"state": "Open"},
        }
    )
    member(here, "first", cpu=2)
    member(here, "second", cpu=2)
    assert list(here.run().bound()) == ["default/first"]
    assert EXCEEDED in here.why("job-second")
