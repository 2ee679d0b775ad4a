"""By which names the pods of this machine find each other and the services: their hosts files, or
what the network's DNS server is told.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from hekla.api.kubernetes import core
from hekla.local.kubelet import hosts, naming
from hekla.local.kubelet.naming import Named
from hekla.local.kubelet.network.network import Network
from hekla.local.kubelet.nodes import machine
from hekla.local.kubelet.objects import Finder
from hekla.local.kubelet.records import PodDirectory

log = logging.getLogger("kubelet")

REWRITE_DELAY = 0.05
"""Seconds that changes of names gather before hosts files are rewritten."""
MANY_PEERS = 200
"""Above so many in a namespace, a pod's hosts file holds only those of its own subdomain."""


class PodNames:
    """The names of all pods on one machine."""

    def __init__(
        self, root: Path, finder: Finder, network: Network | None, api: tuple[str, str]
    ) -> None:
        self._root = root
        self._finder = finder
        self._network = network
        self._api = api
        """(host, port) at which pods reach the API server."""
        self._resolver = machine.read("/etc/resolv.conf")
        self._switch: str | None = None
        """Path of the nsswitch.conf for pods; "" where they need none, None while nobody has asked.
        """
        self._pods: dict[str, Named] = {}
        self._stale: set[str] = set()
        """Namespaces whose names have changed."""
        self._rewrite: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._rewrite is not None:
            self._rewrite.cancel()

    @property
    def api_by_service(self) -> bool:
        """Whether pods with a network of their own reach the API server only through its service:
        it listens on the loopback."""
        return self._api[0] == "localhost" or self._api[0].startswith("127.")

    def add(self, pod: core.Pod, address: str, directory: PodDirectory) -> None:
        """Write a pod's hosts file now, and tell the other pods of its namespace its name soon.

        A file that a kubelet before this one has left stays as it is until all pods are taken up
        again: the first of them know few others.
        """
        named = Named(
            hosts.peer_of(pod, address),
            directory,
            dict(pod.metadata.labels),
            list(pod.spec.host_aliases),
            naming.ports_of(pod),
        )
        self._pods[pod.metadata.uid] = named
        if self._network is not None:
            self._write(named, [], [])
        elif directory.hosts.exists():
            self.refresh(named.peer.namespace)
        else:
            around = self._around(named.peer.namespace)
            self._write(named, around, self._service_lines(named.peer.namespace, around))
        server = self._network.gateway if self._network is not None else ""
        try:
            hosts.write(
                directory.path / "resolv.conf",
                naming.resolver(pod, server, self._resolver).encode(),
            )
            hosts.write(directory.path / "hostname", f"{hosts.hostname_of(pod)}\n".encode())
        except OSError as error:
            log.warning("%s: %s", directory.path, error.strerror)
        if named.peer.subdomain or self._served(named):
            self.refresh(named.peer.namespace)

    def remove(self, uid: str) -> None:
        """Nobody is to find the pod any more."""
        named = self._pods.pop(uid, None)
        if named is not None and (named.peer.subdomain or self._served(named)):
            self.refresh(named.peer.namespace)

    def note_ready(self, uid: str, ready: bool) -> None:
        """A pod has become ready for connections, or is ready no more."""
        named = self._pods.get(uid)
        if named is not None and named.ready != ready:
            named.ready = ready
            if self._served(named):
                self.refresh(named.peer.namespace)

    def _served(self, named: Named) -> bool:
        """Whether a service leads to the pod."""
        services = self._finder.services(named.peer.namespace)
        return any(
            service.spec.selector and naming.matches(service.spec.selector, named.labels)
            for service in services
        )

    def refresh_all(self) -> None:
        """All names are to be told again: there is another network."""
        for namespace in {
            "default",
            *self._finder.namespaces(),
            *(named.peer.namespace for named in self._pods.values()),
        }:
            self.refresh(namespace)

    def refresh(self, namespace: str) -> None:
        """Names of a namespace have changed: hosts files are rewritten, or the network is told, soon."""
        self._stale.add(namespace)
        if self._rewrite is None:
            self._rewrite = asyncio.get_running_loop().call_later(
                REWRITE_DELAY, self._rewrite_stale
            )

    def _rewrite_stale(self) -> None:
        self._rewrite = None
        stale, self._stale = self._stale, set()
        for namespace in stale:
            around = self._around(namespace)
            if self._network is not None:
                self._tell(namespace, around)
                continue
            services = self._service_lines(namespace, around)
            for named in around:
                self._write(named, around, services)

    def _tell(self, namespace: str, around: list[Named]) -> None:
        """Tell the network the names of a namespace."""
        assert self._network is not None
        if not self._network.up:
            return
        services = []
        for service in self._finder.services(namespace):
            if namespace == "default" and service.metadata.name == "kubernetes":
                continue
            manual = (
                None
                if service.spec.selector
                else self._finder.endpoints(namespace, service.metadata.name)
            )
            services.append(naming.described(service, around, manual))
        if namespace == "default" and self.api_by_service:
            services.append(naming.api_service(*self._api))
        self._network.tell(
            {
                "do": "names",
                "namespace": namespace,
                "services": services,
                "pods": naming.pod_names(around),
            }
        )

    def _around(self, namespace: str) -> list[Named]:
        return [named for named in self._pods.values() if named.peer.namespace == namespace]

    def _service_lines(self, namespace: str, around: list[Named]) -> list[tuple[str, list[str]]]:
        return hosts.service_lines(
            self._finder.services(namespace),
            [(named.labels, named.peer.address) for named in around],
        )

    def _write(
        self, named: Named, around: list[Named], services: list[tuple[str, list[str]]]
    ) -> None:
        own = named.peer
        peers = [other.peer for other in around if other.peer.subdomain]
        if len(peers) > MANY_PEERS:
            peers = [peer for peer in peers if peer.subdomain == own.subdomain]
        try:
            hosts.write(named.directory.hosts, hosts.content(own, peers, named.aliases, services))
        except OSError as error:
            log.warning("%s: %s", named.directory.hosts, error.strerror)

    def name_switch(self) -> str | None:
        """Path of a file to mount over /etc/nsswitch.conf, where the machine's own one asks services
        that know nothing of pods; None where it does not."""
        if self._switch is None:
            text = naming.switched(machine.read("/etc/nsswitch.conf"))
            path = self._root / "nsswitch.conf"
            if text is not None:
                path.write_text(text)
                os.chmod(path, 0o644)
            self._switch = "" if text is None else str(path)
        return self._switch or None
