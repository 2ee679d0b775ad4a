"""Binds the claims of a pod before the pod itself is bound: what the engine promised them is
written, then waited for.

A claim that was promised a volume is named in that volume's `claimRef`; one whose volume is to be
made is told the node, in an annotation that provisioners wait for.  Whoever owns volumes in the
cluster does the rest.  Reference: local-cluster 10.12, 10.14.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from hekla.api.kubernetes import claims
from hekla.engine.model.state import State
from hekla.engine.model.volumes import CLAIM, SELECTED_NODE, VOLUME
from hekla.kube.client import Client

PATIENCE = 600.0
"""Seconds for which a claim may take to be bound (`volumebinding.bindTimeoutSeconds`); then the pod
is placed anew."""
BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"
COMPLETED = "pv.kubernetes.io/bind-completed"

Tree = Mapping[str, Any]


class VolumeError(Exception):
    """A claim could not be bound; the text says why."""


class VolumeBinder:
    """Writes what claims were promised and waits until they are bound.  Whoever hears of claims
    calls `claim_changed`."""

    def __init__(self, client: Client, state: State) -> None:
        self.client = client
        self.state = state
        self.waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self.patience = PATIENCE

    def claim_changed(self, old: Any, new: Any) -> None:
        """A callback of the cache of claims."""
        metadata = (new if new is not None else old)["metadata"]
        for event in self.waiting.get(f"{metadata['namespace']}/{metadata['name']}", ()):
            event.set()

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
        """Names the claim in the volume that it was promised."""
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
        """Tells provisioners where the volume is to be."""
        metadata = self.of(CLAIM, key)["metadata"]
        if (metadata.get("annotations") or {}).get(SELECTED_NODE) == node:
            return
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {SELECTED_NODE: node}}}
        await self.client.patch(
            claims.PERSISTENT_VOLUME_CLAIM, metadata["name"], patch, metadata["namespace"]
        )

    async def bound(self, key: str, node: str, *, chosen: bool) -> None:
        """Waits until one claim is bound.  A provisioner that cannot work on the node takes the
        annotation away again."""
        changed = asyncio.Event()
        self.waiting[key].add(changed)
        seen = False
        try:
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
        finally:
            self.waiting[key].discard(changed)
            if not self.waiting[key]:
                del self.waiting[key]
