"""CronJobs on a real API server: a run is due because the last one is said to be long ago."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.batch import CRON_JOB, JOB
from hekla.local.controller_manager.workloads.cronjobs import job_body, surplus
from tests.controller_manager.cluster import (
    client,
    controllers,
    eventually,
    kubelet,
    namespace,
    server,
)
from tests.controller_manager.test_jobs import job

__all__ = ["client", "controllers", "kubelet", "namespace", "server"]

CRONS, JOBS = CRON_JOB.untyped, JOB.untyped
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


async def make(client, namespace, name, **spec):
    """A suspended CronJob of every year that has missed one turn; no other comes while a test
    looks."""
    spec = {
        "schedule": "0 0 1 1 *",
        "suspend": True,
        "jobTemplate": {"spec": job("x")["spec"]},
        **spec,
    }
    cron = await client.create(CRONS, {"metadata": {"name": name}, "spec": spec}, namespace)
    before = f"{datetime.now(UTC).year - 1}-01-01T00:00:00Z"
    await client.patch(
        CRONS, name, {"status": {"lastScheduleTime": before}}, namespace, subresource="status"
    )
    return cron


async def wake(client, namespace, name):
    await client.patch(CRONS, name, {"spec": {"suspend": False}}, namespace)


async def jobs_of(client, namespace):
    return {tree["metadata"]["name"]: tree for tree in (await client.list(JOBS, namespace)).items}


async def test_a_run_that_is_due_makes_one_job_and_the_history_stays_short(
    client, namespace, kubelet
):
    cron = await make(client, namespace, "tick", successfulJobsHistoryLimit=0)
    assert not await jobs_of(client, namespace)
    await wake(client, namespace, "tick")

    (name, made), *others = (await eventually(lambda: jobs_of(client, namespace))).items()
    assert (
        not others
        and name
        == f"tick-{int(datetime(datetime.now(UTC).year, 1, 1, tzinfo=UTC).timestamp()) // 60}"
    )
    assert (
        made["metadata"]["ownerReferences"][0]["uid"] == cron["metadata"]["uid"]
        and made["metadata"]["annotations"][SCHEDULED]
    )

    async def listed():
        status = (await client.get(CRONS, "tick", namespace))["status"]
        return [entry["name"] for entry in status.get("active", ())] == [name] and status[
            "lastScheduleTime"
        ]

    await eventually(listed)
    (pod,) = await eventually(kubelet.pods)
    await kubelet.report(pod, "Succeeded", code=0)

    async def over():
        status = (await client.get(CRONS, "tick", namespace))["status"]
        return (
            "active" not in status
            and status.get("lastSuccessfulTime")
            and name not in await jobs_of(client, namespace)
        )

    await eventually(over)


async def earlier_run(client, namespace, cron):
    """A job of an earlier run that goes on."""
    names = {name: cron["metadata"][name] for name in ("name", "uid")}
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "controller": True, **names}
    tree = job(f"{cron['metadata']['name']}-1", suspend=True)
    tree["metadata"] |= {
        "ownerReferences": [owner],
        "annotations": {SCHEDULED: "2026-01-01T00:00:00Z"},
    }
    await client.create(JOBS, tree, namespace)

    async def listed():
        return (await client.get(CRONS, cron["metadata"]["name"], namespace))["status"].get(
            "active"
        )

    await eventually(listed)


@pytest.mark.parametrize(
    ("policy", "jobs"), [("Forbid", {"one-1"}), ("Replace", {"new"}), ("Allow", {"one-1", "new"})]
)
async def test_what_the_policy_says_to_a_run_that_goes_on(client, namespace, policy, jobs):
    cron = await make(client, namespace, "one", concurrencyPolicy=policy)
    await earlier_run(client, namespace, cron)
    await wake(client, namespace, "one")

    async def seen():
        found = await jobs_of(client, namespace)
        events = {event.reason for event in (await client.list(core.EVENT, namespace)).items}
        done = "JobAlreadyActive" in events if policy == "Forbid" else "SuccessfulCreate" in events
        return done and {name if name == "one-1" else "new" for name in found} == jobs

    await eventually(seen)


def test_the_scheduled_time_is_written_in_the_zone_of_the_schedule():
    cron = {
        "metadata": {"name": "c", "namespace": "n", "uid": "u"},
        "spec": {"jobTemplate": {"spec": {}}, "timeZone": "Asia/Tokyo"},
    }
    at = datetime(2026, 1, 1, 15, 0, tzinfo=UTC).timestamp()

    body = job_body(cron, at)

    assert body["metadata"]["annotations"][SCHEDULED] == "2026-01-02T00:00:00+09:00"
    assert body["metadata"]["name"] == f"c-{int(at) // 60}"


def test_the_oldest_of_each_sort_go_first():
    def ended(name, kind, start):
        return {
            "metadata": {"name": name},
            "status": {"startTime": start, "conditions": [{"type": kind, "status": "True"}]},
        }

    jobs = [
        ended("b", "Complete", "2026-01-01T00:02:00Z"),
        ended("a", "Complete", "2026-01-01T00:01:00Z"),
        ended("f", "Failed", "2026-01-01T00:00:00Z"),
        {"metadata": {"name": "runs"}},
    ]

    gone = surplus({"spec": {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}}, jobs)

    assert [tree["metadata"]["name"] for tree in gone] == ["a"]
