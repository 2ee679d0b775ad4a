"""Binds claims to volumes.  Reference: local-cluster 10.12.

A binding is one fact that is written in two objects: the volume's `claimRef` is the word that
counts, everything else follows from it.  A step that fails half way is found half done by the next
reconcile, and finished.
"""

from __future__ import annotations

import asyncio

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME_CLAIM
from hekla.api.names import SELECTED_NODE
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.events import Recorder, Severity
from hekla.kube.objects import with_kind
from hekla.local.controller_manager.volumes import claims
from hekla.local.controller_manager.volumes.claims import phase
from hekla.local.controller_manager.volumes.writer import VolumeWriter

LOST = "Data on the volume is lost!"
EXTERNAL = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. "
    "If volume creation is delayed, please verify that the provisioner is running and correctly registered."
)


class ClaimBinder:
    """Brings each claim to its volume, or to whoever makes one."""

    def __init__(
        self,
        writer: VolumeWriter,
        volumes: Cache[Json],
        classes: Cache[Json],
        recorder: Recorder,
        own: str,
    ) -> None:
        """`own` is the provisioner of this cluster, which tells of its work itself."""
        self._writer = writer
        self._volumes = volumes
        self._classes = classes
        self._recorder = recorder
        self._own = own
        self._taken: set[str] = set()
        """Volumes that a claim has chosen and that the cache does not show as chosen yet."""
        self._told: dict[str, tuple[str, str]] = {}
        """The last event of each claim that waits, by its uid: the same one is not repeated."""

    def volume_is_shown(self, name: str) -> None:
        """The cache shows which claim has this volume."""
        self._taken.discard(name)

    def forget(self, uid: str) -> None:
        """The claim of this uid is bound or gone."""
        self._told.pop(uid, None)

    async def reconcile(self, claim: Json) -> None:
        """Take one claim a step nearer to being bound.  Raises NotFound when it is gone."""
        if claims.BIND_COMPLETED in claims.notes(claim):
            await self._reconcile_bound(claim)
        elif claim["metadata"].get("deletionTimestamp") is not None:
            return
        elif claim["spec"].get("volumeName"):
            await self._reconcile_chosen(claim)
        else:
            await self._reconcile_open(claim)

    async def _reconcile_open(self, claim: Json) -> None:
        """Find a volume for a claim: one that names the claim, else the smallest suitable one, else
        ask the provisioner of its class."""
        named = next(
            (v for v in self._volumes.by("claim", claims.key(claim)) if claims.is_for(v, claim)),
            None,
        )
        if named is not None:
            why = claims.mismatch(named, claim)
            if not why:
                await self._bind(named, claim)
                return
            self._warn(
                claim,
                "VolumeMismatch",
                f'Cannot bind to requested volume "{named["metadata"]["name"]}": {why}',
            )
        made = self._classes.get(claims.class_of(claim)) if claims.class_of(claim) else None
        waits = made is not None and made.get("volumeBindingMode") == "WaitForFirstConsumer"
        if not waits:
            free = claims.best(
                (
                    v
                    for v in self._volumes.by("claim", "")
                    if v["metadata"]["name"] not in self._taken
                ),
                claim,
            )
            if free is not None:
                await self._take(free, claim)
                return
        if (
            claims.without_class(claim)
            and (default := claims.default_class(self._classes.all())) is not None
        ):
            await self._writer.patch_claim(
                claim, {"spec": {"storageClassName": default["metadata"]["name"]}}
            )
            return
        if waits and SELECTED_NODE not in claims.notes(claim):
            self._tell(
                claim,
                "WaitForFirstConsumer",
                "waiting for first consumer to be created before binding",
            )
        else:
            await self._ask_provisioner(claim, made)
        await self._writer.set_claim_status(claim, {"phase": "Pending"})

    async def _ask_provisioner(self, claim: Json, made: Json | None) -> None:
        """Annotate a claim with its provisioner, which waits for that; or say why there is none."""
        provisioner = (made or {}).get("provisioner", "")
        if made is None and claims.class_of(claim):
            self._warn(
                claim,
                "ProvisioningFailed",
                f'storageclass.storage.k8s.io "{claims.class_of(claim)}" not found',
            )
        elif provisioner in ("", claims.NO_PROVISIONER):
            message = "no persistent volumes available for this claim and no storage class is set"
            self._tell(claim, "FailedBinding", message)
        else:
            missing = {
                name: provisioner
                for name in claims.PROVISIONERS
                if claims.notes(claim).get(name) != provisioner
            }
            if missing:
                await self._writer.patch_claim(claim, {"metadata": {"annotations": missing}})
            if provisioner != self._own:
                self._tell(claim, "ExternalProvisioning", EXTERNAL.format(provisioner))

    async def _reconcile_chosen(self, claim: Json) -> None:
        """Bind a claim to the volume that its user has named."""
        name = claim["spec"]["volumeName"]
        volume = self._volumes.get(name)
        if volume is None:
            await self._writer.set_claim_status(claim, {"phase": "Pending"})
            return
        if claims.reference(volume) and not claims.is_for(volume, claim):
            self._warn(
                claim, "FailedBinding", f'volume "{name}" already bound to a different claim.'
            )
            await self._writer.set_claim_status(claim, {"phase": "Pending"})
            return
        why = claims.mismatch(volume, claim)
        if why:
            self._warn(claim, "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
            await self._writer.set_claim_status(claim, {"phase": "Pending"})
            return
        await self._bind(volume, claim)

    async def _reconcile_bound(self, claim: Json) -> None:
        """Complete the binding of a bound claim, or mark it as Lost when its volume is gone."""
        name = claim["spec"].get("volumeName", "")
        if not name:
            await self._lose(
                claim, "ClaimLost", f"Bound claim has lost reference to PersistentVolume. {LOST}"
            )
            return
        volume = self._volumes.get(name)
        if volume is None or (claims.reference(volume) and not claims.is_for(volume, claim)):
            # The cache of volumes may be behind that of claims, and Lost is final.
            volume = await self._writer.read_volume(name)
        if volume is None:
            await self._lose(
                claim, "ClaimLost", f"Bound claim has lost its PersistentVolume. {LOST}"
            )
        elif claims.reference(volume) and not claims.is_for(volume, claim):
            await self._lose(
                claim,
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            )
        else:
            await self._bind(volume, claim)

    async def _lose(self, claim: Json, reason: str, message: str) -> None:
        if phase(claim) != "Lost":
            self._warn(claim, reason, message)
            await self._writer.set_claim_status(
                claim, {"phase": "Lost", "accessModes": None, "capacity": None}
            )

    def _tell(self, claim: Json, reason: str, message: str, severity: Severity = "Normal") -> None:
        uid = claim["metadata"]["uid"]
        if self._told.get(uid) != (reason, message):
            self._told[uid] = reason, message
            self._recorder.event(
                with_kind(PERSISTENT_VOLUME_CLAIM, claim), severity, reason, message
            )

    def _warn(self, claim: Json, reason: str, message: str) -> None:
        self._tell(claim, reason, message, "Warning")

    async def _take(self, volume: Json, claim: Json) -> None:
        """Bind a volume, and reserve it so that no other claim chooses it meanwhile."""
        name = volume["metadata"]["name"]
        self._taken.add(name)
        try:
            await self._bind(volume, claim)
        except BaseException:
            self._taken.discard(name)
            raise

    async def _bind(self, volume: Json, claim: Json) -> None:
        """Write what is missing of a binding, the volume first."""
        ref = claims.reference(volume)
        meta = claim["metadata"]
        if ref.get("uid") != meta["uid"]:
            patch: Json = {"spec": {"claimRef": claims.reference_to(claim)}}
            if not ref:
                patch["metadata"] = {"annotations": {claims.BOUND_BY_US: "yes"}}
            volume = await self._writer.patch_volume(volume, patch)
        missing = (
            {} if claims.BIND_COMPLETED in claims.notes(claim) else {claims.BIND_COMPLETED: "yes"}
        )
        name = volume["metadata"]["name"]
        if not claim["spec"].get("volumeName"):
            missing[claims.BOUND_BY_US] = "yes"
        shown = self._writer.set_volume_phase(volume, "Bound")
        if missing or claim["spec"].get("volumeName") != name:
            written = self._writer.patch_claim(
                claim, {"metadata": {"annotations": missing}, "spec": {"volumeName": name}}
            )
            claim, _ = await asyncio.gather(written, shown)
        else:
            await shown
        status: Json = {"phase": "Bound", "accessModes": volume["spec"].get("accessModes")}
        before = claim.get("status") or {}
        # Its later size is set when the volume is resized.
        if before.get("phase") != "Bound" or not before.get("capacity"):
            status["capacity"] = volume["spec"].get("capacity")
        await self._writer.set_claim_status(claim, status)
