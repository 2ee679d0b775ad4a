"""Brings a job's dependents to the API server, and removes them: all objects of a job but its
pods.  They are its PodGroup, the objects that its plugins want, and the claims of its volumes.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from hekla.api import batch, names, scheduling
from hekla.api.kubernetes import core
from hekla.controllers.caches import Caches
from hekla.controllers.events import Events
from hekla.controllers.job import states
from hekla.controllers.job.errors import TRANSIENT, RequeueAfter, SyncError
from hekla.controllers.job.layout import Layout
from hekla.controllers.job.plugins import Dependent, PluginError, plugins_of
from hekla.controllers.job.plugins.plugin import Tree
from hekla.controllers.job.podgroup_control import PodGroupControl
from hekla.controllers.job.status_updater import StatusRecord, StatusUpdater
from hekla.controllers.job.volumes import claim_body, claim_name, unnamed
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, NotFound


@dataclass(slots=True)
class Dependents:
    """The writes to dependents of one controller."""

    client: Client
    caches: Caches
    groups: PodGroupControl
    statuses: StatusUpdater
    events: Events

    async def ensure(
        self,
        key: str,
        job: batch.Job,
        record: StatusRecord,
        layout: Layout,
        group: scheduling.PodGroup | None,
        *,
        recreate_group: bool,
    ) -> batch.Job:
        """Bring about all that has to exist before pods may: queue, plugins' objects, claims, the
        PodGroup.  Gives the job, which may have been patched meanwhile.

        Raises RequeueAfter while something is missing that others make, SyncError where a step has
        failed, and the errors of `TRANSIENT`.
        """
        queue = self._queue_of(job)
        forwarded = bool(queue.spec.extend_clusters)
        if forwarded and job.metadata.annotations.get(names.JOB_FORWARDING) != "true":
            annotations = {names.JOB_FORWARDING: "true"}
            job = await self.statuses.patch(job, record, {"metadata": {"annotations": annotations}})
        await self._ensure_plugins(job, layout, forwarded=forwarded)
        if job.spec.volumes:
            job = await self._ensure_claims(job, record)
        try:
            await self.groups.ensure(key, job, group, layout, recreate=recreate_group)
        except TRANSIENT:
            raise
        except ApiError as error:
            self._warn(job, "PodGroupError", f"Failed to create PodGroup, err: {error}")
            raise SyncError(str(error)) from error
        return job

    def _queue_of(self, job: batch.Job) -> scheduling.Queue:
        queue = self.caches.queues.get(job.spec.queue)
        if queue is None:
            missing = f"queue {job.spec.queue} does not exist"
            self._warn(job, "PodGroupError", f"Failed to create PodGroup, err: {missing}")
            raise RequeueAfter(missing)
        return queue

    # -- plugins' objects --------------------------------------------------------------------------

    async def _ensure_plugins(self, job: batch.Job, layout: Layout, *, forwarded: bool) -> None:
        caches = self.caches
        try:
            layout.update(
                job, caches.priority_of, priorities=len(caches.priorities), forwarded=forwarded
            )
            if layout.plugins:
                await self._ensure_plugin_objects(job, layout)
        except RequeueAfter as error:
            self._warn(job, "PluginError", str(error))
            raise
        except TRANSIENT:
            raise
        except (PluginError, ApiError) as error:
            when = "add" if job.status.state.phase in ("", states.PENDING) else "update"
            self._warn(job, "PluginError", f"Execute plugin when job {when} failed, err: {error}")
            raise SyncError(str(error)) from error

    async def _ensure_plugin_objects(self, job: batch.Job, layout: Layout) -> None:
        for plugin in layout.plugins:
            new = job.status.controlled_resources.get(f"plugin-{plugin.name}") != plugin.name
            if not new and layout.plugin_objects_at == job.metadata.generation:
                continue
            for dependent in plugin.dependents(job):
                if new or dependent.follows_scale:
                    await ensure(self.client, job, dependent, expect=not new)
        layout.plugin_objects_at = job.metadata.generation

    async def delete_plugin_objects(self, job: batch.Job) -> None:
        """Delete what the job's plugins have made, and nothing else that may bear the same name."""
        marked = {
            key.removeprefix("plugin-")
            for key in job.status.controlled_resources
            if key.startswith("plugin-")
        }
        try:
            plugins = [plugin for plugin in plugins_of(job) if plugin.name in marked]
        except PluginError:
            return  # a plugin that does not exist has made nothing
        for plugin in plugins:
            for dependent in plugin.dependents(job):
                await delete(self.client, job, dependent)

    # -- claims ------------------------------------------------------------------------------------

    async def _ensure_claims(self, job: batch.Job, record: StatusRecord) -> batch.Job:
        for position in range(len(job.spec.volumes)):
            name = claim_name(job, position)
            if f"volume-pvc-{name}" in job.status.controlled_resources:
                continue
            try:
                await self._ensure_claim(job, position, name)
            except NotFound as error:
                text = f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
                self._warn(job, "PVCError", f"Failed to create PVC, err: {text}")
                raise RequeueAfter(text) from error
            except TRANSIENT:
                raise
            except ApiError as error:
                self._warn(job, "PVCError", f"Failed to create PVC, err: {error}")
                raise SyncError(str(error)) from error
        if not unnamed(job):
            return job
        volumes = [
            {**msgspec.to_builtins(volume), "volumeClaimName": claim_name(job, position)}
            for position, volume in enumerate(job.spec.volumes)
        ]
        return await self.statuses.patch(job, record, {"spec": {"volumes": volumes}})

    async def _ensure_claim(self, job: batch.Job, position: int, name: str) -> None:
        kind, namespace = core.PERSISTENT_VOLUME_CLAIM.untyped, job.metadata.namespace
        if job.spec.volumes[position].volume_claim is None:
            await self.client.get(kind, name, namespace)
            return
        try:
            await self.client.create(kind, claim_body(job, position), namespace)
        except AlreadyExists:
            pass

    def _warn(self, job: batch.Job, reason: str, message: str) -> None:
        self.events.event(job, "Warning", reason, message)


async def ensure(client: Client, job: batch.Job, dependent: Dependent, *, expect: bool) -> None:
    """Create an object of a plugin, or write it again when it is outdated.  `expect`: it is
    probably there, so ask for it first.

    Raises RequeueAfter while something of that name belongs to somebody else: often to a job of the same
    name that was deleted just now, whose objects go in a moment.
    """
    namespace, kind = job.metadata.namespace, dependent.kind.untyped
    if not expect:
        try:
            await client.create(kind, dependent.make(), namespace)
            return
        except AlreadyExists:
            pass
    try:
        existing = await client.get(kind, dependent.name, namespace)
    except NotFound:
        await client.create(kind, dependent.make(), namespace)
        return
    if not _owned(job, existing):
        raise RequeueAfter(
            f"{dependent.kind.kind} {dependent.name} exists already and does not belong to this job"
        )
    if dependent.outdated is not None and dependent.outdated(existing):
        await client.update(
            kind, {**existing, **dependent.make(), "metadata": existing["metadata"]}
        )


async def delete(client: Client, job: batch.Job, dependent: Dependent) -> None:
    """Delete an object of a plugin, unless it belongs to somebody else."""
    namespace = job.metadata.namespace
    try:
        existing = await client.get(dependent.kind.untyped, dependent.name, namespace)
        if _owned(job, existing):
            uid = existing["metadata"]["uid"]
            await client.delete(dependent.kind, dependent.name, namespace, uid=uid)
    except NotFound:
        pass


def _owned(job: batch.Job, existing: Tree) -> bool:
    return any(
        owner.get("uid") == job.metadata.uid
        for owner in existing["metadata"].get("ownerReferences") or ()
    )
