"""Network QoS in this machine's kernel: pods with links of their own at a bridge, and real tc."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.agent.network.interfaces import interfaces
from hekla.agent.network.limits import Limits
from hekla.agent.network.pod_network import NetworkError, call, program, table
from hekla.agent.network.regulator import NetworkPod, Regulator
from hekla.agent.network.state import StateFiles
from hekla.agent.network.traffic_control import DEVICE, PRIORITY, TrafficControl
from tests.agent.network.links import Links, Sender, links, ours, until

__all__ = ["links"]

MEGABYTE = 1_000_000
WATERMARK, LOW, HIGH = 4 * MEGABYTE, MEGABYTE, 10 * MEGABYTE
LIMITS = Limits(WATERMARK, 50_000_000, LOW, HIGH)


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
