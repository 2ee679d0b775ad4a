"""Recorded rows of single functions, read where the engine has the same notion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hekla.engine.model import resources
from hekla.engine.model.podclass import PodClasses, TermTable
from hekla.engine.model.reading import resized
from hekla.engine.model.resources import CPU, MEMORY, PODS, Amounts, ResourceSpace
from hekla.engine.model.state import State
from tests.recorded import rows, where_recorded

pytestmark = where_recorded


def amounts(tree: Mapping[str, Any]) -> Amounts:
    scalars = {name: float(value) for name, value in (tree.get("ScalarResources") or {}).items()}
    return {CPU: float(tree.get("MilliCPU", 0)), MEMORY: float(tree.get("Memory", 0)), **scalars}


def request(pod: Mapping[str, Any]) -> Amounts:
    interned = PodClasses(ResourceSpace(), TermTable()).intern("default", {}, {}, pod["spec"])
    return {name: value for name, value in interned.request.amounts.items() if value}


def significant(of: Amounts) -> Amounts:
    return {name: value for name, value in of.items() if value}


def test_what_pods_ask_for() -> None:
    for case in rows("scheduler/api/TestGetPodResourceRequest"):
        if (
            case["input"]["pod"]["spec"].get("resources")
            and not case["input"]["podLevelResourcesEnabled"]
        ):
            continue  # The gate is on here, as in current Kubernetes.
        assert request(case["input"]["pod"]) == significant(
            amounts(case["expect"]["expectedResource"])
        ), case["name"]


def test_what_fits_into_what() -> None:
    for case in rows("scheduler/api/TestLessEqual"):
        if "zero" in case["name"]:
            left, right = amounts(case["input"]["resource1"]), amounts(case["input"]["resource2"])
            assert resources.less_equal(left, right) == case["expect"]["expected"], case["id"]


def test_the_smaller_of_two() -> None:
    for name, smaller in (
        ("TestMinDimensionResourceZero", resources.minimum_zero),
        ("TestMinDimensionResourceInfinity", resources.minimum_present),
    ):
        for case in rows(f"scheduler/api/{name}"):
            found = smaller(
                amounts(case["input"]["resource1"]), amounts(case["input"]["resource2"])
            )
            assert significant(found) == significant(amounts(case["expect"]["expected"])), case[
                "id"
            ]


def test_what_is_left() -> None:
    for case in rows("scheduler/api/TestSubResource"):
        left = amounts(case["input"]["resource1"])
        resources.subtract(left, amounts(case["input"]["resource2"]))
        assert left == amounts(case["expect"]["expected"])


def test_the_larger_of_two() -> None:
    for case in rows("scheduler/api/TestSetMaxResource"):
        found = resources.maximum(
            amounts(case["input"]["resource1"]), amounts(case["input"]["resource2"])
        )
        assert significant(found) == significant(amounts(case["expect"]["expected"])), case["id"]


def test_only_dimensions_that_are_asked_for_are_compared() -> None:
    for case in rows("scheduler/api/TestLessEqualWithDimensionAndResourcesName"):
        left, right = amounts(case["input"]["resource1"]), amounts(case["input"]["resource2"])
        asked = amounts(case["input"]["req"]) if case["input"]["req"] is not None else left
        found = resources.exceeding(left, right, asked)
        assert (found, not found) == (
            case["expect"]["expectedResourceNames"],
            case["expect"]["expectedFlag"],
        ), case["id"]
    for case in rows("scheduler/api/TestGreaterPartlyWithDimension"):
        left, right, asked = (amounts(case["input"][key] or {}) for key in ("r", "rr", "req"))
        assert bool(resources.exceeding(left, right, asked)) == case["expect"]["wantBool"], case[
            "id"
        ]
    for case in rows("scheduler/api/TestGreaterPartlyWithRelevantDimensions"):
        left, asked = amounts(case["input"]["r"]), amounts(case["input"]["req"])
        right = {
            name: value
            for name, value in amounts(case["input"]["rr"]).items()
            if value or name not in (CPU, MEMORY)
        }
        assert resources.exceeds_relevant(left, right, asked) == case["expect"]["wantBool"], case[
            "id"
        ]


def test_one_dimension_that_still_fits_is_enough() -> None:
    for case in rows("scheduler/api/TestLessEqualPartlyWithDimensionZeroFiltered"):
        left, right, asked = (amounts(case["input"][key]) for key in ("r", "rr", "req"))
        assert resources.less_equal_partly(left, right, asked) == case["expect"]["wantBool"], case[
            "id"
        ]


def test_what_pods_hold_while_they_are_resized() -> None:
    for case in rows("scheduler/api/TestGetPodResourceWithResize"):
        pod = case["input"]["pod"]
        found = request({"spec": resized(pod["spec"], pod["status"])})
        assert found == {**significant(amounts(case["expect"]["expected"])), PODS: 1.0}, case["id"]


@pytest.mark.parametrize("table", ["AddPod", "RemovePod", "SetNode"])
def test_what_is_left_on_a_node(table: str) -> None:
    for case in rows(f"scheduler/api/TestNodeInfo_{table}"):
        state, asked = State(), case["input"]
        state.upsert_node(asked["node"])
        for pod in asked["pods"]:
            state.upsert_pod(pod)
        for pod in asked.get("rmPods") or ():
            state.remove_pod(pod)
        if "updated" in asked:
            state.upsert_node(asked["updated"])
        row = state.nodes.rows[asked["node"]["metadata"]["name"]]
        assert significant(state.nodes.idle_of(row)) == significant(
            amounts(case["expect"]["expected"]["Idle"])
        ), case["id"]


def test_a_pod_counts_as_one() -> None:
    assert request({"spec": {"containers": []}}) == {PODS: 1.0}
