"""Which interface leads to a pod, from iproute2's tables."""

from __future__ import annotations

from hekla.agent.network.interfaces import choose

LINKS = [
    {"ifname": "lo"},
    {"ifname": "eth0"},
    {"ifname": "br0"},
    {"ifname": "br1"},
    {"ifname": "down1", "link": "up1", "master": "br0"},
    {"ifname": "up1", "link": "down1", "master": "br1"},
    {"ifname": "pod1", "link_netnsid": 0, "master": "br0"},
    {"ifname": "pod2", "link_netnsid": 1, "master": "br1"},
    {"ifname": "cali7", "link_netnsid": 2},
    {"ifname": "veth9", "link_netnsid": 3},
]


def test_behind_a_bridge() -> None:
    """Also behind a second one, whose hosts the first knows at the link between them."""
    neighbours = [
        {"dst": "10.0.0.1", "dev": "br0", "lladdr": "0a:01", "state": ["STALE"]},
        {"dst": "10.0.0.2", "dev": "br0", "lladdr": "0a:02", "state": ["REACHABLE"]},
        {"dst": "10.0.0.3", "dev": "br0", "state": ["FAILED"]},
    ]
    forwarding = [
        {"mac": "0a:01", "ifname": "pod1", "master": "br0", "state": ""},
        {"mac": "0a:02", "ifname": "down1", "master": "br0", "state": ""},
        {"mac": "0a:02", "ifname": "pod2", "master": "br1", "state": ""},
        {"mac": "33:33", "ifname": "pod1", "flags": ["self"], "state": "permanent"},
    ]
    assert choose(["10.0.0.1", "10.0.0.2", "10.0.0.3"], LINKS, [], neighbours, forwarding) == {
        "10.0.0.1": "pod1",
        "10.0.0.2": "pod2",
    }


def test_by_a_route_of_its_own() -> None:
    routes = [
        {"dst": "default", "dev": "eth0"},
        {"dst": "10.0.0.7", "dev": "cali7", "scope": "link"},
        {"dst": "10.0.0.8", "dev": "eth0", "gateway": "192.0.2.1"},
        {"dst": "fd00::9", "dev": "veth9"},
    ]
    assert choose(["10.0.0.7", "10.0.0.8", "fd00::9"], LINKS, routes, [], []) == {
        "10.0.0.7": "cali7",
        "fd00::9": "veth9",
    }


def test_an_address_that_two_ports_claim_belongs_to_none() -> None:
    neighbours = [{"dst": "10.0.0.1", "dev": "br0", "lladdr": "0a:01"}]
    forwarding = [
        {"mac": "0a:01", "ifname": name, "master": "br0", "state": ""} for name in ("pod1", "pod2")
    ]
    assert choose(["10.0.0.1"], LINKS, [], neighbours, forwarding) == {}
