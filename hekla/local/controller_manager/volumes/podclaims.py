"""Creates claims for pods: of devices from ResourceClaimTemplates, of volumes from `ephemeral`
volumes.

Both kinds of claim belong to their pod.  A claim of devices is also deallocated here, when no pod
is left that it is reserved for.  Reference: local-cluster 8.8, 10.13.
"""

from __future__ import annotations

import time
from contextlib import suppress

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME_CLAIM
from hekla.api.kubernetes.core import POD
from hekla.api.kubernetes.resource import RESOURCE_CLAIM
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, NotFound
from hekla.kube.events import Recorder
from hekla.kube.expectations import DEADLINE
from hekla.kube.objects import controller_reference
from hekla.local.controller_manager.pods import DEVICES, VOLUMES, Pod, concerns, patch_status

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
PROTECTION = "resource.kubernetes.io/delete-protection"


def owner_of(pod: Pod) -> Json:
    return controller_reference(POD, pod.metadata.name, pod.metadata.uid)


class EphemeralVolumeController(Controller):
    """Makes the claim of each ephemeral volume, named after pod and volume."""

    name = "ephemeral-volume"

    def __init__(
        self, client: Client, pods: Cache[Pod], claims: Cache[Json], recorder: Recorder
    ) -> None:
        super().__init__(pods, claims)
        self.client = client
        self.pods = pods
        self.claims = claims
        self.recorder = recorder
        pods.on_change_of(concerns, [VOLUMES], self.pod_changed)
        claims.on_change(self.claim_changed)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if (
            new is not None
            and not new.deleting
            and any(volume.ephemeral is not None for volume in new.spec.volumes)
        ):
            self.queue.add(new.key)

    def claim_changed(self, old: Json | None, new: Json | None) -> None:
        """Queue the pod of a deleted claim, so that the claim is created again if the pod still
        exists."""
        if new is None and old is not None:
            for pod in self.pods.by(
                "claim", f"{old['metadata']['namespace']}/{old['metadata']['name']}"
            ):
                self.pod_changed(None, pod)

    async def reconcile(self, key: str) -> float | None:
        """Makes what is missing for one pod."""
        pod = self.pods.get(key)
        if pod is None or pod.deleting or pod.finished:
            return None
        meta = pod.metadata
        for volume in pod.spec.volumes:
            name = f"{meta.name}-{volume.name}"
            if volume.ephemeral is None:
                continue
            there = self.claims.get(f"{meta.namespace}/{name}")
            if there is None:
                await self.make(pod, volume.name, name)
            elif not any(
                one["uid"] == meta.uid for one in there["metadata"].get("ownerReferences") or ()
            ):
                why = (
                    f"PVC {meta.namespace}/{name} was not created for pod {key} (pod is not owner)"
                )
                message = f"ephemeral volume {volume.name}: {why}"
                self.recorder.event(pod.reference(), "Warning", "EphemeralVolumeFailed", message)
        return None

    async def make(self, pod: Pod, volume: str, name: str) -> None:
        meta = pod.metadata
        try:
            full = await self.client.get(POD.untyped, meta.name, meta.namespace)
        except NotFound:
            return
        if full["metadata"]["uid"] != meta.uid:
            return
        template = next(
            one["ephemeral"]["volumeClaimTemplate"]
            for one in full["spec"]["volumes"]
            if one["name"] == volume
        )
        given = template.get("metadata") or {}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "spec": template["spec"],
            "metadata": {
                "name": name,
                "labels": given.get("labels"),
                "annotations": given.get("annotations"),
                "ownerReferences": [owner_of(pod)],
            },
        }
        with suppress(AlreadyExists):
            await self.client.create(PERSISTENT_VOLUME_CLAIM.untyped, body, meta.namespace)


class ResourceClaimController(Controller):
    """Keys are "pod/<namespace>/<name>" and "claim/<namespace>/<name>"."""

    name = "resource-claim"

    def __init__(
        self,
        client: Client,
        pods: Cache[Pod],
        claims: Cache[Json],
        templates: Cache[Json],
        recorder: Recorder,
    ) -> None:
        super().__init__(pods, claims, templates)
        self.client = client
        self.pods = pods
        self.claims = claims
        self.templates = templates
        self.recorder = recorder
        self.waiting: dict[str, set[str]] = {}
        """Template -> pods that wait for it."""
        self.created: dict[str, dict[str, tuple[str, float]]] = {}
        """Pod's uid -> entry of its spec -> the claim that was created for it and that the cache has
        not shown yet, and until when the cache is waited for."""
        pods.on_change_of(concerns, [DEVICES], self.pod_changed)
        self.enqueue(
            claims,
            lambda claim: f"claim/{claim['metadata']['namespace']}/{claim['metadata']['name']}",
        )
        claims.on_change(self.claim_changed)
        templates.on_change(self.template_changed)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Makes claims for a pod that comes, and looks at those of a pod that is over."""
        pod = new if new is not None else old
        assert pod is not None
        if new is not None:
            self.queue.add(f"pod/{new.key}")
        else:
            self.created.pop(pod.metadata.uid, None)
        if new is None or new.finished:
            for name in names_of(pod):
                self.queue.add(f"claim/{pod.metadata.namespace}/{name}")

    def claim_changed(self, old: Json | None, new: Json | None) -> None:
        """A generated claim that went is made again for a pod that needs it."""
        self._seen(new if new is not None else old)
        if new is None and old is not None:
            for owner in old["metadata"].get("ownerReferences") or ():
                if owner["kind"] == "Pod":
                    self.queue.add(f"pod/{old['metadata']['namespace']}/{owner['name']}")

    def _seen(self, claim: Json | None) -> None:
        """The cache has shown a claim: it need not be remembered any more."""
        assert claim is not None
        meta = claim["metadata"]
        entry = (meta.get("annotations") or {}).get(POD_CLAIM_NAME, "")
        for owner in meta.get("ownerReferences") or ():
            created = self.created.get(owner["uid"], {})
            if created.get(entry, ("", 0.0))[0] == meta["name"]:
                del created[entry]
                if not created:
                    del self.created[owner["uid"]]

    def template_changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            for key in self.waiting.pop(
                f"{new['metadata']['namespace']}/{new['metadata']['name']}", ()
            ):
                self.queue.add(f"pod/{key}")

    async def reconcile(self, key: str) -> float | None:
        """Reconcile a pod or a claim."""
        what, _, name = key.partition("/")
        if what == "pod":
            pod = self.pods.get(name)
            if pod is not None and not pod.deleting and not pod.finished:
                await self.make_claims(pod)
                if pod.metadata.uid in self.created:
                    return DEADLINE
        else:
            claim = self.claims.get(name)
            if claim is not None:
                await self.reconcile_claim(claim)
        return None

    # --- making -----------------------------------------------------------------------------------

    async def make_claims(self, pod: Pod) -> None:
        """Makes a claim for each template that the pod names, and writes into the pod's status
        which."""
        meta = pod.metadata
        known = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        made: dict[str, str] = {}
        for wanted in pod.spec.resource_claims:
            if not wanted.resource_claim_template_name:
                continue
            name = known.get(wanted.name)
            if name and f"{meta.namespace}/{name}" in self.claims:
                continue
            found = (
                self.generated(pod, wanted.name)
                or self.unseen(pod, wanted.name)
                or await self.make(pod, wanted.name, wanted.resource_claim_template_name)
            )
            if found and found != name:
                made[wanted.name] = found
        if not made:
            return
        statuses = [{"name": name, "resourceClaimName": claim} for name, claim in made.items()]
        with suppress(NotFound):
            await patch_status(self.client, pod, {"resourceClaimStatuses": statuses})

    def generated(self, pod: Pod, name: str) -> str:
        """A claim that an earlier instance of this controller created for the pod without living to
        write that into the pod's status."""
        for claim in self.claims.by("owner", pod.metadata.uid):
            meta = claim["metadata"]
            if (meta.get("annotations") or {}).get(POD_CLAIM_NAME) == name and meta.get(
                "deletionTimestamp"
            ) is None:
                found: str = meta["name"]
                return found
        return ""

    def unseen(self, pod: Pod, name: str) -> str:
        """A claim that was created a moment ago, if the watch of claims is behind that of pods."""
        claim, until = self.created.get(pod.metadata.uid, {}).get(name, ("", 0.0))
        return claim if time.monotonic() < until else ""

    async def make(self, pod: Pod, name: str, template: str) -> str:
        meta = pod.metadata
        key = f"{meta.namespace}/{template}"
        tree = self.templates.get(key)
        if tree is None:
            self.waiting.setdefault(key, set()).add(pod.key)
            self.recorder.event(
                pod.reference(),
                "Warning",
                "FailedResourceClaimCreation",
                f'PodResourceClaim {name}: resource claim template "{template}": '
                f'resourceclaimtemplate.resource.k8s.io "{template}" not found',
            )
            return ""
        spec, given = tree["spec"], tree["spec"].get("metadata") or {}
        body = {
            "apiVersion": RESOURCE_CLAIM.api_version,
            "kind": "ResourceClaim",
            "spec": spec["spec"],
            "metadata": {
                "generateName": f"{meta.name}-{name}-",
                "labels": given.get("labels"),
                "annotations": {**(given.get("annotations") or {}), POD_CLAIM_NAME: name},
                "ownerReferences": [owner_of(pod)],
            },
        }
        made = await self.client.create(RESOURCE_CLAIM.untyped, body, meta.namespace)
        found: str = made["metadata"]["name"]
        if f"{meta.namespace}/{found}" not in self.claims:
            until = time.monotonic() + DEADLINE
            self.created.setdefault(meta.uid, {})[name] = found, until
        return found

    # --- giving back ------------------------------------------------------------------------------

    async def reconcile_claim(self, claim: Json) -> None:
        """Remove finished pods from the reservations of a claim, and its allocation with the last
        of them."""
        status = claim.get("status") or {}
        before = status.get("reservedFor") or []
        reserved = [one for one in before if not self.over(one, claim)]
        meta = claim["metadata"]
        finalizers = meta.get("finalizers") or []
        allocated = status.get("allocation") is not None
        annotations = meta.get("annotations") or {}
        generated = POD_CLAIM_NAME in annotations or EXTENDED in annotations
        # One that users made keeps its devices for the pods to come; unless nobody can come any
        # more.
        frees = (
            allocated
            and not reserved
            and (bool(before) or meta.get("deletionTimestamp") is not None)
        )
        try:
            if len(reserved) != len(before) or frees:
                new = {
                    name: value
                    for name, value in status.items()
                    if name not in ("reservedFor", "allocation", "devices")
                }
                if reserved:
                    new["reservedFor"] = reserved
                if allocated and not frees:
                    new["allocation"] = status["allocation"]
                    if status.get("devices"):
                        new["devices"] = status["devices"]
                claim = await self.client.update_status(
                    RESOURCE_CLAIM.untyped, {**with_kind(claim), "status": new}
                )
                allocated = allocated and not frees
            if not allocated and PROTECTION in finalizers:
                kept = [one for one in finalizers if one != PROTECTION]
                patch = {
                    "metadata": {
                        "resourceVersion": claim["metadata"]["resourceVersion"],
                        "finalizers": kept or None,
                    }
                }
                claim = await self.client.patch(
                    RESOURCE_CLAIM.untyped, meta["name"], patch, meta["namespace"]
                )
            if (
                generated
                and not reserved
                and meta.get("deletionTimestamp") is None
                and self.owner_is_over(claim)
            ):
                await self.client.delete(
                    RESOURCE_CLAIM.untyped, meta["name"], meta["namespace"], uid=meta["uid"]
                )
        except NotFound:
            return

    def over(self, consumer: Json, claim: Json) -> bool:
        """Whether a consumer needs its claim no longer.  Only pods are known here."""
        if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
            return False
        pod = self.pods.get(f"{claim['metadata']['namespace']}/{consumer['name']}")
        return (
            pod is None
            or pod.metadata.uid != consumer["uid"]
            or pod.finished
            or (pod.deleting and not pod.spec.node_name)
        )

    def owner_is_over(self, claim: Json) -> bool:
        meta = claim["metadata"]
        owner = next(
            (one for one in meta.get("ownerReferences") or () if one["kind"] == "Pod"), None
        )
        if owner is None:
            return False
        pod = self.pods.get(f"{meta['namespace']}/{owner['name']}")
        return pod is not None and pod.metadata.uid == owner["uid"] and pod.finished


def names_of(pod: Pod) -> list[str]:
    """The claims of a pod, of its own and made for it."""
    own = [one.resource_claim_name for one in pod.spec.resource_claims if one.resource_claim_name]
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        own.append(extended.resource_claim_name)
    return own + [
        one.resource_claim_name
        for one in pod.status.resource_claim_statuses
        if one.resource_claim_name
    ]


def owners(claim: Json) -> list[str]:
    """Index of claims by the uids of their owners."""
    return [one["uid"] for one in claim["metadata"].get("ownerReferences") or ()]


def with_kind(claim: Json) -> Json:
    return {**claim, "apiVersion": RESOURCE_CLAIM.api_version, "kind": RESOURCE_CLAIM.kind}
