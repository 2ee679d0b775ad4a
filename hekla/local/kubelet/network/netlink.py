"""Network interfaces, addresses and rules over netlink, the kernel's own protocol.

Programs such as `ip` and `nft` are not installed everywhere, and starting one costs more than its
work: a pod's whole network takes two system calls here. Only the dozen messages that pods need are
implemented.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Sequence

ROUTE, NETFILTER = 0, 12
REQUEST, ACK, EXCLUSIVE, CREATE = 1, 4, 0x200, 0x400
ERROR = 2
NEW_LINK, DELETE_LINK, NEW_ADDRESS, NEW_ROUTE = 16, 17, 20, 24
LINK_ADDRESS, LINK_NAME, LINK_MASTER, LINK_INFO, LINK_ALIAS, LINK_NAMESPACE = 1, 3, 10, 18, 20, 28
INFO_KIND, INFO_DATA, VETH_PEER = 1, 2, 1
UP = 1
NESTED = 0x8000
CLONE_NEWNET = 0x40000000
LOCAL_TABLE, MAIN_TABLE = 255, 254

libc = ctypes.CDLL(None, use_errno=True)

Message = tuple[int, int, bytes]
"""(type, flags besides REQUEST and ACK, body)."""


def set_namespace(descriptor: int) -> None:
    """Move this thread into a network namespace. Raises OSError."""
    if libc.setns(descriptor, CLONE_NEWNET) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"enter a network namespace: {os.strerror(number)}")


def new_namespace() -> int:
    """Move this thread into a new network namespace; returns its descriptor. Raises OSError."""
    if libc.unshare(CLONE_NEWNET) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"make a network namespace: {os.strerror(number)}")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def attribute(kind: int, value: bytes) -> bytes:
    """A netlink attribute."""
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def text(kind: int, value: str) -> bytes:
    """An attribute that holds text."""
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """An attribute that holds a 32-bit number."""
    return attribute(kind, struct.pack("=I", value))


def nest(kind: int, *parts: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | NESTED, b"".join(parts))


def link(index: int = 0, *, up: bool = False) -> bytes:
    """The header of a message about an interface."""
    flags = UP if up else 0
    return struct.pack("=BxHiII", 0, 0, index, flags, flags)


def bridge(name: str) -> Message:
    """Create a bridge."""
    return (
        NEW_LINK,
        CREATE | EXCLUSIVE,
        link() + text(LINK_NAME, name) + nest(LINK_INFO, text(INFO_KIND, "bridge")),
    )


def pair(name: str, master: int, peer: str, namespace: int, hardware: bytes = b"") -> Message:
    """Create a veth pair: one end here on a bridge and up, the other in another namespace."""
    other = link() + text(LINK_NAME, peer) + number(LINK_NAMESPACE, namespace)
    if hardware:
        other += attribute(LINK_ADDRESS, hardware)
    info = nest(LINK_INFO, text(INFO_KIND, "veth"), nest(INFO_DATA, nest(VETH_PEER, other)))
    return (
        NEW_LINK,
        CREATE | EXCLUSIVE,
        link(up=True) + text(LINK_NAME, name) + number(LINK_MASTER, master) + info,
    )


def mark(index: int, alias: str) -> Message:
    """Set the alias of an interface, which says whose it is. The other end of a new pair cannot get
    one when it is created."""
    return NEW_LINK, 0, link(index) + text(LINK_ALIAS, alias)


def up(index: int) -> Message:
    """Set an interface up."""
    return NEW_LINK, 0, link(index, up=True)


def down(name: str) -> Message:
    """Set an interface down. A bridge that is down forwards nothing."""
    return NEW_LINK, 0, struct.pack("=BxHiII", 0, 0, 0, 0, UP) + text(LINK_NAME, name)


def join(index: int, master: int) -> Message:
    """Attach an interface to a bridge, and set it up."""
    return NEW_LINK, 0, link(index, up=True) + number(LINK_MASTER, master)


def hardware(index: int, address: bytes) -> Message:
    """Set the MAC address of an interface. A bridge without one takes the lowest of its ports,
    which changes as ports come and go."""
    return NEW_LINK, 0, link(index) + attribute(LINK_ADDRESS, address)


def delete(index: int) -> Message:
    """Delete an interface."""
    return DELETE_LINK, 0, link(index)


def address(index: int, ip: str, prefix: int) -> Message:
    """Add an address to an interface."""
    packed = socket.inet_aton(ip)
    body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, index)
    return NEW_ADDRESS, CREATE | EXCLUSIVE, body + attribute(2, packed) + attribute(1, packed)


def default_route(gateway: str) -> Message:
    """Set the default route."""
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, MAIN_TABLE, 3, 0, 1, 0)
    return NEW_ROUTE, CREATE | EXCLUSIVE, body + attribute(5, socket.inet_aton(gateway))


def local_route(network: str, prefix: int, index: int) -> Message:
    """Make every address of a network local, without listing them."""
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix, 0, 0, LOCAL_TABLE, 3, 254, 2, 0)
    return (
        NEW_ROUTE,
        CREATE | EXCLUSIVE,
        body + attribute(1, socket.inet_aton(network)) + number(4, index),
    )


class Netlink:
    """A netlink socket, for the namespace in which the thread was when it was created."""

    def __init__(self, family: int = ROUTE) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family
        )
        self._last = 0

    def close(self) -> None:
        self._socket.close()

    def widen(self, size: int) -> None:
        """Enlarge the buffers, for long messages and their answers."""
        for option in (32, 33):  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
            with contextlib.suppress(PermissionError):  # the default size must be enough
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)

    def ask(self, *messages: Message) -> None:
        """Send messages, which are executed in order. Raises OSError for the first that failed;
        later ones are executed nevertheless."""
        self.send([(kind, flags | ACK, body) for kind, flags, body in messages])
        self.wait_for_answers(len(messages))

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages without waiting for answers."""
        data = b""
        for kind, flags, body in messages:
            self._last += 1
            data += (
                struct.pack("=IHHII", 16 + len(body), kind, flags | REQUEST, self._last, 0)
                + body
                + bytes(-len(body) % 4)
            )
        self._socket.send(data)

    def wait_for_answers(self, count: int) -> None:
        """Wait for that many answers. Raises OSError."""
        refused = 0
        while count > 0:
            data = self._socket.recv(65536)
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == ERROR:
                    refused = refused or -struct.unpack_from("=i", data, at + 16)[0]
                    count -= 1
                at += max(16, length + (-length % 4))
        if refused:
            raise OSError(refused, os.strerror(refused))


def open_within(namespace: str) -> Netlink:
    """A netlink socket for the namespace of this path; the namespace exists as long as the socket.
    Raises OSError."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        other = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            set_namespace(other)
            try:
                return Netlink()
            finally:
                set_namespace(own)
        finally:
            os.close(other)
    finally:
        os.close(own)


# --- rules ----------------------------------------------------------------------------------------

BATCH_BEGIN, BATCH_END = 0x10, 0x11
TABLE, CHAIN, RULE = 10 << 8 | 0, 10 << 8 | 3, 10 << 8 | 6
TCP = b"\x06"


def big(kind: int, value: int) -> bytes:
    """An attribute that holds a 32-bit number in network byte order."""
    return attribute(kind, struct.pack(">I", value & 0xFFFFFFFF))


def expression(name: str, *parts: bytes) -> bytes:
    """An nftables expression."""
    return nest(1, text(1, name), nest(2, *parts))


def outside(network: str, prefix: int) -> list[bytes]:
    """Expressions that hold for packets to addresses outside a network."""
    mask = struct.pack(">I", (0xFFFFFFFF << (32 - prefix)) & 0xFFFFFFFF)
    return [
        expression("payload", big(1, 1), big(2, 1), big(3, 16), big(4, 4)),
        expression(
            "bitwise",
            big(1, 1),
            big(2, 1),
            big(3, 4),
            nest(4, attribute(1, mask)),
            nest(5, attribute(1, bytes(4))),
        ),
        expression("cmp", big(1, 1), big(2, 1), nest(3, attribute(1, socket.inet_aton(network)))),
    ]


def redirect(inside: Sequence[tuple[str, int]], port: int) -> None:
    """Redirect TCP connections to any address outside these networks to a local port, in this
    namespace. Raises OSError."""
    head = struct.pack(">BBH", socket.AF_INET, 0, 0)
    name = "hekla"
    rules = [
        expression("meta", big(1, 1), big(2, 16)),
        expression("cmp", big(1, 1), big(2, 0), nest(3, attribute(1, TCP))),
        *(part for network, prefix in inside for part in outside(network, prefix)),
        expression("immediate", big(1, 1), nest(2, attribute(1, struct.pack(">H", port)))),
        expression("redir", big(1, 1)),
    ]
    hook = nest(4, big(1, 0), big(2, -100))
    batch = struct.pack(">BBH", 0, 0, 10)
    netfilter = Netlink(NETFILTER)
    try:
        netfilter.send(
            [
                (BATCH_BEGIN, 0, batch),
                (TABLE, CREATE | ACK, head + text(1, name)),
                (
                    CHAIN,
                    CREATE | ACK,
                    head + text(1, name) + text(3, "out") + hook + big(5, 1) + text(7, "nat"),
                ),
                (
                    RULE,
                    CREATE | 0x800 | ACK,
                    head + text(1, name) + text(2, "out") + nest(4, *rules),
                ),
                (BATCH_END, 0, batch),
            ]
        )
        netfilter.wait_for_answers(3)
    finally:
        netfilter.close()
