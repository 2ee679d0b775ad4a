"""The ReplicaSets of Deployments: which there are, how large each is, and the writes to them."""

from __future__ import annotations

from contextlib import suppress

from hekla.api.kubernetes.apps import DEPLOYMENT, REPLICA_SET
from hekla.api.names import LAST_APPLIED
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import claim, deleting, manager, reference
from hekla.local.controller_manager.pods import matches
from hekla.local.controller_manager.workloads.rollout import (
    Share,
    Size,
    limits,
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
    LAST_APPLIED,
    "deprecated.deployment.rollback.to",
}
"""Annotations of a deployment that are not copied to its ReplicaSets."""
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
    """The ReplicaSet of the present template; of several the oldest."""
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


class ReplicaSetControl:
    """The writes to ReplicaSets of one controller."""

    def __init__(self, client: Client, replica_sets: Cache[Json], recorder: Recorder) -> None:
        self._client = client
        self._replica_sets = replica_sets
        self._recorder = recorder

    async def owned(self, deployment: Json) -> list[Json]:
        """The ReplicaSets of the deployment, adopted ones included, oldest first."""
        selector = deployment["spec"].get("selector")
        found = self._replica_sets.by("namespace", deployment["metadata"]["namespace"])
        kinds = DEPLOYMENT.untyped, REPLICA_SET.untyped
        mine = await claim(
            self._client, *kinds, deployment, found, lambda labels: matches(selector, labels)
        )
        return sorted(mine, key=created)

    async def create(self, body: Json) -> Json:
        """Create a ReplicaSet.  Raises AlreadyExists where there is one of its name."""
        return await self._client.create(REPLICA_SET.untyped, body, body["metadata"]["namespace"])

    async def existing(self, deployment: Json, name: str) -> Json | None:
        """The ReplicaSet of this name, if it is the deployment's own for its present template."""
        meta, template = deployment["metadata"], deployment["spec"]["template"]
        there = await self._client.get(REPLICA_SET.untyped, name, meta["namespace"])
        owner = manager(there)
        if owner is None or owner["uid"] != meta["uid"]:
            return None
        return there if same_template(there["spec"]["template"], template) else None

    async def scale_all(self, deployment: Json, new: Json | None, sets: list[Json]) -> None:
        """Give all ReplicaSets their share of the deployment's size, without the rollout going on:
        the deployment was resized, or is paused."""
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
        """Give a ReplicaSet its size, and note which size of the deployment it is for.  Gives whether
        its own size has changed."""
        meta = replica_set["metadata"]
        before = replicas_of(replica_set)
        note = sized_for(deployment)
        if size == before and all(
            annotations_of(replica_set).get(name) == value for name, value in note.items()
        ):
            return False
        if size == before and not size:
            return False  # what an empty one was sized for does not matter
        patch = {"metadata": {"uid": meta["uid"], "annotations": note}, "spec": {"replicas": size}}
        await self._client.patch(REPLICA_SET.untyped, meta["name"], patch, meta["namespace"])
        if size == before:
            return False
        self.tell_scaled(deployment, meta["name"], before, size)
        return True

    def tell_scaled(self, deployment: Json, name: str, before: int, size: int) -> None:
        """Record that a ReplicaSet was given another size."""
        word = "up" if size > before else "down"
        message = f"Scaled {word} replica set {name} from {before} to {size}"
        self._recorder.event(deployment, "Normal", "ScalingReplicaSet", message)

    async def keep_annotations(self, deployment: Json, new: Json, sets: list[Json]) -> Json:
        """Give the present ReplicaSet the highest revision (also after a rollback) and the
        deployment's annotations."""
        uid = new["metadata"]["uid"]
        highest = max((revision_of(s) for s in sets if s["metadata"]["uid"] != uid), default=0)
        known = revision_of(new)
        revision = known if known > highest else highest + 1
        wanted = {**passed_on(deployment), REVISION: str(revision)}
        # It was the present one before: its earlier revisions are kept.
        if known and known != revision:
            earlier = [part for part in annotations_of(new).get(HISTORY, "").split(",") if part]
            wanted[HISTORY] = ",".join([*earlier, str(known)])
        patch: Json = {}
        if any(annotations_of(new).get(name) != value for name, value in wanted.items()):
            patch["metadata"] = {"annotations": wanted}
        if new["spec"].get("minReadySeconds", 0) != deployment["spec"].get("minReadySeconds", 0):
            patch["spec"] = {"minReadySeconds": deployment["spec"].get("minReadySeconds", 0)}
        if patch:
            meta = new["metadata"]
            new = await self._client.patch(
                REPLICA_SET.untyped, meta["name"], patch, meta["namespace"]
            )
        await self.note_revision(deployment, revision)
        return new

    async def note_revision(self, deployment: Json, revision: int) -> None:
        if annotations_of(deployment).get(REVISION) != str(revision):
            meta = deployment["metadata"]
            patch = {"metadata": {"uid": meta["uid"], "annotations": {REVISION: str(revision)}}}
            with suppress(NotFound):  # it was deleted meanwhile
                await self._client.patch(DEPLOYMENT.untyped, meta["name"], patch, meta["namespace"])

    async def forget_old(self, deployment: Json, new: Json | None, sets: list[Json]) -> None:
        """Delete empty old ReplicaSets beyond the revision history limit."""
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
                await self._client.delete(
                    REPLICA_SET, meta["name"], meta["namespace"], uid=meta["uid"]
                )
            except (NotFound, Conflict):
                continue


def sized_for(deployment: Json) -> dict[str, str]:
    """The annotations that say which size of the deployment a ReplicaSet was sized for."""
    return {DESIRED: str(replicas_of(deployment)), MAXIMUM: str(surge_size(deployment))}


def passed_on(deployment: Json) -> dict[str, str]:
    """The deployment's annotations that its ReplicaSets have, too."""
    return {
        name: value
        for name, value in annotations_of(deployment).items()
        if name not in OWN_ANNOTATIONS
    }


def new_replica_set(deployment: Json, sets: list[Json], size: int) -> Json:
    """The ReplicaSet of the present template, to be created.  `sets` are those that there are."""
    meta, spec = deployment["metadata"], deployment["spec"]
    collisions = deployment.get("status", {}).get("collisionCount", 0)
    digest = template_hash(spec["template"], collisions)
    template = dict(spec["template"])
    template["metadata"] = dict(template.get("metadata") or {})
    template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), HASH: digest}
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: digest}
    revision = max(map(revision_of, sets), default=0) + 1
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{digest}",
            "namespace": meta["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {
                **passed_on(deployment),
                REVISION: str(revision),
                **sized_for(deployment),
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
