"""A cron job of every minute against the clock on the wall, in a whole cluster whose pods are
processes.

The looks of the controller are tested at times that are handed in; here nothing is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from hekla.api.text.times import stamp
from tests.cluster.api import Api, Tree
from tests.cluster.conftest import cluster_of_our_own
from tests.controllers.whole_cluster.cluster import BATCH, WholeCluster, a_job, a_task

pytestmark = [pytest.mark.slow(seconds=180), pytest.mark.timeout(330)]

NAME = "minutely"
CRON_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/cronjobs"
SCHEDULED = "volcano.sh/cronjob-scheduled-timestamp"
MINUTE = 60.0
LATE = 20
"""Seconds that a run may be late; one that was left out is not made up for after that."""


@pytest.fixture
def cluster() -> Iterator[WholeCluster]:
    with cluster_of_our_own(nodes=1) as kubeconfig:
        yield WholeCluster(Api(kubeconfig)).ready(1)


class Watched:
    """The jobs of the cron job as somebody sees them who looks twice a second."""

    def __init__(self, cluster: WholeCluster) -> None:
        self.cluster = cluster
        self.turns: dict[str, float] = {}
        """By job, the time of the schedule that it was made for."""
        self.ended: set[str] = set()
        self.busiest = 0
        """How many jobs were not at their end at once."""

    def look(self) -> None:
        jobs = self.cluster.items(BATCH)
        for job in jobs:
            name = job["metadata"]["name"]
            self.turns[name] = datetime.fromisoformat(
                job["metadata"]["annotations"][SCHEDULED]
            ).timestamp()
            if (job.get("status") or {}).get("state", {}).get("phase") == "Completed":
                self.ended.add(name)
        self.busiest = max(
            self.busiest, sum(job["metadata"]["name"] not in self.ended for job in jobs)
        )

    def until(self, come_about: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not come_about():
            assert time.monotonic() < deadline, (
                self.turns,
                self.ended,
                self.cron().get("status"),
                self.told(),
            )
            time.sleep(0.5)
            self.look()

    def cron(self) -> Tree:
        return self.cluster.api.get(f"{CRON_JOBS}/{NAME}").tree

    def told(self) -> list[tuple[str, str, str]]:
        events = self.cluster.events("CronJob", NAME)
        return [(event["type"], event["reason"], event["message"]) for event in events]

    def reasons(self) -> set[str]:
        return {reason for _, reason, _ in self.told()}


def template(seconds: int) -> Tree:
    return {"spec": a_job("unused", a_task("t", 1, f"sleep {seconds}"))["spec"]}


@pytest.mark.scenario("controllers", 131)
@pytest.mark.scenario("controllers", 133)
def test_a_run_of_more_than_a_minute_keeps_the_next_one_away(cluster: WholeCluster) -> None:
    spec = {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": LATE,
        "successfulJobsHistoryLimit": 1,
        "jobTemplate": template(int(MINUTE + 1.5 * LATE)),
    }
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob"}
    cluster.api.create(CRON_JOBS, {**kind, "metadata": {"name": NAME}, "spec": spec})
    seen = Watched(cluster)

    seen.until(lambda: len(seen.turns) == 1, MINUTE + LATE)
    (first,) = seen.turns
    begin = seen.turns[first]
    assert begin % MINUTE == 0 and first == f"{NAME}-{int(begin / MINUTE)}"
    # What comes after it is short.  A template that changes is no new schedule.
    assert (
        cluster.api.patch(f"{CRON_JOBS}/{NAME}", {"spec": {"jobTemplate": template(1)}}).status
        == 200
    )

    seen.until(lambda: "ForbidConcurrent" in seen.reasons(), begin + MINUTE + LATE - time.time())
    turn = stamp(begin + MINUTE)
    text = f"the run of {turn} does not start: {first} still runs (concurrencyPolicy Forbid)"
    assert ("Warning", "ForbidConcurrent", text) in seen.told()
    assert time.time() >= begin + MINUTE and not seen.ended
    status = seen.cron()["status"]
    assert [entry["name"] for entry in status["active"]] == [first]
    assert datetime.fromisoformat(status["lastScheduleTime"]).timestamp() == begin, (
        "a turn that was left out is none"
    )

    seen.until(lambda: first in seen.ended, begin + 2 * MINUTE + LATE - time.time())
    seen.until(lambda: len(seen.turns) == 2, begin + 2 * MINUTE + LATE - time.time())
    (second,) = set(seen.turns) - {first}
    assert seen.turns[second] == begin + 2 * MINUTE, (
        "the turn between was left out, and not made up for"
    )
    # Enough has come.
    assert cluster.api.patch(f"{CRON_JOBS}/{NAME}", {"spec": {"suspend": True}}).status == 200
    seen.until(lambda: second in seen.ended, 30)
    # One is kept.
    seen.until(lambda: [job["metadata"]["name"] for job in cluster.items(BATCH)] == [second], LATE)
    seen.until(lambda: not seen.cron()["status"].get("active"), LATE)
    status = seen.cron()["status"]
    assert datetime.fromisoformat(status["lastScheduleTime"]).timestamp() == begin + 2 * MINUTE
    assert datetime.fromisoformat(status["lastSuccessfulTime"]).timestamp() >= begin + 2 * MINUTE
    assert seen.busiest == 1
    seen.until(
        lambda: {"SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"} <= seen.reasons(), LATE
    )
