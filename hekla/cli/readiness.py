"""Whether a cluster is ready to run jobs, and in whose words it is not."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hekla.cli.colocation import describe_agent
from hekla.local.cluster.cluster import Cluster, Settings
from hekla.local.cluster.supervisor import ProcessStatus, read_status
from hekla.local.machine.files import ClusterError

if TYPE_CHECKING:
    from hekla.kube.client import Client

TITLES = {
    "apiserver": "API server",
    "admission": "admission",
    "kube-controllers": "Kubernetes' controllers",
    "kubelet": "kubelet",
    "controllers": "batch controllers",
    "scheduler": "scheduler",
    "metrics-server": "metrics server",
    "agent": "colocation agent",
}
LEAST_TO_GO_ON = 2**20
"""Free bytes."""
MOST_RESTARTS = 3
USUAL_TIMEOUT = 60.0

Say = Callable[[str, str, str], None]
"""(what, how it is, detail): one line of progress."""


class Readiness:
    """Waits for the processes of a cluster, its kinds, its nodes and the default queue, and reports
    each when it is ready.

    `alive` tells whether the cluster's supervisor still runs.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        alive: Callable[[], bool],
        timeout: float,
        say: Say,
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.alive = alive
        self.timeout = timeout
        self.say = say
        self.deadline = time.monotonic() + timeout
        self.reported: set[str] = set()
        status = read_status(cluster)
        self.restarts = (
            {process.name: process.restarts for process in status.processes} if status else {}
        )
        """Whether the cluster has been running before: old crashes do not count, and its kinds
        exist as a rule."""
        self.expected = [program.name for program in cluster.programs(settings)]
        self.obstacle = ""
        """The last error of the API server."""

    async def wait(self) -> None:
        """Return when the cluster can run jobs.

        Raises ClusterError if a process keeps crashing, the supervisor has ended, or it takes too
        long.
        """
        from hekla.kube.client import Client
        from hekla.kube.connection import config
        from hekla.kube.errors import ApiError
        from hekla.kube.http.client import TransportError

        while "apiserver" not in self.reported:
            self.look()
            await asyncio.sleep(0.02)
        async with Client(
            config.load(str(self.cluster.internal_kubeconfig)), user_agent="hekla-up"
        ) as client:
            installed = False
            while True:
                everything = len(self.look()) == len(self.expected) == len(self.reported)
                try:
                    if not installed and not (
                        self.restarts and await serves_jobs(client, self.settings)
                    ):
                        await install_kinds(client)
                    installed = True
                    if everything and await serves_jobs(client, self.settings):
                        self.say("nodes", "ok", await describe_nodes(client))
                        if self.settings.colocation:
                            self.say("colocation", *await describe_agent(client))
                        return
                    self.obstacle = ""
                except (ApiError, TransportError, OSError) as error:
                    # A server that was killed at this moment is started again.
                    self.obstacle = str(error)
                await asyncio.sleep(0.03)

    def look(self) -> list[ProcessStatus]:
        """Report what has become ready.  Raises ClusterError if the rest never will."""
        status = read_status(self.cluster)
        processes = status.processes if status else []
        for process in processes:
            if process.ready and process.name not in self.reported:
                self.reported.add(process.name)
                detail = f"127.0.0.1:{self.settings.port}" if process.name == "apiserver" else ""
                self.say(TITLES[process.name], "ok", detail)
            if process.restarts - self.restarts.get(process.name, 0) >= MOST_RESTARTS:
                raise ClusterError(
                    f"{TITLES[process.name]} does not start ({process.last_exit}):\n{tail(process.log)}"
                )
        if not self.alive():
            raise ClusterError(
                f"the supervisor does not start:\n{tail(str(self.cluster.logs / 'supervisor.log'))}"
            )
        check_disk(self.cluster, LEAST_TO_GO_ON)
        if time.monotonic() > self.deadline:
            raise ClusterError(self.late())
        return processes

    def late(self) -> str:
        """The message when time is up."""
        missing = [TITLES[name] for name in self.expected if name not in self.reported] or [
            "a Ready node and an Open default queue"
        ]
        said = f" ({self.obstacle})" if self.obstacle else ""
        longer = max(USUAL_TIMEOUT, 2 * self.timeout)
        return (
            f"not ready in time: {', '.join(missing)}{said}; {self.timeout:g} s may be too short for this machine: "
            f"try --timeout {longer:g}; the logs are in {self.cluster.logs}"
        )


def check_disk(cluster: Cluster, least: int) -> None:
    """Raises ClusterError if less than so many bytes are free: the daemons could not even write
    logs."""
    free = shutil.disk_usage(cluster.directory).free
    if free < least:
        raise ClusterError(
            f"{cluster.directory}: {free / 2**20:.1f} MiB are free there, {least / 2**20:.0f} MiB are needed: "
            "the disk is full; free some space and try again"
        )


async def install_kinds(client: Client) -> None:
    """Create the definitions of the batch kinds, or replace those of an older version."""
    from hekla.api import crds
    from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
    from hekla.kube.errors import AlreadyExists

    kind = CUSTOM_RESOURCE_DEFINITION.untyped

    async def install(definition: dict[str, Any]) -> None:
        try:
            await client.create(kind, definition)
        except AlreadyExists:
            name = definition["metadata"]["name"]
            await client.patch(
                kind, name, {"metadata": definition["metadata"], "spec": definition["spec"]}
            )

    await asyncio.gather(*(install(definition) for definition in crds.all()))


async def serves_jobs(client: Client, settings: Settings) -> bool:
    """Whether every node is Ready and the default queue is Open."""
    from hekla.api.kubernetes.core import NODE
    from hekla.api.scheduling import QUEUE
    from hekla.kube.errors import ApiError

    try:
        nodes = (await client.list(NODE)).items
        queue = await client.get(QUEUE, "default")
    except ApiError:
        return False
    ready = sum(
        any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
        for node in nodes
    )
    return ready >= settings.nodes + settings.fake_nodes and queue.status.state == "Open"


async def describe_nodes(client: Client) -> str:
    """The nodes in a few words: `laptop: 8 cpu, 16 GiB`."""
    from hekla.api.kubernetes.core import NODE
    from hekla.api.text.quantity import whole

    nodes = (await client.list(NODE)).items
    if not nodes:
        return "none"
    first = nodes[0]
    capacity = first.status.capacity
    size = f"{capacity.get('cpu', '?')} cpu, {whole(capacity.get('memory', '0')) / 2**30:.0f} GiB"
    return (
        f"{first.metadata.name}: {size}"
        if len(nodes) == 1
        else f"{len(nodes)} nodes; {first.metadata.name}: {size}"
    )


def tail(path: str, lines: int = 12) -> str:
    """The last lines of a log, indented, without blank ones, and the path of the log."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return f"    (no log at {path})"
    kept = [re.sub(r"\s+$", "", line) for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(f"    {line}" for line in kept) + f"\n  The whole log: {path}"
