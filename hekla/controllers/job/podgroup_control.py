"""Creates, updates and deletes the PodGroups of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from hekla.api import batch, names, scheduling
from hekla.api.bounded import BoundedCache
from hekla.controllers.job.layout import Layout
from hekla.controllers.job.podgroup import difference, group_body, lets_pods_in
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Expectations
from hekla.kube.errors import AlreadyExists, Conflict, NotFound
from hekla.kube.objects import unread

MOST_LET_IN = 50_000
_CREATED = unread(scheduling.POD_GROUP)


@dataclass(slots=True)
class PodGroupControl:
    """The writes to PodGroups of one controller."""

    client: Client
    groups: Cache[scheduling.PodGroup]
    expectations: Expectations
    let_in: BoundedCache[str, str] = field(default_factory=lambda: BoundedCache(MOST_LET_IN))
    """PodGroups that the scheduler has let in and whose phase does not say so yet -> their uid.
    What is dropped is let in when the phase is written."""

    def of(self, job: batch.Job) -> scheduling.PodGroup | None:
        """The job's PodGroup, let in as it is known to be; one of the name that was used before
        Volcano 1.5 is taken over."""
        namespace = job.metadata.namespace
        name = names.pod_group_name(job.metadata.name, job.metadata.uid)
        for candidate in (name, job.metadata.name):
            group = self.groups.get(f"{namespace}/{candidate}")
            if group is not None and not group.metadata.deletion_timestamp:
                owner = group.metadata.controller()
                if owner is None or owner.uid == job.metadata.uid:
                    return self.as_let_in(group)
        return None

    def as_let_in(self, group: scheduling.PodGroup) -> scheduling.PodGroup:
        """The PodGroup, in the phase Inqueue if it was announced that it is."""
        meta = group.metadata
        if self.let_in.get(f"{meta.namespace}/{meta.name}") != meta.uid or lets_pods_in(group):
            return group
        status = msgspec.structs.replace(group.status, phase=scheduling.PodGroupPhase.INQUEUE)
        return msgspec.structs.replace(group, status=status)

    async def ensure(
        self,
        key: str,
        job: batch.Job,
        group: scheduling.PodGroup | None,
        layout: Layout,
        *,
        recreate: bool,
    ) -> None:
        """Create the PodGroup, or bring the one that exists to the spec that the layout asks for.
        With `recreate` the one that exists is deleted first."""
        if recreate:
            await self.delete(key, group)
            group = None
        if group is None:
            await self._create(key, job, layout)
            return
        changes = self.changes(group, layout)
        if changes:
            await self.client.patch(
                scheduling.POD_GROUP.untyped,
                group.metadata.name,
                {"spec": changes},
                job.metadata.namespace,
            )

    async def _create(self, key: str, job: batch.Job, layout: Layout) -> None:
        namespace = job.metadata.namespace
        body = group_body(job, layout.group_spec)
        try:
            with self.expectations.creating(key, f"{namespace}/{body['metadata']['name']}"):
                await self.client.create(_CREATED, body, namespace)
        except AlreadyExists:
            pass  # the watch may have shown it already, and would not again

    def changes(self, group: scheduling.PodGroup, layout: Layout) -> dict[str, Any]:
        """What the PodGroup's spec lacks; compared once a generation, because a change of its
        status leaves the spec alone."""
        meta = group.metadata
        seen = (meta.uid, meta.generation or meta.resource_version)
        if layout.group_seen == seen:
            return {}
        changes = difference(group, layout.group_spec)
        if not changes:
            layout.group_seen = seen
        return changes

    async def delete(self, key: str, group: scheduling.PodGroup | None) -> None:
        """Delete a PodGroup, if there is one."""
        if group is None:
            return
        meta = group.metadata
        try:
            with self.expectations.deleting(key, meta.uid):
                await self.client.delete(
                    scheduling.POD_GROUP, meta.name, meta.namespace, uid=meta.uid
                )
        except (NotFound, Conflict):
            pass  # gone, or another by that name; the watch may have shown that already
