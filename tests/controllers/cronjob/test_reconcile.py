"""Single looks at a cron job, at times that the test chooses, against a real API server.

A server dates objects itself, so times are told from when the cron job was made: `at("10:05")` is
five minutes after the last five-minute boundary before that, as if it had been 10:00 then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from hekla.api import batch, names
from hekla.api.kubernetes import core
from hekla.api.text.schedule import ScheduleError
from hekla.api.text.times import instant, stamp
from hekla.controllers.caches import Caches
from hekla.controllers.cronjob.controller import CronJobController
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import ApiError, ServerError
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import PATIENCE, a_task, install

__all__ = ["shared_apiserver"]

JOB = {
    "schedulerName": "volcano",
    "queue": "default",
    "minAvailable": 1,
    "maxRetry": 3,
    "tasks": [a_task("t")],
}
DAY = 86400.0


class Deaf(Client):
    """Fails to get jobs while it is told to."""

    deaf = False

    async def get(self, kind: Any, name: str, namespace: str | None = None, **more: Any) -> Any:
        if self.deaf and kind is batch.JOB:
            raise ServerError(500, "InternalError", "not now")
        return await super().get(kind, name, namespace, **more)


class Clockwork:
    """The controller with its hands on the clock; nothing happens but in `look`."""

    def __init__(self, client: Deaf) -> None:
        self.client = client
        self.caches = Caches(client)
        self.now = 0.0
        self.said: list[str] = []
        self.controller = CronJobController(client, self.caches, self, clock=lambda: self.now)
        self.namespace = "default"

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        self.said.append(reason)

    async def make(self, name: str, schedule: str = "*/5 * * * *", **spec: Any) -> None:
        body = {
            "metadata": {"name": name},
            "spec": {"schedule": schedule, "jobTemplate": {"spec": JOB}, **spec},
        }
        await self.client.create(batch.CRON_JOB.untyped, body, self.namespace)
        await self.seen(lambda: self.cron(name) is not None)

    def cron(self, name: str) -> batch.CronJob:
        return self.caches.cron_jobs.get(f"{self.namespace}/{name}")  # type: ignore[return-value]

    def at(self, name: str, clock: str) -> float:
        hours, minutes = clock.split(":")
        created = instant(self.cron(name).metadata.creation_timestamp)
        return created // 300 * 300 + (int(hours) - 10) * 3600 + int(minutes) * 60

    async def seen(self, what: Any) -> None:
        for _ in range(int(PATIENCE / 0.01)):
            if what():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the caches do not show it")

    async def reconcile(self, name: str, when: float | str) -> float | None:
        """One look; gives when the next is wanted, less the tenth of a second that it is put off."""
        self.now = self.at(name, when) if isinstance(when, str) else when
        self.said = []
        again = await self.controller.reconcile(f"{self.namespace}/{name}")
        fresh = await self.client.get(batch.CRON_JOB, name, self.namespace)
        jobs = {
            job["metadata"]["uid"]
            for job in (await self.client.list(batch.JOB.untyped, self.namespace)).items
        }
        await self.seen(
            lambda: (
                self.cron(name).metadata.resource_version == fresh.metadata.resource_version
                and {
                    job.metadata.uid
                    for job in self.caches.jobs
                    if job.metadata.namespace == self.namespace
                }
                == jobs
            )
        )
        return None if again is None else round(again - 0.1, 3)

    def jobs(self, name: str) -> list[batch.Job]:
        owner = self.cron(name).metadata.uid
        found = [
            job
            for job in self.caches.jobs
            if any(each.uid == owner for each in job.metadata.owner_references)
        ]
        return sorted(found, key=lambda job: job.metadata.name)

    def active(self, name: str) -> list[str]:
        return [entry.name for entry in self.cron(name).status.active]

    async def end(self, job: str, phase: str = "Completed") -> None:
        status = {"status": {"state": {"phase": phase, "lastTransitionTime": stamp(self.now)}}}
        await self.client.patch(batch.JOB, job, status, self.namespace, subresource="status")
        key = f"{self.namespace}/{job}"
        await self.seen(
            lambda: (
                (found := self.caches.jobs.get(key)) is not None
                and found.status.state.phase == phase
            )
        )

    async def status(self, name: str, **fields: Any) -> None:
        fresh = await self.client.patch(
            batch.CRON_JOB, name, {"status": fields}, self.namespace, subresource="status"
        )
        await self.seen(
            lambda: self.cron(name).metadata.resource_version == fresh.metadata.resource_version
        )


@pytest.fixture
async def clockwork(shared_apiserver: ApiServerProcess) -> AsyncIterator[Clockwork]:
    async with Deaf(load(str(shared_apiserver.internal_kubeconfig)), pool=8) as client:
        await install(client)
        made = Clockwork(client)
        for cache in (made.caches.cron_jobs, made.caches.jobs):
            await cache.start()
            await cache.synced()
        yield made
        for cache in (made.caches.cron_jobs, made.caches.jobs):
            await cache.stop()


@pytest.mark.scenario("controllers", 112)
@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
async def test_a_first_run(clockwork: Clockwork, policy: str) -> None:
    name = f"first-{policy.lower()}"
    await clockwork.make(name, concurrencyPolicy=policy)
    assert await clockwork.reconcile(
        name, clockwork.at(name, "10:05") - 1
    ) == 1 and not clockwork.jobs(name)
    assert await clockwork.reconcile(name, "10:05") == 300
    assert len(clockwork.jobs(name)) == len(clockwork.active(name)) == 1
    assert instant(clockwork.cron(name).status.last_schedule_time) == clockwork.at(name, "10:05")
    assert (
        await clockwork.reconcile(name, "10:06") == 240
        and len(clockwork.jobs(name)) == 1
        and not clockwork.said
    )


@pytest.mark.scenario("controllers", 111)
async def test_what_cannot_be_read(clockwork: Clockwork) -> None:
    await clockwork.make("odd", "nonsense")
    with pytest.raises(ScheduleError):
        await clockwork.reconcile("odd", "10:05")
    assert clockwork.said == []
    await clockwork.make("nowhere", timeZone="Atlantis/Centre")
    with pytest.raises(ScheduleError):
        await clockwork.reconcile("nowhere", "10:05")
    assert clockwork.said == ["InvalidTimeZone"]
    await clockwork.make("still", suspend=True)
    assert await clockwork.reconcile("still", "10:05") is None and not clockwork.jobs("still")


@pytest.mark.scenario("controllers", 114)
async def test_a_zone_within_the_schedule_wins_and_is_warned_of(clockwork: Clockwork) -> None:
    await clockwork.make("zoned", "TZ=UTC 0 20 * * *", timeZone="Pacific/Honolulu")
    created = datetime.fromtimestamp(
        instant(clockwork.cron("zoned").metadata.creation_timestamp), UTC
    )
    evening = created.replace(hour=20, minute=0, second=0).timestamp()
    assert (
        await clockwork.reconcile(
            "zoned", evening if evening > created.timestamp() else evening + DAY
        )
        == DAY
    )
    assert (
        clockwork.said == ["UnsupportedSchedule", "SuccessfulCreate"]
        and len(clockwork.jobs("zoned")) == 1
    )


@pytest.mark.scenario("controllers", 116)
async def test_one_run_stands_for_all_that_were_missed(clockwork: Clockwork) -> None:
    await clockwork.make("late")
    assert await clockwork.reconcile("late", "20:00") == 300
    assert (
        clockwork.said == ["TooManyMissedTimes", "SuccessfulCreate"]
        and len(clockwork.jobs("late")) == 1
    )


@pytest.mark.scenario("controllers", 117)
async def test_a_job_of_that_name_is_there(clockwork: Clockwork) -> None:
    for name, phase, owned, said in (
        ("mine", "Completed", True, []),
        ("foreign", "Running", False, ["ForeignJob"]),
    ):
        await clockwork.make(name)
        job = f"{name}-{int(clockwork.at(name, '10:05')) // 60}"
        cron = clockwork.cron(name)
        uid = cron.metadata.uid if owned else "other"
        owner = {
            "apiVersion": cron.api_version,
            "kind": cron.kind,
            "name": name,
            "uid": uid,
            "controller": True,
        }
        await clockwork.client.create(
            batch.JOB.untyped,
            {"metadata": {"name": job, "ownerReferences": [owner]}, "spec": JOB},
            "default",
        )
        await clockwork.end(job, phase)
        assert await clockwork.reconcile(name, "10:05") == 300
        assert clockwork.said == said and clockwork.active(name) == []
    await clockwork.make("running")
    await clockwork.reconcile("running", "10:05")
    await clockwork.status("running", lastScheduleTime=None)
    assert await clockwork.reconcile("running", "10:05") == 300
    assert clockwork.said == [] and len(clockwork.active("running")) == 1


@pytest.mark.scenario("controllers", 118)
async def test_a_job_on_the_list_that_is_gone(clockwork: Clockwork) -> None:
    await clockwork.make("stale")
    await clockwork.status(
        "stale", active=[{"kind": "Job", "name": "stale-1", "namespace": "default", "uid": "gone"}]
    )
    await clockwork.reconcile("stale", "10:05")
    assert (
        clockwork.said == ["StaleReference", "SuccessfulCreate"]
        and len(clockwork.active("stale")) == 1
    )


@pytest.mark.scenario("controllers", 119)
async def test_a_namespace_on_its_way_out(clockwork: Clockwork) -> None:
    clockwork.namespace = "leaving"
    await clockwork.client.create(core.NAMESPACE.untyped, {"metadata": {"name": "leaving"}})
    await clockwork.make("c")
    await clockwork.client.delete(core.NAMESPACE, "leaving")
    with pytest.raises(ApiError):
        await clockwork.reconcile("c", "10:05")
    assert clockwork.said == ["NamespaceTerminating"]


@pytest.mark.scenario("controllers", 121)
@pytest.mark.scenario("controllers", 133)
@pytest.mark.parametrize(
    ("phase", "limit"),
    [("Completed", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")],
)
async def test_how_many_that_ended_are_kept(clockwork: Clockwork, phase: str, limit: str) -> None:
    name = f"history-{phase.lower()}"
    await clockwork.make(name, **{limit: 1})
    for clock in ("10:05", "10:10", "10:15"):
        await clockwork.reconcile(name, clock)
        await clockwork.end(clockwork.active(name)[0], phase)
    await clockwork.reconcile(name, "10:16")
    assert (
        clockwork.said == ["SawCompletedJob", "SuccessfulDelete"] and clockwork.active(name) == []
    )
    await clockwork.reconcile(name, "10:17")
    assert [job.status.state.phase for job in clockwork.jobs(name)] == [phase]
    if phase == "Completed":
        assert instant(clockwork.cron(name).status.last_successful_time) == clockwork.at(
            name, "10:15"
        )


@pytest.mark.scenario("controllers", 122)
@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
async def test_a_job_that_has_ended_makes_room(clockwork: Clockwork, policy: str) -> None:
    name = f"room-{policy.lower()}"
    await clockwork.make(name, concurrencyPolicy=policy)
    await clockwork.reconcile(name, "10:05")
    (first,) = clockwork.active(name)
    await clockwork.end(first)
    await clockwork.reconcile(name, "10:06")
    assert clockwork.said == ["SawCompletedJob"] and clockwork.active(name) == []
    await clockwork.reconcile(name, "10:10")
    (second,) = clockwork.active(name)
    await clockwork.end(second)
    await clockwork.reconcile(name, "10:15")
    assert (
        clockwork.said == ["SawCompletedJob", "SuccessfulCreate"]
        and len(clockwork.active(name)) == 1
    )


@pytest.mark.scenario("controllers", 123)
@pytest.mark.parametrize(
    ("policy", "active", "said"),
    [("Allow", 2, ["SuccessfulCreate"]), ("Forbid", 1, ["ForbidConcurrent"]),
     ("Replace", 1, ["ReplaceConcurrent", "SuccessfulDelete", "SuccessfulCreate"])],
)  # fmt: skip
async def test_while_a_job_still_runs(
    clockwork: Clockwork, policy: str, active: int, said: list[str]
) -> None:
    name = f"busy-{policy.lower()}"
    await clockwork.make(name, concurrencyPolicy=policy)
    await clockwork.reconcile(name, "10:05")
    (first,) = clockwork.active(name)
    assert await clockwork.reconcile(name, "10:10") == 300
    assert clockwork.said == said and len(clockwork.active(name)) == active
    expected = "10:05" if policy == "Forbid" else "10:10"
    assert instant(clockwork.cron(name).status.last_schedule_time) == clockwork.at(name, expected)
    assert (first in [job.metadata.name for job in clockwork.jobs(name)]) is (policy != "Replace")


@pytest.mark.scenario("controllers", 123)
async def test_suspended_deaf_and_late(clockwork: Clockwork) -> None:
    await clockwork.make("halted", suspend=False)
    await clockwork.reconcile("halted", "10:05")
    fresh = await clockwork.client.patch(
        batch.CRON_JOB, "halted", {"spec": {"suspend": True}}, "default"
    )
    await clockwork.seen(
        lambda: (
            clockwork.cron("halted").metadata.resource_version == fresh.metadata.resource_version
        )
    )
    assert (
        await clockwork.reconcile("halted", "10:10") is None
        and clockwork.said == []
        and len(clockwork.active("halted")) == 1
    )

    await clockwork.make("deaf", concurrencyPolicy="Replace")
    await clockwork.reconcile("deaf", "10:05")
    clockwork.client.deaf = True
    with pytest.raises(ApiError):
        await clockwork.reconcile("deaf", "10:10")
    clockwork.client.deaf = False
    assert (
        clockwork.said == ["ReplaceConcurrent", "FailedGet"] and len(clockwork.active("deaf")) == 1
    )

    await clockwork.make("missed", startingDeadlineSeconds=60)
    await clockwork.reconcile("missed", "10:05")
    assert (
        await clockwork.reconcile("missed", "10:12") == 180 and len(clockwork.active("missed")) == 1
    )


@pytest.mark.scenario("controllers", 125)
async def test_whose_job_it_is(clockwork: Clockwork) -> None:
    await clockwork.make("owner")
    cron = clockwork.cron("owner")
    right = {
        "apiVersion": cron.api_version,
        "kind": "CronJob",
        "name": "owner",
        "uid": cron.metadata.uid,
        "controller": True,
    }
    for at, wrong in enumerate(({"kind": "JobFlow"}, {"uid": "other"}, {"controller": False})):
        body = {
            "metadata": {"name": f"stray-{at}", "ownerReferences": [{**right, **wrong}]},
            "spec": JOB,
        }
        await clockwork.client.create(batch.JOB.untyped, body, "default")
    await clockwork.client.create(core.NAMESPACE.untyped, {"metadata": {"name": "elsewhere"}})
    body = {"metadata": {"name": "owner-1", "ownerReferences": [right]}, "spec": JOB}
    await clockwork.client.create(batch.JOB.untyped, body, "elsewhere")
    await clockwork.reconcile("owner", "10:01")
    assert clockwork.said == [] and clockwork.active("owner") == []


@pytest.mark.scenario("controllers", 129)
@pytest.mark.scenario("controllers", 131)
@pytest.mark.scenario("controllers", 132)
@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
async def test_five_minutes_of_every_minute(clockwork: Clockwork, policy: str) -> None:
    name = f"minutes-{policy.lower()}"
    body = {
        "metadata": {"name": name, "creationTimestamp": stamp(0)},
        "spec": {
            "schedule": "* * * * *",
            "concurrencyPolicy": policy,
            "jobTemplate": {"spec": JOB},
        },
    }
    await clockwork.client.create(batch.CRON_JOB.untyped, body, "default")
    await clockwork.seen(lambda: clockwork.cron(name) is not None)
    begin = instant(clockwork.cron(name).metadata.creation_timestamp) // 60 * 60
    ever: list[str] = []
    for minute in range(1, 6):
        for second in (0, 30):
            await clockwork.reconcile(name, begin + 60 * minute + second)
            ever += [each for each in clockwork.active(name) if each not in ever]
            assert len(clockwork.active(name)) == (minute if policy == "Allow" else 1)
            assert sorted(clockwork.active(name)) == [
                job.metadata.name for job in clockwork.jobs(name)
            ]
    assert len(ever) == (1 if policy == "Forbid" else 5)
    text = clockwork.jobs(name)[0].metadata.annotations[names.CRON_JOB_SCHEDULED_TIMESTAMP]
    assert datetime.fromisoformat(text).second == 0


@pytest.mark.parametrize(
    ("day", "local"),
    [
        ("2027-03-28", []),
        ("2027-10-31", ["02:30:00+02:00", "02:30:00+01:00"]),
        ("2027-06-01", ["02:30:00+02:00"]),
    ],
)
async def test_the_night_in_which_the_clocks_change(
    clockwork: Clockwork, day: str, local: list[str]
) -> None:
    """02:30 in Berlin does not come on the last Sunday of March, and comes twice on that of
    October."""
    name = f"night-{day}"
    await clockwork.make(name, "30 2 * * *", timeZone="Europe/Berlin")
    midnight = datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()
    await clockwork.status(name, lastScheduleTime=stamp(midnight - 3600))
    for half_hours in range(10):
        await clockwork.reconcile(name, midnight + 1800 * half_hours)
    stamps = sorted(
        job.metadata.annotations[names.CRON_JOB_SCHEDULED_TIMESTAMP] for job in clockwork.jobs(name)
    )
    assert sorted(stamps) == sorted(f"{day}T{each}" for each in local)
