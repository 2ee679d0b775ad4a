"""Which addresses are a pod's own: what Endpoints may name of this machine's loopback, and where a
proxied request may go.

Kubernetes refuses loopback everywhere.  Here pods that share the machine's network have addresses
on it, so one is taken where a pod says in its status, which its node writes, that it has it; what
listens beside the pods of this machine stays out of reach.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from hekla.api.text import fielderrors
from hekla.api.text.addresses import read
from hekla.api.trees import Json
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.request.status import bad_request, invalid
from hekla.local.apiserver.storage.registry import Registry

SHARED = "127.0.0.1"
"""The address of pods that have none of their own: everything on the machine listens there, so it
is a pod's at its ports alone."""
OVER = ("Succeeded", "Failed")
BROADCAST = "255.255.255.255"
LOOPBACK = "may not be in the loopback range (127.0.0.0/8, ::1/128)"


def is_global(address: str) -> bool:
    """Whether an address is one of the network, private ones included: not this machine's, this
    wire's or many machines'."""
    given = read(address)
    if given is None or address == BROADCAST:
        return False
    if isinstance(given, ipaddress.IPv6Address) and given.ipv4_mapped is not None:
        return is_global(str(given.ipv4_mapped))
    return not (
        given.is_unspecified or given.is_loopback or given.is_multicast or given.is_link_local
    )


def addresses_of(pod: Json) -> list[str]:
    status = pod.get("status") or {}
    found = [str(entry.get("ip")) for entry in status.get("podIPs") or () if entry.get("ip")]
    return found or ([str(status["podIP"])] if status.get("podIP") else [])


def declared_ports(pod: Json, *fields: str) -> list[Json]:
    """The ports that containers declare, those of a pod's main ones where nothing else is said."""
    spec = pod.get("spec") or {}
    return [
        port
        for field in fields or ("containers",)
        for one in spec.get(field) or ()
        for port in one.get("ports") or ()
    ]


def opens(pod: Json, port: object) -> bool:
    """Whether a pod says that it listens at a port."""
    return port in [
        one.get("containerPort") for one in declared_ports(pod, "containers", "initContainers")
    ]


def check_reach(pod: Json, address: str, port: int) -> None:
    """Raises 400 for an address that a pod's node has not given it, or that is not for the pod
    alone."""
    status = pod.get("status") or {}
    # What is over may have left its address to another.
    if address not in addresses_of(pod) or status.get("phase") in OVER:
        raise bad_request("address not allowed")
    if is_global(address):
        return
    given = read(address)
    if (
        given is None
        or given.version != 4
        or not given.is_loopback
        or not (pod.get("spec") or {}).get("nodeName")
    ):
        raise bad_request("address not allowed")
    if address == SHARED and not opens(pod, port):
        raise bad_request("address not allowed")


class PodAddresses:
    """The admission rule of Endpoints and EndpointSlices: loopback is for the pods that have it."""

    def __init__(self, registry: Registry) -> None:
        self.pods = registry["pods"].collection
        self._address = self.pods.positions["status.podIP"]

    def join(self, admission: Admission) -> None:
        for operation in ("CREATE", "UPDATE"):
            admission.checks["endpoints", operation] = [self.check_endpoints]
            admission.checks["endpointslices.discovery.k8s.io", operation] = [self.check_slice]

    def check_endpoints(self, attributes: Attributes) -> None:
        self._check(attributes, "subsets", self._of_endpoints(attributes.object or {}))

    def check_slice(self, attributes: Attributes) -> None:
        self._check(attributes, "endpoints", self._of_slice(attributes.object or {}))

    def _check(
        self, attributes: Attributes, field: str, found: Iterator[tuple[str, str, Json, list[Json]]]
    ) -> None:
        new, old = attributes.object or {}, attributes.old
        if old is not None and (new.get(field) or None) == (old.get(field) or None):
            return  # what is there may stay
        if attributes.call.user.master and (attributes.namespace, attributes.name) == (
            "default",
            "kubernetes",
        ):
            return  # where the server itself listens
        errors = [
            fielderrors.invalid(path, address, LOOPBACK)
            for path, address, reference, ports in found
            if address.startswith("127.") and not self._has(attributes, reference, address, ports)
        ]
        if errors:
            raise invalid(attributes.resource.kind, attributes.name, errors)

    def _has(
        self, attributes: Attributes, reference: Json, address: str, ports: list[Json]
    ) -> bool:
        """Whether a pod has an address, and these ports where the address is not its alone.

        The cluster's controllers write what a Service says, which may be a port that no container
        declares.
        """
        namespace = attributes.namespace
        if reference.get("kind") != "Pod" or reference.get("namespace", namespace) != namespace:
            return False
        row = self.pods.newest(f"{namespace}/{reference.get('name')}")
        if row is None or row.fields[self._address] != address:
            return False
        if address != SHARED or attributes.call.user.master:
            return True
        pod = row.tree()
        return bool(ports) and all(opens(pod, port.get("port")) for port in ports)

    @staticmethod
    def _of_endpoints(tree: Json) -> Iterator[tuple[str, str, Json, list[Json]]]:
        for position, subset in enumerate(tree.get("subsets") or ()):
            for name in ("addresses", "notReadyAddresses"):
                for index, address in enumerate(subset.get(name) or ()):
                    path = f"subsets[{position}].{name}[{index}].ip"
                    yield (
                        path,
                        str(address.get("ip") or ""),
                        address.get("targetRef") or {},
                        subset.get("ports") or [],
                    )

    @staticmethod
    def _of_slice(tree: Json) -> Iterator[tuple[str, str, Json, list[Json]]]:
        if tree.get("addressType") != "IPv4":
            return
        for position, endpoint in enumerate(tree.get("endpoints") or ()):
            for index, address in enumerate(endpoint.get("addresses") or ()):
                path = f"endpoints[{position}].addresses[{index}]"
                yield path, str(address), endpoint.get("targetRef") or {}, tree.get("ports") or []
