"""Carries out the plan of a Job: pods first, then the status, then the finalizers of what the
status has counted.

Reference: local-cluster 10.6.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from hekla.api.kubernetes import core
from hekla.api.kubernetes.batch import JOB
from hekla.api.names import JOB_COMPLETION_INDEX
from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import deleting, key_of
from hekla.local.controller_manager.pods import HOLDER, Pod
from hekla.local.controller_manager.workloads.job.indexes import (
    FAILURES,
    IGNORED_FAILURES,
    failures_of,
    ignored_failures_of,
    with_variable,
)
from hekla.local.controller_manager.workloads.job.plan import (
    TRACKING,
    Plan,
    finished,
    plan,
    tracked,
)
from hekla.local.controller_manager.workloads.job.policies import Action, judge
from hekla.local.controller_manager.workloads.pod_control import LONGEST_PREFIX, PodControl

KIND = JOB.untyped
OURS = "kubernetes.io/job-controller"
RETRY = 1.0
ORPHAN = "left over "
"""Prefix of the keys of pods that still carry the finalizer although no job counts them any more.
"""


class JobController(Controller):
    """Reconciles a Job and its pods."""

    name = "job"
    workers = 5

    def __init__(
        self, client: Client, jobs: Cache[Json], pods: Cache[Pod], recorder: Recorder
    ) -> None:
        super().__init__(jobs, pods)
        self.client = client
        self.jobs = jobs
        self.pods = pods
        self.recorder = recorder
        self.written: dict[str, int] = {}
        """By key, the resourceVersion of a status that was written and not seen yet: by an older
        one, ended pods would be forgotten."""
        self.pod_control = PodControl(
            KIND, client, jobs, pods, recorder, self.queue.add, finalizers=[TRACKING]
        )
        self.enqueue(jobs)
        jobs.on_change(self.queue_orphans)
        pods.on_change(self.queue_orphan)

    async def reconcile(self, key: str) -> float | None:
        if key.startswith(ORPHAN):
            await self.release_orphan(key.removeprefix(ORPHAN))
            return None
        job = self.jobs.get(key)
        if job is None:
            self.pod_control.expectations.forget(key)
            self.written.pop(key, None)
            return None
        if job["spec"].get("managedBy") not in (None, "", OURS):
            return None
        if finished(job) is not None:
            await self.release([pod for pod in self.pod_control.of(job) if tracked(pod)])
            return await self.expire(job)
        version = int(job["metadata"]["resourceVersion"])
        if version < self.written.get(key, 0):
            return None  # the event of the written status queues the next reconcile
        self.written.pop(key, None)
        pods = await self.pod_control.claim(job)
        may_scale = not deleting(job) and self.pod_control.expectations.satisfied(key)
        steps = plan(job, pods, time.time(), may_scale=may_scale)
        if not await self.scale(key, job, steps):
            steps.wait = RETRY
        await self.write_status(key, job, steps)
        await self.release(steps.release)
        return steps.wait

    async def scale(self, key: str, job: Json, steps: Plan) -> bool:
        """Create and delete pods.  False where not all could be created."""
        await self.pod_control.delete(key, job, steps.delete)
        error = await self.pod_control.create(
            key, job, [self.body(job, index, steps.replaced) for index in steps.create]
        )
        return error is None

    def body(self, job: Json, index: int | None, replaced: dict[int, Pod]) -> Json:
        """One pod; one of an indexed job is told its index in every way that a program may ask."""
        template = job["spec"]["template"]
        body = self.pod_control.body(job, template)
        if index is None:
            return body
        meta, name = body["metadata"], job["metadata"]["name"]
        notes = {JOB_COMPLETION_INDEX: str(index)}
        if job["spec"].get("backoffLimitPerIndex") is not None:
            notes |= failure_notes(job, replaced.get(index))
        meta["annotations"] = {**meta.get("annotations", {}), **notes}
        meta["labels"] = {**meta.get("labels", {}), JOB_COMPLETION_INDEX: str(index)}
        ending = f"-{index}-"
        meta["generateName"] = f"{name[: LONGEST_PREFIX - len(ending)]}{ending}"
        body["spec"] = {**with_variable(body["spec"]), "hostname": f"{name}-{index}"}
        return body

    async def write_status(self, key: str, job: Json, steps: Plan) -> None:
        """Raises Conflict when the Job has changed: what was counted from it must not be written
        over what was."""
        if steps.status == job.get("status"):
            return
        try:
            fresh = await self.client.update_status(KIND, {**job, "status": steps.status})
        except NotFound:
            return
        self.written[key] = int(fresh["metadata"]["resourceVersion"])
        for kind, reason, message in steps.events:
            self.recorder.event(job, "Normal" if kind == "Normal" else "Warning", reason, message)

    async def release(self, pods: list[Pod]) -> None:
        """Remove the finalizer from pods that are counted."""
        await asyncio.gather(*map(self.release_one, pods))

    async def release_one(self, pod: Pod) -> None:
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}}
        with suppress(NotFound, Conflict):
            await self.client.patch(core.POD, meta.name, patch, meta.namespace, type="strategic")

    async def expire(self, job: Json) -> float | None:
        """Delete a finished Job when its time to live is over.  Gives the seconds until then."""
        limit, end = job["spec"].get("ttlSecondsAfterFinished"), finished(job)
        if limit is None or end is None or deleting(job):
            return None
        left = instant(end["lastTransitionTime"]) + float(limit) - time.time()
        if left > 0:
            return left
        meta = job["metadata"]
        precise = {"uid": meta["uid"], "resource_version": meta["resourceVersion"]}
        with suppress(NotFound):
            await self.client.delete(
                JOB, meta["name"], meta["namespace"], propagation="Foreground", **precise
            )
        return None

    # pods that no job counts any more

    def queue_orphans(self, old: Json | None, new: Json | None) -> None:
        """Queue the pods of a deleted Job, so that they lose their finalizer."""
        if old is not None and new is None:
            for pod in self.pods.by(HOLDER, old["metadata"]["uid"]):
                if tracked(pod):
                    self.queue.add(ORPHAN + pod.key)

    def queue_orphan(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.metadata.finalizers and tracked(new):
            key = self.pod_control.key_of_owner(new)
            if key is None or key not in self.jobs:
                self.queue.add(ORPHAN + new.key)

    async def release_orphan(self, key: str) -> None:
        """Remove the finalizer from a pod, unless the Job of its reference exists after all."""
        pod = self.pods.get(key)
        if pod is None or not tracked(pod):
            return
        owner = pod.controller()
        if owner is not None and owner.kind == JOB.kind and owner.api_version == JOB.api_version:
            try:
                job = await self.client.get(KIND, owner.name, pod.metadata.namespace)
            except NotFound:
                pass
            else:
                if job["metadata"]["uid"] == owner.uid:
                    self.queue.add(key_of(job))
                    return
        await self.release_one(pod)


def failure_notes(job: Json, before: Pod | None) -> dict[str, str]:
    """The annotations that note how often an index has failed, for its next pod."""
    if before is None:
        return {FAILURES: "0"}
    failures, ignored = failures_of(before), ignored_failures_of(before)
    if before.status.phase == "Failed" and judge(job, before).action is Action.IGNORE:
        return {FAILURES: str(failures), IGNORED_FAILURES: str(ignored + 1)}
    return {FAILURES: str(failures + 1), **({IGNORED_FAILURES: str(ignored)} if ignored else {})}
