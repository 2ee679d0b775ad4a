"""`hekla hypernode-controllers`: the hypernode controllers as a process of their own (reference:
controllers 1.7).

It reads nodes and writes hypernodes and needs nothing of pods, so it can run with far fewer rights
than the rest.  Whoever starts it switches them off there: `--controllers=*,-hyperNode-controller`.
"""

from __future__ import annotations

import asyncio

from hekla.api import topology
from hekla.controllers.hypernode.controller import NODE, HyperNodeController
from hekla.controllers.hypernode.discovery import DiscoveryController
from hekla.kube import notify
from hekla.kube.cache import Cache
from hekla.kube.controller import Controller, run
from hekla.kube.daemon import (
    Daemon,
    DaemonError,
    connection_flags,
    health_flags,
    leader_flags,
    metrics_flags,
)
from hekla.kube.daemon import main as run_daemon
from hekla.kube.flags import Options

FLAGS = (
    *connection_flags(50, 100),
    *health_flags(),
    *metrics_flags(":8081"),
    *leader_flags("vc-hypernode-controller-manager"),
)


def options_problem(options: Options) -> str | None:
    """Why these flags do not go together."""
    for name, value in (
        ("kube-api-qps", options.kube_api_qps),
        ("kube-api-burst", options.kube_api_burst),
    ):
        if value <= 0:
            return f"--{name} has to be above 0, not {value:g}"
    if (
        options.enable_healthz
        and options.enable_metrics
        and overlap(options.healthz_address, options.listen_address)
    ):
        return f"--healthz-address {options.healthz_address} and --listen-address {options.listen_address} are one place"
    return None


def overlap(one: str, other: str) -> bool:
    """Whether two listen addresses clash: the same port, on one host or on all of them."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    everywhere = {"", "0.0.0.0", "[::]"}
    return (
        port == other_port
        and port != "0"
        and (host == other_host or bool({host, other_host} & everywhere))
    )


class Readiness:
    """Whether the process is ready: as the leader when its caches are full, else when it sees
    another leader."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.synced = False
        daemon.health.ready["controllers"] = self.problem

    def problem(self) -> str | None:
        election = self._daemon.election
        if self.synced:
            return None
        if election is not None and election.leader not in ("", election.holder):
            return None
        return (
            "the caches are not full yet"
            if election is None or election.leads
            else "nobody is seen to lead yet"
        )


async def work(daemon: Daemon, readiness: Readiness) -> None:
    """Count and discover until the process is told to stop."""
    hyper_nodes, nodes = Cache(daemon.client, topology.HYPER_NODE), Cache(daemon.client, NODE)
    controllers: list[Controller] = [
        HyperNodeController(daemon.client, hyper_nodes, nodes),
        DiscoveryController(daemon.client, hyper_nodes, nodes),
    ]
    async with asyncio.TaskGroup() as group:
        group.create_task(run(controllers))
        for controller in controllers:
            for cache in controller.caches:
                await cache.synced()
        readiness.synced = True
        notify.ready()


def main(argv: list[str]) -> int:
    """`hekla hypernode-controllers`."""
    made: list[Readiness] = []

    def prepare(daemon: Daemon) -> None:
        if problem := options_problem(daemon.options):
            raise DaemonError(problem)
        made.append(Readiness(daemon))

    return run_daemon(
        "hypernode-controllers", FLAGS, argv, lambda daemon: work(daemon, made[0]), prepare=prepare
    )
