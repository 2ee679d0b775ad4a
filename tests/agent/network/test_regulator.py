"""The loop of network QoS, with counters and a clock that are handed in."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from hekla.agent.network.limits import Limits
from hekla.agent.network.pod_network import NetworkError
from hekla.agent.network.regulator import NetworkPod, Regulator
from hekla.agent.network.shaper import Counters, Sent
from hekla.agent.network.state import StateFiles
from tests.agent.network.links import until

LOW, HIGH, WATERMARK = 1000, 4000, 8000
ADDRESSES = {"10.0.0.1": "pod1", "10.0.0.2": "pod2", "10.0.0.3": "pod3"}


class Node:
    """A shaper that notes what it is told, and the network of the pods at once."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = dict.fromkeys(ADDRESSES.values(), 5000)
        self.shaped = 0
        self.did: list[Any] = []
        self.addresses = dict(ADDRESSES)
        self.refused: dict[str, str] = {}

    def find(self, addresses: Collection[str]) -> dict[str, str]:
        return {one: self.addresses[one] for one in addresses if one in self.addresses}

    def unavailable(self) -> str:
        return ""

    def shape(self, interfaces: Collection[str], rate: int) -> dict[str, str]:
        self.did.append((sorted(interfaces), rate))
        return self.refused

    def limit(self, rate: int) -> None:
        self.did.append(rate)

    def counters(self, interfaces: Collection[str]) -> Counters:
        return Counters(
            {name: Sent(self.sent[name], self.sent[name] // 100) for name in interfaces},
            Sent(self.shaped, self.shaped // 100),
        )

    def remove(self) -> None:
        self.did.append("removed")


def pod(number: int, *, offline: bool = False, limited: bool = False) -> NetworkPod:
    return NetworkPod(f"uid{number}", f"default/p{number}", (f"10.0.0.{number}",), offline, limited)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def regulator(node: Node, tmp_path: Path) -> Regulator:
    files = StateFiles(tmp_path)
    files.set_limits(Limits(WATERMARK, 10_000_000, LOW, HIGH))
    made = Regulator(node, "", files, node.find)
    made.set_pods([pod(1), pod(2, offline=True)])
    return made


def test_the_limit_follows_the_online_traffic(node: Node, regulator: Regulator) -> None:
    assert regulator.look(10.0) == 0.1  # the shortest interval that a program outside keeps
    assert node.did == [
        (["pod2"], HIGH)
    ]  # what was sent before the first look is no traffic of now
    for second, online, offline in ((11.0, 9000, 4000), (12.0, 9000, 1000), (13.0, 8000, 1000), (14.0, 0, 4000)):  # fmt: skip
        node.sent["pod1"] += online
        node.shaped += offline
        regulator.look(second)
    assert node.did[1:] == [LOW, HIGH]  # and nothing while it stays
    status = regulator.status
    assert (status.check_times, status.low_times, status.high_times) == (5, 2, 3)
    assert (status.online_tx_bytes, status.offline_tx_bytes) == (26000, 10000)
    assert (status.latest_online_bandwidth, status.latest_offline_bandwidth) == (0, 4000)
    assert status.offline_bandwidth_limit == HIGH
    assert regulator.files.status() == status


def test_what_offline_pods_send_is_not_online_traffic(node: Node, regulator: Regulator) -> None:
    regulator.look(10.0)
    node.sent["pod2"] += 100_000
    regulator.look(11.0)
    assert node.did == [(["pod2"], HIGH)]


def test_pods_come_and_go(node: Node, regulator: Regulator) -> None:
    regulator.look(10.0)
    regulator.set_pods([pod(1), pod(2, offline=True), pod(3, offline=True)])
    regulator.look(10.1)
    regulator.set_pods([pod(1), pod(3, offline=True)])
    regulator.look(10.2)
    regulator.set_pods([pod(1, offline=True), pod(3, offline=True, limited=True)])
    regulator.look(10.3)
    assert [names for names, _ in node.did] == [["pod2"], ["pod2", "pod3"], ["pod3"], ["pod1"]]


def test_a_pod_that_is_not_found_is_told_and_looked_for_again(
    node: Node, regulator: Regulator
) -> None:
    """At first in each round, for the kernel needs a moment to hear of it; then every second."""
    del node.addresses["10.0.0.2"]
    for number in range(10):
        assert bool(regulator.refused) is (number >= 5), (
            "it is not told before the kernel could know"
        )
        regulator.look(10.0 + number / 10)
    assert node.did == [([], HIGH)] * 5
    assert regulator.refused == {"default/p2": "its interface is not found"}
    node.addresses["10.0.0.2"] = "pod2"
    regulator.look(11.3)
    assert node.did[5:] == [] and regulator.refused
    regulator.look(11.5)
    assert node.did[5:] == [(["pod2"], HIGH)] and not regulator.refused


def test_a_quiet_pod_that_the_tables_have_forgotten_keeps_its_limit(
    node: Node, regulator: Regulator
) -> None:
    regulator.look(10.0)
    node.addresses.clear()
    regulator.look(60.0)
    assert node.did == [(["pod2"], HIGH), (["pod2"], HIGH)]


def test_another_network_is_shaped_anew(node: Node, regulator: Regulator) -> None:
    """The local cluster's network daemon has been replaced, and with it all interfaces."""
    regulator.look(10.0, 1)
    node.addresses["10.0.0.2"] = "pod9"
    regulator.look(10.1, 2)
    assert node.did[-1] == (["pod9"], HIGH)


def test_what_the_shaper_must_not_touch_is_told(node: Node, regulator: Regulator) -> None:
    node.refused = {"pod2": "another program has filters there"}
    regulator.look(10.0)
    assert regulator.refused == {"default/p2": "another program has filters there"}


def test_limits_by_hand_are_followed(node: Node, regulator: Regulator) -> None:
    regulator.look(10.0)
    regulator.files.set_limits(Limits(WATERMARK, 500_000_000, LOW, 3000))
    assert regulator.look(10.1) == 0.5
    regulator.files.set_limits(Limits(WATERMARK, 10**18, LOW, 3000))
    assert regulator.look(10.6) == 30.0  # pods come and go meanwhile
    assert node.did[1:] == [3000]


def test_after_a_failure_all_is_set_anew_and_the_reason_is_there_meanwhile(
    node: Node, regulator: Regulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(interfaces: Collection[str]) -> Counters:
        raise NetworkError("network of the pods: gone")

    monkeypatch.setattr("hekla.agent.network.regulator.RETRY_SECONDS", 0.001)
    with monkeypatch.context() as broken:
        broken.setattr(node, "counters", gone)
        regulator.start()
        until(lambda: regulator.problem == "network of the pods: gone")
    until(lambda: bool(node.did) and not regulator.problem)
    assert node.did[-1] == (["pod2"], HIGH)
    regulator.stop()
    assert node.did[-1] == "removed"


def test_without_offline_pods_it_looks_rarely(node: Node, regulator: Regulator) -> None:
    regulator.set_pods([pod(1), pod(2, offline=True, limited=True)])
    assert regulator.look(10.0) == 1.0
    regulator.set_pods([pod(1), pod(2, offline=True)])
    assert regulator.look(11.0) == 0.1


def test_a_pod_that_comes_does_not_wait_for_the_next_look(node: Node, regulator: Regulator) -> None:
    regulator.files.set_limits(Limits(WATERMARK, 20 * 10**9, LOW, HIGH))
    regulator.start()
    until(lambda: node.did == [(["pod2"], HIGH)])
    regulator.set_pods([pod(1), pod(2, offline=True), pod(3, offline=True)])
    until(lambda: node.did[1:] == [(["pod2", "pod3"], HIGH)])
    regulator.stop()


def test_a_bug_does_not_end_the_loop(
    node: Node, regulator: Regulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.agent.network.regulator.RETRY_SECONDS", 0.001)
    with monkeypatch.context() as broken:
        broken.setattr(node, "counters", None)
        regulator.start()
        until(lambda: "not callable" in regulator.problem)
    until(lambda: not regulator.problem)
    regulator.stop()
