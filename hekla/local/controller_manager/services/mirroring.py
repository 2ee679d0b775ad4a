"""EndpointSlices of Endpoints that users write themselves, for services without a selector.
Reference: local-cluster 10.8."""

from __future__ import annotations

from ipaddress import ip_address

from hekla.api.kubernetes.core import ENDPOINTS
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.local.controller_manager.garbage import Owned
from hekla.local.controller_manager.ownership import reference
from hekla.local.controller_manager.services.endpoints import Slices
from hekla.local.controller_manager.services.slices import MANAGED_BY, SERVICE_NAME, Group, identity

MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
LAST_CHANGE = "endpoints.kubernetes.io/last-change-trigger-time"


def is_mirrored(endpoints: Json | None, service: Json | None) -> bool:
    """Whether Endpoints are mirrored: those that a user wrote for a service without a selector."""
    if endpoints is None or service is None or service["spec"].get("selector"):
        return False
    meta = endpoints["metadata"]
    return (meta.get("labels") or {}).get(SKIP) != "true" and LEADER not in (
        meta.get("annotations") or {}
    )


def groups_of(endpoints: Json) -> list[Group]:
    """The subsets, grouped by ports and address family."""
    found: dict[tuple[str, str], Group] = {}
    for subset in endpoints.get("subsets") or ():
        ports = [
            {"name": p.get("name", ""), **{k: v for k, v in p.items() if k != "name"}}
            for p in subset.get("ports") or ()
        ]
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in subset.get(field) or ():
                family = f"IPv{ip_address(address['ip']).version}"
                group = found.setdefault(
                    (family, str(sorted(map(str, ports)))), Group(family, ports, {})
                )
                endpoint: Json = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
                for name in ("hostname", "nodeName", "targetRef"):
                    if address.get(name):
                        endpoint[name] = address[name]
                group.endpoints[identity(endpoint)] = endpoint
    return list(found.values())


class MirroringController(Controller):
    """Keeps the slices of Endpoints that no controller wrote."""

    name = "endpointslice-mirroring"

    def __init__(
        self, client: Client, services: Cache[Json], endpoints: Cache[Json], pieces: Cache[Owned]
    ) -> None:
        super().__init__(services, endpoints, pieces)
        self.slices = Slices(client, MANAGER)
        self.services = services
        self.endpoints = endpoints
        self.enqueue(endpoints)
        services.on_change(self.service_changed)
        pieces.on_change(self.slice_changed)

    def service_changed(self, old: Json | None, new: Json | None) -> None:
        """Queue the Endpoints of a service whose selector was added or removed: that decides who
        writes the slices."""
        either = new if new is not None else old
        assert either is not None
        if (
            old is None
            or new is None
            or bool(old["spec"].get("selector")) != bool(new["spec"].get("selector"))
        ):
            self.queue.add(f"{either['metadata']['namespace']}/{either['metadata']['name']}")

    def slice_changed(self, old: Owned | None, new: Owned | None) -> None:
        if new is None and old is not None:
            for owner in old.metadata.owner_references:
                if owner.kind == "Endpoints":
                    self.queue.add(f"{old.metadata.namespace}/{owner.name}")

    async def reconcile(self, key: str) -> float | None:
        """Reconcile the slices of the Endpoints of one name."""
        namespace, name = key.split("/")
        endpoints, service = self.endpoints.get(key), self.services.get(key)
        if endpoints is None or not is_mirrored(endpoints, service):
            if service is None or not service["spec"].get("selector"):
                await self.slices.remove(namespace, name)
            return None
        meta = endpoints["metadata"]
        annotations = {
            k: v
            for k, v in (meta.get("annotations") or {}).items()
            if k != LAST_CHANGE and not k.startswith("kubectl.kubernetes.io/last-applied")
        }
        metadata: Json = {
            "generateName": f"{name}-",
            "namespace": namespace,
            "annotations": annotations,
            "labels": {**(meta.get("labels") or {}), SERVICE_NAME: name, MANAGED_BY: MANAGER},
            "ownerReferences": [reference(ENDPOINTS, endpoints)],
        }
        groups = groups_of(endpoints)
        if groups:
            await self.slices.write(namespace, name, {"metadata": metadata}, groups)
        else:
            await self.slices.remove(namespace, name)
        return None
