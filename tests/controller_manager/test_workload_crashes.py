"""The controllers are killed at any point, again and again: afterwards everything is as if they had
not been."""

from __future__ import annotations

import asyncio
import random

from hekla.api.kubernetes.apps import DEPLOYMENT, REPLICA_SET, STATEFUL_SET
from hekla.api.kubernetes.batch import JOB
from hekla.kube.errors import ApiError
from tests.controller_manager.cluster import (
    client,
    controllers,
    eventually,
    kubelet,
    namespace,
    server,
    workload,
)
from tests.controller_manager.test_jobs import job

__all__ = ["client", "controllers", "kubelet", "namespace", "server"]

KILLS = 6


async def live(kubelet):
    """Every pod becomes ready; those of jobs then succeed."""
    while True:
        for name, pod in (await kubelet.pods()).items():
            phase = pod["status"]["phase"]
            try:
                if phase == "Pending":
                    await kubelet.ready(name)
                elif phase == "Running" and "job-name" in pod["metadata"]["labels"]:
                    await kubelet.report(name, "Succeeded", code=0)
            except ApiError:
                continue  # it has just been removed
        await asyncio.sleep(0.02)


async def test_what_was_begun_is_finished_once(client, namespace, kubelet, controllers):
    luck = random.Random(5)
    life = asyncio.create_task(live(kubelet))
    await client.create(JOB.untyped, job("count", completions=24, parallelism=3), namespace)
    await client.create(DEPLOYMENT.untyped, workload("web", replicas=4), namespace)
    await client.create(
        STATEFUL_SET.untyped, workload("db", replicas=3, serviceName="db"), namespace
    )
    for turn in range(KILLS):
        await asyncio.sleep(luck.uniform(0.3, 0.9))
        controllers.kill()
        patch = {"spec": {"template": {"metadata": {"annotations": {"turn": str(turn)}}}}}
        await client.patch(DEPLOYMENT, "web", patch, namespace)
        await client.patch(STATEFUL_SET, "db", patch, namespace)
        controllers.restart()

    async def settled():
        trees = [
            await client.get(DEPLOYMENT.untyped, "web", namespace),
            await client.get(STATEFUL_SET.untyped, "db", namespace),
        ]
        web, db = (tree.get("status", {}) for tree in trees)
        if any(
            tree["metadata"]["generation"] != tree.get("status", {}).get("observedGeneration")
            for tree in trees
        ):
            return False
        count = (await client.get(JOB.untyped, "count", namespace)).get("status", {})
        return (
            [web.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")]
            == [4, 4, 4]
            and [db.get(name) for name in ("replicas", "updatedReplicas", "readyReplicas")]
            == [3, 3, 3]
            and db["currentRevision"] == db["updateRevision"]
            and any(c["type"] == "Complete" for c in count.get("conditions", ()))
            and count
        )

    status = await eventually(settled)
    life.cancel()
    assert status["succeeded"] == 24 and "failed" not in status
    pods = await kubelet.pods()
    last = str(KILLS - 1)
    assert sum("job-name" in pod["metadata"]["labels"] for pod in pods.values()) == 24
    others = [pod for pod in pods.values() if "job-name" not in pod["metadata"]["labels"]]
    assert len(others) == 7 and all(
        pod["metadata"]["annotations"]["turn"] == last for pod in others
    )
    sets = (await client.list(REPLICA_SET.untyped, namespace)).items
    assert sorted(tree["spec"]["replicas"] for tree in sets)[-2:] == [0, 4]
