"""Volumes and claims are brought together, and let go of again.  Reference: local-cluster 10.12.

One controller for both, since a binding is one fact that is written in two objects: the volume's
`claimRef` is the word that counts, everything else follows from it.  A step that fails half way is
found half done by the next look, and finished. Keys are "volume/<name>" and
"claim/<namespace>/<name>".
"""

from __future__ import annotations

import asyncio

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import NotFound
from hekla.kube.events import Recorder, Severity
from hekla.kube.objects import with_kind
from hekla.local.controller_manager.volumes import claims

LOST = "Data on the volume is lost!"
EXTERNAL = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. "
    "If volume creation is delayed, please verify that the provisioner is running and correctly registered."
)


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
        self.client = client
        self.volumes = volumes
        self.claims = found
        self.classes = classes
        self.recorder = recorder
        self.own = own
        self.taken: set[str] = set()
        """Volumes that a claim has chosen and that the cache does not show as chosen yet."""
        self.told: dict[str, tuple[str, str]] = {}
        """What was last said of a claim that waits, by its uid: whoever asks again hears nothing
        new."""
        self.enqueue(volumes, lambda volume: f"volume/{volume['metadata']['name']}")
        self.enqueue(found, lambda claim: f"claim/{claims.key(claim)}")
        volumes.on_change(self.queue_claims)
        found.on_change(self.queue_volume)
        classes.on_change(lambda old, new: self.queue_pending())

    # --- who hears of what ------------------------------------------------------------------------

    def queue_claims(self, old: Json | None, new: Json | None) -> None:
        """The claim that a volume names hears of it; one that nobody has taken may be what somebody
        waits for."""
        for volume in (old, new):
            if volume is not None and claims.reference(volume):
                self.taken.discard(volume["metadata"]["name"])
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
        """The volume of a claim that changed or went; also the one that names it without its
        knowing."""
        claim = new if new is not None else old
        assert claim is not None
        if new is None or phase(new) == "Bound":
            self.told.pop(claim["metadata"]["uid"], None)
        name = claim["spec"].get("volumeName")
        if name:
            self.queue.add(f"volume/{name}")
        for volume in self.volumes.by("claim", claims.key(claim)):
            self.queue.add(f"volume/{volume['metadata']['name']}")

    async def reconcile(self, key: str) -> float | None:
        """One look at a volume or a claim."""
        what, _, name = key.partition("/")
        if what == "volume":
            volume = self.volumes.get(name)
            if volume is not None:
                await self.look_at_volume(volume)
            return None
        claim = self.claims.get(name)
        if claim is not None:
            try:
                await self.look_at_claim(claim)
            except NotFound:
                return None  # it has gone meanwhile, which is an event of its own
        return None

    # --- claims -----------------------------------------------------------------------------------

    async def look_at_claim(self, claim: Json) -> None:
        if claims.BIND_COMPLETED in claims.notes(claim):
            await self.look_at_bound(claim)
        elif claim["metadata"].get("deletionTimestamp") is not None:
            return
        elif claim["spec"].get("volumeName"):
            await self.look_at_chosen(claim)
        else:
            await self.look_at_open(claim)

    async def look_at_open(self, claim: Json) -> None:
        """A claim without a volume: one that names it, else the smallest that suits, else what its
        class can do."""
        named = next(
            (v for v in self.volumes.by("claim", claims.key(claim)) if claims.is_for(v, claim)),
            None,
        )
        if named is not None:
            why = claims.mismatch(named, claim)
            if not why:
                await self.bind(named, claim)
                return
            self.warn(
                claim,
                "VolumeMismatch",
                f'Cannot bind to requested volume "{named["metadata"]["name"]}": {why}',
            )
        made = self.classes.get(claims.class_of(claim)) if claims.class_of(claim) else None
        waits = made is not None and made.get("volumeBindingMode") == "WaitForFirstConsumer"
        if not waits:
            free = claims.best(
                (
                    v
                    for v in self.volumes.by("claim", "")
                    if v["metadata"]["name"] not in self.taken
                ),
                claim,
            )
            if free is not None:
                await self.take(free, claim)
                return
        if (
            claims.without_class(claim)
            and (default := claims.default_class(self.classes.all())) is not None
        ):
            await self.patch_claim(
                claim, {"spec": {"storageClassName": default["metadata"]["name"]}}
            )
            return
        if waits and claims.SELECTED_NODE not in claims.notes(claim):
            self.tell(
                claim,
                "WaitForFirstConsumer",
                "waiting for first consumer to be created before binding",
            )
        else:
            await self.ask_provisioner(claim, made)
        await self.show_claim(claim, {"phase": "Pending"})

    async def ask_provisioner(self, claim: Json, made: Json | None) -> None:
        """Says who is to make the volume, which is what that one waits for."""
        provisioner = (made or {}).get("provisioner", "")
        if made is None and claims.class_of(claim):
            self.warn(
                claim,
                "ProvisioningFailed",
                f'storageclass.storage.k8s.io "{claims.class_of(claim)}" not found',
            )
        elif provisioner in ("", claims.NO_PROVISIONER):
            message = "no persistent volumes available for this claim and no storage class is set"
            self.tell(claim, "FailedBinding", message)
        else:
            missing = {
                name: provisioner
                for name in claims.PROVISIONERS
                if claims.notes(claim).get(name) != provisioner
            }
            if missing:
                await self.patch_claim(claim, {"metadata": {"annotations": missing}})
            if provisioner != self.own:
                self.tell(claim, "ExternalProvisioning", EXTERNAL.format(provisioner))

    async def look_at_chosen(self, claim: Json) -> None:
        """A claim whose user has named the volume."""
        name = claim["spec"]["volumeName"]
        volume = self.volumes.get(name)
        if volume is None:
            await self.show_claim(claim, {"phase": "Pending"})
            return
        if claims.reference(volume) and not claims.is_for(volume, claim):
            self.warn(
                claim, "FailedBinding", f'volume "{name}" already bound to a different claim.'
            )
            await self.show_claim(claim, {"phase": "Pending"})
            return
        why = claims.mismatch(volume, claim)
        if why:
            self.warn(claim, "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
            await self.show_claim(claim, {"phase": "Pending"})
            return
        await self.bind(volume, claim)

    async def look_at_bound(self, claim: Json) -> None:
        """A claim that was bound stays so, or has lost its volume for good."""
        name = claim["spec"].get("volumeName", "")
        if not name:
            await self.lose(
                claim, "ClaimLost", f"Bound claim has lost reference to PersistentVolume. {LOST}"
            )
            return
        volume = self.volumes.get(name)
        if volume is None or (claims.reference(volume) and not claims.is_for(volume, claim)):
            volume = await self.read(
                name
            )  # the cache of volumes may be behind that of claims, and losing is for ever
        if volume is None:
            await self.lose(
                claim, "ClaimLost", f"Bound claim has lost its PersistentVolume. {LOST}"
            )
        elif claims.reference(volume) and not claims.is_for(volume, claim):
            await self.lose(
                claim,
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            )
        else:
            await self.bind(volume, claim)

    async def read(self, name: str) -> Json | None:
        try:
            return await self.client.get(PERSISTENT_VOLUME.untyped, name)
        except NotFound:
            return None

    async def lose(self, claim: Json, reason: str, message: str) -> None:
        if phase(claim) != "Lost":
            self.warn(claim, reason, message)
            await self.show_claim(claim, {"phase": "Lost", "accessModes": None, "capacity": None})

    def tell(self, claim: Json, reason: str, message: str, severity: Severity = "Normal") -> None:
        uid = claim["metadata"]["uid"]
        if self.told.get(uid) != (reason, message):
            self.told[uid] = reason, message
            self.recorder.event(
                with_kind(PERSISTENT_VOLUME_CLAIM, claim), severity, reason, message
            )

    def warn(self, claim: Json, reason: str, message: str) -> None:
        self.tell(claim, reason, message, "Warning")

    # --- the binding ------------------------------------------------------------------------------

    async def take(self, volume: Json, claim: Json) -> None:
        """Binds a volume that nobody else may choose meanwhile."""
        name = volume["metadata"]["name"]
        self.taken.add(name)
        try:
            await self.bind(volume, claim)
        except BaseException:
            self.taken.discard(name)
            raise

    async def bind(self, volume: Json, claim: Json) -> None:
        """Writes what is missing of a binding, the volume first."""
        ref = claims.reference(volume)
        meta = claim["metadata"]
        if ref.get("uid") != meta["uid"]:
            patch: Json = {"spec": {"claimRef": claims.reference_to(claim)}}
            if not ref:
                patch["metadata"] = {"annotations": {claims.BOUND_BY_US: "yes"}}
            volume = await self.patch_volume(volume, patch)
        missing = (
            {} if claims.BIND_COMPLETED in claims.notes(claim) else {claims.BIND_COMPLETED: "yes"}
        )
        name = volume["metadata"]["name"]
        if not claim["spec"].get("volumeName"):
            missing[claims.BOUND_BY_US] = "yes"
        shown = self.show_volume(volume, "Bound")
        if missing or claim["spec"].get("volumeName") != name:
            written = self.patch_claim(
                claim, {"metadata": {"annotations": missing}, "spec": {"volumeName": name}}
            )
            claim, _ = await asyncio.gather(written, shown)
        else:
            await shown
        status: Json = {"phase": "Bound", "accessModes": volume["spec"].get("accessModes")}
        before = claim.get("status") or {}
        if before.get("phase") != "Bound" or not before.get(
            "capacity"
        ):  # what it grows to later is the resizer's word
            status["capacity"] = volume["spec"].get("capacity")
        await self.show_claim(claim, status)

    # --- volumes ----------------------------------------------------------------------------------

    async def look_at_volume(self, volume: Json) -> None:
        """The phase of a volume, and its end when the claim that had it is gone."""
        ref = claims.reference(volume)
        if not ref:
            await self.show_volume(volume, "Available")
            return
        if not ref.get("uid"):
            await self.show_volume(volume, "Available")  # reserved; the claim's own look binds it
            return
        claim = self.claims.get(claims.reserved_for(volume))
        if claim is None or claim["metadata"]["uid"] != ref["uid"]:
            claim = await self.read_claim(ref)
        if claim is None:
            await self.release(volume)
        elif claim["spec"].get("volumeName") == volume["metadata"]["name"]:
            if claims.BIND_COMPLETED in claims.notes(claim):
                await self.show_volume(volume, "Bound")
            else:
                self.queue.add(f"claim/{claims.key(claim)}")
        elif not claim["spec"].get("volumeName"):
            self.queue.add(f"claim/{claims.key(claim)}")
        elif claims.PROVISIONED_BY in claims.notes(volume) and policy(volume) == "Delete":
            await self.release(volume)  # made for a claim that has found another one
        elif claims.BOUND_BY_US in claims.notes(volume):
            await self.patch_volume(
                volume,
                {
                    "metadata": {"annotations": {claims.BOUND_BY_US: None}},
                    "spec": {"claimRef": None},
                },
            )

    async def read_claim(self, ref: Json) -> Json | None:
        try:
            claim = await self.client.get(
                PERSISTENT_VOLUME_CLAIM.untyped, ref.get("name", ""), ref.get("namespace", "")
            )
        except NotFound:
            return None
        return claim if claim["metadata"]["uid"] == ref["uid"] else None

    async def release(self, volume: Json) -> None:
        """The claim is gone: the volume is kept as it is, or its maker takes it back."""
        if phase(volume) not in ("Released", "Failed"):
            volume = await self.show_volume(volume, "Released")
        if (
            policy(volume) == "Retain"
            or claims.PROVISIONED_BY in claims.notes(volume)
            or phase(volume) == "Failed"
        ):
            return
        message = f'error getting deleter volume plugin for volume "{volume["metadata"]["name"]}": no deletable volume plugin matched'
        if policy(volume) == "Recycle":
            message = "no recyclable volume plugin matched"
        reason = "VolumeFailedDelete" if policy(volume) == "Delete" else "VolumeFailedRecycle"
        self.recorder.event(with_kind(PERSISTENT_VOLUME, volume), "Warning", reason, message)
        await self.show_volume(volume, "Failed", message)

    # --- writing ----------------------------------------------------------------------------------

    async def patch_volume(self, volume: Json, patch: Json, subresource: str | None = None) -> Json:
        """A change of a volume as it was seen; Conflict when it is another by now."""
        meta = volume["metadata"]
        patch = {
            **patch,
            "metadata": {**patch.get("metadata", {}), "resourceVersion": meta["resourceVersion"]},
        }
        return await self.client.patch(
            PERSISTENT_VOLUME.untyped, meta["name"], patch, subresource=subresource
        )

    async def patch_claim(self, claim: Json, patch: Json) -> Json:
        meta = claim["metadata"]
        patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": meta["uid"]}}
        return await self.client.patch(
            PERSISTENT_VOLUME_CLAIM.untyped, meta["name"], patch, meta["namespace"]
        )

    async def show_volume(self, volume: Json, word: str, message: str = "") -> Json:
        """The phase of a volume as it was seen; Conflict when it is another by now: no late look
        takes back what a binding wrote."""
        if phase(volume) == word:
            return volume
        return await self.patch_volume(
            volume, {"status": {"phase": word, "message": message or None}}, "status"
        )

    async def show_claim(self, claim: Json, status: Json) -> None:
        before = claim.get("status") or {}
        if all((before.get(name) or None) == (value or None) for name, value in status.items()):
            return
        meta = claim["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        await self.client.patch(
            PERSISTENT_VOLUME_CLAIM.untyped,
            meta["name"],
            body,
            meta["namespace"],
            subresource="status",
        )


def phase(obj: Json) -> str:
    found: str = (obj.get("status") or {}).get("phase", "")
    return found


def policy(volume: Json) -> str:
    """What becomes of the volume without its claim."""
    found: str = volume["spec"].get("persistentVolumeReclaimPolicy", "Retain")
    return found
