"""The kernel's side of network policies: a table of nftables in the namespace of the bridges,
replaced as a whole.

Pods cannot touch it, whatever they may do in their own namespaces.  What crosses a bridge comes by
the rules either because the kernel shows bridged packets to its rules about IP
(bridge-nf-call-iptables), or because it tracks connections on bridges itself; one of the two is
needed, and both want the kernel's nf_tables, no program.
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

NAME = "hekla-policies"
IP, BRIDGE = socket.AF_INET, 7
DELETE_TABLE, SET, ELEMENT = 10 << 8 | 2, 10 << 8 | 9, 10 << 8 | 12
APPEND = 0x800
FORWARD = 2
"""The hook of what is passed on, in both families."""
DROP, ACCEPT, JUMP, RETURN = 0, 1, -3, -5
PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": 132}
NETWORK, TRANSPORT = 1, 2
SOURCE, TARGET, PROTOCOL, PORT = 12, 16, 9, 2
EQUAL, UNEQUAL, LESS_OR_EQUAL, MORE_OR_EQUAL = 0, 1, 3, 5
ESTABLISHED_OR_RELATED = 2 | 4
ETHERTYPES = (0x0800, 0x0806)
"""IPv4 and the search for its addresses: nothing else is passed on between pods where there are
policies."""
SHOWN = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
AT_ONCE = 1000
"""Elements of a set in one message."""
BUFFER = 8 << 20
NEEDS = "the kernel's nf_tables with connection tracking on bridges (module nf_conntrack_bridge or br_netfilter)"
Expressions = list[bytes]


def payload(base: int, offset: int, length: int) -> bytes:
    return expression("payload", big(1, 1), big(2, base), big(3, offset), big(4, length))


def compare(operator: int, value: bytes) -> bytes:
    return expression("cmp", big(1, 1), big(2, operator), nest(3, attribute(1, value)))


def masked(mask: bytes) -> bytes:
    return expression(
        "bitwise",
        big(1, 1),
        big(2, 1),
        big(3, len(mask)),
        nest(4, attribute(1, mask)),
        nest(5, attribute(1, bytes(len(mask)))),
    )


def within(name: str) -> bytes:
    return expression("lookup", text(1, name), big(2, 1))


def verdict(code: int, chain: str = "") -> bytes:
    found = big(1, code) + (text(2, chain) if chain else b"")
    return expression("immediate", big(1, 0), nest(2, nest(2, found)))


def tracked() -> Expressions:
    state = struct.pack("=I", ESTABLISHED_OR_RELATED)
    return [expression("ct", big(1, 1), big(2, 0)), masked(state), compare(UNEQUAL, bytes(4))]


def address(offset: int, value: str) -> Expressions:
    return [payload(NETWORK, offset, 4), compare(EQUAL, socket.inet_aton(value))]


def network(offset: int, value: str) -> Expressions:
    """Holds for addresses in a network."""
    found = IPv4Network(value)
    if found.prefixlen == 0:
        return []
    return [
        payload(NETWORK, offset, 4),
        masked(found.netmask.packed),
        compare(EQUAL, found.network_address.packed),
    ]


def port(protocol: str, first: int, last: int) -> Expressions:
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
    """The table of one namespace of bridges; made in that namespace.  `machine` and `last` are the
    machine's address on the pods' network and the last address of it, which all pods hear.
    """

    def __init__(self, machine: str, last: str) -> None:
        self.machine = machine
        self.last = last
        self.family = 0
        self._there = False

    def prepare(self) -> str:
        """Finds out which way the kernel shows bridged packets to rules; why there is none, or
        nothing."""
        why = ""
        for family in (BRIDGE, IP):
            if family == IP and not shown_to_ip():
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
        return f"{NEEDS} is missing" if not shown_to_ip() else f"{NEEDS} is refused: {why}"

    def replace(self, groups: Sequence[Group]) -> None:
        """Replace all rules, in one step.  Raises OSError."""
        if groups or self._there:
            self._send([*self._none(), *(self._table(self.family, groups) if groups else ())])
            self._there = bool(groups)

    def _none(self) -> list[Message]:
        """No table, whether there was one or not."""
        found: list[Message] = []
        for family in (BRIDGE, IP):
            head = struct.pack(">BBH", family, 0, 0) + text(1, NAME)
            found += [(TABLE, CREATE, head), (DELETE_TABLE, 0, head)]
        return found

    def _table(self, family: int, groups: Sequence[Group]) -> list[Message]:
        head = struct.pack(">BBH", family, 0, 0)
        found = self._others()
        if family == IP:
            found.append((TABLE, CREATE, head + text(1, NAME)))
        found.append(chain(head, "forward"))
        forward: list[Expressions] = [
            [*tracked(), verdict(ACCEPT)],
            [*address(SOURCE, self.machine), verdict(ACCEPT)],
            [*address(TARGET, self.machine), verdict(ACCEPT)],
            # What is for all would come to isolated pods too.
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
            inner.append((CHAIN, CREATE, head + text(1, NAME) + text(3, name)))
            lines = [line for one in group.rules for line in allowing(one, other, sets)]
            inner += [rule(head, name, [*line, verdict(RETURN)]) for line in lines]
            inner.append(rule(head, name, [verdict(DROP)]))
        # A rule may only name what is there: sets, then the chains of groups, then what leads into
        # them.
        return [*found, *sets.messages, *inner, *(rule(head, "forward", line) for line in forward)]

    def _others(self) -> list[Message]:
        """Drop everything that is not IPv4."""
        head = struct.pack(">BBH", BRIDGE, 0, 0)
        kinds: list[Message] = [
            (TABLE, CREATE, head + text(1, NAME)),
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
            netfilter.widen(BUFFER)
            netfilter.send(
                [
                    (BATCH_BEGIN, 0, batch),
                    *messages[:-1],
                    (kind, flags | ACK, body),
                    (BATCH_END, 0, batch),
                ]
            )
            netfilter.settle(1)
        finally:
            netfilter.close()


class Sets:
    """Sets of addresses, each of which is made once."""

    def __init__(self, head: bytes) -> None:
        self.messages: list[Message] = []
        self._head = head
        self._names: dict[frozenset[str], str] = {}

    def named(self, addresses: frozenset[str]) -> str:
        name = self._names.get(addresses)
        if name is None:
            name = self._names[addresses] = f"addresses-{len(self._names)}"
            head = self._head + text(1, NAME)
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
            for at in range(0, len(packed), AT_ONCE):
                elements = [
                    nest(1, nest(1, attribute(1, one))) for one in packed[at : at + AT_ONCE]
                ]
                self.messages.append(
                    (ELEMENT, CREATE, head_of_elements(self._head, name) + nest(3, *elements))
                )
        return name


def head_of_elements(head: bytes, name: str) -> bytes:
    return head + text(1, NAME) + text(2, name)


def chain(head: bytes, name: str, priority: int = 0) -> Message:
    """A chain of what is passed on."""
    hook = nest(4, big(1, FORWARD), big(2, priority))
    return (
        CHAIN,
        CREATE,
        head + text(1, NAME) + text(3, name) + hook + big(5, 1) + text(7, "filter"),
    )


def rule(head: bytes, name: str, line: Expressions) -> Message:
    return RULE, CREATE | APPEND, head + text(1, NAME) + text(2, name) + nest(4, *line)


def allowing(one: Rule, offset: int, sets: Sets) -> Iterator[Expressions]:
    """The lines of a rule: any of them may hold.  `offset` is where the other end's address stands."""
    ends: list[Expressions] = [[]] if one.everybody else []
    if not one.everybody and one.addresses:
        ends.append([payload(NETWORK, offset, 4), within(sets.named(one.addresses))])
    if not one.everybody:
        ends += [network(offset, where) for where in one.networks]
    doors: list[Expressions] = [port(*door) for door in one.ports] if one.ports else [[]]
    for end in ends:
        for door in doors:
            yield [*end, *door]


def shown_to_ip() -> bool:
    """Whether bridged packets of this namespace come by rules about IP; sees to it where that can
    be."""
    try:
        if SHOWN.read_text().strip() == "1":
            return True
        SHOWN.write_text("1")
    except OSError:
        return False
    return os.path.exists(SHOWN) and SHOWN.read_text().strip() == "1"


def unavailable() -> str:
    """Why nothing can be filtered in this thread's namespace; empty where it can."""
    try:
        return Filter("192.0.2.2", "192.0.2.3").prepare()
    except OSError as error:
        return error.strerror or str(error)
