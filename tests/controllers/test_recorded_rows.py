"""Rows of recorded tables over pure functions, when the collection lies beside the repository: cron
runs, gang resources, node policies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from hekla.api import batch
from hekla.api.text.schedule import parse
from hekla.controllers.cronjob.runs import most_recent, until_next
from hekla.controllers.job.podgroup import min_resources
from hekla.controllers.sharding.policies import AllocationRate, NodeLimit, NodeUse, Policy, Warmup
from hekla.kube.flags import seconds
from tests.recorded import rows, where_recorded

pytestmark = where_recorded

Tree = dict[str, Any]


def test_recent_runs() -> None:
    for row in rows("controllers/cronjob/TestMostRecentScheduleTime"):
        given, expect = row["input"], row["expect"]
        cron = cron_of(given)
        try:
            found = most_recent(
                cron,
                parse(cron.spec.schedule, "UTC"),
                time_of(given["now"]),
                deadline=given["includeSDS"],
            )
        except ValueError:
            assert expect["wantErr"], row["name"]
            continue
        run = expect["expectedRecentTime"]
        wanted = (
            time_of(expect["expectedEarliestTime"]),
            run and time_of(run),
            expect["expectedTooManyMissed"],
        )
        assert (found.earliest, found.run, found.missed.value) == wanted and not expect[
            "wantErr"
        ], row["name"]


def test_the_next_look() -> None:
    for row in rows("controllers/cronjob/TestNextScheduleTimeDuration"):
        cron = cron_of(row["input"])
        delay = until_next(cron, parse(cron.spec.schedule, "UTC"), time_of(row["input"]["now"]))
        assert delay == pytest.approx(seconds(row["expect"]["expectedDuration"]), abs=1e-3), row[
            "name"
        ]


def test_what_a_gang_asks_for() -> None:
    """The rows leave out what admission fills in: a job without a minimum needs all that its tasks
    need."""
    for row in rows("controllers/job/TestTaskPriority_CalcPGMin"):
        given = row["input"]
        tasks = copy.deepcopy(given["TasksPriority"])
        for task, minimum in zip(tasks, given["TasksMinAvailable"], strict=True):
            task["template"]["spec"]["priorityClassName"] = str(task.pop("priority", 0))
            task["minAvailable"] = task["replicas"] if minimum is None else minimum
        least = given["JobMinMember"] or sum(task["minAvailable"] for task in tasks)
        job = msgspec.convert(
            {"metadata": {"name": "j"}, "spec": {"minAvailable": least, "tasks": tasks}}, batch.Job
        )

        assert min_resources(job, int) == row["expect"]["ExpectValue"], row["name"]


POLICIES: dict[str, type[Policy]] = {
    "allocationrate/TestAllocationRatePolicy": AllocationRate,
    "warmup/TestWarmupPolicy": Warmup,
    "nodelimit/TestNodeLimit": NodeLimit,
}


@pytest.mark.parametrize("table", POLICIES)
def test_arguments_of_node_policies(table: str) -> None:
    for row in rows(f"controllers/sharding/policy/{table}Initialize"):
        try:
            POLICIES[table](row["input"]["args"])
        except ValueError:
            assert row["expect"]["expectErr"], row["name"]
        else:
            assert not row["expect"]["expectErr"], row["name"]


def node_of(given: Tree) -> NodeUse:
    return NodeUse(
        "n",
        cpu=(given.get("metrics") or {}).get("CPUUtilization"),
        labels=given.get("labels") or {},
    )


@pytest.mark.parametrize(
    ("table", "ask"),
    [
        (
            "allocationrate/TestAllocationRatePolicyFilter",
            lambda given: AllocationRate(given["args"]).accepts(node_of(given)),
        ),
        (
            "allocationrate/TestAllocationRatePolicyScore",
            lambda given: AllocationRate(given["args"]).score(node_of(given)),
        ),
        ("warmup/TestWarmupPolicyScore", lambda given: Warmup(given["args"]).score(node_of(given))),
    ],
)
def test_what_node_policies_say_of_a_node(table: str, ask: Callable[[Tree], float]) -> None:
    for row in rows(f"controllers/sharding/policy/{table}"):
        assert ask(row["input"]) == pytest.approx(row["expect"]["want"]), row["name"]


def test_how_many_nodes_are_kept() -> None:
    for row in rows("controllers/sharding/policy/nodelimit/TestNodeLimitSelect"):
        nodes = [NodeUse(node["metadata"]["name"]) for node in row["input"]["input"] or []]
        assert (
            NodeLimit(row["input"]["args"]).select(nodes) == nodes[: row["expect"]["expectKeep"]]
        ), row["name"]


def cron_of(given: Tree) -> batch.CronJob:
    return msgspec.convert(
        {key: value for key, value in given["cj"].items() if key not in ("apiVersion", "kind")},
        batch.CronJob,
    )


def time_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
