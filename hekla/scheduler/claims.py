"""Writes the engine's allocations into ResourceClaims, before the pod that needs them is bound.

Several pods may share a claim, so writes of one claim wait for each other, and each adds its pod.
If a bind fails, the pod's reservation is removed, and with it the allocation unless another pod
uses it.  Reference: plugins-placement 1.6 (DynamicResources), 1.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from hekla.api.kubernetes.core import POD
from hekla.api.kubernetes.resource import RESOURCE_CLAIM
from hekla.engine.model.claims.allocation import devices_of
from hekla.engine.model.claims.extended import ANNOTATION
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, NotFound
from hekla.kube.http.client import TransportError
from hekla.kube.objects import controller_reference
from hekla.scheduler.claim_waiters import ClaimWaiters

log = logging.getLogger(__name__)

FINALIZER = "resource.kubernetes.io/delete-protection"
PATIENCE = 600.0
"""Seconds that a driver may take to prepare a device for its node; after them the bind fails and
the pod is scheduled again."""
ATTEMPTS = 8
"""Attempts of a write that conflicts with writes of others."""

Tree = dict[str, Any]


class ClaimError(Exception):
    """A claim cannot be allocated as the engine decided; the text says why."""


class ClaimBinder(ClaimWaiters):
    """Allocates and reserves claims."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.made: dict[str, tuple[str, Tree]] = {}
        """UID of a pod that is being bound -> the claim that was created for its extended
        resources, and its allocation."""

    async def bind(self, given: Mapping[str, Tree], pod: str, uid: str) -> None:
        """Returns once all claims are allocated and reserved for the pod.  Raises ClaimError, and
        what the client raises.

        When it raises, nothing is left of what it did.
        """
        done: list[str] = []
        try:
            for key, allocation in given.items():
                done.append(key)
                await self.reserve(key, allocation, pod, uid)
            async with asyncio.timeout(PATIENCE):
                for key, allocation in given.items():
                    await self.ready(key, allocation)
        except TimeoutError as error:
            await self.give_back({key: given[key] for key in done}, uid)
            raise ClaimError(f"its devices were not ready within {PATIENCE:.0f} s") from error
        except (ClaimError, ApiError, TransportError):
            await self.give_back({key: given[key] for key in done}, uid)
            raise

    async def reserve(self, key: str, allocation: Tree, pod: str, uid: str) -> None:
        """Allocate one claim, unless it is allocated, and reserve it for the pod."""
        user = {"resource": "pods", "name": pod.rpartition("/")[2], "uid": uid}
        async with self.lock(key):
            for attempt in range(ATTEMPTS):
                claim = await self.read(key)
                status = claim.get("status") or {}
                users = status.get("reservedFor") or []
                there = status.get("allocation")
                if claim["metadata"].get("deletionTimestamp"):
                    raise ClaimError(f"resourceclaim {key} is being deleted")
                if there is not None and devices_of(there) != devices_of(allocation):
                    raise ClaimError(f"resourceclaim {key} was allocated otherwise meanwhile")
                if there is not None and any(one.get("uid") == uid for one in users):
                    return
                try:
                    if there is None:
                        claim = await self.protect(claim)
                    new = {
                        **status,
                        "allocation": there or allocation,
                        "reservedFor": [*users, user],
                    }
                    await self.client.update_status(
                        RESOURCE_CLAIM.untyped, {**claim, "status": new}
                    )
                    return
                except Conflict:
                    if attempt == ATTEMPTS - 1:
                        raise

    async def protect(self, claim: Tree) -> Tree:
        """Add the finalizer that every allocated claim has; returns the claim."""
        metadata = claim["metadata"]
        finalizers = metadata.get("finalizers") or []
        if FINALIZER in finalizers:
            return claim
        patch = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": [*finalizers, FINALIZER],
            }
        }
        made: Tree = await self.client.patch(
            RESOURCE_CLAIM.untyped, metadata["name"], patch, metadata["namespace"]
        )
        return {**claim, "metadata": made["metadata"]}

    async def ready(self, key: str, allocation: Tree) -> None:
        """Wait for the conditions that drivers set before a pod may use their devices."""
        wanted = [
            one
            for one in (allocation.get("devices") or {}).get("results") or ()
            if one.get("bindingConditions")
        ]
        if not wanted:
            return
        with self.changes(key) as changed:
            while True:
                changed.clear()
                claim = await self.read(key)
                listed = (claim.get("status") or {}).get("devices") or ()
                if all(fulfilled(one, listed) for one in wanted):
                    return
                await changed.wait()

    async def give_back(self, given: Mapping[str, Tree], uid: str) -> None:
        """Remove the pod from its claims.  If a write fails, the controller of claims repairs that
        later."""

        def without_the_pod(allocation: Tree, status: Tree) -> bool:
            before = status.get("reservedFor") or []
            users = [one for one in before if one.get("uid") != uid]
            if len(users) == len(before):
                return False
            status["reservedFor"] = users
            if (
                not users
                and status.get("allocation")
                and devices_of(status["allocation"]) == devices_of(allocation)
            ):
                _deallocate(status)
            return True

        for key, allocation in given.items():
            await self.change(
                key, partial(without_the_pod, allocation), "reservation could not be taken back"
            )

    async def change(self, key: str, changed: Callable[[Tree], bool], trouble: str) -> bool:
        """Write a claim's status after `changed` has changed a copy of it, if that returns True.

        Returns False if the write failed; the log says why.
        """
        async with self.lock(key):
            for _ in range(ATTEMPTS):
                try:
                    claim = await self.read(key)
                    status = dict(claim.get("status") or {})
                    if changed(status):
                        await self.client.update_status(
                            RESOURCE_CLAIM.untyped, {**claim, "status": status}
                        )
                    return True
                except Conflict as error:
                    refused: Exception = error
                except (ClaimError, ApiError, TransportError) as error:
                    refused = error
                    break
        log.warning("resourceclaim %s: %s: %s", key, trouble, refused)
        return False

    # ------------------------------------------------------------------------ claims of one pod

    async def make(self, implied: Mapping[str, Any], pod: str, uid: str) -> None:
        """Create, allocate and reserve the claim for a pod's extended resources, and write into the
        pod's status which container has which devices.

        Raises as `bind` does; `unmake` undoes it.
        """
        namespace, _, name = pod.partition("/")
        there: Tree = await self.client.get(POD.untyped, name, namespace)
        if there["metadata"].get("uid") != uid:
            raise ClaimError(f"pod {pod} is another one now")
        before = (there.get("status") or {}).get("extendedResourceClaimStatus") or {}
        if before.get("resourceClaimName"):
            await self.discard(f"{namespace}/{before['resourceClaimName']}", uid)
        metadata = {
            "generateName": f"{name}-extended-resources-",
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [controller_reference(POD, name, uid)],
        }
        body = {
            "apiVersion": RESOURCE_CLAIM.api_version,
            "kind": RESOURCE_CLAIM.kind,
            "metadata": metadata,
            "spec": implied["spec"],
        }
        made = await self.client.create(RESOURCE_CLAIM.untyped, body, namespace)
        key = f"{namespace}/{made['metadata']['name']}"
        self.made[uid] = key, implied["allocation"]
        spec = there["spec"]
        names = [one["name"] for one in (*(spec.get("initContainers") or ()), *spec["containers"])]
        mappings = [
            {"containerName": names[number], "resourceName": resource, "requestName": request}
            for number, resource, request in implied["mappings"]
        ]
        said = {"resourceClaimName": made["metadata"]["name"], "requestMappings": mappings}
        patch = {"metadata": {"uid": uid}, "status": {"extendedResourceClaimStatus": said}}
        await self.client.patch(
            POD.untyped, name, patch, namespace, type="strategic", subresource="status"
        )
        await self.bind({key: implied["allocation"]}, pod, uid)

    async def unmake(self, uid: str) -> None:
        """Delete the claim of a pod's extended resources, because the pod is not bound after all."""
        made = self.made.pop(uid, None)
        if made is not None:
            key, allocation = made
            await self.give_back({key: allocation}, uid)
            await self.discard(key, uid)

    async def discard(self, key: str, uid: str) -> None:
        """Delete a claim if it was created for the extended resources of a pod."""
        try:
            claim = await self.read(key)
            meta = claim["metadata"]
            ours = (meta.get("annotations") or {}).get(ANNOTATION) == "true"
            if ours and any(one.get("uid") == uid for one in meta.get("ownerReferences") or ()):
                namespace, _, name = key.partition("/")
                await self.client.delete(RESOURCE_CLAIM.untyped, name, namespace, uid=meta["uid"])
        except (ClaimError, NotFound):
            return
        except (ApiError, TransportError) as error:
            log.warning("resourceclaim %s could not be deleted: %s", key, error)

    async def free(self, key: str, uid: str) -> None:
        """Takes from a claim what it was given, where that is of no use to the one pod (by UID)
        that needs it.

        One that somebody else has reserved by now keeps it; one that was made for the pod's
        extended resources goes.
        """
        kept = False

        def freed(status: Tree) -> bool:
            nonlocal kept
            kept = any(one.get("uid") != uid for one in status.get("reservedFor") or ())
            if kept or status.get("allocation") is None:
                return False
            _deallocate(status)
            return True

        if await self.change(key, freed, "could not be freed") and not kept:
            await self.discard(key, uid)

    async def read(self, key: str) -> Tree:
        namespace, _, name = key.partition("/")
        try:
            claim: Tree = await self.client.get(RESOURCE_CLAIM.untyped, name, namespace)
        except NotFound as error:
            raise ClaimError(f"resourceclaim {key} is gone") from error
        claim.setdefault("apiVersion", RESOURCE_CLAIM.api_version)
        claim.setdefault("kind", RESOURCE_CLAIM.kind)
        return claim

    def lock(self, key: str) -> asyncio.Lock:
        if len(self.locks) > 4096:
            self.locks = defaultdict(
                asyncio.Lock, {name: one for name, one in self.locks.items() if one.locked()}
            )
        return self.locks[key]


def _deallocate(status: Tree) -> None:
    for name in ("allocation", "reservedFor", "devices"):
        status.pop(name, None)


def fulfilled(result: Tree, devices: Iterable[Tree]) -> bool:
    """Whether a device has all its binding conditions.  Raises ClaimError if its driver reports a
    failure."""
    own = ("driver", "pool", "device")
    status = next(
        (one for one in devices if all(one.get(name) == result[name] for name in own)), None
    )
    true = {
        one.get("type")
        for one in (status or {}).get("conditions") or ()
        if one.get("status") == "True"
    }
    failed = true & set(result.get("bindingFailureConditions") or ())
    if failed:
        raise ClaimError(
            f"device {result['device']} of {result['driver']} reports {', '.join(sorted(failed))}"
        )
    return set(result["bindingConditions"]) <= true
