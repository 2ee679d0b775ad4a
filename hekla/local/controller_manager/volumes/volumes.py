"""Keeps volumes and claims together: which belongs to which, and the phases of both.  Reference:
local-cluster 10.12.

One controller for both, since a binding is one fact that is written in two objects.  Keys are
"volume/<name>" and "claim/<namespace>/<name>".
"""

from __future__ import annotations

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import NotFound
from hekla.kube.events import Recorder
from hekla.kube.objects import with_kind
from hekla.local.controller_manager.volumes import claims
from hekla.local.controller_manager.volumes.binder import ClaimBinder
from hekla.local.controller_manager.volumes.claims import phase, reclaim_policy
from hekla.local.controller_manager.volumes.writer import VolumeWriter


class VolumeController(Controller):
    """Binds claims to volumes and keeps the phases of both."""

    name = "persistentvolume-binder"
    workers = 8

    def __init__(
        self,
        client: Client,
        volumes: Cache[Json],
        found: Cache[Json],
        classes: Cache[Json],
        recorder: Recorder,
        own: str = "",
    ) -> None:
        """`found` are the claims; `own` is the provisioner of this cluster, which tells of its work
        itself."""
        super().__init__(volumes, found, classes)
        self.volumes = volumes
        self.claims = found
        self.recorder = recorder
        self._writer = VolumeWriter(client)
        self._binder = ClaimBinder(self._writer, volumes, classes, recorder, own)
        self.enqueue(volumes, lambda volume: f"volume/{volume['metadata']['name']}")
        self.enqueue(found, lambda claim: f"claim/{claims.key(claim)}")
        volumes.on_change(self.queue_claims)
        found.on_change(self.queue_volume)
        classes.on_change(lambda old, new: self.queue_pending())

    # --- event handlers ---------------------------------------------------------------------------

    def queue_claims(self, old: Json | None, new: Json | None) -> None:
        """Queue the claim that a volume names, and for a volume that has become free all claims
        that it suits."""
        for volume in (old, new):
            if volume is not None and claims.reference(volume):
                self._binder.volume_is_shown(volume["metadata"]["name"])
                self.queue.add(f"claim/{claims.reserved_for(volume)}")
        if (
            new is not None
            and not claims.reference(new)
            and phase(new) == "Available"
            and (old is None or phase(old) != "Available")
        ):
            for claim in self.claims.by("volume", ""):
                if claims.suits(new, claim):
                    self.queue.add(f"claim/{claims.key(claim)}")

    def queue_pending(self) -> None:
        for claim in self.claims.by("volume", ""):
            self.queue.add(f"claim/{claims.key(claim)}")

    def queue_volume(self, old: Json | None, new: Json | None) -> None:
        """Queue the volume of a claim that changed or went, and those that name the claim while it
        does not name them."""
        claim = new if new is not None else old
        assert claim is not None
        if new is None or phase(new) == "Bound":
            self._binder.forget(claim["metadata"]["uid"])
        name = claim["spec"].get("volumeName")
        if name:
            self.queue.add(f"volume/{name}")
        for volume in self.volumes.by("claim", claims.key(claim)):
            self.queue.add(f"volume/{volume['metadata']['name']}")

    async def reconcile(self, key: str) -> float | None:
        what, _, name = key.partition("/")
        if what == "volume":
            volume = self.volumes.get(name)
            if volume is not None:
                await self._reconcile_volume(volume)
            return None
        claim = self.claims.get(name)
        if claim is not None:
            try:
                await self._binder.reconcile(claim)
            except NotFound:
                return None  # it was deleted meanwhile, which queues it again
        return None

    async def _reconcile_volume(self, volume: Json) -> None:
        """Set the phase of a volume, and release it when the claim that had it is gone."""
        ref = claims.reference(volume)
        if not ref:
            await self._writer.set_volume_phase(volume, "Available")
            return
        if not ref.get("uid"):
            # Reserved: the reconcile of the claim binds it.
            await self._writer.set_volume_phase(volume, "Available")
            return
        claim = self.claims.get(claims.reserved_for(volume))
        if claim is None or claim["metadata"]["uid"] != ref["uid"]:
            claim = await self._writer.read_claim(ref)
        if claim is None:
            await self._release(volume)
        elif claim["spec"].get("volumeName") == volume["metadata"]["name"]:
            if claims.BIND_COMPLETED in claims.notes(claim):
                await self._writer.set_volume_phase(volume, "Bound")
            else:
                self.queue.add(f"claim/{claims.key(claim)}")
        elif not claim["spec"].get("volumeName"):
            self.queue.add(f"claim/{claims.key(claim)}")
        elif claims.PROVISIONED_BY in claims.notes(volume) and reclaim_policy(volume) == "Delete":
            await self._release(volume)  # made for a claim that has found another one
        elif claims.BOUND_BY_US in claims.notes(volume):
            await self._writer.patch_volume(
                volume,
                {
                    "metadata": {"annotations": {claims.BOUND_BY_US: None}},
                    "spec": {"claimRef": None},
                },
            )

    async def _release(self, volume: Json) -> None:
        """Release a volume whose claim is gone: it is kept as it is, or its provisioner deletes it."""
        if phase(volume) not in ("Released", "Failed"):
            volume = await self._writer.set_volume_phase(volume, "Released")
        if (
            reclaim_policy(volume) == "Retain"
            or claims.PROVISIONED_BY in claims.notes(volume)
            or phase(volume) == "Failed"
        ):
            return
        message = f'error getting deleter volume plugin for volume "{volume["metadata"]["name"]}": no deletable volume plugin matched'
        if reclaim_policy(volume) == "Recycle":
            message = "no recyclable volume plugin matched"
        reason = (
            "VolumeFailedDelete" if reclaim_policy(volume) == "Delete" else "VolumeFailedRecycle"
        )
        self.recorder.event(with_kind(PERSISTENT_VOLUME, volume), "Warning", reason, message)
        await self._writer.set_volume_phase(volume, "Failed", message)
