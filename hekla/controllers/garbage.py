"""Deletes finished jobs when their time to live is over (reference: controllers 9).

Where all pods of a job have ended, they are deleted first and the job after them, so that it leaves
nothing to do for the cluster's own garbage collector: a job of one pod is three requests instead of
nine (decision 0202).
"""

from __future__ import annotations

import asyncio
import time

from hekla.api import batch
from hekla.api.meta import key as key_of
from hekla.api.meta import split_key
from hekla.api.text.times import instant
from hekla.controllers.caches import EXPIRY, JOB_INDEX, Caches, concerns
from hekla.controllers.records import POD, Pod
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, NotFound

TOGETHER = 16
"""Pods of a job that are deleted at the same time."""
ENDED = ("Succeeded", "Failed")


def needs_cleanup(job: batch.Job) -> bool:
    """Whether the job has finished and has a time to live.  An aborted job can be resumed and never
    expires."""
    return (
        job.spec.ttl_seconds_after_finished is not None and job.status.state.phase in batch.FINISHED
    )


def seconds_left(job: batch.Job, now: float) -> float:
    """Seconds until the job may be deleted; 0 or less when it may be now.  Raises ValueError for a
    job that is not to be cleaned up."""
    name = f"{job.metadata.namespace}/{job.metadata.name}"
    if not needs_cleanup(job):
        raise ValueError(f"job {name} should not be cleaned up")
    finished = instant(job.status.state.last_transition_time)
    if not finished:
        raise ValueError(f"unable to find the time when the Job {name} finished")
    return finished + (job.spec.ttl_seconds_after_finished or 0) - now


class GarbageCollector(Controller):
    """Reconciles a finished job, and again when its time is over."""

    name = "gc-controller"

    def __init__(self, client: Client, caches: Caches) -> None:
        super().__init__(caches.jobs)
        self._client = client
        self._jobs = caches.jobs
        self._pods = caches.pods
        self.enqueue(
            caches.jobs,
            lambda job: key_of(job) if needs_cleanup(job) else None,
            of=(concerns, [EXPIRY]),
        )

    async def reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or not needs_cleanup(job):
            return None
        left = seconds_left(job, time.time())
        if left > 0:
            return left
        namespace, name = split_key(key)
        try:
            # The cache may be late: whoever resumed the job or gave it more time has changed it on
            # the server.
            job = await self._client.get(batch.JOB, name, namespace)
            if job.metadata.deletion_timestamp or not needs_cleanup(job):
                return None
            left = seconds_left(job, time.time())
            if left > 0:
                return left
            pods = [
                pod for pod in self._pods.by(JOB_INDEX, key) if pod.owner_uid == job.metadata.uid
            ]
            ended = all(pod.status.phase in ENDED and not pod.leaving for pod in pods)
            if ended:
                await self._delete(pods)
            await self._client.delete(
                batch.JOB,
                name,
                namespace,
                propagation="Background" if ended else "Foreground",
                uid=job.metadata.uid,
            )
        except (NotFound, Conflict):
            pass
        return None

    async def _delete(self, pods: list[Pod]) -> None:
        left = iter(pods)

        async def worker() -> None:
            for pod in left:
                meta = pod.metadata
                try:
                    await self._client.delete(POD, meta.name, meta.namespace, uid=meta.uid)
                except (NotFound, Conflict):
                    pass  # gone, or another pod by that name

        await asyncio.gather(*(worker() for _ in range(min(TOGETHER, len(pods)))))
