"""Relays connections from the address that a pod connects to, to the actual target.

Service addresses, host ports and networks outside the cluster all end at listeners of the network
daemon; each connection is continued by a second one, made in the namespace that reaches the target.
So nothing on the machine is changed: no forwarding, no rules, and only one interface is added.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from hekla.local.kubelet.network.netlink import set_namespace

log = logging.getLogger("network")

ORIGINAL_DESTINATION = 80
"""An option of SOL_IP: the target of a connection before a rule redirected it."""
CONNECT_TIMEOUT = 30.0
IDLE_TIMEOUT = 60.0
"""Seconds without a datagram after which an exchange has ended."""

Target = tuple[str, int]


class Namespaces:
    """The two namespaces in which sockets are created: the hub's, which pods are attached to, and
    the machine's."""

    def __init__(self, hub: int, machine: int) -> None:
        self.hub = hub
        self.machine = machine

    def socket(self, kind: int, *, machine: bool) -> socket.socket:
        """A socket in one of the namespaces."""
        if not machine:
            return socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)
        set_namespace(self.machine)
        try:
            return socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)
        finally:
            set_namespace(self.hub)


class Half(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Half | None = None
        self.waiting: list[bytes] = []
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def join(self, other: Half) -> None:
        """Connect both sides."""
        self.other, other.other = other, self
        for half, peer in ((self, other), (other, self)):
            if half.waiting and peer.transport is not None:
                peer.transport.writelines(half.waiting)
                half.waiting = []
            if half.ended:
                peer.finish()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        else:
            self.waiting.append(data)
            if self.transport is not None and len(self.waiting) > 16:
                self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ended = True
        if self.other is not None:
            self.other.finish()
        return True  # the other direction may continue

    def finish(self) -> None:
        """Close for writing once everything is sent."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.ended:
            self.transport.close()
        elif self.transport.can_write_eof():
            self.transport.write_eof()
        if self.ended and self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if (
            self.other is not None
            and self.other.transport is not None
            and not self.other.transport.is_closing()
        ):
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()
        self.transport = None


def _itself(half: Half) -> Half:
    return half


def original_target(connection: socket.socket) -> Target | None:
    """The target of a connection before it was redirected."""
    try:
        raw = connection.getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16)
    except OSError:
        return None
    return socket.inet_ntoa(raw[4:8]), int(struct.unpack(">H", raw[2:4])[0])


class Listener:
    """A socket whose connections are relayed. `targets` returns where to, in the order in which
    targets are tried."""

    def __init__(
        self,
        namespaces: Namespaces,
        listening: socket.socket,
        targets: Callable[[Target, socket.socket], Sequence[Target]],
        inside: Callable[[str], bool],
    ) -> None:
        self._namespaces = namespaces
        self._targets = targets
        self._inside = inside
        self._socket = listening
        self._tasks: set[asyncio.Task[None]] = set()
        listening.listen(512)
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    def _accept(self) -> None:
        for _ in range(64):
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(
                self._carry(connection, (peer[0], peer[1]))
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, connection: socket.socket, peer: Target) -> None:
        loop = asyncio.get_running_loop()
        for address, port in self._targets(peer, connection):
            onward = self._namespaces.socket(socket.SOCK_STREAM, machine=not self._inside(address))
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await loop.sock_connect(onward, (address, port))
            except (OSError, TimeoutError):
                onward.close()
                continue
            one, two = Half(), Half()
            for made in (connection, onward):
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(partial(_itself, one), connection)
            await loop.connect_accepted_socket(partial(_itself, two), onward)
            one.join(two)
            return
        # No target accepts it: reset it, as a closed port does.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


class Exchange(asyncio.DatagramProtocol):
    """Relays datagrams to one port; each sender has its own socket for the answers."""

    def __init__(
        self,
        namespaces: Namespaces,
        targets: Callable[[Target], Sequence[Target]],
        inside: Callable[[str], bool],
    ) -> None:
        self._namespaces = namespaces
        self._targets = targets
        self._inside = inside
        self._transport: asyncio.DatagramTransport | None = None
        self._onward: dict[Target, tuple[socket.socket, Target, asyncio.TimerHandle]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Target) -> None:
        loop = asyncio.get_running_loop()
        known = self._onward.get(addr)
        if known is None:
            targets = self._targets(addr)
            if not targets:
                return
            onward = self._namespaces.socket(
                socket.SOCK_DGRAM, machine=not self._inside(targets[0][0])
            )
            loop.add_reader(onward.fileno(), self._answer, addr, onward)
            known = (onward, targets[0], loop.call_later(IDLE_TIMEOUT, self._forget, addr))
        else:
            known[2].cancel()
            known = (known[0], known[1], loop.call_later(IDLE_TIMEOUT, self._forget, addr))
        self._onward[addr] = known
        try:
            known[0].sendto(data, known[1])
        except OSError:
            self._forget(addr)

    def _answer(self, sender: Target, onward: socket.socket) -> None:
        try:
            data = onward.recv(65536)
        except OSError:
            return
        if self._transport is not None:
            self._transport.sendto(data, sender)

    def _forget(self, sender: Target) -> None:
        onward, _, timer = self._onward.pop(sender)
        timer.cancel()
        asyncio.get_running_loop().remove_reader(onward.fileno())
        onward.close()

    def connection_lost(self, error: Exception | None) -> None:
        for sender in list(self._onward):
            self._forget(sender)


class TargetOrder:
    """The order in which targets are tried: round robin, or always the same for one caller."""

    def __init__(self, targets: Sequence[Target], sticky: bool = False) -> None:
        self.targets = targets
        self._turn = itertools.count()
        self._sticky = sticky

    def order(self, caller: str) -> list[Target]:
        """The targets for a caller, the first choice first."""
        if not self.targets:
            return []
        first = (hash(caller) if self._sticky else next(self._turn)) % len(self.targets)
        return [*self.targets[first:], *self.targets[:first]]
