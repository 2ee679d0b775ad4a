"""extender: somebody else has a say, and the engine stays sane when he has none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hekla.engine.model.podclass import PodClasses, TermTable
from hekla.engine.model.resources import ResourceSpace
from hekla.engine.plugins.placement.extender import Extender, ExtenderArguments
from hekla.engine.world import World, policy

CASES = (
    Path(__file__).parents[2].parent / "shared" / "conformance" / "cases" / "plugins" / "extender"
)


def world(
    answers: Mapping[str, Any], **arguments: Any
) -> tuple[World, list[tuple[str, Any, float]]]:
    named = {f"extender.{name}": value for name, value in arguments.items()}
    named["extender.urlPrefix"] = "http://server/"
    here = World(
        policy(
            plugins=["gang", "predicates", {"name": "extender", "arguments": named}],
            actions="enqueue, allocate",
        )
    )
    here.nodes("n1", "n2", cpu=4)
    asked: list[tuple[str, Any, float]] = []

    def ask(url: str, body: Mapping[str, Any], timeout: float) -> Any:
        asked.append((url, json.loads(json.dumps(body)), timeout))
        answer = answers[url.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        return answer(body) if callable(answer) else answer

    here.state.ask_extender = ask
    return here, asked


def only_n2(body: Mapping[str, Any]) -> Any:
    return {"status": "" if body["node"]["Name"] == "n2" else "not this one", "code": 2}


def test_it_filters_nodes() -> None:
    here, asked = world({"predicate": only_n2}, predicateVerb="predicate", httpTimeout="500ms")
    here.job("a", pods=2, cpu=1)
    assert here.run().nodes_of("a") == {"n2"}
    url, body, timeout = asked[0]
    assert (url, timeout) == ("http://server/predicate", 0.5)
    assert body["task"]["Resreq"]["MilliCPU"] == 1000
    assert body["task"]["Status"] == 1


def test_its_words_are_the_reason() -> None:
    here, _ = world({"predicate": {"status": "not today", "code": 2}}, predicateVerb="predicate")
    here.job("a", cpu=1)
    here.run()
    assert "2 not today" in here.state.jobs["default/a"].fit_errors["default/a-task-0"].text


def test_it_scores_nodes() -> None:
    here, _ = world(
        {"prioritize": {"nodeScore": {"n1": 1.0, "n2": 7.5}}}, prioritizeVerb="prioritize"
    )
    here.job("a", cpu=1)
    assert here.run().nodes_of("a") == {"n2"}


@pytest.mark.parametrize(("ignorable", "bound"), [(True, 1), (False, 0)])
def test_no_answer_is_no_unless_that_is_ignored(ignorable: bool, bound: int) -> None:
    here, _ = world(
        {"predicate": OSError("connection refused")}, predicateVerb="predicate", ignorable=ignorable
    )
    here.job("a", cpu=1)
    assert len(here.run().binds) == bound


def test_without_anybody_to_ask_the_answer_is_no() -> None:
    here, _ = world({}, predicateVerb="predicate")
    here.state.ask_extender = None
    here.job("a", cpu=1)
    assert here.run().binds == []


def test_pods_without_a_managed_resource_are_not_asked_about() -> None:
    here, asked = world(
        {"predicate": only_n2}, predicateVerb="predicate", managedResources=["nvidia.com/gpu"]
    )
    here.job("a", cpu=1)
    assert here.run().nodes_of("a") == {"n1"}
    assert asked == []


def test_a_job_enters_when_it_says_so() -> None:
    answers: dict[str, Any] = {"enter": {"status": -1}}
    here, _ = world(answers, jobEnqueueableVerb="enter")
    here.job("a", cpu=1, phase="Pending", min_resources={"cpu": 1})
    here.run()
    assert here.phase("a") == "Pending"
    answers["enter"] = {"status": 1}
    here.job("b", cpu=1, phase="Pending", min_resources={"cpu": 1})
    here.run()
    assert here.phase("b") == "Inqueue"


@pytest.mark.scenario("plugins-placement", 75)
@pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")
def test_recorded_interest() -> None:
    for case in json.loads((CASES / "TestIsInterested.json").read_text()):
        tree = case["input"]["pod"]
        pods = PodClasses(ResourceSpace(), TermTable()).intern("default", {}, {}, tree["spec"])
        plugin = Extender(ExtenderArguments(managed=case["input"]["managedResources"] or []), {})
        assert plugin.interested(pods) == case["expect"]["expected"], case["name"]


@pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")
def test_recorded_mentions() -> None:
    for name in ("TestHasManagedResources", "TestHasResourcesInList"):
        for case in json.loads((CASES / f"{name}.json").read_text()):
            given = case["input"]
            if not given["managedResources"]:
                continue  # Without a list the original does not come as far as this.
            containers = given.get("containers") or [
                {"name": "c", "resources": {"requests": given.get("resources") or {}}}
            ]
            pods = PodClasses(ResourceSpace(), TermTable()).intern(
                "default", {}, {}, {"containers": containers}
            )
            plugin = Extender(ExtenderArguments(managed=given["managedResources"]), {})
            assert plugin.interested(pods) == case["expect"]["expected"], case["name"]


@pytest.mark.parametrize(
    "answer",
    [
        OSError("connection refused"),
        {"nodeScore": None},
        {"nodeScore": {"n1": 1.0}, "errorMessage": "no"},
    ],
)
@pytest.mark.parametrize("cpu", [1, None])
def test_without_its_scores_no_node_is_chosen(answer: Any, cpu: int | None) -> None:
    here, _ = world({"prioritize": answer}, prioritizeVerb="prioritize")
    here.job("a", cpu=cpu)
    assert here.run("allocate, backfill").binds == []
    assert "could not give them" in here.state.jobs["default/a"].fit_errors["default/a-task-0"].text


def test_where_nobody_else_will_do_its_scores_are_not_needed() -> None:
    here, asked = world({"prioritize": OSError("connection refused")}, prioritizeVerb="prioritize")
    here.nodes("n3", cpu=8)
    here.job("a", cpu=8)
    assert here.run().nodes_of("a") == {"n3"}
    assert asked == []


def test_silence_about_scores_may_be_ignored() -> None:
    here, _ = world(
        {"prioritize": OSError("connection refused")}, prioritizeVerb="prioritize", ignorable=True
    )
    here.job("a", cpu=1)
    assert len(here.run().binds) == 1


def test_nobody_is_evicted_on_nodes_that_it_could_not_score() -> None:
    here, _ = world({"prioritize": OSError("connection refused")}, prioritizeVerb="prioritize")
    here.priority_class("high", 10)
    here.job("low", pods=2, min_available=0, cpu=4, on=["n1", "n2"])
    here.job("high", cpu=4, priority="high")
    decisions = here.run("preempt")
    assert decisions.evictions == []
    assert decisions.pipelined == []


def test_it_hears_of_each_pod() -> None:
    here, asked = world(
        {"allocate": {}, "deallocate": {}},
        allocateFuncVerb="allocate",
        deallocateFuncVerb="deallocate",
    )
    here.job("a", pods=3, cpu=1)
    here.job("large", pods=9, cpu=1)
    here.run()
    told = [(url.rpartition("/")[2], body["task"]["Name"]) for url, body, _ in asked]
    assert sorted(told[:3]) == [("allocate", f"a-task-{number}") for number in range(3)]
    tried = [name for verb, name in told[3:] if verb == "allocate"]
    assert len(tried) == 5
    assert sorted(name for verb, name in told[3:] if verb == "deallocate") == sorted(tried)
    assert {body["task"]["NodeName"] for _, body, _ in asked[:3]} <= {"n1", "n2"}


@pytest.mark.parametrize("role", ["", "worker"])
def test_it_is_asked_about_each_pod(role: str) -> None:
    wish = {"0": "n2", "1": "n1", "2": "n2"}

    def score(body: Mapping[str, Any]) -> Any:
        return {"nodeScore": {wish[body["task"]["Name"].rpartition("-")[2]]: 9.0}}

    here, asked = world({"prioritize": score}, prioritizeVerb="prioritize")
    here.job("a", pods=3, cpu=1, role=role)
    assert [node for _, node in sorted(here.run().bound().items())] == ["n2", "n1", "n2"]
    assert len(asked) == 3


def test_what_refused_a_pod_is_not_asked_about_others_of_its_role() -> None:
    def only_first(body: Mapping[str, Any]) -> Any:
        return {
            "status": "no"
            if body["task"]["Name"].endswith("0") and body["node"]["Name"] == "n1"
            else "",
            "code": 2,
        }

    here, _ = world({"predicate": only_first}, predicateVerb="predicate")
    here.job("a", pods=2, cpu=1, role="worker")
    assert here.run().nodes_of("a") == {"n2"}
