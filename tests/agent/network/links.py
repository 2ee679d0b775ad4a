"""Pods with links of their own at a bridge in this machine's kernel, for tests of network QoS."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from hekla.agent.network.pod_network import call, table
from hekla.local.kubelet.network import netlink

T = TypeVar("T")

HOST = "10.9.0.1"
WINDOW = 0.4
"""Seconds over which a bandwidth is measured."""


class Links:
    """A node's namespace with a bridge, and pods with namespaces of their own."""

    def __init__(self) -> None:
        self.node = _elsewhere(netlink.new_namespace)
        self.pods = {name: _elsewhere(netlink.new_namespace) for name in ("online", "offline")}
        self.addresses = {"online": "10.9.0.11", "offline": "10.9.0.12"}
        _elsewhere(self._connect)

    @property
    def place(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.node}"

    def _connect(self) -> None:
        netlink.set_namespace(self.node)
        here = netlink.Netlink()
        here.ask(netlink.bridge("br0"))
        bridge = socket.if_nametoindex("br0")
        here.ask(netlink.up(1), netlink.up(bridge), netlink.address(bridge, HOST, 24))
        for name, pod in self.pods.items():
            here.ask(netlink.pair(name, bridge, "eth0", pod))
            netlink.set_namespace(pod)
            inner = netlink.Netlink()
            own = socket.if_nametoindex("eth0")
            inner.ask(netlink.up(own), netlink.address(own, self.addresses[name], 24))
            inner.close()
            netlink.set_namespace(self.node)
        here.close()

    def call(self, do: Callable[..., T], *arguments: Any) -> T:
        return call(self.place, do, *arguments)

    def close(self) -> None:
        for namespace in (self.node, *self.pods.values()):
            os.close(namespace)


def _elsewhere(do: Callable[[], T]) -> T:
    """What a function gives in a thread that may be in another namespace afterwards."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(do).result()


class Sender:
    """A pod that sends to the node as fast as it may; `received` counts what arrives."""

    def __init__(self, links: Links, name: str) -> None:
        self.received = 0
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

        def listen() -> socket.socket:
            netlink.set_namespace(links.node)
            return socket.create_server((HOST, 0))

        def connect(port: int) -> socket.socket:
            netlink.set_namespace(links.pods[name])
            return socket.create_connection((HOST, port), 5)

        with ThreadPoolExecutor(2) as threads:
            server = threads.submit(listen).result()
        with ThreadPoolExecutor(1) as threads:
            client = threads.submit(connect, server.getsockname()[1]).result()
        accepted, _ = server.accept()
        server.close()
        self._ends = [client, accepted]
        for do in (self._send, self._receive):
            thread = threading.Thread(target=do, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _send(self) -> None:
        block = bytes(100_000)
        while True:
            try:
                self._ends[0].sendall(block)
            except OSError:
                return
            time.sleep(0.005)  # at most 20 MB/s, so that this machine has better things to do too

    def _receive(self) -> None:
        while True:
            try:
                got = len(self._ends[1].recv(1 << 20))
            except OSError:
                return
            if not got:
                return
            self.received += got

    def bandwidth(self) -> float:
        """Bytes per second that arrive, over a while."""
        before, began = self.received, time.monotonic()
        time.sleep(WINDOW)
        return (self.received - before) / (time.monotonic() - began)

    def close(self) -> None:
        for end in self._ends:
            end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for end in self._ends:
            end.close()


@pytest.fixture(scope="module")
def links() -> Iterator[Links]:
    if os.geteuid():
        pytest.skip("only root makes network namespaces")
    if missing := [name for name in ("ip", "tc", "bridge") if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} of iproute2 are not there")
    try:
        made = Links()
    except OSError as error:
        pytest.skip(f"this machine makes no network namespaces: {error}")
    yield made
    made.close()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ours() -> list[str]:
    """What is of ours in the namespace's kernel."""
    found = [row["ifname"] for row in table("ip", "-j", "link", "show") if "hekla" in row["ifname"]]
    return found + [
        f"{row['kind']} of {row['dev']}"
        for row in table("tc", "-j", "qdisc", "show")
        if row["kind"] in ("htb", "ingress")
    ]
