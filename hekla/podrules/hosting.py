"""The network of a pod: host ports, hostname, DNS and host aliases."""

from __future__ import annotations

from typing import Any

from hekla.api.text.addresses import address
from hekla.api.text.fieldrules import Errors, Tree
from hekla.api.text.syntax import dns_subdomain, underscored_subdomain
from hekla.podrules.options import Options

MOST_SERVERS, MOST_SEARCHES, LONGEST_SEARCHES = 3, 32, 2048
LONGEST_HOSTNAME = 64


def ports(spec: Tree, path: str, found: Errors) -> None:
    """On the host network, a container's host ports must equal its container ports."""
    for position, container in enumerate(
        spec.get("containers") or () if spec.get("hostNetwork") else ()
    ):
        for index, port in enumerate(container.get("ports") or ()):
            number, on_host = port.get("containerPort") or 0, port.get("hostPort") or 0
            if on_host and on_host != number:
                where = f"{path}.containers[{position}].ports[{index}].hostPort"
                found.invalid(
                    where, on_host, "must match `containerPort` when `hostNetwork` is true"
                )


def lookups(config: Tree | None, policy: Any, path: str, options: Options, found: Errors) -> None:
    """Check the DNS policy and configuration of the pod."""
    given = config or {}
    servers, searches = given.get("nameservers") or [], given.get("searches") or []
    if policy == "None" and config is None:
        found.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
        return
    if policy == "None" and not servers:
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        found.required(f"{path}.nameservers", why)
        return
    if len(servers) > MOST_SERVERS:
        found.invalid(
            f"{path}.nameservers", servers, f"must not have more than {MOST_SERVERS} nameservers"
        )
    for position, server in enumerate(servers):
        address(server, f"{path}.nameservers[{position}]", found)
    if len(searches) > MOST_SEARCHES:
        found.invalid(
            f"{path}.searches", searches, f"must not have more than {MOST_SEARCHES} search paths"
        )
    if len(" ".join(searches)) > LONGEST_SEARCHES:
        why = f"must not have more than {LONGEST_SEARCHES} characters (including spaces) in the search list"
        found.invalid(f"{path}.searches", searches, why)
    grammar = underscored_subdomain if options.features else dns_subdomain
    for position, search in enumerate(searches):
        name = search.removesuffix(".")  # one dot at the end means that nothing is to be added
        if not options.features or search != ".":
            found.malformed(f"{path}.searches[{position}]", name, grammar(name))
    for position, option in enumerate(given.get("options") or ()):
        if not option.get("name"):
            found.required(f"{path}.options[{position}]", "must not be empty")


def hostname(spec: Tree, path: str, found: Errors) -> None:
    """Check the hostname override."""
    name = spec["hostnameOverride"]
    if spec.get("setHostnameAsFQDN"):
        found.forbidden(path, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        found.forbidden(path, "may not be specified when hostNetwork is true")
    if len(name.encode()) > LONGEST_HOSTNAME:
        found.too_long(path, LONGEST_HOSTNAME)
    found.malformed(path, name, dns_subdomain(name))


def aliases(given: list[Tree], path: str, found: Errors) -> None:
    """Check the entries of the pod's hosts file."""
    for position, alias in enumerate(given):
        address(alias.get("ip") or "", f"{path}[{position}].ip", found)
        for index, name in enumerate(alias.get("hostnames") or ()):
            found.malformed(f"{path}[{position}].hostnames[{index}]", name, dns_subdomain(name))
