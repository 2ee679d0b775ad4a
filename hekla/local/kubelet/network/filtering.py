"""The kernel side of network policies: an nftables table in the namespace of the bridges, which is
replaced as a whole.

Pods cannot change it, whatever they do in their own namespaces. Packets that cross a bridge reach
the rules either because the kernel passes bridged packets to IP rules (bridge-nf-call-iptables), or
because it tracks connections on bridges; one of the two is needed. Both need the kernel's
nf_tables, but no program.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from hekla.local.kubelet.network.netlink import (
    ACK,
    BATCH_BEGIN,
    BATCH_END,
    CHAIN,
    CREATE,
    NETFILTER,
    RULE,
    TABLE,
    Message,
    Netlink,
    attribute,
    big,
    expression,
    nest,
    text,
)
from hekla.local.kubelet.network.policies import INGRESS, Group, Rule

TABLE_NAME = "hekla-policies"
IP, BRIDGE = socket.AF_INET, 7
DELETE_TABLE, SET, ELEMENT = 10 << 8 | 2, 10 << 8 | 9, 10 << 8 | 12
APPEND = 0x800
FORWARD = 2
"""The hook for forwarded packets, in both families."""
DROP, ACCEPT, JUMP, RETURN = 0, 1, -3, -5
PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": 132}
NETWORK, TRANSPORT = 1, 2
SOURCE, TARGET, PROTOCOL, PORT = 12, 16, 9, 2
EQUAL, UNEQUAL, LESS_OR_EQUAL, MORE_OR_EQUAL = 0, 1, 3, 5
ESTABLISHED_OR_RELATED = 2 | 4
ETHERTYPES = (0x0800, 0x0806)
"""IPv4 and ARP: if there are policies, nothing else is forwarded between pods."""
BRIDGE_CALLS_IP_RULES = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
MAX_ELEMENTS = 1000
"""Elements of a set in one message."""
BUFFER_BYTES = 8 << 20
REQUIREMENTS = "the kernel's nf_tables with connection tracking on bridges (module nf_conntrack_bridge or br_netfilter)"
Expressions = list[bytes]


def payload(base: int, offset: int, length: int) -> bytes:
    """Load bytes of the packet."""
    return expression("payload", big(1, 1), big(2, base), big(3, offset), big(4, length))


def compare(operator: int, value: bytes) -> bytes:
    """Compare what was loaded with a value."""
    return expression("cmp", big(1, 1), big(2, operator), nest(3, attribute(1, value)))


def masked(mask: bytes) -> bytes:
    """Apply a bit mask to what was loaded."""
    return expression(
        "bitwise",
        big(1, 1),
        big(2, 1),
        big(3, len(mask)),
        nest(4, attribute(1, mask)),
        nest(5, attribute(1, bytes(len(mask)))),
    )


def within(name: str) -> bytes:
    """Check that what was loaded is in a set."""
    return expression("lookup", text(1, name), big(2, 1))


def verdict(code: int, chain: str = "") -> bytes:
    """Accept, drop, return, or jump to a chain."""
    found = big(1, code) + (text(2, chain) if chain else b"")
    return expression("immediate", big(1, 0), nest(2, nest(2, found)))


def tracked() -> Expressions:
    """Holds for packets of established and related connections."""
    state = struct.pack("=I", ESTABLISHED_OR_RELATED)
    return [expression("ct", big(1, 1), big(2, 0)), masked(state), compare(UNEQUAL, bytes(4))]


def address(offset: int, value: str) -> Expressions:
    """Holds for one address."""
    return [payload(NETWORK, offset, 4), compare(EQUAL, socket.inet_aton(value))]


def network(offset: int, value: str) -> Expressions:
    """Holds for the addresses of a network."""
    found = IPv4Network(value)
    if found.prefixlen == 0:
        return []
    return [
        payload(NETWORK, offset, 4),
        masked(found.netmask.packed),
        compare(EQUAL, found.network_address.packed),
    ]


def port(protocol: str, first: int, last: int) -> Expressions:
    """Holds for a range of ports of a protocol."""
    found = [payload(NETWORK, PROTOCOL, 1), compare(EQUAL, bytes((PROTOCOLS.get(protocol, 255),)))]
    if (first, last) == (0, 65535):
        return found
    at = payload(TRANSPORT, PORT, 2)
    if first == last:
        return [*found, at, compare(EQUAL, struct.pack(">H", first))]
    return [
        *found,
        at,
        compare(MORE_OR_EQUAL, struct.pack(">H", first)),
        compare(LESS_OR_EQUAL, struct.pack(">H", last)),
    ]


class Filter:
    """The table of one namespace of bridges, created in that namespace. `machine` is the machine's
    address on the pods' network, `last` the broadcast address of that network."""

    def __init__(self, machine: str, last: str) -> None:
        self.machine = machine
        self.last = last
        self.family = 0
        self._there = False

    def prepare(self) -> str:
        """Find out how the kernel passes bridged packets to rules; returns why it does not, empty
        if it does."""
        why = ""
        for family in (BRIDGE, IP):
            if family == IP and not bridge_calls_ip_rules():
                continue
            self.family = family
            try:
                self._send(self._table(family, [Group(INGRESS, ("192.0.2.1",), ())]))
                self._send(self._none())
            except OSError as error:
                why = error.strerror or str(error)
                continue
            return ""
        self.family = 0
        return (
            f"{REQUIREMENTS} is missing"
            if not bridge_calls_ip_rules()
            else f"{REQUIREMENTS} is refused: {why}"
        )

    def replace(self, groups: Sequence[Group]) -> None:
        """Replace all rules at once. Raises OSError."""
        if groups or self._there:
            self._send([*self._none(), *(self._table(self.family, groups) if groups else ())])
            self._there = bool(groups)

    def _none(self) -> list[Message]:
        """Delete the table, whether it exists or not."""
        found: list[Message] = []
        for family in (BRIDGE, IP):
            head = struct.pack(">BBH", family, 0, 0) + text(1, TABLE_NAME)
            found += [(TABLE, CREATE, head), (DELETE_TABLE, 0, head)]
        return found

    def _table(self, family: int, groups: Sequence[Group]) -> list[Message]:
        head = struct.pack(">BBH", family, 0, 0)
        found = self._others()
        if family == IP:
            found.append((TABLE, CREATE, head + text(1, TABLE_NAME)))
        found.append(chain(head, "forward"))
        forward: list[Expressions] = [
            [*tracked(), verdict(ACCEPT)],
            [*address(SOURCE, self.machine), verdict(ACCEPT)],
            [*address(TARGET, self.machine), verdict(ACCEPT)],
            # Broadcasts would reach isolated pods too.
            [
                payload(NETWORK, TARGET, 4),
                compare(MORE_OR_EQUAL, socket.inet_aton("224.0.0.0")),
                verdict(DROP),
            ],
            [*address(TARGET, self.last), verdict(DROP)],
        ]
        sets = Sets(head)
        inner: list[Message] = []
        for number, group in enumerate(groups):
            name = f"{group.direction.lower()}-{number}"
            own, other = (TARGET, SOURCE) if group.direction == INGRESS else (SOURCE, TARGET)
            forward.append(
                [
                    payload(NETWORK, own, 4),
                    within(sets.named(frozenset(group.pods))),
                    verdict(JUMP, name),
                ]
            )
            inner.append((CHAIN, CREATE, head + text(1, TABLE_NAME) + text(3, name)))
            lines = [line for one in group.rules for line in allowing(one, other, sets)]
            inner += [rule(head, name, [*line, verdict(RETURN)]) for line in lines]
            inner.append(rule(head, name, [verdict(DROP)]))
        # A rule may refer only to what exists: first sets, then the chains of groups, then the
        # jumps into them.
        return [*found, *sets.messages, *inner, *(rule(head, "forward", line) for line in forward)]

    def _others(self) -> list[Message]:
        """Drop everything that is not IPv4."""
        head = struct.pack(">BBH", BRIDGE, 0, 0)
        kinds: list[Message] = [
            (TABLE, CREATE, head + text(1, TABLE_NAME)),
            chain(head, "kinds", -10),
        ]
        meta = expression("meta", big(1, 1), big(2, 1))
        line = [
            meta,
            *(compare(UNEQUAL, struct.pack(">H", kind)) for kind in ETHERTYPES),
            verdict(DROP),
        ]
        return [*kinds, rule(head, "kinds", line)]

    def _send(self, messages: list[Message]) -> None:
        """Send all messages as one transaction.  Raises OSError."""
        batch = struct.pack(">BBH", 0, 0, 10)
        netfilter = Netlink(NETFILTER)
        try:
            kind, flags, body = messages[-1]
            netfilter.widen(BUFFER_BYTES)
            netfilter.send(
                [
                    (BATCH_BEGIN, 0, batch),
                    *messages[:-1],
                    (kind, flags | ACK, body),
                    (BATCH_END, 0, batch),
                ]
            )
            netfilter.wait_for_answers(1)
        finally:
            netfilter.close()


class Sets:
    """Sets of addresses, each of which is created once."""

    def __init__(self, head: bytes) -> None:
        self.messages: list[Message] = []
        self._head = head
        self._names: dict[frozenset[str], str] = {}

    def named(self, addresses: frozenset[str]) -> str:
        """The name of the set of these addresses."""
        name = self._names.get(addresses)
        if name is None:
            name = self._names[addresses] = f"addresses-{len(self._names)}"
            head = self._head + text(1, TABLE_NAME)
            self.messages.append(
                (
                    SET,
                    CREATE,
                    head
                    + text(2, name)
                    + big(3, 0)
                    + big(4, 7)
                    + big(5, 4)
                    + big(10, len(self._names)),
                )
            )
            packed = [socket.inet_aton(one) for one in sorted(addresses)]
            for at in range(0, len(packed), MAX_ELEMENTS):
                elements = [
                    nest(1, nest(1, attribute(1, one))) for one in packed[at : at + MAX_ELEMENTS]
                ]
                self.messages.append(
                    (ELEMENT, CREATE, head_of_elements(self._head, name) + nest(3, *elements))
                )
        return name


def head_of_elements(head: bytes, name: str) -> bytes:
    """The attributes before the elements of a set."""
    return head + text(1, TABLE_NAME) + text(2, name)


def chain(head: bytes, name: str, priority: int = 0) -> Message:
    """A chain for forwarded packets."""
    hook = nest(4, big(1, FORWARD), big(2, priority))
    return (
        CHAIN,
        CREATE,
        head + text(1, TABLE_NAME) + text(3, name) + hook + big(5, 1) + text(7, "filter"),
    )


def rule(head: bytes, name: str, line: Expressions) -> Message:
    """A rule at the end of a chain."""
    return RULE, CREATE | APPEND, head + text(1, TABLE_NAME) + text(2, name) + nest(4, *line)


def allowing(policy_rule: Rule, offset: int, sets: Sets) -> Iterator[Expressions]:
    """The rules that allow what a policy rule allows; a packet that any of them matches is allowed.
    `offset` is that of the peer's address in the packet."""
    ends: list[Expressions] = [[]] if policy_rule.everybody else []
    if not policy_rule.everybody and policy_rule.addresses:
        ends.append([payload(NETWORK, offset, 4), within(sets.named(policy_rule.addresses))])
    if not policy_rule.everybody:
        ends += [network(offset, where) for where in policy_rule.networks]
    doors: list[Expressions] = (
        [port(*door) for door in policy_rule.ports] if policy_rule.ports else [[]]
    )
    for end in ends:
        for door in doors:
            yield [*end, *door]


def bridge_calls_ip_rules() -> bool:
    """Whether bridged packets in this namespace pass IP rules; switches that on if possible."""
    try:
        if BRIDGE_CALLS_IP_RULES.read_text().strip() == "1":
            return True
        BRIDGE_CALLS_IP_RULES.write_text("1")
    except OSError:
        return False
    return (
        os.path.exists(BRIDGE_CALLS_IP_RULES) and BRIDGE_CALLS_IP_RULES.read_text().strip() == "1"
    )


def unavailable() -> str:
    """Why nothing can be filtered in this thread's namespace; empty if it can."""
    try:
        return Filter("192.0.2.2", "192.0.2.3").prepare()
    except OSError as error:
        return error.strerror or str(error)
