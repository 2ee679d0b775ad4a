"""Creates and deletes the pods of a job, many at a time, and notes what the watch has still to
show."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from hekla.api import batch, names
from hekla.api.text.times import instant
from hekla.controllers.events import Events
from hekla.controllers.job import metrics
from hekla.controllers.job.errors import TRANSIENT, RequeueAfter, SyncError
from hekla.controllers.job.pod_template import BodyTemplate
from hekla.controllers.records import POD, Pod, PodMeta
from hekla.kube.client import Client
from hekla.kube.controller import Expectations
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

IN_FLIGHT = 64
"""Requests for pods of one job at a time."""


@dataclass(slots=True)
class PodControl:
    """The writes to pods of one controller."""

    client: Client
    expectations: Expectations
    events: Events
    clock: Callable[[], float]

    async def create(
        self,
        key: str,
        job: batch.Job,
        templates: Mapping[str, BodyTemplate],
        wanted: Sequence[tuple[batch.TaskSpec, int]],
    ) -> None:
        """Create these pods, many at a time; after the first that is refused no more are tried."""
        if not wanted:
            return
        path = POD.path(job.metadata.namespace)
        since = instant(job.metadata.creation_timestamp)
        ahead = iter(wanted)
        errors: list[Exception] = []

        async def worker() -> None:
            for task, index in ahead:
                if errors:
                    return  # what stopped one pod will stop the next
                name = names.pod_name(job.metadata.name, task.name, index)
                try:
                    with self.expectations.creating(key, f"{job.metadata.namespace}/{name}"):
                        await self.client.request(
                            "POST", path, body=templates[task.name].body(index)
                        )
                    metrics.CREATION.observe(max(0.0, self.clock() - since) * 1000)
                except AlreadyExists:
                    await self._own(job, name, errors)
                except (ApiError, TransportError) as error:
                    errors.append(error)

        await _together(worker, len(wanted))
        self._check(job, errors, "FailedCreate", "creating", len(wanted))

    async def _own(self, job: batch.Job, name: str, errors: list[Exception]) -> None:
        """Handle a pod that already has the name: one of this job is as good as created, another
        one is an error."""
        try:
            pod = await self.client.get(POD, name, job.metadata.namespace)
        except NotFound:
            return  # gone again: the watch will say so
        except (ApiError, TransportError) as error:
            errors.append(error)
            return
        if pod.owner_uid == job.metadata.uid:
            return
        if pod.leaving or pod.job_key == f"{job.metadata.namespace}/{job.metadata.name}":
            errors.append(RequeueAfter(f"pod {name} of an earlier job of this name is still there"))
        else:
            errors.append(SyncError(f"pod {name} exists already and belongs to something else"))

    async def delete(self, key: str, job: batch.Job, pods: list[Pod]) -> None:
        """Mark each pod as deleted by the controller, so that its end is no event, then delete it.

        Both requests name the pod's uid: if this reconcile is late (a leader that was held up),
        there may be another pod by that name.
        """
        if not pods:
            return
        ahead = iter(pods)
        errors: list[Exception] = []

        async def worker() -> None:
            for pod in ahead:
                meta = pod.metadata
                try:
                    if meta.annotations.out_of_sync is None:
                        await self._mark(meta)
                    with self.expectations.deleting(key, meta.uid):
                        await self.client.delete(POD, meta.name, meta.namespace, uid=meta.uid)
                except (NotFound, Conflict):
                    pass  # gone, or another pod by that name
                except (ApiError, TransportError) as error:
                    errors.append(error)

        await _together(worker, len(pods))
        self._check(job, errors, "FailedDelete", "deleting", len(pods))

    async def _mark(self, meta: PodMeta) -> None:
        mark = {"metadata": {"uid": meta.uid, "annotations": {names.OUT_OF_SYNC: "true"}}}
        try:
            await self.client.patch(POD, meta.name, mark, meta.namespace)
        except Invalid as error:  # mostly another uid, which the deletion will say, too
            log.info("%s/%s is not marked: %s", meta.namespace, meta.name, error)

    def _check(
        self, job: batch.Job, errors: list[Exception], reason: str, doing: str, total: int
    ) -> None:
        if not errors:
            return
        unexpected = [
            error for error in errors if not isinstance(error, (*TRANSIENT, RequeueAfter))
        ]
        if not unexpected:
            raise errors[0]
        self.events.event(job, "Warning", reason, f"Error {doing} pods: {unexpected[0]}")
        raise SyncError(f"failed {doing} {len(errors)} pods of {total}: {unexpected[0]}")


async def _together(worker: Callable[[], Awaitable[None]], wanted: int) -> None:
    """Run as many workers at a time as are wanted and allowed; a single one needs no task of its
    own."""
    if wanted == 1:
        await worker()
    else:
        await asyncio.gather(*(worker() for _ in range(min(IN_FLIGHT, wanted))))
