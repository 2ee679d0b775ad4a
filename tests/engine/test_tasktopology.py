"""task-topology: roles of a job share nodes or keep apart, as its PodGroup says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hekla.engine.model.annotations import AFFINITY, ANTI_AFFINITY, TASK_ORDER
from hekla.engine.plugins.placement.tasktopology import read
from hekla.engine.world import World, policy

CASES = (
    Path(__file__).parents[2].parent
    / "shared"
    / "conformance"
    / "cases"
    / "plugins"
    / "task-topology"
)


def world(**notes: str) -> World:
    here = World(
        policy(
            plugins=[
                "gang",
                "predicates",
                {"name": "task-topology", "arguments": {"task-topology.weight": 10}},
            ]
        )
    )
    here.nodes("n1", "n2", cpu=4)
    here.job("train", pods=0, min_available=4, annotations=notes)
    for role in ("ps", "worker"):
        for number in range(2):
            here.pod(f"train-{role}-{number}", job="train", role=role, cpu=1)
    return here


def nodes(here: World) -> dict[str, str]:
    return {
        pod.removeprefix("default/train-"): node
        for pod, node in here.run("allocate").bound().items()
    }


def test_roles_that_like_each_other_share_a_node() -> None:
    found = nodes(world(**{AFFINITY: "ps,worker"}))
    assert len(found) == 4
    assert len(set(found.values())) == 1


def test_a_role_that_avoids_itself_is_spread_and_takes_its_friends_along() -> None:
    found = nodes(world(**{AFFINITY: "ps,worker", ANTI_AFFINITY: "ps;worker"}))
    assert found["ps-0"] != found["ps-1"]
    assert found["worker-0"] != found["worker-1"]


def test_the_stated_order_is_kept() -> None:
    here = world(**{AFFINITY: "ps,worker", TASK_ORDER: "worker,ps"})
    order = [bind.pod.split("-")[1] for bind in here.run("allocate").binds]
    assert order == ["worker", "worker", "ps", "ps"]


@pytest.mark.scenario("plugins-placement", 74)
def test_what_is_said_is_checked() -> None:
    roles = {"my-ps", "worker"}
    assert read({AFFINITY: "my-ps,worker"}, roles, "default/a").affinity == (("my-ps", "worker"),)
    with pytest.raises(ValueError, match="task chief do not exist in job <default/a>"):
        read({AFFINITY: "chief"}, roles, "default/a")
    with pytest.raises(ValueError, match="task worker is duplicate in job <default/a>"):
        read({ANTI_AFFINITY: "worker,worker"}, roles, "default/a")
    here = world(**{AFFINITY: "nobody"})
    assert len(here.run("allocate").binds) == 4, "void annotations hold nobody back"


@pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")
def test_recorded_annotations() -> None:
    for case in json.loads((CASES / "Test_readTopologyFromPgAnnotations.json").read_text()):
        job, expect = case["input"]["job"], case["expect"]
        roles = {task["TaskRole"] for task in job["Tasks"].values()}
        notes = job["PodGroup"]["metadata"].get("annotations") or {}
        try:
            found = read(notes, roles, f"{job['Namespace']}/{job['Name']}")
        except ValueError as error:
            assert str(error) == expect["err"]["error"]
            continue
        assert expect["err"] is None
        wanted = expect["topology"]
        if wanted is not None:
            assert [list(group) for group in found.affinity] == (wanted.get("Affinity") or [])
            assert [list(group) for group in found.anti_affinity] == (
                wanted.get("AntiAffinity") or []
            )
            assert list(found.order) == (wanted.get("TaskOrder") or [])
