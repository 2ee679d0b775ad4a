"""Where connections of pods go: service addresses, host ports, names, and targets outside the
cluster, all subject to network policies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Callable
from typing import Any

from hekla.api.trees import Json
from hekla.local.kubelet.network import names
from hekla.local.kubelet.network.bridges import EGRESS_PORT, Bridges
from hekla.local.kubelet.network.names import Port, Service, Zone
from hekla.local.kubelet.network.policies import Verdicts
from hekla.local.kubelet.network.relay import (
    Exchange,
    Listener,
    Namespaces,
    Target,
    TargetOrder,
    original_target,
)

log = logging.getLogger("network")

MAX_LISTENERS = 16_384


def max_listeners() -> int:
    """How many ports of services may have a listener: each needs an open file, and half of the
    files are for pods and their connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return min(MAX_LISTENERS, soft // 2) if soft > 0 else MAX_LISTENERS


def target_of(target: Target, protocol: str) -> tuple[str, str, int]:
    """A target as network policies need it: (address, protocol, port)."""
    return target[0], protocol, target[1]


def fixed_targets(targets: list[Target]) -> Callable[[Target, socket.socket], list[Target]]:
    """A target function that always returns these targets."""
    return lambda _, __: targets


class ServiceProxy:
    """The listeners of one network."""

    def __init__(self, bridges: Bridges) -> None:
        self._bridges = bridges
        self._namespaces = Namespaces(bridges.hub, bridges.machine)
        self._host_ports: dict[str, list[Listener]] = {}
        """Listeners by the uid of their pod."""
        self.zone = Zone()
        self.max_listeners = max_listeners()
        self.listeners: dict[tuple[str, str, int], tuple[TargetOrder, Callable[[], None]]] = {}
        """By (protocol, address, port): where a service's connections go, and how to stop."""
        self.of_namespace: dict[str, set[tuple[str, str, int]]] = {}
        self.verdicts = Verdicts(())
        """What the network policies allow."""

    def _permitted(
        self, source: str, targets: list[Target], protocol: str, door: Target | None = None
    ) -> list[Target]:
        """The targets that the network policies allow for a connection.

        `door` is the address that the connection was for, where that differs from the targets: a
        target beyond the pods is also allowed by that address.  The machine itself may reach every
        pod, as a node may.
        """
        if not self._bridges.inside(source) or source == self._bridges.host:
            return targets
        allow = self.verdicts.allow
        return [
            target
            for target in targets
            if allow(source, *target_of(target, protocol))
            or (
                door is not None
                and not self._bridges.inside(target[0])
                and allow(source, *target_of(door, protocol))
            )
        ]

    def remove_host_ports(self, uid: str) -> None:
        """Stop listening on the host ports of a pod."""
        for listener in self._host_ports.pop(uid, ()):
            listener.close()

    def add_host_ports(self, uid: str, address: str, wanted: list[list[Any]]) -> None:
        """Listen on the host ports of a pod: (host address, host port, port) of each."""
        for host_ip, host_port, port in wanted:
            where = "127.0.0.1" if host_ip in ("", "0.0.0.0") else str(host_ip)
            try:
                listening = self._bound(socket.SOCK_STREAM, where, int(host_port), machine=True)
            except OSError as error:
                log.warning("host port %s of pod %s: %s", host_port, uid, error.strerror)
                continue
            self._host_ports.setdefault(uid, []).append(
                Listener(
                    self._namespaces,
                    listening,
                    fixed_targets([(address, int(port))]),
                    self._bridges.inside,
                )
            )

    def _bound(self, kind: int, address: str, port: int, *, machine: bool) -> socket.socket:
        made = self._namespaces.socket(kind, machine=machine)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
        except OSError:
            made.close()
            raise
        return made

    async def replace(self, namespace: str, services: list[Json], pods: list[list[str]]) -> None:
        """Serve these services and names of pods of a namespace, and no others of that namespace."""
        known = []
        wanted: dict[tuple[str, str, int], tuple[list[Target], bool]] = {}
        for service in services:
            address = service.get("address", "")
            ports = service.get("ports", [])
            known.append(
                Service(
                    service["name"],
                    address,
                    service.get("external", ""),
                    [Port(p["name"], p["port"], p["protocol"]) for p in ports],
                    []
                    if address
                    else [(ip, hostname) for ip, hostname in service.get("endpoints", [])],
                )
            )
            for port in ports if address else ():
                targets = [(ip, int(number)) for ip, number in port["targets"]]
                wanted[port["protocol"], address, port["port"]] = (
                    targets,
                    bool(service.get("sticky")),
                )
                if port.get("nodePort"):
                    wanted[port["protocol"], "127.0.0.1", port["nodePort"]] = (
                        targets,
                        bool(service.get("sticky")),
                    )
        self.zone.replace(namespace, known, [(a, b, c) for a, b, c in pods])
        for key in self.of_namespace.get(namespace, set()) - set(wanted):
            self.listeners.pop(key)[1]()
        self.of_namespace[namespace] = set()
        for key, (targets, sticky) in wanted.items():
            if key in self.listeners:
                self.listeners[key][0].targets = targets
                self.of_namespace[namespace].add(key)
            elif self._may_serve(namespace) and await self._serve(
                key, TargetOrder(targets, sticky)
            ):
                self.of_namespace[namespace].add(key)
        if len(self.of_namespace[namespace]) < len(wanted):
            log.warning(
                "%d of %d ports of services in %s are not served",
                len(wanted) - len(self.of_namespace[namespace]),
                len(wanted),
                namespace,
            )

    def _may_serve(self, namespace: str) -> bool:
        """Whether there may be another listener: enough open files must be left for pods, and for
        services of other namespaces."""
        return (
            len(self.listeners) < self.max_listeners
            and len(self.of_namespace[namespace]) < self.max_listeners // 4
        )

    async def _serve(self, key: tuple[str, str, int], choice: TargetOrder) -> bool:
        protocol, address, port = key
        kind = socket.SOCK_DGRAM if protocol == "UDP" else socket.SOCK_STREAM
        try:
            bound = self._bound(kind, address, port, machine=address == "127.0.0.1")
        except OSError as error:
            log.warning("%s port %s of %s: %s", protocol, port, address, error.strerror)
            return False

        def onward(source: str) -> list[Target]:
            return self._permitted(source, choice.order(source), protocol, (address, port))

        if protocol == "UDP":
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: Exchange(
                    self._namespaces, lambda peer: onward(peer[0]), self._bridges.inside
                ),
                sock=bound,
            )
            self.listeners[key] = (choice, transport.close)
        else:
            listener = Listener(
                self._namespaces, bound, lambda peer, _: onward(peer[0]), self._bridges.inside
            )
            self.listeners[key] = (choice, listener.close)
        return True

    async def serve_names(self) -> None:
        """Start the DNS server for the pods."""

        def may_ask(source: str, protocol: str) -> bool:
            return bool(self._permitted(source, [(self._bridges.gateway, 53)], protocol))

        server = names.Server(self.zone, self._namespaces, names.host_servers, may_ask)
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(
            lambda: names.Datagrams(server),
            sock=self._bound(socket.SOCK_DGRAM, self._bridges.gateway, 53, machine=False),
        )
        stream = self._bound(socket.SOCK_STREAM, self._bridges.gateway, 53, machine=False)
        self._names = await asyncio.start_server(
            lambda r, w: names.streams(server, r, w), sock=stream
        )

    def open_way_out(self) -> None:
        """Start to relay connections of pods to targets outside the cluster."""
        if not self._bridges.way_out:
            bound = self._bound(
                socket.SOCK_STREAM, self._bridges.gateway, EGRESS_PORT, machine=False
            )

            def onward(peer: Target, connection: socket.socket) -> list[Target]:
                target = original_target(connection)
                return (
                    []
                    if target is None or target == (self._bridges.gateway, EGRESS_PORT)
                    else self._permitted(peer[0], [target], "TCP")
                )

            self._way_out = Listener(self._namespaces, bound, onward, lambda _: False)
