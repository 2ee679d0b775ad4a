"""Carries out the plan of a StatefulSet and writes what came of it.  Reference: local-cluster 10.6."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from hekla.api.kubernetes import core
from hekla.api.kubernetes.apps import STATEFUL_SET
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import deleting
from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.workloads.pod_control import PodControl
from hekla.local.controller_manager.workloads.revisions import (
    Collision,
    History,
    name_of,
    queue_keys,
    template_of,
)
from hekla.local.controller_manager.workloads.statefulset.identity import (
    labels_of,
    ordinal_of,
    pod_metadata,
    pod_spec,
)
from hekla.local.controller_manager.workloads.statefulset.plan import (
    Plan,
    Revisions,
    plan,
    revision_of,
    split,
    status_of,
)
from hekla.local.controller_manager.workloads.statefulset.volumes import PodClaims
from hekla.local.controller_manager.workloads.status import write_status

KIND = STATEFUL_SET.untyped
RETRY = 1.0
"""Seconds after which what was refused (a quota, a webhook) or waits for an old claim to go is
tried again."""


class StatefulSetController(Controller):
    """Reconciles a StatefulSet, its pods, claims and revisions."""

    name = "statefulset"

    def __init__(
        self,
        client: Client,
        sets: Cache[Json],
        pods: Cache[Pod],
        revisions: Cache[Json],
        claims: Cache[Json],
        recorder: Recorder,
    ) -> None:
        super().__init__(sets, pods, revisions, claims)
        self.client = client
        self.sets = sets
        self.recorder = recorder
        self.pod_control = PodControl(KIND, client, sets, pods, recorder, self.queue.add)
        self.history = History(KIND, client, revisions)
        self.claims = PodClaims(client, claims, recorder)
        self.enqueue(sets)
        self.enqueue(revisions, lambda revision: queue_keys(KIND, sets, revision))

    async def reconcile(self, key: str) -> float | None:
        owner = self.sets.get(key)
        if owner is None:
            self.pod_control.expectations.forget(key)
            return None
        name = owner["metadata"]["name"]
        pods = [
            pod
            for pod in await self.pod_control.claim(owner)
            if ordinal_of(name, pod.metadata.name) >= 0
        ]
        if not self.pod_control.expectations.satisfied(key):
            return self.pod_control.expectations.remaining(key)
        known = await self.history.of(owner)
        try:
            update = await self.history.present(
                owner, known, {"controller.kubernetes.io/hash": "{hash}"}
            )
        except Collision:
            await self.history.count_collision(owner)
            return RETRY
        by_name = {name_of(revision): revision for revision in (*known, update)}
        said = owner.get("status", {}).get("currentRevision", "")
        revisions = Revisions(said if said in by_name else name_of(update), name_of(update))
        again = None
        if not deleting(owner):
            again = await self.carry_out(
                key, owner, pods, plan(owner, pods, revisions, time.time()), by_name
            )
        status = status_of(owner, pods, revisions, time.time())
        if status != owner.get("status"):
            await write_status(self.client, KIND, owner, status)
        if not deleting(owner):
            live = {
                revisions.current,
                revisions.update,
                status["currentRevision"],
                *map(revision_of, pods),
            }
            await self.history.trim(known, live, owner["spec"].get("revisionHistoryLimit"))
        return again

    async def carry_out(
        self, key: str, owner: Json, pods: list[Pod], steps: Plan, revisions: dict[str, Json]
    ) -> float | None:
        """Carry out the plan.  Gives the seconds until the next reconcile."""
        placed, beyond = split(owner, pods)
        if owner["spec"].get("volumeClaimTemplates"):
            for pod in placed.values():
                if pod.status.phase == "Pending" and not pod.deleting:
                    await self.claims.make(owner, pod.metadata.name)
                await self.claims.keep_owners(owner, pod, beyond=False)
            for pod in beyond:
                await self.claims.keep_owners(owner, pod, beyond=True)
        await asyncio.gather(*(self.keep_identity(ordinal, pod) for ordinal, pod in placed.items()))
        for pod in steps.recreate:
            where = f"StatefulSet {key}"
            if pod.status.phase == "Failed":
                message = f"{where} is recreating failed Pod {pod.metadata.name}"
                self.recorder.event(owner, "Warning", "RecreatingFailedPod", message)
            else:
                message = f"{where} is recreating terminated Pod {pod.metadata.name}"
                self.recorder.event(owner, "Normal", "RecreatingTerminatedPod", message)
        await self.remove(key, owner, [*steps.recreate, *steps.delete])
        made = await asyncio.gather(
            *(self.make(key, owner, ordinal, revisions[name]) for ordinal, name in steps.create)
        )
        return RETRY if not all(made) else steps.wait

    async def remove(self, key: str, owner: Json, pods: list[Pod]) -> None:
        async def one(pod: Pod) -> None:
            meta = pod.metadata
            try:
                with self.pod_control.expectations.deleting(key, meta.uid):
                    await self.client.delete(core.POD, meta.name, meta.namespace, uid=meta.uid)
            except (NotFound, Conflict):
                return
            said = f"delete Pod {meta.name} in StatefulSet {owner['metadata']['name']} successful"
            self.recorder.event(owner, "Normal", "SuccessfulDelete", said)

        await asyncio.gather(*map(one, pods))

    async def make(self, key: str, owner: Json, ordinal: int, revision: Json) -> bool:
        """Create one pod and, before it, its claims.  False where that failed."""
        meta, template = owner["metadata"], template_of(revision)
        pod = f"{meta['name']}-{ordinal}"
        if self.claims.leaving(owner, pod) or await self.claims.make(owner, pod) is not None:
            return False
        body = self.pod_control.body(
            owner, template, **pod_metadata(template, pod, ordinal, name_of(revision))
        )
        body["metadata"].pop("generateName", None)
        body["spec"] = pod_spec(owner, body["spec"], pod)
        subject = f"create Pod {pod} in StatefulSet {meta['name']}"
        try:
            with self.pod_control.expectations.creating(key, f"{meta['namespace']}/{pod}"):
                await self.client.create(core.POD, body, meta["namespace"])
        except AlreadyExists:
            return False  # one of another owner, or of ours that the cache does not show yet
        except ApiError as error:
            self.recorder.event(
                owner, "Warning", "FailedCreate", f"{subject} failed error: {error.message}"
            )
            return False
        self.recorder.event(owner, "Normal", "SuccessfulCreate", f"{subject} successful")
        return True

    async def keep_identity(self, ordinal: int, pod: Pod) -> None:
        """Put back the labels that identify a pod, when somebody removed them."""
        meta, wanted = pod.metadata, labels_of(pod.metadata.name, ordinal)
        if pod.deleting or all(meta.labels.get(name) == value for name, value in wanted.items()):
            return
        with suppress(NotFound):
            await self.client.patch(
                core.POD,
                meta.name,
                {"metadata": {"uid": meta.uid, "labels": wanted}},
                meta.namespace,
            )
