"""The cluster's DNS server: names of services and pods; other names are asked of this machine's own
servers.  Reference: local-cluster 8.11.

A query has one question, as all resolvers send them.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from hekla.local.kubelet.network.relay import Namespaces

DOMAIN = "cluster.local"
A, CNAME, PTR, AAAA, SRV = 1, 5, 12, 28, 33
TTL = 5
PATIENCE = 3.0
LARGEST = 1232
NOT_FOUND, FAILED = 3, 2


@dataclass(slots=True)
class Port:
    """A port of a service by name, for questions of SRV records."""

    name: str
    port: int
    protocol: str = "TCP"


@dataclass(slots=True)
class Service:
    """The addresses and ports behind the names of one service."""

    name: str
    address: str = ""
    """Its cluster address; empty when it is headless."""
    external: str = ""
    ports: list[Port] = field(default_factory=list)
    endpoints: list[tuple[str, str]] = field(default_factory=list)
    """(address, hostname) of the pods behind a headless one."""


Record = tuple[int, bytes]


def label_bytes(name: str) -> bytes:
    return (
        b"".join(bytes([len(part)]) + part.encode() for part in name.strip(".").split(".") if part)
        + b"\0"
    )


class Zone:
    """All names of the cluster."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, list[Record]]] = {}
        self._addresses: dict[str, dict[str, str]] = {}

    def replace(
        self, namespace: str, services: Iterable[Service], pods: Iterable[tuple[str, str, str]]
    ) -> None:
        """The names of a namespace from now on.  `pods` are (hostname, subdomain, address)."""
        known: dict[str, dict[Record, None]] = {}
        """By name, each record once and in order."""
        back: dict[str, str] = {}
        ending = f"{namespace}.svc.{DOMAIN}"

        def add(name: str, record: Record) -> None:
            known.setdefault(name.lower(), {})[record] = None

        for hostname, subdomain, address in pods:
            name = f"{hostname}.{subdomain}.{ending}"
            add(name, (A, socket.inet_aton(address)))
            back[address] = name
        for service in services:
            name = f"{service.name}.{ending}"
            known.setdefault(name, {})
            if service.external:
                add(name, (CNAME, label_bytes(service.external)))
            if service.address:
                add(name, (A, socket.inet_aton(service.address)))
                back[service.address] = name
            for address, hostname in service.endpoints:
                add(name, (A, socket.inet_aton(address)))
                own = f"{hostname or address.replace('.', '-')}.{name}"
                add(own, (A, socket.inet_aton(address)))
                if hostname:
                    back[address] = own
            for port in service.ports:
                targets = [
                    f"{hostname or address.replace('.', '-')}.{name}"
                    for address, hostname in service.endpoints
                ] or [name]
                for target in targets:
                    told = struct.pack(">HHH", 0, 100, port.port) + label_bytes(target)
                    if port.name:
                        add(f"_{port.name}._{port.protocol.lower()}.{name}", (SRV, told))
                    add(name, (SRV, told))
        if known:
            self._namespaces[namespace] = {name: list(records) for name, records in known.items()}
            self._addresses[namespace] = back
        else:
            self._namespaces.pop(namespace, None)
            self._addresses.pop(namespace, None)

    def find(self, name: str, kind: int) -> list[Record] | None:
        """The records of a name; None for a name of the cluster that does not exist.  Raises
        LookupError for names of others."""
        name = name.lower().rstrip(".")
        if name.endswith(".in-addr.arpa"):
            address = ".".join(reversed(name.removesuffix(".in-addr.arpa").split(".")))
            for back in self._addresses.values():
                if address in back:
                    return [(PTR, label_bytes(back[address]))]
            raise LookupError(name)
        if not name.endswith(f".{DOMAIN}") and name != DOMAIN:
            raise LookupError(name)
        parts = name.removesuffix(DOMAIN).rstrip(".").split(".")
        if len(parts) < 3 or parts[-1] != "svc":
            return None
        records = self._namespaces.get(parts[-2], {})
        if name not in records:
            deeper = any(other.endswith(f".{name}") for other in records)
            return [] if deeper else None
        found = records[name]
        return [record for record in found if record[0] in (kind, CNAME)]


def question(query: bytes) -> tuple[str, int, bytes]:
    """(name, type, the question as it stood) of a query.  Raises ValueError for what is no query of
    one name."""
    if len(query) < 17 or query[2] & 0xF8 or struct.unpack_from(">H", query, 4)[0] != 1:
        raise ValueError("not a query")
    parts, at = [], 12
    while query[at]:
        length = query[at]
        if length > 63 or at + length + 1 >= len(query):
            raise ValueError("not a name")
        parts.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += length + 1
    if at + 5 > len(query):
        raise ValueError("cut off")
    kind = int(struct.unpack_from(">H", query, at + 1)[0])
    return ".".join(parts), kind, query[12 : at + 5]


def answer(
    query: bytes, asked: bytes, records: list[Record], code: int = 0, limit: int = LARGEST
) -> bytes:
    body, count, cut = b"", 0, 0
    for kind, data in records:
        one = b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, TTL, len(data)) + data
        if 12 + len(asked) + len(body) + len(one) > limit:
            cut = 0x0200
            break
        body, count = body + one, count + 1
    flags = 0x8480 | cut | code | (0x0100 if query[2] & 1 else 0)
    return query[:2] + struct.pack(">HHHHH", flags, 1, count, 0, 0) + asked + body


class Server:
    """Answers questions; `reply` hears each answer, at once or after a while."""

    def __init__(
        self,
        zone: Zone,
        namespaces: Namespaces,
        upstream: Callable[[], list[str]],
        may_ask: Callable[[str, str], bool] = lambda source, protocol: True,
    ) -> None:
        self._zone = zone
        self._namespaces = namespaces
        self._upstream = upstream
        self.may_ask = may_ask
        """(address, protocol) -> whether a pod may ask; one that may not gets no answer."""
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, query: bytes, reply: Callable[[bytes], None], limit: int = LARGEST) -> None:
        try:
            name, kind, asked = question(query)
        except (ValueError, IndexError):
            return
        try:
            found = self._zone.find(name, kind)
        except LookupError:
            task = asyncio.get_running_loop().create_task(self._pass_on(query, asked, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        if found is None:
            reply(answer(query, asked, [], NOT_FOUND))
            return
        if len(found) > 1:
            found = random.sample(found, len(found))
        reply(answer(query, asked, found, limit=limit))

    async def _pass_on(self, query: bytes, asked: bytes, reply: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        for server in self._upstream():
            onward = self._namespaces.socket(socket.SOCK_DGRAM, machine=True)
            try:
                await loop.sock_connect(onward, (server, 53))
                await loop.sock_sendall(onward, query)
                async with asyncio.timeout(PATIENCE):
                    answered = await loop.sock_recv(onward, 65535)
                reply(answered)
                return
            except (OSError, TimeoutError):
                continue
            finally:
                onward.close()
        reply(answer(query, asked, [], FAILED))


class Datagrams(asyncio.DatagramProtocol):
    """The server on UDP."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        transport = self._transport
        if transport is not None and self._server.may_ask(addr[0], "UDP"):
            self._server.ask(data, lambda told: transport.sendto(told, addr))


async def streams(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """The server on TCP, for answers that no datagram holds."""

    def reply(told: bytes) -> None:
        writer.write(struct.pack(">H", len(told)) + told)

    if not server.may_ask(writer.get_extra_info("peername")[0], "TCP"):
        writer.close()
        return
    try:
        while True:
            length = struct.unpack(">H", await reader.readexactly(2))[0]
            server.ask(await reader.readexactly(length), reply, 65535)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


def host_servers(path: str = "/etc/resolv.conf") -> list[str]:
    """The DNS servers that this machine asks."""
    try:
        with open(path) as file:
            words = [line.split() for line in file]
    except OSError:
        return []
    return [
        word[1]
        for word in words
        if len(word) > 1 and word[0] == "nameserver" and ":" not in word[1]
    ]
