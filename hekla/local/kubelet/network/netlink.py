"""Interfaces, addresses and rules by the kernel's own protocol.

Programs such as `ip` and `nft` are not everywhere, and starting one costs more than what it is told
to do: a pod's whole network is two system calls here.  Only the dozen messages that pods need are
spelled out.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
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
"""(type, flags beside REQUEST and ACK, body)."""


def set_namespace(descriptor: int) -> None:
    """Moves this thread into a network namespace.  Raises OSError."""
    if libc.setns(descriptor, CLONE_NEWNET) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"enter a network namespace: {os.strerror(number)}")


def new_namespace() -> int:
    """Moves this thread into a network namespace of its own; gives a descriptor of it.  Raises
    OSError."""
    if libc.unshare(CLONE_NEWNET) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"make a network namespace: {os.strerror(number)}")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def nest(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(parts))


def link(index: int = 0, *, up: bool = False) -> bytes:
    flags = UP if up else 0
    return struct.pack("=BxHiII", 0, 0, index, flags, flags)


def bridge(name: str) -> Message:
    return (
        NEW_LINK,
        CREATE | EXCLUSIVE,
        link() + text(LINK_NAME, name) + nest(LINK_INFO, text(INFO_KIND, "bridge")),
    )


def pair(name: str, master: int, peer: str, namespace: int, hardware: bytes = b"") -> Message:
    """A veth pair: one end here on a bridge and up, the other in another namespace."""
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
    """Set the alias of an interface, which says whose it is.  The far end of a new pair cannot get
    one when it is made."""
    return NEW_LINK, 0, link(index) + text(LINK_ALIAS, alias)


def up(index: int) -> Message:
    return NEW_LINK, 0, link(index, up=True)


def join(index: int, master: int) -> Message:
    """Puts an interface on a bridge, and up."""
    return NEW_LINK, 0, link(index, up=True) + number(LINK_MASTER, master)


def hardware(index: int, address: bytes) -> Message:
    """Gives an interface a hardware address to keep; a bridge that has none takes the lowest of its
    ports', as they come and go."""
    return NEW_LINK, 0, link(index) + attribute(LINK_ADDRESS, address)


def delete(index: int) -> Message:
    return DELETE_LINK, 0, link(index)


def address(index: int, ip: str, prefix: int) -> Message:
    packed = socket.inet_aton(ip)
    body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, index)
    return NEW_ADDRESS, CREATE | EXCLUSIVE, body + attribute(2, packed) + attribute(1, packed)


def default_route(gateway: str) -> Message:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, MAIN_TABLE, 3, 0, 1, 0)
    return NEW_ROUTE, CREATE | EXCLUSIVE, body + attribute(5, socket.inet_aton(gateway))


def local_route(network: str, prefix: int, index: int) -> Message:
    """Makes every address of a network this machine's own, without listing them."""
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix, 0, 0, LOCAL_TABLE, 3, 254, 2, 0)
    return (
        NEW_ROUTE,
        CREATE | EXCLUSIVE,
        body + attribute(1, socket.inet_aton(network)) + number(4, index),
    )


class Netlink:
    """A conversation with the kernel about the namespace that the thread was in when it began."""

    def __init__(self, family: int = ROUTE) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family
        )
        self._last = 0

    def close(self) -> None:
        self._socket.close()

    def widen(self, size: int) -> None:
        """Makes room for long messages and for what is answered to them."""
        for option in (32, 33):  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
            with contextlib.suppress(PermissionError):  # then what the machine gives must be enough
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)

    def ask(self, *messages: Message) -> None:
        """Has all of them done, in order.  Raises OSError for the first that was refused; those
        behind it are done all the same."""
        self.send([(kind, flags | ACK, body) for kind, flags, body in messages])
        self.settle(len(messages))

    def send(self, messages: Sequence[Message]) -> None:
        data = b""
        for kind, flags, body in messages:
            self._last += 1
            data += (
                struct.pack("=IHHII", 16 + len(body), kind, flags | REQUEST, self._last, 0)
                + body
                + bytes(-len(body) % 4)
            )
        self._socket.send(data)

    def settle(self, count: int) -> None:
        """Waits for so many answers.  Raises OSError."""
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


# --- rules ----------------------------------------------------------------------------------------

BATCH_BEGIN, BATCH_END = 0x10, 0x11
TABLE, CHAIN, RULE = 10 << 8 | 0, 10 << 8 | 3, 10 << 8 | 6
TCP = b"\x06"


def big(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack(">I", value & 0xFFFFFFFF))


def expression(name: str, *parts: bytes) -> bytes:
    return nest(1, text(1, name), nest(2, *parts))


def outside(network: str, prefix: int) -> list[bytes]:
    """Expressions that hold for packets to addresses that are not in the network."""
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
    """Leads TCP connections to anywhere but these networks to a local port, in this namespace.
    Raises OSError."""
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
        netfilter.settle(3)
    finally:
        netfilter.close()


def missing(error: OSError) -> bool:
    """Whether the kernel has no such thing, rather than having refused it."""
    return error.errno in (
        errno.EOPNOTSUPP,
        errno.EAFNOSUPPORT,
        errno.EPROTONOSUPPORT,
        errno.ENOENT,
    )
