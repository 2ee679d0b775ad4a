"""What the workers of all pods share on one machine: the runtime, addresses, hosts files, the
objects that pods refer to."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shlex
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.events import Recorder
from hekla.local.kubelet import hosts, naming
from hekla.local.kubelet.environment import Sources
from hekla.local.kubelet.naming import Named
from hekla.local.kubelet.network.network import Network, NetworkError
from hekla.local.kubelet.nodes import machine
from hekla.local.kubelet.pods.images import Images
from hekla.local.kubelet.records import PodDirectory, pod_directories
from hekla.local.kubelet.reporter import Reporter
from hekla.local.kubelet.runtime import preload
from hekla.local.kubelet.runtime.cgroups import Groups
from hekla.local.kubelet.runtime.isolation import Isolation
from hekla.local.kubelet.runtime.logs import Clock
from hekla.local.kubelet.runtime.memory_limits import MemoryLimits
from hekla.local.kubelet.runtime.runtime import Runtime
from hekla.local.machine.homes import Homes, programs

log = logging.getLogger("agent")

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOST_ADDRESS = "127.0.0.1"
REWRITE_DELAY = 0.05
"""Seconds that changes of names gather before hosts files are rewritten."""
MANY_PEERS = 200
"""Above so many in a namespace, a pod's hosts file holds only those of its own subdomain."""


class Finder(Protocol):
    """Objects by namespace and name, as far as they are known."""

    def config_map(self, namespace: str, name: str) -> core.ConfigMap | None: ...
    def secret(self, namespace: str, name: str) -> core.Secret | None: ...
    def services(self, namespace: str) -> Iterable[core.Service]: ...
    def endpoints(self, namespace: str, name: str) -> core.Endpoints | None: ...
    def namespaces(self) -> Iterable[str]: ...


class Addresses:
    """Addresses of pods: of the pods' network, or on the machine's loopback where they have none.

    The loopback's second byte comes from the directory, so that two clusters on one machine do not
    give out the same ones.
    """

    def __init__(self, root: Path, private: bool) -> None:
        self.private = private
        digest = hashlib.sha256(os.fsencode(root.absolute())).digest()
        self.base = (127 << 24) | ((16 + digest[0] % 224) << 16)
        self.first, self.size = 1, 65534
        self.taken: dict[str, str] = {}
        self._used: set[int] = set()
        self._next = 0

    def within(self, base: str, prefix: int) -> None:
        """From now on addresses are of this network, of which the first two belong to the network
        daemon and to the machine."""
        number = int.from_bytes(bytes(int(part) for part in base.split(".")), "big")
        if number == self.base:
            return
        self.private, self.base, self.first, self.size = True, number, 3, (1 << (32 - prefix)) - 1
        self.taken.clear()
        self._used.clear()
        self._next = self.first - 1

    def take(self, uid: str, wanted: str = "") -> str:
        """An address for a pod: the one that it had, or a free one."""
        if not self.private:
            return HOST_ADDRESS
        if uid in self.taken:
            return self.taken[uid]
        number = self._number(wanted)
        if number is None or number in self._used:
            span = self.size - self.first
            for _ in range(span):
                self._next = (
                    self._next + 1 if self.first <= self._next + 1 < self.size else self.first
                )
                if self._next not in self._used:
                    break
            number = self._next
        self._used.add(number)
        address = ".".join(str(byte) for byte in (self.base + number).to_bytes(4, "big"))
        self.taken[uid] = address
        return address

    def give_back(self, uid: str) -> None:
        address = self.taken.pop(uid, None)
        if address is not None and (number := self._number(address)) is not None:
            self._used.discard(number)

    def _number(self, address: str) -> int | None:
        parts = address.split(".")
        if len(parts) != 4 or not all(part.isdigit() for part in parts):
            return None
        number = int.from_bytes(bytes(int(part) for part in parts), "big") - self.base
        return number if self.first <= number < self.size else None


async def no_policies() -> None:
    """Nothing is to be waited for."""


class Host:
    """The machine, to the pods on it."""

    def __init__(
        self,
        root: Path,
        client: Client,
        finder: Finder,
        isolation: Isolation,
        images: Images,
        recorder: Recorder,
        *,
        api: tuple[str, str] = ("", ""),
    ) -> None:
        self.root = root
        self.client = client
        self.finder = finder
        self.isolation = isolation
        self.images = images
        self.recorder = recorder
        self.runtime = Runtime(root)
        self.clock = Clock()
        self.reporter = Reporter(client)
        self.addresses = Addresses(root, isolation.private_addresses)
        self.api = api
        """(host, port) at which pods reach the API server."""
        self.groups: Groups | None = None
        self.memory_limits = MemoryLimits(self.runtime)
        self.network = Network(root) if isolation.network else None
        self._resolver = machine.read("/etc/resolv.conf")
        self._switch: str | None = None
        self._names: dict[str, Named] = {}
        self.on_new_network: Callable[[], None] = lambda: None
        self.isolated: Callable[[], Awaitable[None]] = no_policies
        """Returns when the network knows what policies let every pod that has an address do."""
        self._stale: set[str] = set()
        self._rewrite: asyncio.TimerHandle | None = None
        self._closed: list[str] = []
        self._homes = Homes()
        self.programs = programs() if isolation.mounts else []
        """What containers may read and not change: what this agent and the other daemons run from.
        """
        self.path = self._search_path()
        self.preload = ""
        """The library that gives programs the pod's own ports and names; "" where it is not needed,
        or cannot be had."""

    async def start(self) -> None:
        self.clock.start()
        self.reporter.start()
        if self.network is None and self.isolation.private_addresses:
            self.preload = await asyncio.to_thread(preload.library, self.root / "bin")
        records = [
            record
            for directory in pod_directories(self.root)
            if (record := directory.record()) is not None
        ]
        if self.network is not None:
            self.network.recall = self._network_is_new
            if any(record.address for record in records):
                try:
                    await self.connect()
                except NetworkError as error:
                    log.error("%s", error)
        for record in records:
            if record.address:
                self.addresses.take(record.uid, record.address)

    async def connect(self) -> None:
        """Returns when pods can have addresses.  Raises NetworkError."""
        if self.network is None:
            return
        was_up = self.network.up
        await self.network.ready()
        self.addresses.within(
            self.network.base, self.network.prefix
        )  # whoever waited for it too may come to this line later
        if not was_up:
            self._tell_everything()

    async def _network_is_new(self) -> None:
        """Another network daemon has taken the place of one that died: every pod must be connected
        again, and every name told again."""
        assert self.network is not None
        self.addresses.within(self.network.base, self.network.prefix)
        self._tell_everything()
        self.on_new_network()

    def _tell_everything(self) -> None:
        for namespace in {
            "default",
            *self.finder.namespaces(),
            *(named.peer.namespace for named in self._names.values()),
        }:
            self.rename(namespace)

    async def close(self) -> None:
        if self._rewrite is not None:
            self._rewrite.cancel()
        await self.reporter.close()
        if self.network is not None:
            await self.network.close()
        await self.memory_limits.close()
        self.runtime.close()
        self.clock.close()

    def _search_path(self) -> str:
        """The PATH of containers: the agent's, the usual places, and last a `python` and `python3`
        that are surely there."""
        programs = self.root / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        if (
            not self.isolation.mounts
        ):  # else nobody goes this way: containers see what is theirs in a view of their own
            os.chmod(self.root, stat.S_IMODE(self.root.stat().st_mode) | 0o111)
        os.chmod(programs, 0o755)
        for name in ("python", "python3"):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
            os.chmod(script, 0o755)
        parts = [*os.environ.get("PATH", "").split(":"), *STANDARD_PATH.split(":"), str(programs)]
        return ":".join(dict.fromkeys(part for part in parts if part))

    def close_to_pods(self, paths: Iterable[Path]) -> None:
        """From now on no container sees these directories and the agent's own, where it has a view
        of its own."""
        if self.isolation.mounts:
            self._closed = sorted({os.path.realpath(path) for path in [*paths, self.root]})

    @property
    def closed(self) -> list[str]:
        """What no container sees: the directories of this cluster, and those of all others that are
        known here now."""
        if not self._closed:
            return []
        found = sorted({*self._closed, *self._homes.paths()})
        return [path for path in found if not any(path.startswith(f"{other}/") for other in found)]

    def shown(self, scratch: Path) -> list[str]:
        """What a container sees of the closed directories: where it starts, and the programs that
        stand in for those of images."""
        return [str(scratch), str(self.root / "bin")] if self._closed else []

    def image_environment(self) -> dict[str, str]:
        """What an image's own environment would bring."""
        return {"PATH": self.path, "HOME": os.path.expanduser("~")}

    def sources(
        self, pod: core.Pod, address: str, allocatable: dict[str, str | int | float]
    ) -> Sources:
        """Where the references of a pod lead."""
        namespace = pod.metadata.namespace
        inside = self.network is not None and not pod.spec.host_network and self._api_by_service
        api = (naming.API_ADDRESS, str(naming.API_PORT)) if inside else self.api
        return Sources(
            config_map=lambda name: self.finder.config_map(namespace, name),
            secret=lambda name: self.finder.secret(namespace, name),
            services=lambda: self.finder.services(namespace),
            allocatable=allocatable,
            host_ip=HOST_ADDRESS,
            pod_ip=address,
            api_host=api[0],
            api_port=api[1],
        )

    @property
    def _api_by_service(self) -> bool:
        """Whether pods with a network of their own reach the API server only through its service:
        it listens on the loopback."""
        return self.api[0] == "localhost" or self.api[0].startswith("127.")

    # --- names ------------------------------------------------------------------------------------

    def name(self, pod: core.Pod, address: str, directory: PodDirectory) -> None:
        """Gives a pod its hosts file, now, and its name to the other pods of its namespace, soon.

        A file that an agent before this one has left is right until all pods are taken up again:
        the first of them know few others.
        """
        named = Named(
            hosts.peer_of(pod, address),
            directory,
            dict(pod.metadata.labels),
            list(pod.spec.host_aliases),
            naming.ports_of(pod),
        )
        self._names[pod.metadata.uid] = named
        if self.network is not None:
            self._write(named, [], [])
        elif directory.hosts.exists():
            self.rename(named.peer.namespace)
        else:
            around = self._around(named.peer.namespace)
            self._write(named, around, self._service_lines(named.peer.namespace, around))
        server = self.network.gateway if self.network is not None else ""
        try:
            hosts.write(
                directory.path / "resolv.conf",
                naming.resolver(pod, server, self._resolver).encode(),
            )
            hosts.write(directory.path / "hostname", f"{hosts.hostname_of(pod)}\n".encode())
        except OSError as error:
            log.warning("%s: %s", directory.path, error.strerror)
        if named.peer.subdomain or self._served(named):
            self.rename(named.peer.namespace)

    def unname(self, uid: str) -> None:
        named = self._names.pop(uid, None)
        if named is not None and (named.peer.subdomain or self._served(named)):
            self.rename(named.peer.namespace)

    def note_ready(self, uid: str, ready: bool) -> None:
        """A pod has become fit to be sent connections, or unfit."""
        named = self._names.get(uid)
        if named is not None and named.ready != ready:
            named.ready = ready
            if self._served(named):
                self.rename(named.peer.namespace)

    def _served(self, named: Named) -> bool:
        """Whether a service leads to the pod."""
        services = self.finder.services(named.peer.namespace)
        return any(
            service.spec.selector and naming.matches(service.spec.selector, named.labels)
            for service in services
        )

    def rename(self, namespace: str) -> None:
        """Names of a namespace have changed; hosts files, or the network, follow soon."""
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
            if self.network is not None:
                self._tell(namespace, around)
                continue
            services = self._service_lines(namespace, around)
            for named in around:
                self._write(named, around, services)

    def _tell(self, namespace: str, around: list[Named]) -> None:
        """Tells the network how a namespace's names are now."""
        assert self.network is not None
        if not self.network.up:
            return
        services = []
        for service in self.finder.services(namespace):
            if namespace == "default" and service.metadata.name == "kubernetes":
                continue
            manual = (
                None
                if service.spec.selector
                else self.finder.endpoints(namespace, service.metadata.name)
            )
            services.append(naming.described(service, around, manual))
        if namespace == "default" and self._api_by_service:
            services.append(naming.api_service(*self.api))
        self.network.tell(
            {
                "do": "names",
                "namespace": namespace,
                "services": services,
                "pods": naming.pod_names(around),
            }
        )

    def _around(self, namespace: str) -> list[Named]:
        return [named for named in self._names.values() if named.peer.namespace == namespace]

    def _service_lines(self, namespace: str, around: list[Named]) -> list[tuple[str, list[str]]]:
        return hosts.service_lines(
            self.finder.services(namespace),
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
        """A file to lie over /etc/nsswitch.conf, where the machine's own asks somebody who knows
        nothing of pods."""
        if self._switch is None:
            text = naming.switched(machine.read("/etc/nsswitch.conf"))
            path = self.root / "nsswitch.conf"
            if text is not None:
                path.write_text(text)
                os.chmod(path, 0o644)
            self._switch = "" if text is None else str(path)
        return self._switch or None
