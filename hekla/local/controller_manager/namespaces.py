"""Namespaces: empties those that are being deleted, and gives new ones their service account and
the cluster's certificate.  Reference: local-cluster 10.3, 10.11."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from hekla.api.kinds import Kind
from hekla.api.kubernetes.core import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from hekla.local.controller_manager.garbage import Owned
from hekla.local.controller_manager.resources import Resource, served

ROOT_CERTIFICATE = "kube-root-ca.crt"


class NamespaceController(Controller):
    """Deletes the contents of a terminating namespace, then removes its finalizer."""

    name = "namespace"

    def __init__(self, client: Client, namespaces: Cache[Json]) -> None:
        super().__init__(namespaces)
        self.client = client
        self.namespaces = namespaces
        self.enqueue(namespaces)
        self.tries: dict[str, int] = {}

    async def reconcile(self, key: str) -> float | None:
        """Delete what is in a terminating namespace.  Gives a short delay while something remains."""
        namespace = self.namespaces.get(key)
        if namespace is None or namespace["metadata"].get("deletionTimestamp") is None:
            self.tries.pop(key, None)
            return None
        if "kubernetes" not in namespace.get("spec", {}).get("finalizers", ()):
            return None
        resources = [
            r for r in await served(self.client) if r.namespaced and {"list", "delete"} <= r.verbs
        ]
        # Pods go first: what they read and what keeps others out (policies, secrets) stays for as
        # long as they run.
        pods = [
            resource for resource in resources if (resource.group, resource.plural) == ("", "pods")
        ]
        left = await self.empty_all(key, pods) or await self.empty_all(
            key, [r for r in resources if r not in pods]
        )
        if not left:
            await self.finalize(namespace)
            return None
        await self.explain(namespace, left)
        self.tries[key] = self.tries.get(key, 0) + 1
        return min(2.0, 0.05 * self.tries[key])

    async def empty_all(self, namespace: str, resources: list[Resource]) -> dict[str, list[Json]]:
        """Delete all objects of these kinds.  Gives what remains, by "plural.group"."""
        remaining = await asyncio.gather(
            *(self.empty(namespace, resource) for resource in resources)
        )
        return {f"{r.plural}.{r.group}": found for r, found in zip(resources, remaining) if found}

    async def empty(self, namespace: str, resource: Resource) -> list[Json]:
        """Delete all objects of one kind.  Gives what remains."""
        kind = resource.typed(dict)
        items = (await self.client.list(kind, namespace)).items
        if not items:
            return []
        fresh = [item for item in items if item["metadata"].get("deletionTimestamp") is None]
        if fresh:
            if "deletecollection" in resource.verbs:
                await self.client.delete_collection(kind, namespace)
            else:
                for item in fresh:
                    await self.client.delete(kind, item["metadata"]["name"], namespace)
            items = (await self.client.list(kind, namespace)).items
        return list(items)

    async def finalize(self, namespace: Json) -> None:
        name = namespace["metadata"]["name"]
        rest = [f for f in namespace["spec"]["finalizers"] if f != "kubernetes"]
        body = {
            **namespace,
            "apiVersion": "v1",
            "kind": "Namespace",
            "spec": {**namespace["spec"], "finalizers": rest},
        }
        with suppress(NotFound, Conflict):
            await self.client.request("PUT", f"/api/v1/namespaces/{name}/finalize", body=body)

    async def explain(self, namespace: Json, left: dict[str, list[Json]]) -> None:
        """The conditions that say what still keeps the namespace."""
        content = ", ".join(
            f"{plural} has {len(items)} resource instances"
            for plural, items in sorted(left.items())
        )
        holders: dict[str, int] = {}
        for items in left.values():
            for item in items:
                for finalizer in item["metadata"].get("finalizers", ()):
                    holders[finalizer] = holders.get(finalizer, 0) + 1
        finalizers = ", ".join(
            f"{name} in {count} resource instances" for name, count in sorted(holders.items())
        )
        conditions = [
            condition(
                "NamespaceDeletionDiscoveryFailure",
                False,
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                False,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            condition(
                "NamespaceDeletionContentFailure",
                False,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            condition(
                "NamespaceContentRemaining",
                True,
                "SomeResourcesRemain",
                f"Some resources are remaining: {content}",
            ),
            condition(
                "NamespaceFinalizersRemaining",
                bool(holders),
                "SomeFinalizersRemain" if holders else "ContentHasNoFinalizers",
                f"Some content in the namespace has finalizers remaining: {finalizers}"
                if holders
                else "All content-preserving finalizers finished",
            ),
        ]
        before = {
            c["type"]: (c["status"], c["message"])
            for c in namespace.get("status", {}).get("conditions", ())
        }
        if before == {c["type"]: (c["status"], c["message"]) for c in conditions}:
            return
        with suppress(NotFound, Conflict):
            patch = {"status": {"conditions": conditions}}
            await self.client.patch(
                NAMESPACE, namespace["metadata"]["name"], patch, subresource="status"
            )


def condition(kind: str, holds: bool, reason: str, message: str) -> Json:
    now = stamp(time.time())
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


class AccountController(Controller):
    """Every active namespace has the service account `default` and the certificate of the cluster's
    authority."""

    name = "serviceaccount"

    def __init__(
        self,
        client: Client,
        namespaces: Cache[Json],
        accounts: Cache[Owned],
        roots: Cache[Owned],
        certificate: str,
    ) -> None:
        super().__init__(namespaces, accounts, roots)
        self.client = client
        self.namespaces = namespaces
        self.certificate = certificate
        self.enqueue(namespaces)
        for cache in (accounts, roots):
            cache.on_change(self.queue_namespace)

    async def reconcile(self, key: str) -> float | None:
        """Create the account and the certificate where they are missing, and correct a certificate
        that differs."""
        namespace = self.namespaces.get(key)
        if namespace is None or namespace["metadata"].get("deletionTimestamp") is not None:
            return None
        data = {"ca.crt": self.certificate}
        await self.make(
            SERVICE_ACCOUNT,
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
            key,
        )
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "data": data,
            "metadata": {
                "name": ROOT_CERTIFICATE,
                "annotations": {
                    "kubernetes.io/description": "The certificate of the authority that signed the API server's certificate."
                },
            },
        }
        if not await self.make(CONFIG_MAP, config_map, key):
            there = await self.client.get(CONFIG_MAP.untyped, ROOT_CERTIFICATE, key)
            if there.get("data") != data:
                await self.client.patch(CONFIG_MAP, ROOT_CERTIFICATE, {"data": data}, key)
        return None

    async def make(self, kind: Kind[Any], body: Json, namespace: str) -> bool:
        """Creates an object; False when it was there."""
        try:
            await self.client.create(kind.untyped, body, namespace)
        except AlreadyExists:
            return False
        except (NotFound, Forbidden):
            return True  # the namespace is on its way out
        return True

    def queue_namespace(self, old: Owned | None, new: Owned | None) -> None:
        """Queue the namespace of a `default` account or a certificate that was changed or deleted,
        so that it is put back."""
        if old is not None and old.metadata.name in ("default", ROOT_CERTIFICATE):
            self.queue.add(old.metadata.namespace)
