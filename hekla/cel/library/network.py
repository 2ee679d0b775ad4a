"""IP addresses and networks."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.library.operators import quoted
from hekla.cel.types import BOOL, CIDR, INT, IP, STRING


@dataclass(frozen=True, slots=True)
class Address:
    kind = IP.name
    address: ipaddress.IPv4Address | ipaddress.IPv6Address

    @classmethod
    def read(cls, text: str) -> Address:
        if "%" in text:
            raise Failed(f"IP address {quoted(text)} with zone value is not allowed")
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            short = (
                text.count(".") < 3
                and all(part.isdigit() and int(part) < 256 for part in text.split("."))
                and "." in text
            )
            why = f"ParseAddr({quoted(text)}): " + (
                "IPv4 address too short" if short else "unable to parse IP"
            )
            raise Failed(
                f"IP Address {quoted(text)} parse error during conversion from string: {why}"
            ) from None
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            raise Failed(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
        return cls(address)


_NO_CIDR = "network address parse error during conversion from string: "


@dataclass(frozen=True, slots=True)
class Network:
    kind = CIDR.name
    address: Any
    network: Any

    @classmethod
    def read(cls, text: str) -> Network:
        host, slash, length = text.partition("/")
        try:
            if (
                not slash
                or not length.isdigit()
                or (len(length) > 1 and length[0] == "0")
                or "%" in host
            ):
                raise ValueError
            interface = ipaddress.ip_interface(text)
        except ValueError:
            why = f"netip.ParsePrefix({quoted(text)}): " + (
                "no '/'" if not slash else f"ParseAddr({quoted(host)}): unable to parse IP"
            )
            raise Failed(f"{_NO_CIDR}{_NO_CIDR}{why}") from None
        if isinstance(interface, ipaddress.IPv6Interface) and interface.ip.ipv4_mapped is not None:
            raise Failed(f"IPv4-mapped IPv6 address {quoted(host)} is not allowed")
        return cls(interface.ip, interface.network)

    def contains(self, address: Any) -> bool:
        return address.version == self.network.version and address in self.network

    def contains_network(self, other: Network) -> bool:
        return other.network.version == self.network.version and bool(
            other.network.subnet_of(self.network)
        )


def _is(read: Any, text: str) -> bool:
    try:
        read(text)
    except Failed:
        return False
    return True


def _canonical(text: str) -> bool:
    return str(Address.read(text).address) == text


def _global(value: Address) -> bool:
    """Whether an address is global unicast in Go's sense: not unspecified, loopback, multicast,
    link-local or broadcast.  Private addresses are."""
    address = value.address
    if (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    ):
        return False
    return str(address) != "255.255.255.255"


def _local_multicast(value: Address) -> bool:
    address = value.address
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


function("ip", (STRING,), IP, Address.read)
function("isIP", (STRING,), BOOL, lambda text: _is(Address.read, text))
function("ip.isCanonical", (STRING,), BOOL, _canonical)
method("family", (IP,), INT, lambda value: value.address.version)
method("isUnspecified", (IP,), BOOL, lambda value: value.address.is_unspecified)
method("isLoopback", (IP,), BOOL, lambda value: value.address.is_loopback)
method("isLinkLocalMulticast", (IP,), BOOL, _local_multicast)
method("isLinkLocalUnicast", (IP,), BOOL, lambda value: value.address.is_link_local)
method("isGlobalUnicast", (IP,), BOOL, _global)
function("string", (IP,), STRING, lambda value: str(value.address))
function("cidr", (STRING,), CIDR, Network.read)
function("isCIDR", (STRING,), BOOL, lambda text: _is(Network.read, text))
method(
    "containsIP",
    (CIDR, STRING),
    BOOL,
    lambda holder, text: holder.contains(Address.read(text).address),
)
method("containsIP", (CIDR, IP), BOOL, lambda holder, value: holder.contains(value.address))
method(
    "containsCIDR",
    (CIDR, STRING),
    BOOL,
    lambda holder, text: holder.contains_network(Network.read(text)),
)
method("containsCIDR", (CIDR, CIDR), BOOL, Network.contains_network)
method("ip", (CIDR,), IP, lambda value: Address(value.address))
method("prefixLength", (CIDR,), INT, lambda value: value.network.prefixlen)
method("masked", (CIDR,), CIDR, lambda value: Network(value.network.network_address, value.network))
function("string", (CIDR,), STRING, lambda value: f"{value.address}/{value.network.prefixlen}")
