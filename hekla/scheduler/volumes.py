"""Binds the volume claims of a pod before the pod: writes what the engine decided, then waits.

For an existing volume it writes the claim into the volume's `claimRef`; for a volume that must be
provisioned it writes the node into an annotation of the claim, for which provisioners wait.  The
cluster's volume controllers do the rest.  Reference: local-cluster 10.12, 10.14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hekla.api.kubernetes import claims
from hekla.engine.model.state import State
from hekla.engine.model.volumes import CLAIM, SELECTED_NODE, VOLUME
from hekla.kube.client import Client
from hekla.scheduler.claim_waiters import ClaimWaiters, Tree

PATIENCE = 600.0
"""Seconds that a claim may take to be bound (`volumebinding.bindTimeoutSeconds`); after them the
bind fails and the pod is scheduled again."""
BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"
COMPLETED = "pv.kubernetes.io/bind-completed"


class VolumeError(Exception):
    """A claim could not be bound; the text says why."""


class VolumeBinder(ClaimWaiters):
    """Binds claims to volumes."""

    def __init__(self, client: Client, state: State) -> None:
        super().__init__()
        self.client = client
        self.state = state
        self.patience = PATIENCE

    async def bind(self, promised: Mapping[str, str], node: str) -> None:
        """Returns once all claims are bound.  Raises VolumeError, and what the client raises."""
        for key, volume in promised.items():
            if volume:
                await self.claim(key, volume)
            else:
                await self.choose(key, node)
        try:
            async with asyncio.timeout(self.patience):
                for key in promised:
                    await self.bound(key, node, chosen=not promised[key])
        except TimeoutError as error:
            raise VolumeError(f"its volumes were not bound within {self.patience:.0f} s") from error

    def of(self, kind: str, key: str) -> Tree:
        found = self.state.others.get(kind, {}).get(key)
        if found is None:
            raise VolumeError(f"{kind} {key} is gone")
        return found

    async def claim(self, key: str, name: str) -> None:
        """Write the claim into the `claimRef` of its volume."""
        volume, metadata = self.of(VOLUME, name), self.of(CLAIM, key)["metadata"]
        if ((volume.get("spec") or {}).get("claimRef") or {}).get("uid") == metadata["uid"]:
            return
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        patch = {
            "metadata": {
                "resourceVersion": volume["metadata"]["resourceVersion"],
                "annotations": {BOUND_BY_US: "yes"},
            },
            "spec": {"claimRef": reference},
        }
        await self.client.patch(claims.PERSISTENT_VOLUME, name, patch)

    async def choose(self, key: str, node: str) -> None:
        """Write the selected node on the claim, for the provisioner."""
        metadata = self.of(CLAIM, key)["metadata"]
        if (metadata.get("annotations") or {}).get(SELECTED_NODE) == node:
            return
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {SELECTED_NODE: node}}}
        await self.client.patch(
            claims.PERSISTENT_VOLUME_CLAIM, metadata["name"], patch, metadata["namespace"]
        )

    async def bound(self, key: str, node: str, *, chosen: bool) -> None:
        """Wait until one claim is bound.  A provisioner that cannot use the node removes the
        annotation again.  Raises VolumeError."""
        seen = False
        with self.changes(key) as changed:
            while True:
                changed.clear()
                claim = self.of(CLAIM, key)
                annotations = claim["metadata"].get("annotations") or {}
                if (claim.get("spec") or {}).get("volumeName") and COMPLETED in annotations:
                    return
                there = annotations.get(SELECTED_NODE) == node
                if chosen and seen and not there:
                    raise VolumeError(f"the provisioner of {key} refused node {node}")
                seen = seen or there
                await changed.wait()
