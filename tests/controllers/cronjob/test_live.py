"""Cron jobs against a real API server, on intervals of a second."""

import asyncio
from collections.abc import AsyncIterator
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
    job = {"schedulerName": "volcano", "queue": "default", "minAvailable": 1, "maxRetry": 3, "tasks": [a_task("t")]}
    spec = {"schedule": "@every 1s", "concurrencyPolicy": "Allow", "jobTemplate": {"spec": job}, **spec}
    await cluster.client.create(batch.CRON_JOB.untyped, {"metadata": {"name": name}, "spec": spec}, "default")


def jobs(cluster: Cluster, name: str) -> list[batch.Job]:
    found = [job for job in cluster.jobs if (owner := job.metadata.controller()) is not None and owner.name == name]
    return sorted(found, key=lambda job: job.metadata.name)


async def stop(cluster: Cluster, name: str) -> batch.CronJob:
    await cluster.client.patch(batch.CRON_JOB, name, {"spec": {"suspend": True}}, "default")
    return await cluster.client.get(batch.CRON_JOB, name, "default")


@pytest.mark.scenario("controllers", 118)
async def test_one_job_a_minute_of_schedule_time(cluster: Cluster) -> None:
    # Jobs are named by the minute, so an interval of a second gives one job a minute and never a second one.
    await cron(cluster, "tick")
    (made,) = await cluster.until(lambda: jobs(cluster, "tick"))
    assert "volcano.sh/cronjob-scheduled-timestamp" in made.metadata.annotations
    await cluster.phase(made.metadata.name, "Running")
    state = await cluster.client.get(batch.CRON_JOB, "tick", "default")
    assert [entry.name for entry in state.status.active] == [made.metadata.name] and state.status.last_schedule_time
    await cluster.succeed(f"{made.metadata.name}-t-0")
    for _ in range(400):
        state = await cluster.client.get(batch.CRON_JOB, "tick", "default")
        if state.status.last_successful_time and not state.status.active:
            break
        await asyncio.sleep(0.05)
    assert state.status.last_successful_time and not state.status.active
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
