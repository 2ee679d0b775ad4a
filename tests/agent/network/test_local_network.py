"""Pods on the network of the local cluster, whose daemon may be replaced at any moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hekla.agent.network.limits import Limits
from hekla.agent.network.pod_network import call, unavailable
from hekla.agent.network.regulator import NetworkPod, Regulator
from hekla.agent.network.state import StateFiles
from hekla.agent.network.traffic_control import DEVICE, TrafficControl
from hekla.local.kubelet.network import netlink
from hekla.local.kubelet.network.network import Network, end
from tests.agent.network.links import links, ours, until

__all__ = ["links"]

pytestmark = pytest.mark.usefixtures("links")  # which skips where there cannot be any
PODS = ("online", "offline")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    if why := unavailable(TrafficControl()):
        pytest.skip(f"this kernel does not shape traffic: {why}")
    yield tmp_path
    end(tmp_path)


class Pods:
    """Pods of a network; each has a socket in its namespace, which keeps that alive."""

    def __init__(self, root: Path) -> None:
        self.place = str(root / "network.json")
        self.network = Network(root)
        self.addresses: dict[str, str] = {}
        self.held: list[socket.socket] = []

    async def attach(self) -> None:
        await self.network.ready()
        start = self.network.base.rpartition(".")[0]
        for number, name in enumerate(PODS, 3):
            self.addresses[name] = f"{start}.{number}"
            path = await self.network.attach(name, self.addresses[name], [], [])
            self.held.append(_socket_in(path))


def _socket_in(path: str) -> socket.socket:
    def make() -> socket.socket:
        namespace = os.open(path, os.O_RDONLY)
        netlink.set_namespace(namespace)
        os.close(namespace)
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


@pytest.mark.slow
async def test_pods_are_shaped_also_after_the_network_has_been_replaced(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pods = Pods(root)
    await pods.attach()
    files = StateFiles(tmp_path_factory.mktemp("state"))
    files.set_limits(Limits(1_000_000, 10_000_000, 1_000_000, 2_000_000))
    regulator = Regulator(TrafficControl(), pods.place, files)
    regulator.set_pods(
        NetworkPod(name, f"default/{name}", (pods.addresses[name],), offline=name == "offline")
        for name in PODS
    )

    def shaped() -> bool:
        found = call(pods.place, ours)
        return DEVICE in found and sum(one.startswith("ingress of pod") for one in found) == 1

    regulator.start()
    try:
        until(shaped)
        replaced = asyncio.Event()

        async def attach_again() -> None:
            await pods.attach()
            replaced.set()

        pods.network.recall = attach_again
        os.kill(json.loads(Path(pods.place).read_text())["pid"], signal.SIGKILL)
        async with asyncio.timeout(10):
            await replaced.wait()
        until(shaped)
        until(lambda: not regulator.problem and not regulator.refused)
    finally:
        regulator.stop()
        await pods.network.close()
