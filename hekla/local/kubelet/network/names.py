"""The cluster's DNS server: names of services and pods; other names are forwarded to this machine's
DNS servers. Reference: local-cluster 8.11.

A query has one question, as all resolvers send it.
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
FORWARD_TIMEOUT = 3.0
MAX_UDP_BYTES = 1232
NAME_ERROR, SERVER_FAILURE = 3, 2


@dataclass(slots=True)
class Port:
    """A named port of a service, for SRV records."""

    name: str
    port: int
    protocol: str = "TCP"


@dataclass(slots=True)
class Service:
    """The addresses and ports of one service."""

    name: str
    address: str = ""
    """Its cluster IP; empty if it is headless."""
    external: str = ""
    ports: list[Port] = field(default_factory=list)
    endpoints: list[tuple[str, str]] = field(default_factory=list)
    """(address, hostname) of the pods behind a headless service."""


Record = tuple[int, bytes]


def label_bytes(name: str) -> bytes:
    """A name as length-prefixed labels."""
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
        """Replace all names of a namespace. `pods` are (hostname, subdomain, address)."""
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
                    response = struct.pack(">HHH", 0, 100, port.port) + label_bytes(target)
                    if port.name:
                        add(f"_{port.name}._{port.protocol.lower()}.{name}", (SRV, response))
                    add(name, (SRV, response))
        if known:
            self._namespaces[namespace] = {name: list(records) for name, records in known.items()}
            self._addresses[namespace] = back
        else:
            self._namespaces.pop(namespace, None)
            self._addresses.pop(namespace, None)

    def find(self, name: str, kind: int) -> list[Record] | None:
        """The records of a name; None if it is a name of the cluster and does not exist. Raises
        LookupError for names outside the cluster."""
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
    """(name, type, the bytes of the question) of a query. Raises ValueError if it is not a query
    for one name."""
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
    query: bytes, asked: bytes, records: list[Record], code: int = 0, limit: int = MAX_UDP_BYTES
) -> bytes:
    """The bytes of a response; `code` is its RCODE, and a response over the limit is truncated."""
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
    """Answers queries; `reply` is called with each response, at once or later."""

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
        """(address, protocol) -> whether a pod may query; if not, it gets no response."""
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, query: bytes, reply: Callable[[bytes], None], limit: int = MAX_UDP_BYTES) -> None:
        """Answer one query."""
        try:
            name, kind, asked = question(query)
        except (ValueError, IndexError):
            return
        try:
            found = self._zone.find(name, kind)
        except LookupError:
            task = asyncio.get_running_loop().create_task(self._forward(query, asked, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        if found is None:
            reply(answer(query, asked, [], NAME_ERROR))
            return
        if len(found) > 1:
            found = random.sample(found, len(found))
        reply(answer(query, asked, found, limit=limit))

    async def _forward(self, query: bytes, asked: bytes, reply: Callable[[bytes], None]) -> None:
        """Forward a query to the machine's DNS servers."""
        loop = asyncio.get_running_loop()
        for server in self._upstream():
            onward = self._namespaces.socket(socket.SOCK_DGRAM, machine=True)
            try:
                await loop.sock_connect(onward, (server, 53))
                await loop.sock_sendall(onward, query)
                async with asyncio.timeout(FORWARD_TIMEOUT):
                    answered = await loop.sock_recv(onward, 65535)
                reply(answered)
                return
            except (OSError, TimeoutError):
                continue
            finally:
                onward.close()
        reply(answer(query, asked, [], SERVER_FAILURE))


class Datagrams(asyncio.DatagramProtocol):
    """The server over UDP."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        transport = self._transport
        if transport is not None and self._server.may_ask(addr[0], "UDP"):
            self._server.ask(data, lambda response: transport.sendto(response, addr))


async def streams(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """The server over TCP, for responses that do not fit into a datagram."""

    def reply(response: bytes) -> None:
        writer.write(struct.pack(">H", len(response)) + response)

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
    """The DNS servers of this machine."""
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
