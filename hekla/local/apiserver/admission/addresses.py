"""Cluster addresses and node ports of Services: handed out once each (local-cluster 5.5).

What is taken is what the stored Services have, and what was handed out in this process, so two
creates at the same moment get two addresses without waiting for each other.
"""

from __future__ import annotations

import ipaddress

from hekla.api.text import fielderrors
from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.request.status import internal, invalid
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import DELETED, Event

RANGE = ipaddress.IPv4Network("10.96.0.0/16")
API_SERVER = "10.96.0.1"
FIRST_FREE = 10
"""Lower addresses are left to those who ask for them by name (DNS by convention has .10)."""
NODE_PORTS = range(30000, 32768)
WITH_PORTS = ("NodePort", "LoadBalancer")


class Addresses:
    """The admission plugin of Services."""

    def __init__(self, registry: Registry) -> None:
        self.collection = registry["services"].collection
        self.addresses: set[str] = {API_SERVER}
        self.ports: set[int] = set()
        self._next = FIRST_FREE
        self._next_port = 0
        for row in self.collection.accepted():
            self._take(row.tree())
        self.collection.listeners.add(self._follow)

    def _take(self, service: Json) -> None:
        spec = service.get("spec") or {}
        self.addresses.update(spec.get("clusterIPs") or ())
        self.ports.update(
            port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")
        )

    def _follow(self, events: list[Event]) -> None:
        for event in events:
            if event.type is DELETED:
                spec = event.row.tree().get("spec") or {}
                self.addresses.difference_update(
                    address for address in spec.get("clusterIPs") or () if address != API_SERVER
                )
                self.ports.difference_update(
                    port.get("nodePort") for port in spec.get("ports") or ()
                )

    def admit(self, attributes: Attributes) -> None:
        """Fills what is missing; raises 422 for an address or port that is taken or out of range."""
        service = attributes.object
        spec = service.get("spec") if service is not None else None
        if not isinstance(spec, dict):
            return
        old = ((attributes.old or {}).get("spec") or {}) if attributes.old else {}
        if spec.get("type") == "ExternalName":
            return
        self._address(attributes, spec, old)
        if spec.get("type") in WITH_PORTS:
            self._node_ports(attributes, spec, old)

    def _address(self, attributes: Attributes, spec: Json, old: Json) -> None:
        if old.get("clusterIP"):
            return
        wanted = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
        if wanted != "None":
            dry = attributes.call.dry_run
            if not wanted:
                wanted = self._free_address()
            else:
                self._check_address(attributes, wanted)
            if not dry:
                self.addresses.add(wanted)
        spec["clusterIP"] = wanted
        spec["clusterIPs"] = [wanted]
        if wanted != "None" or spec.get("selector"):
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")
        else:  # whoever writes its endpoints himself may give them any addresses
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
            spec.setdefault("ipFamilyPolicy", "RequireDualStack")

    def _free_address(self) -> str:
        size = RANGE.num_addresses - 1
        for _ in range(size):
            self._next = self._next + 1 if self._next + 1 < size else FIRST_FREE
            address = str(RANGE[self._next])
            if address not in self.addresses:
                return address
        raise internal(f"failed to allocate a serviceIP: range {RANGE} is full")

    def _check_address(self, attributes: Attributes, address: str) -> None:
        try:
            inside = ipaddress.ip_address(address) in RANGE
        except ValueError:
            return  # the validation of the object says it better
        why = ""
        if not inside:
            why = "the provided network does not match the current range"
        elif address in self.addresses and not (
            address == API_SERVER and attributes.name == "kubernetes"
        ):
            why = "provided IP is already allocated"
        if why:
            why = f"failed to allocate IP {address}: {why}"
            error = fielderrors.invalid("spec.clusterIPs", [address], why)
            raise invalid(attributes.resource.kind, attributes.name, [error])

    def _node_ports(self, attributes: Attributes, spec: Json, old: Json) -> None:
        mine = {port.get("nodePort") for port in old.get("ports") or ()}
        known = {
            (port.get("protocol", "TCP"), port.get("port")): port.get("nodePort")
            for port in old.get("ports") or ()
        }
        for position, port in enumerate(spec.get("ports") or ()):
            wanted = port.get("nodePort") or known.get(
                (port.get("protocol", "TCP"), port.get("port"))
            )
            if wanted and wanted not in mine and (wanted in self.ports or wanted not in NODE_PORTS):
                why = (
                    "provided port is already allocated"
                    if wanted in NODE_PORTS
                    else f"provided port is not in the valid range. The range of valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
                )
                error = fielderrors.invalid(f"spec.ports[{position}].nodePort", wanted, why)
                raise invalid(attributes.resource.kind, attributes.name, [error])
            if (
                not wanted
                and spec.get("type") == "LoadBalancer"
                and spec.get("allocateLoadBalancerNodePorts") is False
            ):
                continue
            if not wanted:
                wanted = self._free_port()
            port["nodePort"] = wanted
            if not attributes.call.dry_run:
                self.ports.add(wanted)

    def _free_port(self) -> int:
        for _ in NODE_PORTS:
            self._next_port = (self._next_port + 1) % len(NODE_PORTS)
            if NODE_PORTS[self._next_port] not in self.ports:
                return NODE_PORTS[self._next_port]
        raise internal("failed to allocate a nodePort: range is full")
