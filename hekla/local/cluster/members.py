"""The processes of a cluster as the process table shows them, whoever started them and whatever
files say.

A supervisor may be killed after it started a process and before it wrote that down, and after a
power cut its files may name the pid of an unrelated process.  So whoever must know whether a
process of a cluster still runs looks here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from hekla.local.cluster.cluster import Cluster
from hekla.local.machine.files import ClusterError
from hekla.local.machine.processes import Process, await_end, end, processes

log = logging.getLogger("members")

PATIENCE = 8.0
"""Seconds between SIGTERM and SIGKILL."""
SUPERVISOR = "supervisor"
API_SERVER = "apiserver"
LOG_WRITER = "log writer"
SPAWNER = "spawner"
NETWORK = "network"
WRITERS = "hekla.local.apiserver."
"""Modules that the API server runs beside itself."""


class Member(NamedTuple):
    """A process of a cluster: a daemon by its name, or a helper process of a daemon."""

    name: str
    process: Process


def members(cluster: Cluster) -> list[Member]:
    """The running processes of a cluster, without this one and the containers of pods."""
    return [
        Member(name, process)
        for process in processes()
        if (name := name_of(cluster, process.command))
    ]


def name_of(cluster: Cluster, command: Sequence[str]) -> str:
    """The name of the process with this command line in the cluster; empty when it is not part of
    it."""
    match command:
        case [_, "-m", "hekla.local.cluster.supervisor", directory, *_] if same(
            directory, cluster.directory
        ):
            return SUPERVISOR
        case [_, "-m", "hekla", str(daemon), *words]:
            for word in words:
                flag, _, path = word.partition("=")
                own = {"--kubeconfig": cluster.internal_kubeconfig, "--data-dir": cluster.data}.get(
                    flag
                )
                if own is not None and same(path, own):
                    return daemon
        case [_, "-P", "-m", module, directory, *_] if module.startswith(WRITERS) and same(
            directory, cluster.data
        ):
            return LOG_WRITER
        case [_, "-P", script, directory, *_] if script.endswith("logwriter.py") and same(
            directory, cluster.data
        ):
            return LOG_WRITER  # as earlier versions started it
        case [_, "-I", "-S", script, root] if script.endswith("spawner.py") and same(
            root, cluster.pods
        ):
            return SPAWNER
        case [_, "-m", "hekla.local.kubelet.network.network_daemon", root, *_] if same(
            root, cluster.pods
        ):
            return NETWORK
    return ""


def same(one: str, other: os.PathLike[str]) -> bool:
    """Whether two paths are one place, also where one of them leads through links."""
    return one == os.fspath(other) or os.path.realpath(one) == os.path.realpath(other)


def end_daemons(cluster: Cluster) -> int:
    """Ends every supervisor and daemon of the cluster; gives their number.  Containers and their
    network run on.

    Returns when none is in the process table any more; raises ClusterError where one does not go.
    """
    ended = 0
    while found := [member for member in members(cluster) if member.name != NETWORK]:
        ended += len(found)
        for step in order(found):
            for member in step:
                log.info(
                    "ending process %d, the %s that an earlier supervisor left",
                    member.process.pid,
                    member.name,
                )
            # These are not signalled: they end when the daemon that they serve has ended.
            beside = step[0].name in (LOG_WRITER, SPAWNER)
            if beside and not await_end([member.process for member in step], PATIENCE):
                continue
            all_gone(cluster, end([member.process for member in step], 0.0 if beside else PATIENCE))
    return ended


def end_network(cluster: Cluster) -> None:
    """Ends what holds the network of the pods, when no container is left.  Raises ClusterError
    where it does not go."""
    left = [member.process for member in members(cluster) if member.name == NETWORK]
    all_gone(cluster, end(left, PATIENCE) if left else [])


def order(found: Sequence[Member]) -> list[list[Member]]:
    """The order in which processes are ended: first those that restart others, the API server when
    nobody needs it, its helper processes last."""
    steps: list[list[Member]] = [[], [], [], [], []]
    place = {SUPERVISOR: 0, API_SERVER: 2, LOG_WRITER: 3, SPAWNER: 4}
    for member in found:
        steps[place.get(member.name, 1)].append(member)
    return [step for step in steps if step]


def all_gone(cluster: Cluster, left: Sequence[Process]) -> None:
    """Raises ClusterError that names what does not even go when it is killed."""
    if left:
        named = ", ".join(
            f"{process.pid} ({name_of(cluster, process.command)})" for process in left
        )
        raise ClusterError(
            f'the cluster "{cluster.name}" is not stopped: these of its processes do not end, though they were killed: {named}; '
            "nothing was removed; try again when the system has let go of them"
        )
