"""The recorded admission cases, when the collection lies beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.admission.rules import cronjobs
from hekla.admission.rules.graph import UndefinedVertex, is_acyclic, sorted_tasks
from hekla.admission.rules.jobs import numa_problem
from tests.admission.cases import run

WEBHOOKS = Path(__file__).parents[2].parent / "shared" / "conformance" / "cases" / "webhooks"
CASES: list[dict[str, Any]] = [
    case for file in sorted(WEBHOOKS.rglob("*.json")) for case in json.loads(file.read_text())
]


@pytest.fixture(autouse=True)
def collection() -> None:
    if not CASES:
        pytest.skip(f"no recorded cases under {WEBHOOKS}")


def test_every_whole_case_ends_as_recorded():
    failures = {
        case["id"]: problems
        for case in CASES
        if case["kind"] == "admission" and (problems := run(case))
    }

    assert failures == {}


def test_every_row_of_a_table_holds():
    rows = [case for case in CASES if case["kind"] == "unit"]

    assert [
        case["id"] for case in rows if not ROWS[case["function"]](case["input"], case["expect"])
    ] == []


def _name(given: dict[str, Any], expect: dict[str, Any]) -> bool:
    message = cronjobs.name_problem(given["name"])
    return expect["message_contains"] in message and (not message) == expect["message_empty"]


def _flow_graph(given: dict[str, Any], expect: dict[str, Any]) -> bool:
    try:
        return is_acyclic(given["graph"]) == expect["is_dag"] and not expect["error"]
    except UndefinedVertex:
        return bool(expect["error"]) and not expect["is_dag"]


def _task_graph(given: dict[str, Any], expect: dict[str, Any]) -> bool:
    tasks = given["job"]["spec"]["tasks"]
    order = sorted_tasks(
        {task["name"]: (task.get("dependsOn") or {}).get("name") or [] for task in tasks}
    )
    return (order is not None) == expect["is_dag"] and (order or []) == (
        expect.get("sorted_tasks") or []
    )


def _topology(given: dict[str, Any], expect: dict[str, Any]) -> bool:
    message = numa_problem(given["task"], given.get("index", 0))
    return expect["message_contains"] in message and (not message) == expect["message_empty"]


ROWS = {
    "validate-cronjob-name": _name,
    "jobflow-is-dag": _flow_graph,
    "job-task-toposort": _task_graph,
    "validate-task-topology-policy": _topology,
}
