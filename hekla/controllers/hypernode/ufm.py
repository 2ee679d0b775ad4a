"""Finds the tree of hypernodes in what NVIDIA's fabric manager knows about the ports of its network
(reference: controllers 10.6).

Ports of computers name the switch at their other end, the leaf.  Leaves that share a computer are
one hypernode of tier 1; all of these together are the spine, tier 2.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hekla.api import names

SOURCE = "ufm"
PATH = "/ufmRest/resources/ports"
TIMEOUT = 30.0
LONGEST_ANSWER = 100 * 1024 * 1024
SPINE = "spine-hn"
COMPUTER = "Computer"


class Unanswered(Exception):
    """The fabric manager could not be asked, or its answer cannot be read."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the fabric manager is, and the Secret with its credentials."""

    url: str
    verify: bool
    secret: str
    secret_namespace: str


class Port(msgspec.Struct):
    """A port of the network, as the fabric manager lists it."""

    description: str = ""
    system_name: str = ""
    peer_node_name: str = ""


def settings(source: Mapping[str, Any]) -> Settings:
    """What the configuration says of the source.  Raises ValueError."""
    config = source.get("config") or {}
    endpoint = config.get("endpoint") or ""
    if not isinstance(endpoint, str) or not endpoint:
        raise ValueError(
            f"source {SOURCE} needs config.endpoint, the address of the fabric manager"
        )
    secret = (source.get("credentials") or {}).get("secretRef") or {}
    if not secret.get("name"):
        raise ValueError(
            f"source {SOURCE} needs credentials.secretRef.name, a Secret with username and password"
        )
    base = endpoint.rstrip("/") if "://" in endpoint else f"https://{endpoint.rstrip('/')}"
    return Settings(
        base + PATH,
        not config.get("insecureSkipVerify"),
        str(secret["name"]),
        str(secret.get("namespace") or ""),
    )


def credentials(secret: Mapping[str, Any]) -> tuple[str, str]:
    """(user, password) of a Secret.  Raises ValueError when one of them is missing."""
    data = secret.get("data") or {}
    missing = [key for key in ("username", "password") if not data.get(key)]
    if missing:
        name = secret.get("metadata", {}).get("name", "")
        raise ValueError(f"the secret {name} of source {SOURCE} has no {' and no '.join(missing)}")
    user, password = (base64.b64decode(data[key]).decode() for key in ("username", "password"))
    return user, password


async def fetch(config: Settings, user: str, password: str) -> list[Port]:
    """The ports.  Raises Unanswered."""
    return await asyncio.to_thread(_fetch, config, user, password)


def _fetch(config: Settings, user: str, password: str) -> list[Port]:
    # Imported here: few clusters have such a network, and every one would pay for the modules at
    # its start.
    import http.client
    import ssl
    import urllib.request

    word = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = urllib.request.Request(
        config.url, headers={"Authorization": f"Basic {word}", "Accept": "application/json"}
    )
    context = ssl.create_default_context()
    if not config.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT, context=context) as answer:
            if answer.status != 200:
                raise Unanswered(f"{config.url} answered with status {answer.status}")
            body = answer.read(LONGEST_ANSWER + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unanswered(f"{config.url}: {error}") from None
    if len(body) > LONGEST_ANSWER:
        raise Unanswered(f"{config.url} answered with more than {LONGEST_ANSWER} bytes")
    try:
        return msgspec.json.decode(body, type=list[Port])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unanswered(f"{config.url} answered with no list of ports: {error}") from None


def discover(ports: Iterable[Port]) -> dict[str, dict[str, Any]]:
    """The hypernodes of a network, by name; none when it has no computers."""
    groups = components(ports)
    found = {
        f"leaf-hn-{at}": _body(f"leaf-hn-{at}", 1, "Node", nodes) for at, nodes in enumerate(groups)
    }
    if found:
        found[SPINE] = _body(SPINE, 2, "HyperNode", list(found))
    return found


def components(ports: Iterable[Port]) -> list[list[str]]:
    """The nodes below each group of leaves that are connected through a node, in the order of the
    leaves' names."""
    nodes: dict[str, set[str]] = {}
    leaves: dict[str, set[str]] = {}
    for port in ports:
        if COMPUTER in port.description and port.system_name and port.peer_node_name:
            nodes.setdefault(port.peer_node_name, set()).add(port.system_name)
            leaves.setdefault(port.system_name, set()).add(port.peer_node_name)
    seen: set[str] = set()
    groups: list[list[str]] = []
    for first in sorted(nodes):
        if first in seen:
            continue
        members: set[str] = set()
        ahead = [first]
        seen.add(first)
        while ahead:
            for node in nodes[ahead.pop()] - members:
                members.add(node)
                new = leaves[node] - seen
                seen |= new
                ahead += new
        groups.append(sorted(members))
    return groups


def _body(name: str, tier: int, type_: str, members: Iterable[str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {names.NETWORK_TOPOLOGY_SOURCE: SOURCE}},
        "spec": {
            "tier": tier,
            "members": [
                {"type": type_, "selector": {"exactMatch": {"name": name}}}
                for name in sorted(members)
            ],
        },
    }
