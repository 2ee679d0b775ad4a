"""Deployments: a ReplicaSet for each revision of the template, and the way from one to the next.
Reference: local-cluster 10.4."""

from __future__ import annotations

import time
from collections.abc import Callable

from hekla.api.kubernetes.apps import DEPLOYMENT, REPLICA_SET
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import claim, deleting, key_of, manager, reference
from hekla.local.controller_manager.pods import HOLDER, Pod, concerns, managed_by, matches
from hekla.local.controller_manager.workloads.progress import (
    Conditions,
    complete,
    counts,
    status_of,
    until_timeout,
)
from hekla.local.controller_manager.workloads.rollout import (
    Share,
    Size,
    limits,
    new_size,
    old_sizes,
    proportional_sizes,
    same_template,
    template_hash,
)

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
OWN_ANNOTATIONS = {
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
}
"""Of a deployment's annotations those that its ReplicaSets do not take over."""
HASH = "pod-template-hash"


def annotations_of(obj: Json) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("annotations") or {}
    return found


def revision_of(replica_set: Json) -> int:
    text = annotations_of(replica_set).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def replicas_of(replica_set: Json) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def size_of(replica_set: Json) -> Size:
    return Size(replicas_of(replica_set), replica_set.get("status", {}).get("availableReplicas", 0))


def created(replica_set: Json) -> tuple[str, str]:
    """Sort key by age."""
    return replica_set["metadata"].get("creationTimestamp", ""), replica_set["metadata"]["name"]


def present(deployment: Json, sets: list[Json]) -> Json | None:
    """The ReplicaSet of the template as it is now; of several the oldest."""
    template = deployment["spec"]["template"]
    return next(
        (s for s in sorted(sets, key=created) if same_template(s["spec"]["template"], template)),
        None,
    )


def surge_size(deployment: Json) -> int:
    """The most pods that the deployment may have at a time."""
    spec = deployment["spec"]
    surge = (
        limits(spec).surge
        if spec.get("strategy", {}).get("type") != "Recreate" and replicas_of(deployment)
        else 0
    )
    return replicas_of(deployment) + surge


def was_resized(deployment: Json, sets: list[Json]) -> bool:
    """Whether an active ReplicaSet was sized for another number of replicas than is asked for now."""
    wanted = str(replicas_of(deployment))
    return any(replicas_of(s) and annotations_of(s).get(DESIRED, wanted) != wanted for s in sets)


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
        pods.on_change_of(
            concerns, [managed_by(REPLICA_SET.api_version, REPLICA_SET.kind)], self.queue_recreating
        )

    async def reconcile(self, key: str) -> float | None:
        """One step of the rollout, and the status."""
        deployment = self.deployments.get(key)
        if deployment is None:
            return None
        sets = await self.owned(deployment)
        new = present(deployment, sets)
        conditions = Conditions(deployment.get("status", {}).get("conditions"), self.clock())
        if deleting(deployment):
            return await self.write_status(deployment, new, sets, conditions, rolling=False)
        paused = bool(deployment["spec"].get("paused"))
        self.note_pause(deployment, conditions, paused)
        if new is not None:
            new = await self.keep_annotations(deployment, new, sets)
            sets = [new if s["metadata"]["uid"] == new["metadata"]["uid"] else s for s in sets]
        if paused or was_resized(deployment, sets):
            await self.scale_all(deployment, new, sets)
            if paused:
                await self.forget_old(deployment, new, sets)
            return await self.write_status(deployment, new, sets, conditions, rolling=False)
        new, moved = await self.roll(deployment, new, sets, conditions)
        if not moved and complete(deployment, counts(deployment, new, sets)):
            await self.forget_old(deployment, new, sets)
        return await self.write_status(deployment, new, sets, conditions)

    async def owned(self, deployment: Json) -> list[Json]:
        """The ReplicaSets of the deployment, adopted ones included, oldest first."""
        selector = deployment["spec"].get("selector")
        found = self.replica_sets.by("namespace", deployment["metadata"]["namespace"])
        kinds = DEPLOYMENT.untyped, REPLICA_SET.untyped
        mine = await claim(
            self.client, *kinds, deployment, found, lambda labels: matches(selector, labels)
        )
        return sorted(mine, key=created)

    # the way from one template to the next

    async def roll(
        self, deployment: Json, new: Json | None, sets: list[Json], conditions: Conditions
    ) -> tuple[Json | None, bool]:
        """One step; gives the new ReplicaSet and whether anything was resized."""
        spec, wanted = deployment["spec"], replicas_of(deployment)
        old = [s for s in sets if new is None or s["metadata"]["uid"] != new["metadata"]["uid"]]
        if spec.get("strategy", {}).get("type") == "Recreate":
            shrunk = [await self.scale(deployment, s, 0) for s in old if replicas_of(s)]
            if shrunk or self.has_old_pods(old):
                return new, True
            if new is None:
                return await self.make(deployment, sets, wanted, conditions), True
            return new, await self.scale(deployment, new, wanted)
        limit, sizes = limits(spec), [size_of(s) for s in old]
        if new is None:
            return await self.make(
                deployment, sets, new_size(wanted, Size(0, 0), sizes, limit), conditions
            ), True
        if await self.scale(deployment, new, new_size(wanted, size_of(new), sizes, limit)):
            return new, True
        keep = old_sizes(wanted, size_of(new), sizes, limit)
        moved = [await self.scale(deployment, s, size) for s, size in zip(old, keep, strict=True)]
        return new, any(moved)

    async def make(
        self, deployment: Json, sets: list[Json], size: int, conditions: Conditions
    ) -> Json | None:
        """Creates the ReplicaSet of the present template."""
        meta, spec = deployment["metadata"], deployment["spec"]
        collisions = deployment.get("status", {}).get("collisionCount", 0)
        digest = template_hash(spec["template"], collisions)
        template = dict(spec["template"])
        template["metadata"] = dict(template.get("metadata") or {})
        template["metadata"]["labels"] = {
            **(template["metadata"].get("labels") or {}),
            HASH: digest,
        }
        selector = dict(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: digest}
        revision = max(map(revision_of, sets), default=0) + 1
        body: Json = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "namespace": meta["namespace"],
                "labels": template["metadata"]["labels"],
                "annotations": {
                    **self.passed_on(deployment),
                    REVISION: str(revision),
                    **self.sized_for(deployment),
                },
                "ownerReferences": [reference(DEPLOYMENT, deployment)],
            },
            "spec": {
                "replicas": size,
                "selector": selector,
                "template": template,
                "minReadySeconds": spec.get("minReadySeconds", 0),
            },
        }
        name = body["metadata"]["name"]
        try:
            made = await self.client.create(REPLICA_SET.untyped, body, meta["namespace"])
        except AlreadyExists:
            there = await self.client.get(REPLICA_SET.untyped, name, meta["namespace"])
            owner = manager(there)
            if (
                owner is not None
                and owner["uid"] == meta["uid"]
                and same_template(there["spec"]["template"], spec["template"])
            ):
                return there  # the cache is only late
            await self.patch_status(deployment, {"collisionCount": collisions + 1})
            return None
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
        await self.note_revision(deployment, revision)
        if size:
            self.recorder.event(
                deployment,
                "Normal",
                "ScalingReplicaSet",
                f"Scaled up replica set {name} from 0 to {size}",
            )
        return made

    def has_old_pods(self, old: list[Json]) -> bool:
        return any(
            not pod.finished for s in old for pod in self.pods.by(HOLDER, s["metadata"]["uid"])
        )

    # sizes

    async def scale_all(self, deployment: Json, new: Json | None, sets: list[Json]) -> None:
        """The deployment was resized, or is paused: sizes follow without the rollout going on."""
        wanted, active = replicas_of(deployment), [s for s in sets if replicas_of(s)]
        if len(active) <= 1:
            only = active[0] if active else new if new is not None else sets[-1] if sets else None
            if only is not None:
                await self.scale(deployment, only, wanted)
            return
        if (
            new is not None
            and size_of(new) == Size(wanted, wanted)
            and annotations_of(new).get(DESIRED) == str(wanted)
        ):
            for replica_set in active:
                if replica_set["metadata"]["uid"] != new["metadata"]["uid"]:
                    await self.scale(deployment, replica_set, 0)
            return
        if deployment["spec"].get("strategy", {}).get("type") == "Recreate":
            return
        limit = limits(deployment["spec"])
        growing = (wanted + limit.surge if wanted else 0) > sum(map(replicas_of, active))
        active.sort(key=created, reverse=growing)
        active.sort(key=replicas_of, reverse=True)
        shares = [
            Share(
                replicas_of(s),
                int(text) if (text := annotations_of(s).get(MAXIMUM, "")).isdigit() else 0,
            )
            for s in active
        ]
        before = deployment.get("status", {}).get("replicas", 0)
        for replica_set, size in zip(
            active, proportional_sizes(wanted, limit, before, shares), strict=True
        ):
            await self.scale(deployment, replica_set, size)

    async def scale(self, deployment: Json, replica_set: Json, size: int) -> bool:
        """Gives a ReplicaSet its size and notes for which whole that is; whether its size changed."""
        meta, before, note = (
            replica_set["metadata"],
            replicas_of(replica_set),
            self.sized_for(deployment),
        )
        if size == before and all(
            annotations_of(replica_set).get(name) == value for name, value in note.items()
        ):
            return False
        if size == before and not size:
            return False  # what an empty one was sized for is of no interest
        patch = {"metadata": {"uid": meta["uid"], "annotations": note}, "spec": {"replicas": size}}
        await self.client.patch(REPLICA_SET.untyped, meta["name"], patch, meta["namespace"])
        if size == before:
            return False
        word = "up" if size > before else "down"
        self.recorder.event(
            deployment,
            "Normal",
            "ScalingReplicaSet",
            f"Scaled {word} replica set {meta['name']} from {before} to {size}",
        )
        return True

    # annotations

    def sized_for(self, deployment: Json) -> dict[str, str]:
        return {DESIRED: str(replicas_of(deployment)), MAXIMUM: str(surge_size(deployment))}

    def passed_on(self, deployment: Json) -> dict[str, str]:
        return {
            name: value
            for name, value in annotations_of(deployment).items()
            if name not in OWN_ANNOTATIONS
        }

    async def keep_annotations(self, deployment: Json, new: Json, sets: list[Json]) -> Json:
        """The present ReplicaSet has the highest revision (also after a roll back) and the
        deployment's annotations."""
        uid = new["metadata"]["uid"]
        highest = max((revision_of(s) for s in sets if s["metadata"]["uid"] != uid), default=0)
        known = revision_of(new)
        revision = known if known > highest else highest + 1
        wanted = {**self.passed_on(deployment), REVISION: str(revision)}
        if (
            known and known != revision
        ):  # it has served before: its revisions of then are remembered
            earlier = [part for part in annotations_of(new).get(HISTORY, "").split(",") if part]
            wanted[HISTORY] = ",".join([*earlier, str(known)])
        patch: Json = {}
        if any(annotations_of(new).get(name) != value for name, value in wanted.items()):
            patch["metadata"] = {"annotations": wanted}
        if new["spec"].get("minReadySeconds", 0) != deployment["spec"].get("minReadySeconds", 0):
            patch["spec"] = {"minReadySeconds": deployment["spec"].get("minReadySeconds", 0)}
        if patch:
            meta = new["metadata"]
            new = await self.client.patch(
                REPLICA_SET.untyped, meta["name"], patch, meta["namespace"]
            )
        await self.note_revision(deployment, revision)
        return new

    async def note_revision(self, deployment: Json, revision: int) -> None:
        if annotations_of(deployment).get(REVISION) != str(revision):
            meta = deployment["metadata"]
            patch = {"metadata": {"uid": meta["uid"], "annotations": {REVISION: str(revision)}}}
            try:
                await self.client.patch(DEPLOYMENT.untyped, meta["name"], patch, meta["namespace"])
            except NotFound:
                pass  # it went meanwhile

    async def forget_old(self, deployment: Json, new: Json | None, sets: list[Json]) -> None:
        """Deletes empty old ReplicaSets beyond the history that is kept."""
        limit = deployment["spec"].get("revisionHistoryLimit")
        if limit is None or limit == 2**31 - 1:
            return
        empty = [
            s
            for s in sorted(sets, key=lambda s: (revision_of(s), created(s)))
            if (new is None or s["metadata"]["uid"] != new["metadata"]["uid"])
            and not replicas_of(s)
            and not s.get("status", {}).get("replicas")
            and not deleting(s)
            and s.get("status", {}).get("observedGeneration", 0)
            >= s["metadata"].get("generation", 0)
        ]
        old = len(sets) - (new is not None)
        for replica_set in empty[: max(0, old - limit)]:
            meta = replica_set["metadata"]
            try:
                await self.client.delete(
                    REPLICA_SET, meta["name"], meta["namespace"], uid=meta["uid"]
                )
            except (NotFound, Conflict):
                continue

    # status

    def note_pause(self, deployment: Json, conditions: Conditions, paused: bool) -> None:
        """A pause stops the clock of the progress deadline, and going on starts it anew."""
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
        """Writes the status when it changed; gives the seconds until the rollout would be called
        stuck."""
        now, known = self.clock(), deployment.get("status", {})
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
        try:
            patch = {"metadata": {"uid": meta["uid"]}, "status": status}
            await self.client.patch(
                DEPLOYMENT.untyped, meta["name"], patch, meta["namespace"], subresource="status"
            )
        except (NotFound, Conflict):
            pass

    # what concerns whom

    def keys_of_replica_set(self, replica_set: Json) -> set[str]:
        """The deployment that a ReplicaSet belongs to; for an orphan those that would take it."""
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
        """A deployment of type Recreate waits for its old pods to be gone altogether, which no
        ReplicaSet's status shows."""
        if old is None or (new is not None and not new.finished):
            return
        owner = old.controller()
        if owner is None or owner.kind != "ReplicaSet":
            return
        replica_set = self.replica_sets.get(f"{old.metadata.namespace}/{owner.name}")
        for key in self.keys_of_replica_set(replica_set) if replica_set is not None else ():
            self.queue.add(key)
