"""Which interface of the node leads to a pod, by the pod's address.

Either a route of its own leads to the address, as with ptp, Calico and the clouds' plugins; or the
address is a neighbour behind a bridge, whose table says at which port its hardware address is.
Both tables know those that have been talked with lately: the others are sent an empty datagram.
"""

from __future__ import annotations

import contextlib
import socket
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from hekla.agent.network.pod_network import table

DISCARD_PORT = 9
Rows = Sequence[dict[str, Any]]


def choose(
    addresses: Collection[str], links: Rows, routes: Rows, neighbours: Rows, forwarding: Rows
) -> dict[str, str]:
    """Address -> interface, of those that are found in iproute2's tables."""
    outward = {link["ifname"] for link in links if "link_netnsid" in link}
    """The other end is in another namespace: it is a pod's link, not one between bridges."""
    wanted = set(addresses)
    found: dict[str, str] = {}
    hardware: dict[str, str] = {}
    for row in neighbours:
        if row.get("dst") in wanted and row.get("lladdr"):
            if row.get("dev") in outward:
                found[row["dst"]] = row["dev"]
            hardware[row["dst"]] = row["lladdr"]
    ports: dict[str, list[str]] = defaultdict(list)
    for row in forwarding:
        if row.get("ifname") in outward and "master" in row and row.get("state") != "permanent":
            ports[row["mac"]].append(row["ifname"])
    for address, mac in hardware.items():
        if len(ports[mac]) == 1:
            found[address] = ports[mac][0]
    for row in routes:
        if row.get("dst") in wanted and row.get("dev") in outward:
            found[row["dst"]] = row["dev"]
    return found


def interfaces(addresses: Collection[str]) -> dict[str, str]:
    """Address -> interface of this thread's namespace, of those that are known.  The others may be
    known a moment later.  Raises NetworkError."""
    if not addresses:
        return {}
    found = choose(
        addresses,
        table("ip", "-j", "link", "show"),
        [
            *table("ip", "-j", "route", "show", "table", "all"),
            *table("ip", "-j", "-6", "route", "show", "table", "all"),
        ],
        table("ip", "-j", "neigh", "show"),
        table("bridge", "-j", "fdb", "show"),
    )
    for address in addresses:
        if address not in found:
            _talk_to(address)
    return found


def _talk_to(address: str) -> None:
    """Make the kernel find out who has an address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.sendto(b"", (address, DISCARD_PORT))
