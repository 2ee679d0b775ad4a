"""What the network is told of names, what its DNS server answers, and which addresses it takes."""

from __future__ import annotations

import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.api.kubernetes import core
from hekla.local.kubelet import naming
from hekla.local.kubelet.hosts import Peer
from hekla.local.kubelet.naming import Named
from hekla.local.kubelet.network import bridges, names, network_daemon
from hekla.local.kubelet.network.names import Port, Service, Zone
from hekla.local.kubelet.records import PodDirectory


def pod(**spec: Any) -> core.Pod:
    return msgspec.convert(
        {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [], **spec}}, core.Pod
    )


def service(**spec: Any) -> core.Service:
    return msgspec.convert(
        {"metadata": {"name": "s", "namespace": "ns"}, "spec": spec}, core.Service
    )


def named(
    address: str, hostname: str = "", subdomain: str = "", ready: bool = True, **labels: str
) -> Named:
    return Named(
        Peer("ns", address, hostname, subdomain),
        PodDirectory(Path("/nowhere"), "u"),
        labels,
        ready=ready,
        ports={("web", "TCP"): 8080},
    )


def test_a_service_leads_to_the_ready_pods_that_it_selects() -> None:
    pods = [
        named("10.244.0.3", app="a"),
        named("10.244.0.4", app="b"),
        named("10.244.0.5", ready=False, app="a"),
    ]
    ports = [
        {"name": "x", "port": 80, "targetPort": "web", "protocol": "TCP"},
        {"name": "y", "port": 81, "protocol": "TCP"},
    ]
    told = naming.described(
        service(selector={"app": "a"}, clusterIP="10.96.0.9", ports=ports), pods
    )
    assert told["address"] == "10.96.0.9"
    assert [port["targets"] for port in told["ports"]] == [
        [["10.244.0.3", 8080]],
        [["10.244.0.3", 81]],
    ]
    early = naming.described(
        service(selector={"app": "a"}, clusterIP="None", publishNotReadyAddresses=True), pods
    )
    assert (early["address"], [ip for ip, _ in early["endpoints"]]) == (
        "",
        ["10.244.0.3", "10.244.0.5"],
    )


def test_endpoints_that_users_write_are_used() -> None:
    manual = msgspec.convert(
        {"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 5432}]}]},
        core.Endpoints,
    )
    told = naming.described(service(clusterIP="10.96.0.9", ports=[{"port": 80}]), [], manual)
    assert told["ports"][0]["targets"] == [["192.0.2.1", 5432]]


def zone() -> Zone:
    made = Zone()
    made.replace(
        "ns",
        [
            Service("web", "10.96.0.7", ports=[Port("http", 80)]),
            Service("ring", endpoints=[("10.244.0.3", "m-0"), ("10.244.0.4", "m-1")]),
            Service("away", external="example.com"),
        ],
        [("j-0", "job", "10.244.0.9")],
    )
    return made


@pytest.mark.parametrize(("name", "kind", "found"), [
    ("web.ns.svc.cluster.local", names.A, ["10.96.0.7"]), ("WEB.NS.svc.cluster.local.", names.A, ["10.96.0.7"]),
    ("ring.ns.svc.cluster.local", names.A, ["10.244.0.3", "10.244.0.4"]), ("m-1.ring.ns.svc.cluster.local", names.A, ["10.244.0.4"]),
    ("j-0.job.ns.svc.cluster.local", names.A, ["10.244.0.9"]), ("web.ns.svc.cluster.local", names.AAAA, []),
    ("job.ns.svc.cluster.local", names.A, []), ("nobody.ns.svc.cluster.local", names.A, None),
    ("web.other.svc.cluster.local", names.A, None),
    ("github.com.ns.svc.cluster.local", names.A, None),
])  # fmt: skip
def test_names_of_the_cluster(name: str, kind: int, found: list[str] | None) -> None:
    records = zone().find(name, kind)
    assert (None if records is None else [socket.inet_ntoa(data) for _, data in records]) == found


def test_other_records() -> None:
    assert zone().find("away.ns.svc.cluster.local", names.A) == [
        (names.CNAME, b"\x07example\x03com\0")
    ]
    assert zone().find("7.0.96.10.in-addr.arpa", names.PTR) == [
        (names.PTR, names.label_bytes("web.ns.svc.cluster.local"))
    ]
    told = zone().find("_http._tcp.web.ns.svc.cluster.local", names.SRV)
    assert told == [
        (names.SRV, struct.pack(">HHH", 0, 100, 80) + names.label_bytes("web.ns.svc.cluster.local"))
    ]
    for name in ("example.com", "9.9.9.9.in-addr.arpa"):
        with pytest.raises(LookupError):
            zone().find(name, names.A)


def query(name: str) -> bytes:
    return (
        struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0)
        + names.label_bytes(name)
        + struct.pack(">HH", names.A, 1)
    )


def test_questions_and_answers_on_the_wire() -> None:
    asked = query("web.ns.svc.cluster.local")
    name, kind, raw = names.question(asked)
    assert (name, kind) == ("web.ns.svc.cluster.local", names.A)
    answer = names.answer(asked, raw, [(names.A, socket.inet_aton("10.96.0.7"))])
    assert struct.unpack(">HHHHHH", answer[:12]) == (7, 0x8580, 1, 1, 0, 0)
    assert answer.endswith(socket.inet_aton("10.96.0.7"))
    cut = names.answer(asked, raw, [(names.A, bytes(4))] * 100, limit=512)
    assert len(cut) <= 512 and cut[2] & 0x02


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 11, query("a")[:-3], query("x" * 63)[:40], b"\xff" * 600, query("a.b") + b""],
)
def test_nonsense_is_no_question(data: bytes) -> None:
    try:
        names.question(data)
    except (ValueError, IndexError):
        pass


MACHINE = "nameserver 127.0.0.53\nsearch lan.example\noptions edns0\n"


@pytest.mark.parametrize(("spec", "text"), [
    ({}, "search ns.svc.cluster.local svc.cluster.local cluster.local lan.example\nnameserver 10.244.0.1\noptions ndots:5\n"),
    ({"dnsPolicy": "Default"}, "search lan.example\nnameserver 10.244.0.1\noptions edns0\n"),
    ({"hostNetwork": True}, "search lan.example\nnameserver 127.0.0.53\noptions edns0\n"),
    ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"], "options": [{"name": "ndots", "value": "2"}]}},
     "nameserver 192.0.2.1\noptions ndots:2\n"),
])  # fmt: skip
def test_the_resolver_of_a_pod(spec: dict[str, Any], text: str) -> None:
    assert naming.resolver(pod(**spec), "10.244.0.1", MACHINE) == text


def test_hosts_are_looked_up_in_files_and_dns() -> None:
    assert naming.switched("passwd: files\nhosts: files dns\n") is None
    assert (
        naming.switched("hosts: files resolve [!UNAVAIL=return] dns\ngroup: files\n")
        == "hosts: files dns\ngroup: files\n"
    )


def test_subnets_that_the_machine_uses_are_left_alone() -> None:
    index = 20
    line = "eth0\t{:08X}\t00000000\t0001\t0\t0\t0\t{:08X}\t0\t0\t0"
    swapped = int.from_bytes(bridges.subnet(index).to_bytes(4, "big"), "little")
    taken = bridges.routes(
        ["Iface\tDestination", line.format(swapped, 0x0000FFFF), line.format(0, 0)]
    )
    assert not bridges.is_free(index, taken)
    assert bridges.is_free(40, taken)
    servers = bridges.dns_servers(["10.255.255.53", "not an address"])
    assert not bridges.is_free(bridges.SUBNET_COUNT - 1, servers) and bridges.is_free(
        bridges.SUBNET_COUNT - 2, servers
    )
    assert (
        bridges.dotted(bridges.subnet(0)) == "10.244.0.0"
        and bridges.dotted(bridges.subnet(bridges.SUBNET_COUNT - 1)) == "10.255.240.0"
    )


def test_the_network_daemon_knows_whether_a_container_is_left(tmp_path: Path) -> None:
    slot = tmp_path / "pods" / "u" / "containers" / "c" / "0"
    slot.mkdir(parents=True)
    (slot / "exit").touch()
    with subprocess.Popen(["sleep", "100"]) as process:
        start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        (slot / "claim").write_text(f"{process.pid} {start}@boot\n")
        assert network_daemon.any_container(tmp_path)
        process.kill()
    assert not network_daemon.any_container(tmp_path)


class Counted(bytes):
    """Bytes that count how often they are compared, whatever they are put behind."""

    comparisons = 0
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return bytes.__eq__(self, other)

    def __radd__(self, before: bytes) -> Counted:
        return Counted(bytes(before) + bytes(self))


def test_names_of_many_ports_and_pods_cost_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand ports before sixteen pods were searched through for each of 16,000 records."""
    encoded = names.label_bytes
    monkeypatch.setattr(names, "label_bytes", lambda name: Counted(encoded(name)))
    ports = [Port(f"p{number}", number, "TCP") for number in range(1, 101)]
    pods = [(f"10.244.0.{number}", "") for number in range(1, 17)]
    zone = Zone()
    zone.replace("team", [Service("wide", ports=ports, endpoints=pods)], [])
    found = zone.find("wide.team.svc.cluster.local", names.SRV)
    assert found is not None and len(found) == 1600
    assert Counted.comparisons <= 2 * 1600
