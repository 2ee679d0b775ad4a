"""Writes volumes and claims: each only as long as it is the object that was seen."""

from __future__ import annotations

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.errors import NotFound
from hekla.local.controller_manager.volumes.claims import phase


class VolumeWriter:
    """The requests that one controller makes for volumes and claims."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read_volume(self, name: str) -> Json | None:
        """A volume as it is on the server, which a cache may be behind."""
        try:
            return await self._client.get(PERSISTENT_VOLUME.untyped, name)
        except NotFound:
            return None

    async def read_claim(self, ref: Json) -> Json | None:
        """The claim that a claimRef names, None where it is gone or another of its name."""
        try:
            claim = await self._client.get(
                PERSISTENT_VOLUME_CLAIM.untyped, ref.get("name", ""), ref.get("namespace", "")
            )
        except NotFound:
            return None
        return claim if claim["metadata"]["uid"] == ref["uid"] else None

    async def patch_volume(self, volume: Json, patch: Json, subresource: str | None = None) -> Json:
        """Merge a patch into a volume.  Raises Conflict when it has changed since it was seen."""
        meta = volume["metadata"]
        patch = {
            **patch,
            "metadata": {**patch.get("metadata", {}), "resourceVersion": meta["resourceVersion"]},
        }
        return await self._client.patch(
            PERSISTENT_VOLUME.untyped, meta["name"], patch, subresource=subresource
        )

    async def patch_claim(self, claim: Json, patch: Json) -> Json:
        """Merge a patch into a claim.  Raises an ApiError when it is another claim by now."""
        meta = claim["metadata"]
        patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": meta["uid"]}}
        return await self._client.patch(
            PERSISTENT_VOLUME_CLAIM.untyped, meta["name"], patch, meta["namespace"]
        )

    async def set_volume_phase(self, volume: Json, wanted: str, message: str = "") -> Json:
        """Set the phase of a volume.  Raises Conflict when the volume has changed since it was
        seen, so that no late reconcile takes back what a binding wrote."""
        if phase(volume) == wanted:
            return volume
        return await self.patch_volume(
            volume, {"status": {"phase": wanted, "message": message or None}}, "status"
        )

    async def set_claim_status(self, claim: Json, status: Json) -> None:
        """Set members of a claim's status, where they differ."""
        before = claim.get("status") or {}
        if all((before.get(name) or None) == (value or None) for name, value in status.items()):
            return
        meta = claim["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        await self._client.patch(
            PERSISTENT_VOLUME_CLAIM.untyped,
            meta["name"],
            body,
            meta["namespace"],
            subresource="status",
        )
