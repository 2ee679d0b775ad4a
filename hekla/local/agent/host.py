"""What the workers of all pods share on one machine: the runtime, addresses, hosts files, the objects that pods refer to."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shlex
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hekla.api import core
from hekla.kube.client import Client
from hekla.kube.events import Recorder
from hekla.local.agent import hosts
from hekla.local.agent.environment import Sources
from hekla.local.agent.images import Images
from hekla.local.agent.isolation import Isolation
from hekla.local.agent.logbook import Clock
from hekla.local.agent.records import PodDirectory, pod_directories
from hekla.local.agent.reporter import Reporter
from hekla.local.agent.runtime import Runtime

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


class Addresses:
    """Loopback addresses, one a pod.

    The second byte comes from the directory, so that two clusters on one machine do not give out the same ones.
    """

    def __init__(self, root: Path, private: bool) -> None:
        self.private = private
        digest = hashlib.sha256(os.fsencode(root.absolute())).digest()
        self.base = (127 << 24) | ((16 + digest[0] % 224) << 16)
        self.taken: dict[str, str] = {}
        self._used: set[int] = set()
        self._next = 1

    def take(self, uid: str, wanted: str = "") -> str:
        """An address for a pod: the one that it had, or a free one."""
        if not self.private:
            return HOST_ADDRESS
        if uid in self.taken:
            return self.taken[uid]
        number = self._number(wanted)
        if number is None or number in self._used:
            for _ in range(65533):
                self._next = self._next % 65533 + 1
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
        return number if 0 < number < 65535 else None


@dataclass(slots=True)
class Named:
    """A pod that has a hosts file."""

    peer: hosts.Peer
    directory: PodDirectory
    labels: dict[str, str]
    aliases: list[core.HostAlias] = field(default_factory=list)


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
        self.runtime = Runtime()
        self.clock = Clock()
        self.reporter = Reporter(client)
        self.addresses = Addresses(root, isolation.private_addresses)
        self.api = api
        """(host, port) at which pods reach the API server."""
        self.pods_cgroup: Path | None = None
        self._names: dict[str, Named] = {}
        self._stale: set[str] = set()
        self._rewrite: asyncio.TimerHandle | None = None
        self.path = self._search_path()

    def start(self) -> None:
        self.clock.start()
        self.reporter.start()
        for directory in pod_directories(self.root):
            if (record := directory.record()) is not None:
                self.addresses.take(record.uid, record.address)

    async def close(self) -> None:
        if self._rewrite is not None:
            self._rewrite.cancel()
        await self.reporter.close()
        self.runtime.close()
        self.clock.close()

    def _search_path(self) -> str:
        """The PATH of containers: the agent's, the usual places, and last a `python` and `python3` that are surely there."""
        programs = self.root / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        os.chmod(self.root, stat.S_IMODE(self.root.stat().st_mode) | 0o111)
        os.chmod(programs, 0o755)
        for name in ("python", "python3"):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
            os.chmod(script, 0o755)
        parts = [*os.environ.get("PATH", "").split(":"), *STANDARD_PATH.split(":"), str(programs)]
        return ":".join(dict.fromkeys(part for part in parts if part))

    def image_environment(self) -> dict[str, str]:
        """What an image's own environment would bring."""
        return {"PATH": self.path, "HOME": os.path.expanduser("~")}

    def sources(self, pod: core.Pod, address: str, allocatable: dict[str, str | int | float]) -> Sources:
        """Where the references of a pod lead."""
        namespace = pod.metadata.namespace
        return Sources(
            config_map=lambda name: self.finder.config_map(namespace, name),
            secret=lambda name: self.finder.secret(namespace, name),
            services=lambda: self.finder.services(namespace),
            allocatable=allocatable,
            host_ip=HOST_ADDRESS,
            pod_ip=address,
            api_host=self.api[0],
            api_port=self.api[1],
        )

    # --- names ------------------------------------------------------------------------------------------------------------

    def name(self, pod: core.Pod, address: str, directory: PodDirectory) -> None:
        """Gives a pod its hosts file, now, and its name to the other pods of its namespace, soon."""
        named = Named(hosts.peer_of(pod, address), directory, dict(pod.metadata.labels), list(pod.spec.host_aliases))
        self._names[pod.metadata.uid] = named
        around = self._around(named.peer.namespace)
        self._write(named, around, self._service_lines(named.peer.namespace, around))
        if named.peer.subdomain or self._served(named):
            self.rename(named.peer.namespace)

    def unname(self, uid: str) -> None:
        named = self._names.pop(uid, None)
        if named is not None and (named.peer.subdomain or self._served(named)):
            self.rename(named.peer.namespace)

    def _served(self, named: Named) -> bool:
        """Whether a service leads to the pod."""
        services = self.finder.services(named.peer.namespace)
        return bool(hosts.service_lines(services, [(named.labels, named.peer.address)]))

    def rename(self, namespace: str) -> None:
        """Names of a namespace have changed; its hosts files follow soon."""
        self._stale.add(namespace)
        if self._rewrite is None:
            self._rewrite = asyncio.get_running_loop().call_later(REWRITE_DELAY, self._rewrite_stale)

    def _rewrite_stale(self) -> None:
        self._rewrite = None
        stale, self._stale = self._stale, set()
        for namespace in stale:
            around = self._around(namespace)
            services = self._service_lines(namespace, around)
            for named in around:
                self._write(named, around, services)

    def _around(self, namespace: str) -> list[Named]:
        return [named for named in self._names.values() if named.peer.namespace == namespace]

    def _service_lines(self, namespace: str, around: list[Named]) -> list[tuple[str, list[str]]]:
        return hosts.service_lines(self.finder.services(namespace), [(named.labels, named.peer.address) for named in around])

    def _write(self, named: Named, around: list[Named], services: list[tuple[str, list[str]]]) -> None:
        own = named.peer
        peers = [other.peer for other in around if other.peer.subdomain]
        if len(peers) > MANY_PEERS:
            peers = [peer for peer in peers if peer.subdomain == own.subdomain]
        try:
            hosts.write(named.directory.hosts, hosts.content(own, peers, named.aliases, services))
        except OSError as error:
            log.warning("%s: %s", named.directory.hosts, error.strerror)
