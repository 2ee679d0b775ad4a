"""The cluster's own storage: a directory for each claim, below the cluster's state.  Reference:
local-cluster 10.12.

It goes by the name `rancher.io/local-path` and its class by `standard`, as on the small clusters
that people know, so that their manifests work.  All nodes of a local cluster are this machine: a
volume for one reader is tied to the node of its first pod, as it would be elsewhere; one that many
nodes may write (ReadWriteMany) is reached from all of them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.api.kubernetes.storage import STORAGE_CLASS
from hekla.api.names import DEFAULT_STORAGE_CLASS, HOSTNAME, SELECTED_NODE
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, Conflict, NotFound
from hekla.kube.events import Recorder, Severity
from hekla.kube.objects import with_kind
from hekla.local.controller_manager.volumes import claims
from hekla.local.controller_manager.volumes.claims import phase, reclaim_policy

PROVISIONER = "rancher.io/local-path"
CLASS = "standard"
MADE = ".class-made"
"""Marks that the class was created once; a user who deletes it wants it gone."""
OPEN = 0o777
"""The mode of a claim's directory: pods run as whatever user their image names, and the directories
above decide who reaches it at all."""


class Provisioner(Controller):
    """Makes volumes for claims of this provisioner's classes, and removes what was released."""

    name = "local-path"

    def __init__(
        self,
        client: Client,
        volumes: Cache[Json],
        found: Cache[Json],
        classes: Cache[Json],
        recorder: Recorder,
        root: Path,
    ) -> None:
        super().__init__(volumes, found, classes)
        self.client = client
        self.volumes = volumes
        self.claims = found
        self.classes = classes
        self.recorder = recorder
        self.root = root
        self.enqueue(found, lambda claim: f"claim/{claims.key(claim)}")
        self.enqueue(volumes, lambda volume: f"volume/{volume['metadata']['name']}")
        classes.on_change(lambda old, new: self.queue_pending())

    def queue_pending(self) -> None:
        for claim in self.claims.by("volume", ""):
            self.queue.add(f"claim/{claims.key(claim)}")

    async def start(self) -> None:
        """Makes the default class of a new cluster, and clears away directories whose volume was
        never made."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        marker = self.root / MADE
        if not marker.exists():
            await self.make_class()
            marker.touch(mode=0o600)
        known = {f"pvc-{claim['metadata']['uid']}" for claim in self.claims.all()} | set(
            self.volumes.keys()
        )
        for directory in self.root.glob("pvc-*"):
            if directory.name.partition("_")[0] not in known:
                try:
                    directory.rmdir()
                except OSError:
                    continue  # it holds something: not ours to decide

    async def make_class(self) -> None:
        body: Json = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "provisioner": PROVISIONER,
            "reclaimPolicy": "Delete",
            "metadata": {"name": CLASS, "annotations": {DEFAULT_STORAGE_CLASS: "true"}},
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        }
        with suppress(AlreadyExists):
            await self.client.create(STORAGE_CLASS.untyped, body)

    async def reconcile(self, key: str) -> float | None:
        """Reconcile a claim that may need a volume, or at a volume that may have lost its claim."""
        what, _, name = key.partition("/")
        if what == "volume":
            volume = self.volumes.get(name)
            if (
                volume is not None
                and is_ours(volume)
                and phase(volume) in ("Released", "Failed")
                and reclaim_policy(volume) == "Delete"
            ):
                await self.remove(volume)
            return None
        claim = self.claims.get(name)
        if claim is None or claim["metadata"].get("deletionTimestamp") is not None:
            return None
        made = self.classes.get(claims.class_of(claim))
        if made is None or made.get("provisioner") != PROVISIONER:
            return None
        if claim["spec"].get("volumeName"):
            await self.grow(claim, made)
        else:
            await self.provide(claim, made)
        return None

    # --- making -----------------------------------------------------------------------------------

    async def provide(self, claim: Json, made: Json) -> None:
        """Makes directory and volume for a claim whose time has come."""
        node = claims.notes(claim).get(SELECTED_NODE, "")
        if made.get("volumeBindingMode") == "WaitForFirstConsumer" and not node:
            return
        meta = claim["metadata"]
        name = f"pvc-{meta['uid']}"
        if self.volumes.get(name) is not None or self.volumes.by("claim", claims.key(claim)):
            return  # the binder has what it needs
        if claims.mode(claim) == "Block":
            self.refuse(claim, made, f"{PROVISIONER} makes directories, no block devices")
            return
        if claim["spec"].get("selector"):
            self.refuse(claim, made, "claim.Spec.Selector is not supported")
            return
        path = self.root / f"{name}_{meta['namespace']}_{meta['name']}"
        self.tell(
            claim,
            "Normal",
            "Provisioning",
            f'External provisioner is provisioning volume for claim "{claims.key(claim)}"',
        )
        path.mkdir(exist_ok=True)
        os.chmod(path, OPEN)
        try:
            await self.client.create(PERSISTENT_VOLUME.untyped, volume_of(claim, made, path, node))
        except AlreadyExists:
            return
        self.tell(
            claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}"
        )

    async def grow(self, claim: Json, made: Json) -> None:
        """Expand a volume to what its claim asks for: directories have no real size."""
        status = claim.get("status") or {}
        if status.get("phase") != "Bound" or not made.get("allowVolumeExpansion"):
            return
        asked = claim["spec"]["resources"]["requests"]["storage"]
        if claims.wanted(claim) <= claims.wanted(
            {"spec": {"resources": {"requests": status.get("capacity") or {}}}}
        ):
            return
        volume = self.volumes.get(claim["spec"]["volumeName"])
        if volume is None or not is_ours(volume):
            return
        meta = claim["metadata"]
        try:
            if claims.size(volume) < claims.wanted(claim):
                await self.client.patch(
                    PERSISTENT_VOLUME,
                    volume["metadata"]["name"],
                    {"spec": {"capacity": {"storage": asked}}},
                )
            patch = {"metadata": {"uid": meta["uid"]}, "status": {"capacity": {"storage": asked}}}
            await self.client.patch(
                PERSISTENT_VOLUME_CLAIM,
                meta["name"],
                patch,
                meta["namespace"],
                subresource="status",
            )
        except (NotFound, Conflict):
            return
        self.tell(
            claim,
            "Normal",
            "VolumeResizeSuccessful",
            f"Resize volume {volume['metadata']['name']} succeeded",
        )

    def tell(self, claim: Json, severity: Severity, reason: str, message: str) -> None:
        self.recorder.event(with_kind(PERSISTENT_VOLUME_CLAIM, claim), severity, reason, message)

    def refuse(self, claim: Json, made: Json, why: str) -> None:
        message = (
            f'failed to provision volume with StorageClass "{made["metadata"]["name"]}": {why}'
        )
        self.tell(claim, "Warning", "ProvisioningFailed", message)

    # --- removing ---------------------------------------------------------------------------------

    async def remove(self, volume: Json) -> None:
        """Delete a released volume with its directory."""
        name = volume["metadata"]["name"]
        path = Path((volume["spec"].get("hostPath") or {}).get("path", ""))
        # Never a place that somebody wrote into the object.
        if path.parent == self.root and path.name.startswith(f"{name}_"):
            try:
                await asyncio.to_thread(shutil.rmtree, path)
            except FileNotFoundError:
                pass
            except OSError as error:
                there = with_kind(PERSISTENT_VOLUME, volume)
                self.recorder.event(
                    there, "Warning", "VolumeFailedDelete", f"{error.filename}: {error.strerror}"
                )
                raise
        with suppress(NotFound, Conflict):
            await self.client.delete(PERSISTENT_VOLUME, name, uid=volume["metadata"]["uid"])


def is_ours(volume: Json) -> bool:
    return claims.notes(volume).get(claims.PROVISIONED_BY) == PROVISIONER


def volume_of(claim: Json, made: Json, path: Path, node: str) -> Json:
    """The volume that stands for a directory."""
    meta, spec = claim["metadata"], claim["spec"]
    body: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{meta['uid']}",
            "annotations": {claims.PROVISIONED_BY: PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec.get("accessModes"),
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": made.get("reclaimPolicy", "Delete"),
            "storageClassName": made["metadata"]["name"],
            "hostPath": {"path": str(path), "type": "DirectoryOrCreate"},
            "claimRef": claims.reference_to(claim),
        },
    }
    if made.get("mountOptions"):
        body["spec"]["mountOptions"] = made["mountOptions"]
    if node and "ReadWriteMany" not in spec.get("accessModes", ()):
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
        body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return body
