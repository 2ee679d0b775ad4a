"""Checks of addresses: of machines, of networks, and of targets for traffic."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable

from hekla.api.text import syntax
from hekla.api.text.fieldrules import Errors

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_LEADING_ZEROS = re.compile(r"(?<![0-9a-fA-F:])0+(?=\d)")
_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+").fullmatch


def read(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def address(text: str, path: str, found: Errors, known: Collection[str] = ()) -> Address | None:
    """Check an address.  `known`: addresses that the object had before, which may stay."""
    given = read(text)
    if text in known:
        return given
    if given is None:
        sloppy = read(_LEADING_ZEROS.sub("", text)) if "%" not in text else None
        found.invalid(path, text, NO_ADDRESS if sloppy is None else "must not have leading 0s")
        return None
    if "%" in text:
        found.invalid(path, text, NO_ADDRESS)
        return None
    if isinstance(given, ipaddress.IPv6Address) and given.ipv4_mapped is not None:
        found.invalid(path, text, "must not be an IPv4-mapped IPv6 address")
        return None
    return given


def canonical(text: str, path: str, found: Errors) -> Address | None:
    """The canonical, shortest form of an address."""
    given = address(text, path, found)
    if given is not None and str(given) != text:
        found.invalid(path, text, f'must be in canonical form ("{given}")')
    return given


def reachable(text: str, path: str, found: Errors, *, loopback: bool = False) -> None:
    """Check an address that traffic can be sent to.  `loopback`: addresses of this machine are
    allowed, for pods on its network."""
    given = read(text)
    if given is None:
        found.invalid(path, text, "must be a valid IP address")
        return
    if given.is_unspecified:
        found.invalid(path, text, f"may not be unspecified ({text})")
    if given.is_loopback and not (loopback and given.version == 4):
        found.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if given.is_link_local:
        found.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(given in net for net in _LOCAL_MULTICAST if net.version == given.version):
        found.invalid(
            path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        )


def network(text: str, path: str, found: Errors, known: Collection[str] = ()) -> Network | None:
    """Check a CIDR."""
    try:
        given = ipaddress.ip_network(text, strict=False)
    except ValueError:
        given = None
    if given is not None and "/" not in text:
        given = None
    if text in known:
        return given
    if given is None:
        found.invalid(path, text, NO_NETWORK)
        return None
    if read(text.partition("/")[0]) != given.network_address:
        why = "must not have bits set beyond the prefix length"
        found.invalid(path, text, why)
    return given


def hostname(text: str, path: str, found: Errors) -> None:
    """Check the name of a load balancer, which may not be an address."""
    found.malformed(path, text, syntax.dns_subdomain(text))
    if read(text) is not None:
        found.invalid(path, text, "must be a DNS name, not an IP address")


def full_name(text: str, path: str, found: Errors) -> None:
    """Check a fully qualified domain name."""
    if not text:
        found.required(path)
        return
    name = text.removesuffix(".")
    reasons = syntax.dns_subdomain(name)
    if reasons:
        found.invalid(path, name, ",".join(reasons))
    elif "." not in name:
        found.invalid(path, name, "should be a domain with at least two segments separated by dots")
    else:
        for label in name.split("."):
            reasons = syntax.dns_label(label)
            if reasons:
                found.invalid(path, label, ",".join(reasons))
                return


def domain_path(text: str, path: str, found: Errors) -> None:
    """Check a path below a domain: `acme.io/foo`."""
    if not text:
        found.required(path)
        return
    host, _, rest = text.partition("/")
    if not host or not rest:
        found.invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    found.malformed(path, host, syntax.dns_subdomain(host))
    if _PATH(rest) is None:
        why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
        found.invalid(path, rest, why)


def families(addresses: Iterable[Address]) -> set[int]:
    return {given.version for given in addresses}
