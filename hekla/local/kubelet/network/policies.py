"""What the network policies of a cluster allow, as rules about addresses. Pure functions: objects
in, rules out.

A pod that a policy selects is isolated in the directions of the policy: only traffic that a rule of
one of its policies allows may enter, or leave. Pods with equal rules form a group, so that a job of
a thousand pods needs one chain and one set of addresses in the kernel.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hekla.api import meta, selectors
from hekla.api.kubernetes.networking import (
    IPBlock,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyPort,
)
from hekla.api.trees import Json

INGRESS, EGRESS = "Ingress", "Egress"
Ports = tuple[tuple[str, int, int], ...]
"""(protocol, first, last) of each range; empty: every port."""


class Endpoint(NamedTuple):
    """A pod as policies see it."""

    namespace: str
    address: str
    labels: Mapping[str, str]
    ports: Mapping[tuple[str, str], int]
    """(name, protocol) -> number."""


class Rule(NamedTuple):
    """What one rule allows."""

    everybody: bool
    """Any peer."""
    addresses: frozenset[str]
    """Pods that may be the peer."""
    networks: tuple[str, ...]
    ports: Ports

    def tree(self) -> Json:
        """The rule as JSON for the network daemon."""
        return {
            "everybody": self.everybody,
            "addresses": sorted(self.addresses),
            "networks": self.networks,
            "ports": self.ports,
        }


class Group(NamedTuple):
    """Pods with equal rules in one direction."""

    direction: str
    pods: tuple[str, ...]
    """Their addresses."""
    rules: tuple[Rule, ...]

    def tree(self) -> Json:
        """The group as JSON for the network daemon."""
        return {
            "direction": self.direction,
            "pods": self.pods,
            "rules": [rule.tree() for rule in self.rules],
        }


def group_of(tree: Json) -> Group:
    """The inverse of `Group.tree`."""
    rules = (
        Rule(
            rule["everybody"],
            frozenset(rule["addresses"]),
            tuple(rule["networks"]),
            tuple((protocol, first, last) for protocol, first, last in rule["ports"]),
        )
        for rule in tree["rules"]
    )
    return Group(tree["direction"], tuple(tree["pods"]), tuple(rules))


def compile_policies(
    policies: Iterable[NetworkPolicy],
    namespaces: Mapping[str, Mapping[str, str]],
    pods: Iterable[Endpoint],
    others: Iterable[Endpoint] = (),
) -> list[Group]:
    """The groups of all isolated pods. `namespaces` are the labels of each namespace; `others` may
    be peers and are never isolated."""
    own = list(pods)
    isolated = {pod.address for pod in own}
    around = PodIndex(namespaces, [*own, *others])
    allowed: dict[str, dict[str, set[Rule]]] = {INGRESS: {}, EGRESS: {}}
    for policy in policies:
        spec, namespace = policy.spec, policy.metadata.namespace
        members = [
            pod for pod in around.select(namespace, spec.pod_selector) if pod.address in isolated
        ]
        if not members:
            continue
        directions = spec.policy_types or [INGRESS, *([EGRESS] if spec.egress else [])]
        if INGRESS in directions:
            entries = [(around.peers(rule.from_, namespace), rule.ports) for rule in spec.ingress]
            known: dict[tuple[int, Ports], Rule] = {}
            for pod in members:
                held = allowed[INGRESS].setdefault(pod.address, set())
                for position, (peers, ports) in enumerate(entries):
                    if (numbers := _ports_of(ports, pod)) is not None:
                        if (position, numbers) not in known:
                            known[position, numbers] = peers.rule(numbers)
                        held.add(known[position, numbers])
        if EGRESS in directions:
            rules = {
                made
                for rule in spec.egress
                for made in _outgoing(around.peers(rule.to, namespace), rule.ports)
            }
            for pod in members:
                allowed[EGRESS].setdefault(pod.address, set()).update(rules)
    return [group for direction, found in allowed.items() for group in _groups(direction, found)]


def _groups(direction: str, found: Mapping[str, set[Rule]]) -> list[Group]:
    alike: dict[frozenset[Rule], list[str]] = {}
    for address, rules in found.items():
        alike.setdefault(frozenset(rules), []).append(address)
    return [
        Group(direction, tuple(sorted(pods)), tuple(sorted(rules, key=_order)))
        for rules, pods in alike.items()
    ]


def _order(rule: Rule) -> Any:
    return not rule.everybody, rule.ports, rule.networks, sorted(rule.addresses)


class Peers(NamedTuple):
    """The possible peers of a rule."""

    everybody: bool
    pods: tuple[Endpoint, ...]
    networks: tuple[str, ...]

    def rule(self, ports: Ports) -> Rule:
        return Rule(
            self.everybody, frozenset(pod.address for pod in self.pods), self.networks, ports
        )


class PodIndex:
    """All pods and namespaces that a rule may select."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]], pods: list[Endpoint]) -> None:
        self._namespaces = namespaces
        self._pods = pods
        self._within: dict[str, list[Endpoint]] = {}
        self._labelled: dict[tuple[str, str, str], list[Endpoint]] = {}
        """By namespace, label and value: nearly every selector names a label, and asks of few pods
        then."""
        for pod in pods:
            self._within.setdefault(pod.namespace, []).append(pod)
            for key, value in pod.labels.items():
                self._labelled.setdefault((pod.namespace, key, value), []).append(pod)

    def select(self, namespace: str, selector: meta.LabelSelector | None) -> list[Endpoint]:
        """The pods of a namespace that a selector selects; all if there is no selector."""
        if selector is None:
            return self._within.get(namespace, [])
        named = [
            self._labelled.get((namespace, key, value), [])
            for key, value in selector.match_labels.items()
        ]
        found = min(named, key=len) if named else self._within.get(namespace, [])
        asked = selectors.of_object(selector)
        return [pod for pod in found if asked.matches(pod.labels)]

    def peers(self, wanted: list[NetworkPolicyPeer], namespace: str) -> Peers:
        if not wanted:
            return Peers(True, tuple(self._pods), ())
        pods: dict[str, Endpoint] = {}
        networks: list[str] = []
        for peer in wanted:
            if peer.ip_block is not None:
                networks += without(peer.ip_block)
                continue
            where = {namespace}
            if peer.namespace_selector is not None:
                selector = selectors.of_object(peer.namespace_selector)
                where = {
                    name for name, labels in self._namespaces.items() if selector.matches(labels)
                }
            elif peer.pod_selector is None:
                continue
            pods |= {
                pod.address: pod for name in where for pod in self.select(name, peer.pod_selector)
            }
        return Peers(False, tuple(pods.values()), tuple(dict.fromkeys(networks)))


def _ports_of(ports: list[NetworkPolicyPort], pod: Endpoint) -> Ports | None:
    """The ports of one pod, whose containers define the named ones; None if it has none of them."""
    if not ports:
        return ()
    return (
        tuple(sorted({number for port in ports if (number := numbered(port, pod)) is not None}))
        or None
    )


def _outgoing(peers: Peers, ports: list[NetworkPolicyPort]) -> list[Rule]:
    """The rules for an egress rule: each possible peer defines the named ports for itself."""
    if not ports:
        return [peers.rule(())]
    plain = tuple(
        sorted({number for port in ports if (number := numbered(port, None)) is not None})
    )
    found = [peers.rule(plain)] if plain else []
    there: dict[tuple[str, int, int], list[Endpoint]] = {}
    for port in ports:
        if isinstance(port.port, str):
            for pod in peers.pods:
                if (number := numbered(port, pod)) is not None:
                    there.setdefault(number, []).append(pod)
    return found + [Peers(False, tuple(pods), ()).rule((number,)) for number, pods in there.items()]


def numbered(port: NetworkPolicyPort, pod: Endpoint | None) -> tuple[str, int, int] | None:
    """(protocol, first, last); None for a name that the pod does not have."""
    protocol = port.protocol or "TCP"
    if port.port is None:
        return (protocol, 0, 65535)
    if isinstance(port.port, str):
        number = pod.ports.get((port.port, protocol)) if pod is not None else None
        return None if number is None else (protocol, number, number)
    return (protocol, port.port, port.end_port or port.port)


def without(block: IPBlock) -> list[str]:
    """The networks of a block without its exceptions; empty for IPv6, which pods here do not have."""
    try:
        left = [ipaddress.ip_network(block.cidr, strict=False)]
        excepted = [ipaddress.ip_network(text, strict=False) for text in block.except_]
    except ValueError:
        return []
    if left[0].version != 4:
        return []
    for hole in excepted:
        rest: list[ipaddress.IPv4Network] = []
        for network in left:
            if not isinstance(hole, ipaddress.IPv4Network) or not isinstance(
                network, ipaddress.IPv4Network
            ):
                continue
            if hole.subnet_of(network):
                rest += network.address_exclude(hole) if hole != network else ()
            elif not network.subnet_of(hole):
                rest.append(network)
        left = list(rest)
    return [str(network) for network in left]


class Verdicts:
    """What a set of groups allows, for a single connection; used for connections that are relayed
    and never pass the kernel's rules."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._rules: dict[tuple[str, str], tuple[Rule, ...]] = {
            (group.direction, address): group.rules for group in groups for address in group.pods
        }

    def allow(self, source: str, target: str, protocol: str, port: int) -> bool:
        """Whether a connection is allowed. A pod always reaches itself."""
        return source == target or (
            self._lets(EGRESS, source, target, protocol, port)
            and self._lets(INGRESS, target, source, protocol, port)
        )

    def _lets(self, direction: str, pod: str, other: str, protocol: str, port: int) -> bool:
        rules = self._rules.get((direction, pod))
        return rules is None or any(lets(rule, other, protocol, port) for rule in rules)


def lets(rule: Rule, other: str, protocol: str, port: int) -> bool:
    """Whether a rule allows a peer and a port."""
    if rule.ports and not any(
        protocol == known and first <= port <= last for known, first, last in rule.ports
    ):
        return False
    if rule.everybody or other in rule.addresses:
        return True
    return any(
        ipaddress.ip_address(other) in ipaddress.ip_network(network) for network in rule.networks
    )
