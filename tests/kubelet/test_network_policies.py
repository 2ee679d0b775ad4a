"""Network policies in force between real pods: what is allowed answers, what is not does not,
whatever changes or dies meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from hekla.api.kubernetes import core
from hekla.api.kubernetes.networking import NETWORK_POLICY
from hekla.local.kubelet.network.network import ask, connect
from hekla.local.kubelet.runtime.isolation import Isolation
from tests.kubelet.live_cluster import PATIENCE, POD, Cluster, cluster, condition

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEARNED = 5.0
"""Seconds within which a change must have come to the rules; it takes some hundredths where the
machine is idle."""
PROGRAM = """
import http.server, socket, socketserver, sys, threading, time, urllib.parse
QUERY = bytes.fromhex('000701000001000000000000') + b'\\3any\\7cluster\\5local\\0' + bytes([0, 1, 0, 1])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        told = self.headers['Host'].encode()
        if self.path != '/':
            how, host, port = urllib.parse.unquote(self.path[1:]).split(',')
            try:
                if how == 'flood':
                    floods.append(threading.Thread(target=flood, args=(host, int(port))))
                    floods[-1].start()
                elif how == 'flooded':
                    floods.pop().join()
                    if not answers:
                        raise TimeoutError
                elif how == 'udp':
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                        asking.settimeout(0.5)
                        asking.sendto(QUERY if port == '53' else b'ping', (host, int(port)))
                        asking.recv(512)
                else:
                    socket.create_connection((host, int(port)), 0.5).close()
                told = b'open'
            except OSError:
                told = b'shut'
        self.send_response(200); self.end_headers(); self.wfile.write(told)
    def log_message(self, *_): pass
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = daemon_threads = True
def echo():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(('0.0.0.0', 90))
        while True:
            data, sender = held.recvfrom(512)
            held.sendto(data, sender)
def flood(host, port):
    end = time.monotonic() + 2
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        while time.monotonic() < end:
            try:
                asking.sendto(b'ping', (host, port))
                answers.append(asking.recv(512))
            except OSError:
                pass
floods, answers = [], []
threading.Thread(target=echo, daemon=True).start()
for port in (81, 82):
    threading.Thread(target=Server(('0.0.0.0', port), Answer).serve_forever, daemon=True).start()
Server(('0.0.0.0', 80), Answer).serve_forever()
"""
"""Answers at ports 80 to 82, echoes datagrams at 90, and tries what it is asked to try. A flood
is two seconds of datagrams; it tells when it is over whether one was answered."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(
    pods_have_networks: None, isolation: Isolation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    if isolation.unenforced:
        pytest.skip(f"this machine enforces no network policies: {isolation.unenforced}")
    async with cluster(
        tmp_path_factory.mktemp("policies"), "--node-cpu=8", "--node-memory=8Gi"
    ) as made:
        await made.client.create(
            core.NAMESPACE.untyped, {"metadata": {"name": "other", "labels": {"team": "x"}}}
        )
        await made.client.create(
            core.SERVICE_ACCOUNT.untyped, {"metadata": {"name": "default", "namespace": "other"}}
        )
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pods(live: Cluster) -> dict[str, str]:
    """Address of each: `web` serves, `a`, `b` and `far` (of the other namespace) ask."""
    ports = {"ports": [{"name": "http", "containerPort": 80}]}
    for name, namespace in (
        ("web", "default"),
        ("a", "default"),
        ("b", "default"),
        ("far", "other"),
    ):
        live.namespace = namespace
        await live.create(
            name,
            "python3",
            "-c",
            PROGRAM,
            metadata={"labels": {"app": name}},
            c=ports,
            terminationGracePeriodSeconds=0,
        )
    found = {}
    for name, namespace in (
        ("far", "other"),
        ("web", "default"),
        ("a", "default"),
        ("b", "default"),
    ):
        live.namespace = namespace
        pod = await live.until(name, lambda p: p and condition(p, "Ready").get("status") == "True")
        found[name] = str(pod["status"]["podIP"])
    for address in found.values():
        await spoken(address, "/")
    return found


async def spoken(address: str, path: str) -> str:
    """What a pod answers to this machine, which policies never keep from a pod."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection(address, 80)
                writer.write(f"GET {path} HTTP/1.0\r\nHost: h\r\n\r\n".encode())
                answer = await reader.read()
                writer.close()
                if answer:
                    return answer.rpartition(b"\r\n")[2].decode()
        except OSError:
            await asyncio.sleep(0.05)
        assert time.monotonic() < deadline, f"{address} does not answer this machine"


async def becomes(wanted: str, source: str, target: str, port: int = 80, how: str = "tcp") -> None:
    deadline = time.monotonic() + LEARNED
    while (found := await spoken(source, f"/{how},{target},{port}")) != wanted:
        assert time.monotonic() < deadline, f"{how} from {source} to {target}:{port} is {found}"
        await asyncio.sleep(0.05)


async def policy(
    live: Cluster, name: str, selected: dict[str, str], namespace: str = "default", **spec: Any
) -> None:
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": selected}, **spec},
    }
    await live.client.create(NETWORK_POLICY.untyped, body)


async def drop(live: Cluster, *names: str) -> None:
    for name in names:
        await live.client.delete(NETWORK_POLICY.untyped, name, "default")


def of(app: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": app}}}


async def test_what_comes_in(live: Cluster, pods: dict[str, str]) -> None:
    web, a, b, far = (pods[name] for name in ("web", "a", "b", "far"))
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    service = await live.client.create(
        core.SERVICE.untyped, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    )
    door = str(service["spec"]["clusterIP"])
    await becomes("open", a, web)
    await becomes("open", a, door)
    await becomes("open", a, web, 90, "udp")

    await policy(live, "deny", {"app": "web"}, policyTypes=["Ingress"])
    await becomes("shut", a, web)
    await becomes("shut", a, door)
    await becomes("shut", a, web, 90, "udp")
    await becomes("open", web, a)  # what it asks itself is answered
    await becomes("open", web, a, 90, "udp")
    await becomes("open", a, b)

    await policy(
        live,
        "allow",
        {"app": "web"},
        ingress=[
            {
                "from": [of("a")],
                "ports": [{"port": "http"}, {"port": 82, "endPort": 90, "protocol": "TCP"}],
            },
            {
                "from": [{"namespaceSelector": {"matchLabels": {"team": "x"}}}],
                "ports": [{"port": 81}],
            },
        ],
    )
    await becomes("open", a, web)
    await becomes("open", a, door)
    await becomes("open", a, web, 82)
    for source, port, how in ((a, 81, "tcp"), (b, 80, "tcp"), (far, 80, "tcp"), (a, 90, "udp")):
        await becomes("shut", source, web, port, how)
    await becomes("shut", b, door)
    await becomes("open", far, web, 81)

    # Labels of pods and of namespaces are followed.
    await live.client.patch(POD, "b", {"metadata": {"labels": {"app": "a"}}}, "default")
    await live.client.patch(
        core.NAMESPACE.untyped, "other", {"metadata": {"labels": {"team": "y"}}}
    )
    await becomes("open", b, web)
    await becomes("shut", far, web, 81)
    await live.client.patch(POD, "b", {"metadata": {"labels": {"app": "b"}}}, "default")
    await becomes("shut", b, web)
    await drop(live, "deny", "allow")
    await becomes("open", b, web)


async def test_what_goes_out(live: Cluster, pods: dict[str, str]) -> None:
    web, a, b = pods["web"], pods["a"], pods["b"]
    with connect(live.kubelet.root) as connection:
        names = ask(connection, {"do": "hello"})["gateway"]
    own = [
        one.address
        for name, found in psutil.net_if_addrs().items()
        for one in found
        if one.family == socket.AF_INET
        and not one.address.startswith("127.")
        and not name.startswith("hekla")
    ]
    await becomes("open", a, names, 53, "udp")

    await policy(live, "shut-in", {"app": "a"}, policyTypes=["Egress"])
    await becomes("shut", a, web)
    await becomes("shut", a, names, 53, "udp")
    await becomes("open", b, a)
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        **of("kube-dns"),
    }
    dns["podSelector"] = {"matchLabels": {"k8s-app": "kube-dns"}}
    await policy(
        live,
        "out",
        {"app": "a"},
        policyTypes=["Egress"],
        egress=[
            {"to": [dns], "ports": [{"port": 53, "protocol": "UDP"}]},
            {"to": [of("web")], "ports": [{"port": "http"}]},
        ],
    )
    await becomes("open", a, names, 53, "udp")
    await becomes("open", a, web)
    await becomes("shut", a, web, 81)
    await becomes("shut", a, b)
    if own:
        with socket.create_server((own[0], 0)) as server:
            there = server.getsockname()[1]
            await becomes("shut", a, own[0], there)
            block = {"cidr": "0.0.0.0/0", "except": ["10.244.0.0/14", "10.248.0.0/13"]}
            await policy(
                live,
                "world",
                {"app": "a"},
                policyTypes=["Egress"],
                egress=[{"to": [{"ipBlock": block}]}],
            )
            await becomes("open", a, own[0], there)
            await becomes("shut", a, b)
            await drop(live, "world")
    await drop(live, "shut-in", "out")
    await becomes("open", a, b)


@pytest.mark.slow(seconds=60)
async def test_a_new_pod_is_isolated_before_it_starts(live: Cluster, pods: dict[str, str]) -> None:
    live.namespace = "default"
    await policy(live, "early", {"app": "quick"}, policyTypes=["Egress"])
    call = f"import socket; socket.create_connection(('{pods['web']}', 80), 1)"
    for number in range(3):
        await live.create(
            f"quick-{number}", "python3", "-c", call, metadata={"labels": {"app": "quick"}}
        )
        await live.phase(f"quick-{number}", "Failed")
    await drop(live, "early")


@pytest.mark.slow(seconds=120)
async def test_rules_outlive_the_agent_and_come_again_with_a_new_network(
    live: Cluster, pods: dict[str, str]
) -> None:
    web, a, b = pods["web"], pods["a"], pods["b"]
    await policy(
        live, "kept", {"app": "web"}, policyTypes=["Ingress"], ingress=[{"from": [of("a")]}]
    )
    await becomes("shut", b, web)
    live.kubelet.kill()
    assert await spoken(b, f"/tcp,{web},80") == "shut"
    live.kubelet.start()
    for _ in range(5):
        assert await spoken(b, f"/tcp,{web},80") == "shut"
    with connect(live.kubelet.root) as connection:
        pid = ask(connection, {"do": "hello"})["pid"]
    await spoken(b, f"/flood,{web},90")
    os.kill(pid, signal.SIGKILL)
    assert await spoken(b, f"/flooded,{web},90") == "shut"
    await becomes_again("open", a, web)
    assert await spoken(b, f"/tcp,{web},80") == "shut"
    live.kubelet.kill()
    await drop(live, "kept")
    live.kubelet.start()
    await becomes_again("open", b, web)


async def becomes_again(wanted: str, source: str, target: str) -> None:
    """After a start of the kubelet, or of the network."""
    deadline = time.monotonic() + PATIENCE
    while await spoken(source, f"/tcp,{target},80") != wanted:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


@pytest.mark.slow(seconds=60)
async def test_a_policy_that_is_not_enforced_gets_an_event(tmp_path: Path) -> None:
    async with cluster(tmp_path, "--isolation=shared-network") as shared:
        await policy(shared, "vain", {"app": "web"})
        event = await shared.event("vain", "NotEnforced")
        assert (
            event.message
            == "Nothing enforces this policy on the pods of this machine: pods have no network of their own here"
        )
        node = await shared.client.get(core.NODE, "n1")
        assert "network policies" in node.metadata.annotations["hekla.io/goes-without"]
