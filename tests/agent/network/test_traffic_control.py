"""Network QoS in this machine's kernel: pods with links of their own at a bridge, and real tc."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hekla.agent.network.interfaces import interfaces
from hekla.agent.network.limits import Limits
from hekla.agent.network.pod_network import NetworkError, call, program, table
from hekla.agent.network.regulator import NetworkPod, Regulator
from hekla.agent.network.state import StateFiles
from hekla.agent.network.traffic_control import DEVICE, PRIORITY, TrafficControl
from hekla.local.kubelet.network import netlink

T = TypeVar("T")

HOST = "10.9.0.1"
MEGABYTE = 1_000_000
WATERMARK, LOW, HIGH = 4 * MEGABYTE, MEGABYTE, 10 * MEGABYTE
LIMITS = Limits(WATERMARK, 50_000_000, LOW, HIGH)
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


def _elsewhere(do: Callable[[], object]) -> int:
    """What a function gives in a thread that may be in another namespace afterwards."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(do).result()  # type: ignore[return-value]


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


@pytest.fixture(autouse=True)
def shaping(links: Links) -> Iterator[None]:
    shaper = TrafficControl()
    if why := links.call(shaper.unavailable):
        pytest.skip(f"this kernel does not shape traffic: {why}")
    yield
    links.call(shaper.remove)


def regulator(links: Links, files_in: Path) -> Regulator:
    files = StateFiles(files_in)
    files.set_limits(LIMITS)
    made = Regulator(TrafficControl(), links.place, files)
    made.set_pods(
        NetworkPod(name, f"default/{name}", (address,), offline=name == "offline")
        for name, address in links.addresses.items()
    )
    return made


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


@pytest.mark.slow
def test_offline_pods_are_held_to_what_online_pods_leave(links: Links, tmp_path: Path) -> None:
    """Low while the online pod sends more than the watermark, high otherwise; what an agent leaves
    that is killed stays in force, the next one takes it over, and takes it away at its end."""
    first = regulator(links, tmp_path)
    offline = Sender(links, "offline")
    first.start()
    until(lambda: first.status.check_times > 2 and first.status.latest_offline_bandwidth > 0)
    assert 0.6 * HIGH < offline.bandwidth() < 1.1 * HIGH

    online = Sender(links, "online")
    until(lambda: first.status.offline_bandwidth_limit == LOW)
    assert offline.bandwidth() < 1.1 * LOW
    assert first.status.latest_online_bandwidth > WATERMARK
    assert not first.refused

    first.pause()
    online.close()
    assert 0.5 * LOW < offline.bandwidth() < 1.1 * LOW, "it is neither cut off nor set free"

    second = regulator(links, tmp_path)
    second.start()
    until(lambda: second.status.offline_bandwidth_limit == HIGH)
    assert 0.6 * HIGH < offline.bandwidth() < 1.1 * HIGH
    assert len(links.call(ours)) == 3
    second.stop()
    assert links.call(ours) == []
    assert offline.bandwidth() > 1.2 * HIGH
    offline.close()


def test_what_others_have_at_an_interface_is_left_alone(links: Links) -> None:
    shaper = TrafficControl()

    def of_others() -> None:
        mirror = "u32 match u32 0 0 action mirred egress mirror dev online"
        lines = ("qdisc add dev offline clsact",
                 f"filter add dev offline ingress pref 7 protocol ip {mirror}")  # fmt: skip
        program("tc", "-batch", "-", given="\n".join(lines))

    def filters(name: str) -> set[int]:
        return {row["pref"] for row in table("tc", "-j", "filter", "show", "dev", name, "ingress")}

    links.call(of_others)
    refused = links.call(shaper.shape, ["offline", "online", "gone"], LOW)
    assert refused == {"offline": "another program has filters there"}
    assert links.call(filters, "online") == {PRIORITY}
    links.call(shaper.shape, [], LOW)
    assert links.call(filters, "offline") == {7}
    assert links.call(ours) == [DEVICE, f"htb of {DEVICE}"]

    links.call(program, "tc", "filter", "del", "dev", "offline", "ingress", "pref", "7")
    assert links.call(shaper.shape, ["offline"], LOW) == {}
    links.call(shaper.remove)
    assert links.call(ours) == [] and links.call(filters, "offline") == set()
    links.call(program, "tc", "qdisc", "del", "dev", "offline", "clsact")


def test_pods_are_found_that_have_not_been_talked_with(links: Links) -> None:
    wanted = {address: name for name, address in links.addresses.items()}
    for name in wanted.values():
        links.call(program, "ip", "link", "set", name, "down")  # which empties all tables
        links.call(program, "ip", "link", "set", name, "up")
    links.call(program, "ip", "neigh", "flush", "all")
    assert links.call(interfaces, list(wanted)) == {}
    until(lambda: links.call(interfaces, list(wanted)) == wanted)


def test_a_namespace_that_is_not_there(tmp_path: Path) -> None:
    place = tmp_path / "network.json"
    with pytest.raises(NetworkError, match=r"network\.json"):
        call(str(place), list)
    place.write_text('{"pid": 999999999}')
    with pytest.raises(NetworkError, match="999999999"):
        call(str(place), list)


def test_a_kernel_without_the_means_says_which(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaper = TrafficControl()
    monkeypatch.setattr(
        "hekla.agent.network.traffic_control._discipline",
        lambda device: f"qdisc replace dev {device} root handle 1: nosuch",
    )
    assert "unknown" in links.call(shaper.unavailable)
    assert links.call(ours) == []
    monkeypatch.setenv("PATH", "/nowhere")
    assert links.call(shaper.unavailable) == "the program ip (of iproute2) is not there"
