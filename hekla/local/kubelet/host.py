"""What the workers of all pods share on one machine: the runtime, addresses, names, the network, the
objects that pods refer to."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import psutil

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.events import Recorder
from hekla.local.kubelet import naming
from hekla.local.kubelet.addresses import HOST_ADDRESS, Addresses
from hekla.local.kubelet.environment import Sources
from hekla.local.kubelet.network.network import Network, NetworkError
from hekla.local.kubelet.objects import Finder
from hekla.local.kubelet.pod_names import PodNames
from hekla.local.kubelet.pods.images import Images
from hekla.local.kubelet.records import pod_directories
from hekla.local.kubelet.reporter import Reporter
from hekla.local.kubelet.runtime import preload
from hekla.local.kubelet.runtime.isolation import Isolation
from hekla.local.kubelet.runtime.logs import Clock
from hekla.local.kubelet.runtime.memory_limits import MemoryLimits
from hekla.local.kubelet.runtime.pod_groups import PodGroups
from hekla.local.kubelet.runtime.runtime import Runtime
from hekla.local.machine.homes import Homes, programs

log = logging.getLogger("kubelet")

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def no_policies() -> None:
    """There are no network policies to wait for."""


class Host:
    """The machine, as the workers of its pods use it."""

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
        self.groups: PodGroups | None = None
        self.memory = psutil.virtual_memory().total
        """Bytes of the machine."""
        self.memory_limits = MemoryLimits(self.runtime)
        self.network = Network(root) if isolation.network else None
        self.names = PodNames(root, finder, self.network, api)
        self.on_new_network: Callable[[], None] = lambda: None
        self.isolated: Callable[[], Awaitable[None]] = no_policies
        """Returns when the network has the policies of every pod that has an address."""
        self._closed: list[str] = []
        self._homes = Homes()
        self.programs = programs() if isolation.mounts else []
        """Directories that containers may read and not change: those that this kubelet and the other
        daemons run from."""
        self.path = self._search_path()
        self.preload = ""
        """Path of the library that gives programs the pod's own ports and names; "" where it is not
        needed, or cannot be had."""

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
        """Wait until pods can have addresses.  Raises NetworkError."""
        if self.network is None:
            return
        was_up = self.network.up
        await self.network.ready()
        # Others that waited for it too may get here later.
        self.addresses.within(self.network.base, self.network.prefix)
        if not was_up:
            self.names.refresh_all()

    async def _network_is_new(self) -> None:
        """Another network daemon has taken the place of one that died: every pod must be connected
        again, and every name told again."""
        assert self.network is not None
        self.addresses.within(self.network.base, self.network.prefix)
        self.names.refresh_all()
        self.on_new_network()

    async def close(self) -> None:
        self.names.close()
        await self.reporter.close()
        if self.network is not None:
            await self.network.close()
        await self.memory_limits.close()
        self.runtime.close()
        self.clock.close()

    def _search_path(self) -> str:
        """The PATH of containers: the kubelet's, the usual directories, and last one with a `python`
        and `python3` that certainly exist."""
        programs = self.root / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        # Else it is not needed: containers have their own view of the files.
        if not self.isolation.mounts:
            os.chmod(self.root, stat.S_IMODE(self.root.stat().st_mode) | 0o111)
        os.chmod(programs, 0o755)
        for name in ("python", "python3"):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
            os.chmod(script, 0o755)
        parts = [*os.environ.get("PATH", "").split(":"), *STANDARD_PATH.split(":"), str(programs)]
        return ":".join(dict.fromkeys(part for part in parts if part))

    def close_to_pods(self, paths: Iterable[Path]) -> None:
        """Hide these directories and the kubelet's own from containers, where they have their own
        view of the file system."""
        if self.isolation.mounts:
            self._closed = sorted({os.path.realpath(path) for path in [*paths, self.root]})

    @property
    def closed(self) -> list[str]:
        """The hidden directories: those of this cluster, and those of all other known clusters."""
        if not self._closed:
            return []
        found = sorted({*self._closed, *self._homes.paths()})
        return [path for path in found if not any(path.startswith(f"{other}/") for other in found)]

    def shown(self, scratch: Path) -> list[str]:
        """The parts of the hidden directories that a container does see: where it starts, and the
        programs that stand in for those of images."""
        return [str(scratch), str(self.root / "bin")] if self._closed else []

    def image_environment(self) -> dict[str, str]:
        """The environment that an image would bring."""
        return {"PATH": self.path, "HOME": os.path.expanduser("~")}

    def sources(
        self, pod: core.Pod, address: str, allocatable: dict[str, str | int | float]
    ) -> Sources:
        """What the references of a pod can refer to."""
        namespace = pod.metadata.namespace
        inside = (
            self.network is not None and not pod.spec.host_network and self.names.api_by_service
        )
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
