"""Cron jobs against a real API server, on intervals of a second."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hekla.api import batch
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, a_task, running

__all__ = ["shared_apiserver"]


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        yield made


async def cron(cluster: Cluster, name: str, **spec: Any) -> None:
    job = {
        "schedulerName": "volcano",
        "queue": "default",
        "minAvailable": 1,
        "maxRetry": 3,
        "tasks": [a_task("t")],
    }
    spec = {
        "schedule": "@every 1s",
        "concurrencyPolicy": "Allow",
        "jobTemplate": {"spec": job},
        **spec,
    }
    await cluster.client.create(
        batch.CRON_JOB.untyped, {"metadata": {"name": name}, "spec": spec}, "default"
    )


def jobs(cluster: Cluster, name: str) -> list[batch.Job]:
    found = [
        job
        for job in cluster.jobs
        if (owner := job.metadata.controller()) is not None and owner.name == name
    ]
    return sorted(found, key=lambda job: job.metadata.name)


async def stop(cluster: Cluster, name: str) -> batch.CronJob:
    await cluster.client.patch(batch.CRON_JOB, name, {"spec": {"suspend": True}}, "default")
    return await cluster.client.get(batch.CRON_JOB, name, "default")


@pytest.mark.scenario("controllers", 118)
async def test_one_job_a_minute_of_schedule_time(cluster: Cluster) -> None:
    # Jobs are named by the minute, so an interval of a second gives one job a minute and never a
    # second one.
    began = int(time.time()) // 60
    await cron(cluster, "tick")
    made, *_ = await cluster.until(lambda: jobs(cluster, "tick"))
    assert "volcano.sh/cronjob-scheduled-timestamp" in made.metadata.annotations
    await cluster.phase(made.metadata.name, "Running")

    async def stands(what: Callable[[batch.CronJobStatus], bool]) -> None:
        for _ in range(1200):
            state = (await cluster.client.get(batch.CRON_JOB, "tick", "default")).status
            if what(state):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(state)

    def active(state: batch.CronJobStatus) -> bool:
        return made.metadata.name in [entry.name for entry in state.active]

    await stands(lambda state: active(state) and bool(state.last_schedule_time))
    await cluster.succeed(f"{made.metadata.name}-t-0")
    await stands(lambda state: not active(state) and bool(state.last_successful_time))
    minutes = range(began, int(time.time()) // 60 + 1)
    assert {job.metadata.name for job in jobs(cluster, "tick")} <= {
        f"tick-{minute}" for minute in minutes
    }
    await stop(cluster, "tick")


@pytest.mark.scenario("controllers", 130)
async def test_a_suspended_clock_makes_nothing(cluster: Cluster) -> None:
    await cron(cluster, "still", suspend=True)
    await cron(cluster, "odd", schedule="* * * *")
    await asyncio.sleep(1.5)
    assert not jobs(cluster, "still") and not jobs(cluster, "odd")
    await cluster.client.patch(batch.CRON_JOB, "still", {"spec": {"suspend": False}}, "default")
    await cluster.until(lambda: jobs(cluster, "still"))
    await stop(cluster, "still")
