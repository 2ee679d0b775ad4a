"""Deployments: a ReplicaSet for each revision of the template, and the way from one to the next.  Reference: local-cluster 10.4."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from hekla.api.apps import DEPLOYMENT, REPLICA_SET
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controllers.pods import Json, Pod
from hekla.local.controllers.replicas import age_of
from hekla.local.controllers.rollout import Size, limits, new_size, old_sizes, same_template, template_hash

REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
HASH = "pod-template-hash"


def revision_of(replica_set: Json) -> int:
    text = replica_set["metadata"].get("annotations", {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def size_of(replica_set: Json) -> Size:
    return Size(replica_set["spec"].get("replicas", 1), replica_set.get("status", {}).get("availableReplicas", 0))


class DeploymentController(Controller):
    """Keeps one ReplicaSet a template, sized so that the rollout stays within its limits."""

    name = "deployment"

    def __init__(
        self, client: Client, deployments: Cache[Json], replica_sets: Cache[Json], pods: Cache[Pod], recorder: Recorder,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(deployments, replica_sets, pods)
        self.client = client
        self.deployments = deployments
        self.replica_sets = replica_sets
        self.pods = pods
        self.recorder = recorder
        self.clock = clock
        self.enqueue(deployments)
        self.enqueue(replica_sets, self.keys_of_replica_set)
        pods.on_change(self.queue_recreating)

    async def reconcile(self, key: str) -> float | None:
        """One step of the rollout, and the status."""
        deployment = self.deployments.get(key)
        if deployment is None:
            return None
        sets = self.owned(deployment)
        new = next((s for s in sets if same_template(s["spec"]["template"], deployment["spec"]["template"])), None)
        if deployment["metadata"].get("deletionTimestamp") is None and not deployment["spec"].get("paused"):
            if new is None:
                await self.make(deployment, sets)
                return None  # its event brings the next look
            new = await self.note_revision(deployment, new, sets)
            await self.resize(deployment, new, [s for s in sets if s is not new and s["metadata"]["uid"] != new["metadata"]["uid"]])
            await self.forget_old(deployment, new, sets)
        return await self.write_status(deployment, new, sets)

    def owned(self, deployment: Json) -> list[Json]:
        """The ReplicaSets of the deployment, oldest revision first."""
        meta = deployment["metadata"]
        found = [
            replica_set for replica_set in self.replica_sets.by("namespace", meta["namespace"])
            if any(o.get("controller") and o["uid"] == meta["uid"] for o in replica_set["metadata"].get("ownerReferences", ()))
        ]
        return sorted(found, key=lambda s: (revision_of(s), s["metadata"].get("creationTimestamp", "")))

    async def make(self, deployment: Json, sets: list[Json]) -> None:
        """Creates the ReplicaSet of the present template, at the size that the rollout allows."""
        meta, spec = deployment["metadata"], deployment["spec"]
        collisions = deployment.get("status", {}).get("collisionCount", 0)
        digest = template_hash(spec["template"], collisions)
        recreate = spec.get("strategy", {}).get("type") == "Recreate"
        wanted = spec.get("replicas", 1)
        size = 0 if recreate and self.has_old_pods(sets) else new_size(wanted, Size(0, 0), [size_of(s) for s in sets], limits(spec))
        template = dict(spec["template"])
        template["metadata"] = dict(template.get("metadata") or {})
        template["metadata"]["labels"] = {**template["metadata"].get("labels", {}), HASH: digest}
        selector = dict(spec["selector"])
        selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH: digest}
        revision = max(map(revision_of, sets), default=0) + 1
        annotations = {k: v for k, v in meta.get("annotations", {}).items() if not k.startswith("kubectl.kubernetes.io/last-applied")}
        body: Json = {
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{digest}", "namespace": meta["namespace"], "labels": template["metadata"]["labels"],
                "annotations": {
                    **annotations, REVISION: str(revision), DESIRED: str(wanted), MAXIMUM: str(wanted + limits(spec).surge),
                },
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"],
                    "controller": True, "blockOwnerDeletion": True,
                }],
            },
            "spec": {"replicas": size, "selector": selector, "template": template, "minReadySeconds": spec.get("minReadySeconds", 0)},
        }
        try:
            await self.client.create(REPLICA_SET.untyped, body, meta["namespace"])
        except AlreadyExists:
            there = await self.client.get(REPLICA_SET.untyped, body["metadata"]["name"], meta["namespace"])
            mine = any(o["uid"] == meta["uid"] for o in there["metadata"].get("ownerReferences", ()))
            if not (mine and same_template(there["spec"]["template"], spec["template"])):
                await self.patch_status(deployment, {"collisionCount": collisions + 1})
            return
        self.recorder.event(deployment, "Normal", "ScalingReplicaSet", f"Scaled up replica set {body['metadata']['name']} from 0 to {size}")

    def has_old_pods(self, sets: list[Json]) -> bool:
        uids = {s["metadata"]["uid"] for s in sets}
        namespaces = {s["metadata"]["namespace"] for s in sets}
        return any(
            (owner := pod.controller()) is not None and owner.uid in uids and not pod.finished
            for namespace in namespaces for pod in self.pods.by("namespace", namespace)
        )

    async def note_revision(self, deployment: Json, new: Json, sets: list[Json]) -> Json:
        """Gives the present ReplicaSet the highest revision (also after a roll back) and the deployment the same."""
        highest = max((revision_of(s) for s in sets if s is not new), default=0)
        revision = revision_of(new) if revision_of(new) > highest else highest + 1
        meta = new["metadata"]
        wanted = {REVISION: str(revision), DESIRED: str(deployment["spec"].get("replicas", 1))}
        if any(meta.get("annotations", {}).get(name) != value for name, value in wanted.items()):
            new = await self.client.patch(REPLICA_SET.untyped, meta["name"], {"metadata": {"annotations": wanted}}, meta["namespace"])
        meta = deployment["metadata"]
        if meta.get("annotations", {}).get(REVISION) != str(revision):
            patch = {"metadata": {"annotations": {REVISION: str(revision)}}}
            await self.client.patch(DEPLOYMENT.untyped, meta["name"], patch, meta["namespace"])
        return new

    async def resize(self, deployment: Json, new: Json, old: list[Json]) -> None:
        """Moves the sizes one step."""
        spec = deployment["spec"]
        wanted = spec.get("replicas", 1)
        if spec.get("strategy", {}).get("type") == "Recreate":
            for replica_set in old:
                await self.scale(deployment, replica_set, 0)
            if not self.has_old_pods(old):
                await self.scale(deployment, new, wanted)
            return
        limit = limits(spec)
        sizes = [size_of(s) for s in old]
        await self.scale(deployment, new, new_size(wanted, size_of(new), sizes, limit))
        for replica_set, size in zip(old, old_sizes(wanted, size_of(new), sizes, limit)):
            await self.scale(deployment, replica_set, size)

    async def scale(self, deployment: Json, replica_set: Json, size: int) -> None:
        meta, before = replica_set["metadata"], replica_set["spec"].get("replicas", 1)
        if size == before:
            return
        await self.client.patch(REPLICA_SET.untyped, meta["name"], {"spec": {"replicas": size}}, meta["namespace"])
        word = "up" if size > before else "down"
        self.recorder.event(
            deployment, "Normal", "ScalingReplicaSet", f"Scaled {word} replica set {meta['name']} from {before} to {size}"
        )

    async def forget_old(self, deployment: Json, new: Json, sets: list[Json]) -> None:
        """Deletes empty old ReplicaSets beyond the history that is kept."""
        empty = [
            s for s in sets
            if s["metadata"]["uid"] != new["metadata"]["uid"] and s["spec"].get("replicas") == 0 and not s.get("status", {}).get("replicas")
        ]
        surplus = len(empty) - deployment["spec"].get("revisionHistoryLimit", 10)
        for replica_set in empty[: max(0, surplus)]:
            meta = replica_set["metadata"]
            try:
                await self.client.delete(REPLICA_SET, meta["name"], meta["namespace"], uid=meta["uid"])
            except (NotFound, Conflict):
                continue

    async def write_status(self, deployment: Json, new: Json | None, sets: list[Json]) -> float | None:
        """Writes the status when it changed; gives the seconds until the rollout would be called stuck."""
        status = self.status_of(deployment, new, sets)
        if status != deployment.get("status", {}):
            await self.patch_status(deployment, {**dict.fromkeys(deployment.get("status", {})), **status})
        progressing = next((c for c in status.get("conditions", ()) if c["type"] == "Progressing"), None)
        if progressing is None or progressing["reason"] in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
            return None
        deadline = float(deployment["spec"].get("progressDeadlineSeconds", 600))
        return max(1.0, deadline - age_of(progressing["lastUpdateTime"], self.clock()))

    async def patch_status(self, deployment: Json, status: Json) -> None:
        meta = deployment["metadata"]
        try:
            await self.client.patch(DEPLOYMENT.untyped, meta["name"], {"status": status}, meta["namespace"], subresource="status")
        except NotFound:
            pass

    def status_of(self, deployment: Json, new: Json | None, sets: list[Json]) -> Json:
        """The status that the ReplicaSets give."""
        spec, before = deployment["spec"], deployment.get("status", {})
        wanted = spec.get("replicas", 1)

        def total(field: str, these: list[Json]) -> int:
            return sum(s.get("status", {}).get(field, 0) for s in these)

        replicas, available = total("replicas", sets), total("availableReplicas", sets)
        updated = total("replicas", [new] if new is not None else [])
        counts = {
            "replicas": replicas, "updatedReplicas": updated, "readyReplicas": total("readyReplicas", sets),
            "availableReplicas": available, "unavailableReplicas": max(0, max(replicas, wanted) - available),
            "collisionCount": before.get("collisionCount", 0),
        }
        status: Json = {"observedGeneration": deployment["metadata"].get("generation", 0)}
        status |= {name: count for name, count in counts.items() if count}
        done = updated == wanted == available == replicas
        conditions = {c["type"]: c for c in before.get("conditions", ())}
        enough = available >= wanted - limits(spec).unavailable
        self.note(conditions, "Available", enough, "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                  "Deployment has minimum availability." if enough else "Deployment does not have minimum availability.")
        self.note_progress(conditions, deployment, new, status, before, done)
        failure = next((c for s in sets for c in s.get("status", {}).get("conditions", ()) if c["type"] == "ReplicaFailure"), None)
        conditions.pop("ReplicaFailure", None)
        if failure is not None:
            self.note(conditions, "ReplicaFailure", True, failure["reason"], failure["message"])
        status["conditions"] = list(conditions.values())
        return status

    def note_progress(
        self, conditions: dict[str, Json], deployment: Json, new: Json | None, status: Json, before: Json, done: bool
    ) -> None:
        """The Progressing condition: it renews itself with every step and turns false when none came in time."""
        if new is None:
            return
        name = new["metadata"]["name"]
        current = conditions.get("Progressing")
        if done:
            self.note(conditions, "Progressing", True, "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
            return
        moved = any(status.get(f) != before.get(f) for f in ("updatedReplicas", "readyReplicas", "availableReplicas", "replicas"))
        deadline = float(deployment["spec"].get("progressDeadlineSeconds", 600))
        finished = current is not None and current["reason"] == "NewReplicaSetAvailable"
        if current is None or moved or (finished and current["message"].find(f'"{name}"') < 0):
            conditions.pop("Progressing", None)
            self.note(conditions, "Progressing", True, "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
        elif not finished and age_of(current["lastUpdateTime"], self.clock()) > deadline:
            self.note(conditions, "Progressing", False, "ProgressDeadlineExceeded", f'ReplicaSet "{name}" has timed out progressing.')

    def note(self, conditions: dict[str, Json], kind: str, holds: bool, reason: str, message: str) -> None:
        """Sets a condition; its times move only with what they stand for."""
        now = datetime.fromtimestamp(int(self.clock()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        state = "True" if holds else "False"
        old = conditions.get(kind)
        if old is not None and (old["status"], old["reason"], old["message"]) == (state, reason, message):
            return
        flipped = old is None or old["status"] != state
        conditions[kind] = {
            "type": kind, "status": state, "reason": reason, "message": message, "lastUpdateTime": now,
            "lastTransitionTime": now if flipped or old is None else old["lastTransitionTime"],
        }

    def keys_of_replica_set(self, replica_set: Json) -> set[str]:
        """The deployment that a ReplicaSet belongs to."""
        meta = replica_set["metadata"]
        return {
            f"{meta['namespace']}/{owner['name']}" for owner in meta.get("ownerReferences", ())
            if owner.get("controller") and owner["kind"] == "Deployment"
        }

    def queue_recreating(self, old: Pod | None, new: Pod | None) -> None:
        """A deployment of type Recreate waits for its old pods to be gone altogether, which no ReplicaSet's status shows."""
        if old is None or (new is not None and not new.finished):
            return
        owner = old.controller()
        if owner is None or owner.kind != "ReplicaSet":
            return
        replica_set = self.replica_sets.get(f"{old.metadata.namespace}/{owner.name}")
        for key in self.keys_of_replica_set(replica_set) if replica_set is not None else ():
            self.queue.add(key)
