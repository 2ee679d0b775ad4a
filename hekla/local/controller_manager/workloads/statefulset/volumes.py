"""The claims of a StatefulSet's pods: made before their pod, kept, or owned so that they go with
the pod or the set.

Reference: local-cluster 10.6, persistentVolumeClaimRetentionPolicy.
"""

from __future__ import annotations

from hekla.api.kinds import Kind
from hekla.api.kubernetes.apps import STATEFUL_SET
from hekla.api.kubernetes.claims import PERSISTENT_VOLUME_CLAIM
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import reference
from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.workloads.statefulset.identity import claim_body, claim_name

CLAIMS: Kind[Json] = PERSISTENT_VOLUME_CLAIM.untyped


def owner_wanted(stateful_set: Json, pod: Pod | None, *, beyond: bool) -> Json | None:
    """The reference by which a claim goes with its pod (one that is scaled away) or with its set;
    None for claims that stay."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if beyond and policy.get("whenScaled") == "Delete":
        if pod is None:
            return None
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
            "controller": True,
        }
    if policy.get("whenDeleted") == "Delete" and not (
        beyond and policy.get("whenScaled") == "Delete"
    ):
        return {**reference(STATEFUL_SET, stateful_set), "blockOwnerDeletion": False}
    return None


def owners(stateful_set: Json, claim: Json, wanted: Json | None) -> list[Json] | None:
    """The owner references that a claim should have; None when it has them.  References to other
    owners stay."""
    known = claim["metadata"].get("ownerReferences") or []
    set_name, claim_of = stateful_set["metadata"]["name"], f"{stateful_set['metadata']['name']}-"

    def ours(owner: Json) -> bool:
        if owner["kind"] == "StatefulSet":
            return bool(owner["name"] == set_name)
        return bool(owner["kind"] == "Pod" and owner["name"].startswith(claim_of))

    mine = [owner for owner in known if ours(owner)]
    if [owner["uid"] for owner in mine] == ([wanted["uid"]] if wanted else []):
        return None
    foreign = [owner for owner in known if not ours(owner)]
    if wanted is not None and any(owner.get("controller") for owner in foreign):
        return None  # another controller manages it, and decides when it is deleted
    return [*foreign, *([wanted] if wanted else [])]


class PodClaims:
    """Makes the claims and keeps their owners, by a cache of all claims."""

    def __init__(self, client: Client, claims: Cache[Json], recorder: Recorder) -> None:
        self.client = client
        self.claims = claims
        self.recorder = recorder

    async def make(self, stateful_set: Json, pod: str) -> ApiError | None:
        """Create the missing claims of a pod.  Gives the error, if any."""
        namespace = stateful_set["metadata"]["namespace"]
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            body = claim_body(stateful_set, template, pod)
            name = body["metadata"]["name"]
            if self.claims.get(f"{namespace}/{name}") is not None:
                continue
            wanted = owner_wanted(stateful_set, None, beyond=False)
            if wanted is not None:
                body["metadata"]["ownerReferences"] = [wanted]
            subject = f"Claim {name} Pod {pod} in StatefulSet {stateful_set['metadata']['name']}"
            try:
                await self.client.create(CLAIMS, body, namespace)
            except AlreadyExists:
                continue
            except ApiError as error:
                message = f"create {subject} failed error: {error.message}"
                self.recorder.event(stateful_set, "Warning", "FailedCreate", message)
                return error
            self.recorder.event(
                stateful_set, "Normal", "SuccessfulCreate", f"create {subject} success"
            )
        return None

    async def keep_owners(self, stateful_set: Json, pod: Pod, *, beyond: bool) -> None:
        """Set the owners of a pod's claims by the retention policy."""
        namespace = stateful_set["metadata"]["namespace"]
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            name = claim_name(template, pod.metadata.name)
            claim = self.claims.get(f"{namespace}/{name}")
            if claim is None:
                continue
            right = owners(stateful_set, claim, owner_wanted(stateful_set, pod, beyond=beyond))
            if right is None:
                continue
            patch = {
                "metadata": {"uid": claim["metadata"]["uid"], "ownerReferences": right or None}
            }
            try:
                await self.client.patch(CLAIMS, name, patch, namespace)
            except NotFound:
                continue

    def leaving(self, stateful_set: Json, pod: str) -> bool:
        """Whether a claim of a pod to be created is being deleted: the pod waits for a new one."""
        namespace = stateful_set["metadata"]["namespace"]
        names = (
            claim_name(template, pod)
            for template in stateful_set["spec"].get("volumeClaimTemplates") or ()
        )
        found = (self.claims.get(f"{namespace}/{name}") for name in names)
        return any(
            claim is not None and claim["metadata"].get("deletionTimestamp") for claim in found
        )
