"""Controllers and API server that die at the worst moments: every job ends as it would have."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from hekla.api import batch
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import ApiError, ServerError
from hekla.kube.http.client import TransportError
from tests.apiserver_process import ApiServerProcess
from tests.controllers.cluster import Cluster, a_task, controllers, install, on

JOBS, PODS = 20, 5


class FlakyClient(Client):
    """Loses one write in ten: half of them before they reach the server, half of the answers."""

    chance = random.Random(5)

    async def _send(self, method: str, *arguments: Any, **more: Any) -> Any:
        draw = self.chance.random() if method != "GET" else 1.0
        if draw < 0.05:
            raise ServerError(500, "InternalError", "the test server is having a moment")
        answer = await super()._send(method, *arguments, **more)
        if draw < 0.1:
            raise TransportError("the answer was lost", sent=True)
        return answer


async def end_all(cluster: Cluster) -> None:
    """Let every pod that runs succeed, until every job has completed."""

    def unfinished() -> list[batch.Job]:
        return [job for job in cluster.jobs if job.status.state.phase != "Completed"]

    for _ in range(1200):
        if not unfinished():
            return
        for pod in cluster.pods:
            if pod.get("status", {}).get("phase") in ("Pending", "Running") and not pod[
                "metadata"
            ].get("deletionTimestamp"):
                try:
                    await cluster.succeed(pod["metadata"]["name"])
                except (ApiError, TransportError):
                    pass
        await asyncio.sleep(0.05)
    raise AssertionError(
        {
            job.metadata.name: (job.status.state.phase, cluster.phases[job.metadata.name])
            for job in unfinished()
        }
    )


async def check_books(cluster: Cluster) -> None:
    """The counts of every job are those of its pods."""

    def wrong() -> list[str]:
        found = []
        for job in cluster.jobs:
            pods = [
                pod
                for pod in cluster.pods
                if pod["metadata"]["labels"]["volcano.sh/job-name"] == job.metadata.name
            ]
            status = job.status
            right = (
                status.succeeded == len(pods) == PODS
                and status.running == status.pending == status.terminating == 0
            )
            if not right:
                found.append(f"{job.metadata.name}: {status} against {len(pods)} pods")
        return found

    await cluster.until(lambda: not wrong(), lambda: "\n".join(wrong()))


async def test_the_controllers_die_again_and_again(tmp_path: Path) -> None:
    chance = random.Random(7)
    with ApiServerProcess.started(tmp_path) as server:
        async with Client(load(str(server.internal_kubeconfig)), pool=32) as client:
            await install(client)
            cluster = Cluster(client)
            await cluster.start()
            for number in range(JOBS):
                plugins = {"svc": []} if number % 4 == 0 else {}
                policies = [on("PodFailed", "RestartJob" if number % 2 else "RestartPod")]
                await cluster.job(
                    f"j{number}",
                    a_task("a", PODS),
                    policies=policies,
                    maxRetry=100,
                    plugins=plugins,
                )
            for _ in range(10):
                async with controllers(server):
                    await asyncio.sleep(chance.uniform(0.02, 0.4))
                    running = [
                        p["metadata"]["name"]
                        for p in cluster.pods
                        if p.get("status", {}).get("phase") == "Running"
                    ]
                    for name in chance.sample(running, min(3, len(running))):
                        try:
                            await cluster.fail(name)
                        except ApiError:
                            pass
                    await asyncio.sleep(chance.uniform(0.0, 0.1))
            async with controllers(server):
                await end_all(cluster)
                await check_books(cluster)
            await cluster.stop()


async def test_every_tenth_write_goes_wrong(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        async with Client(load(str(server.internal_kubeconfig)), pool=32) as client:
            await install(client)
            cluster = Cluster(client)
            await cluster.start()
            async with controllers(server, speak=FlakyClient):
                for number in range(JOBS):
                    plugins = {"svc": []} if number % 4 == 0 else {}
                    policies = [on("PodFailed", "RestartJob")]
                    await cluster.job(
                        f"j{number}",
                        a_task("a", PODS),
                        policies=policies,
                        maxRetry=100,
                        plugins=plugins,
                    )
                for number in range(0, JOBS, 5):
                    await cluster.phase(f"j{number}", "Running")
                    await cluster.fail(f"j{number}-a-0")
                    await cluster.went(f"j{number}", "Running", "Restarting", "Running")
                await end_all(cluster)
                await check_books(cluster)
            await cluster.stop()


@pytest.mark.slow
async def test_the_api_server_is_killed(tmp_path: Path) -> None:
    chance = random.Random(11)
    with ApiServerProcess.started(tmp_path) as server:
        async with Client(load(str(server.internal_kubeconfig)), pool=32) as client:
            await install(client)
            cluster = Cluster(client)
            await cluster.start()
            async with controllers(server):
                for number in range(JOBS):
                    await cluster.job(
                        f"j{number}",
                        a_task("a", PODS),
                        policies=[on("PodFailed", "RestartJob")],
                        maxRetry=100,
                    )
                for _ in range(4):
                    await asyncio.sleep(chance.uniform(0.0, 0.3))
                    await asyncio.to_thread(server.restart, kill=True)
                await asyncio.sleep(1)
                await cluster.release()
                await end_all(cluster)
                await check_books(cluster)
            await cluster.stop()
