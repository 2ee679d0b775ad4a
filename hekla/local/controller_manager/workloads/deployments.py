"""Deployments: a ReplicaSet for each revision of the template, and the rollout from one to the
next.  Reference: local-cluster 10.4."""

from __future__ import annotations

import time
from contextlib import suppress

from hekla.api.kubernetes.apps import DEPLOYMENT, REPLICA_SET
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import deleting, key_of, manager
from hekla.local.controller_manager.pods import HOLDER, Pod, concerns, managed_by, matches
from hekla.local.controller_manager.workloads.progress import (
    Conditions,
    complete,
    counts,
    status_of,
    until_timeout,
)
from hekla.local.controller_manager.workloads.replica_sets import (
    ReplicaSetControl,
    new_replica_set,
    present,
    replicas_of,
    revision_of,
    size_of,
    was_resized,
)
from hekla.local.controller_manager.workloads.rollout import Size, limits, new_size, old_sizes


class DeploymentController(Controller):
    """Keeps one ReplicaSet a template, sized so that the rollout stays within its limits."""

    name = "deployment"
    workers = 5

    def __init__(
        self,
        client: Client,
        deployments: Cache[Json],
        replica_sets: Cache[Json],
        pods: Cache[Pod],
        recorder: Recorder,
    ) -> None:
        super().__init__(deployments, replica_sets, pods)
        self.client = client
        self.deployments = deployments
        self.replica_sets = replica_sets
        self.pods = pods
        self.sets = ReplicaSetControl(client, replica_sets, recorder)
        self.enqueue(deployments)
        self.enqueue(replica_sets, self.keys_of_replica_set)
        pods.on_change_of(
            concerns, [managed_by(REPLICA_SET.api_version, REPLICA_SET.kind)], self.queue_recreating
        )

    async def reconcile(self, key: str) -> float | None:
        """One step of the rollout, and the status."""
        deployment = self.deployments.get(key)
        if deployment is None:
            return None
        sets = await self.sets.owned(deployment)
        new = present(deployment, sets)
        conditions = Conditions(deployment.get("status", {}).get("conditions"), time.time())
        if deleting(deployment):
            return await self.write_status(deployment, new, sets, conditions, rolling=False)
        paused = bool(deployment["spec"].get("paused"))
        self.note_pause(deployment, conditions, paused)
        if new is not None:
            new = await self.sets.keep_annotations(deployment, new, sets)
            sets = [new if s["metadata"]["uid"] == new["metadata"]["uid"] else s for s in sets]
        if paused or was_resized(deployment, sets):
            await self.sets.scale_all(deployment, new, sets)
            if paused:
                await self.sets.forget_old(deployment, new, sets)
            return await self.write_status(deployment, new, sets, conditions, rolling=False)
        new, moved = await self.roll(deployment, new, sets, conditions)
        if not moved and complete(deployment, counts(deployment, new, sets)):
            await self.sets.forget_old(deployment, new, sets)
        return await self.write_status(deployment, new, sets, conditions)

    # --- the rollout ------------------------------------------------------------------------------

    async def roll(
        self, deployment: Json, new: Json | None, sets: list[Json], conditions: Conditions
    ) -> tuple[Json | None, bool]:
        """Take one step of the rollout.  Gives the new ReplicaSet and whether anything was resized."""
        spec, wanted = deployment["spec"], replicas_of(deployment)
        old = [s for s in sets if new is None or s["metadata"]["uid"] != new["metadata"]["uid"]]
        if spec.get("strategy", {}).get("type") == "Recreate":
            shrunk = [await self.sets.scale(deployment, s, 0) for s in old if replicas_of(s)]
            if shrunk or self.has_old_pods(old):
                return new, True
            if new is None:
                return await self.make(deployment, sets, wanted, conditions), True
            return new, await self.sets.scale(deployment, new, wanted)
        limit, sizes = limits(spec), [size_of(s) for s in old]
        if new is None:
            return await self.make(
                deployment, sets, new_size(wanted, Size(0, 0), sizes, limit), conditions
            ), True
        if await self.sets.scale(deployment, new, new_size(wanted, size_of(new), sizes, limit)):
            return new, True
        keep = old_sizes(wanted, size_of(new), sizes, limit)
        moved = [
            await self.sets.scale(deployment, s, size) for s, size in zip(old, keep, strict=True)
        ]
        return new, any(moved)

    async def make(
        self, deployment: Json, sets: list[Json], size: int, conditions: Conditions
    ) -> Json | None:
        """Create the ReplicaSet of the present template.  None where its name is taken, or the
        namespace goes."""
        body = new_replica_set(deployment, sets, size)
        name = body["metadata"]["name"]
        try:
            made = await self.sets.create(body)
        except AlreadyExists:
            there = await self.sets.existing(deployment, name)
            if there is None:
                collisions = deployment.get("status", {}).get("collisionCount", 0)
                await self.patch_status(deployment, {"collisionCount": collisions + 1})
            return there  # the cache is only late
        except ApiError as error:
            if error.has_cause("NamespaceTerminating"):
                return None
            conditions.set(
                "Progressing",
                "False",
                "ReplicaSetCreateError",
                f'Failed to create new replica set "{name}": {error.message}',
            )
            await self.write_status(deployment, None, sets, conditions, rolling=False)
            raise
        conditions.set(
            "Progressing",
            "True",
            "NewReplicaSetCreated",
            f'Created new replica set "{name}"',
            renew=True,
        )
        await self.sets.note_revision(deployment, revision_of(body))
        if size:
            self.sets.tell_scaled(deployment, name, 0, size)
        return made

    def has_old_pods(self, old: list[Json]) -> bool:
        return any(
            not pod.finished for s in old for pod in self.pods.by(HOLDER, s["metadata"]["uid"])
        )

    # --- status -----------------------------------------------------------------------------------

    def note_pause(self, deployment: Json, conditions: Conditions, paused: bool) -> None:
        """Note a pause or its end in the Progressing condition: a pause stops the progress
        deadline, and resuming restarts it."""
        if (
            deployment["spec"].get("progressDeadlineSeconds") is None
            or conditions.reason("Progressing") == "ProgressDeadlineExceeded"
        ):
            return
        was = conditions.reason("Progressing") == "DeploymentPaused"
        if paused and not was:
            conditions.set("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
        elif was and not paused:
            conditions.set("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed")

    async def write_status(
        self,
        deployment: Json,
        new: Json | None,
        sets: list[Json],
        conditions: Conditions,
        *,
        rolling: bool = True,
    ) -> float | None:
        """Write the status if it has changed.  Gives the seconds until the rollout would count as
        stuck."""
        now, known = time.time(), deployment.get("status", {})
        if (
            rolling
            and new is not None
            and conditions.get("Progressing") is None
            and deployment["spec"].get("progressDeadlineSeconds")
        ):
            conditions.set(
                "Progressing",
                "True",
                "FoundNewReplicaSet",
                f'Found new replica set "{new["metadata"]["name"]}"',
            )
        status = status_of(deployment, new, sets, conditions, now, rolling=rolling)
        if status != known:
            await self.patch_status(deployment, {**dict.fromkeys(known), **status})
        left = until_timeout(deployment, conditions, now)
        return left + 1.0 if rolling and left else None

    async def patch_status(self, deployment: Json, status: Json) -> None:
        meta = deployment["metadata"]
        with suppress(NotFound, Conflict):
            patch = {"metadata": {"uid": meta["uid"]}, "status": status}
            await self.client.patch(
                DEPLOYMENT.untyped, meta["name"], patch, meta["namespace"], subresource="status"
            )

    # --- event handlers ---------------------------------------------------------------------------

    def keys_of_replica_set(self, replica_set: Json) -> set[str]:
        """The key of the deployment that a ReplicaSet belongs to; for an orphan the keys of those
        that would adopt it."""
        owner, meta = manager(replica_set), replica_set["metadata"]
        if owner is not None:
            return (
                {f"{meta['namespace']}/{owner['name']}"} if owner["kind"] == "Deployment" else set()
            )
        return {
            key_of(deployment)
            for deployment in self.deployments.by("namespace", meta["namespace"])
            if matches(deployment["spec"].get("selector"), meta.get("labels") or {})
        }

    def queue_recreating(self, old: Pod | None, new: Pod | None) -> None:
        """Queue the deployment of a pod that has ended: one of type Recreate waits for its old pods
        to be gone, which no ReplicaSet's status shows."""
        if old is None or (new is not None and not new.finished):
            return
        owner = old.controller()
        if owner is None or owner.kind != "ReplicaSet":
            return
        replica_set = self.replica_sets.get(f"{old.metadata.namespace}/{owner.name}")
        for key in self.keys_of_replica_set(replica_set) if replica_set is not None else ():
            self.queue.add(key)
