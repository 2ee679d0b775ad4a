"""Keeps claims that pods use, and volumes that claims use, from being deleted under them.
Reference: local-cluster 5.9, 10.12."""

from __future__ import annotations

from contextlib import suppress

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import NotFound
from hekla.local.controller_manager.pods import VOLUMES, Pod, concerns
from hekla.local.controller_manager.volumes import claims
from hekla.local.controller_manager.volumes.claims import phase

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"


class ProtectionController(Controller):
    """Adds the finalizers, and removes them from deleted objects once nobody uses these."""

    name = "storage-protection"

    def __init__(
        self, client: Client, volumes: Cache[Json], found: Cache[Json], pods: Cache[Pod]
    ) -> None:
        super().__init__(volumes, found, pods)
        self.client = client
        self.volumes = volumes
        self.claims = found
        self.pods = pods
        self.enqueue(volumes, lambda volume: f"volume/{volume['metadata']['name']}")
        self.enqueue(found, lambda claim: f"claim/{claims.key(claim)}")
        pods.on_change_of(concerns, [VOLUMES], self.queue_claims)

    def queue_claims(self, old: Pod | None, new: Pod | None) -> None:
        """Only a pod that goes frees a claim."""
        if new is None and old is not None:
            for key in old.claims:
                if key in self.claims:
                    self.queue.add(f"claim/{key}")

    async def reconcile(self, key: str) -> float | None:
        """Reconcile the finalizer of a claim or a volume."""
        what, _, name = key.partition("/")
        obj = (self.volumes if what == "volume" else self.claims).get(name)
        if obj is None:
            return None
        finalizer = VOLUME_FINALIZER if what == "volume" else CLAIM_FINALIZER
        finalizers = obj["metadata"].get("finalizers") or []
        if obj["metadata"].get("deletionTimestamp") is None:
            if finalizer not in finalizers:
                await self.write(obj, [*finalizers, finalizer])
        elif finalizer in finalizers:
            # A pod without a node has nothing mounted, and no node will mount a claim that is being
            # deleted.
            used = (
                phase(obj) == "Bound"
                if what == "volume"
                else any(pod.spec.node_name for pod in self.pods.by("claim", name))
            )
            if not used:
                await self.write(obj, [one for one in finalizers if one != finalizer])
        return None

    async def write(self, obj: Json, finalizers: list[str]) -> None:
        meta = obj["metadata"]
        patch = {
            "metadata": {
                "resourceVersion": meta["resourceVersion"],
                "finalizers": finalizers or None,
            }
        }
        kind = (
            PERSISTENT_VOLUME_CLAIM.untyped if meta.get("namespace") else PERSISTENT_VOLUME.untyped
        )
        with suppress(NotFound):
            await self.client.patch(kind, meta["name"], patch, meta.get("namespace"))
