"""Network QoS on the local cluster: pods that send, on the kubelet's network, and an agent that finds
them there."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from hekla.agent.network.pod_network import call, unavailable
from hekla.agent.network.traffic_control import TrafficControl
from hekla.agent.reload import KEY, NAME
from hekla.api.kubernetes.core import CONFIG_MAP, NODE, POD
from hekla.kube.client import Client
from hekla.local.kubelet.runtime.isolation import detect
from tests.agent.network.links import links, ours
from tests.local.home import Home, ask, home, until
from tests.ports import adjacent_ports

__all__ = ["links"]

RATE = 200
"""Mbps that the node can send."""
LOW, HIGH = 2.5e6, 10e6
SINK = (
    "import socket,threading\n"
    "def drain(c):\n"
    "  while c.recv(1<<20): pass\n"
    "s=socket.create_server(('',7000))\n"
    "while True: threading.Thread(target=drain,args=(s.accept()[0],),daemon=True).start()\n"
)
SEND = (
    "import socket,sys,time\n"
    "s=socket.create_connection((sys.argv[1],7000))\n"
    "while True: s.sendall(bytes(100_000)); time.sleep(0.003)\n"
)
"""As fast as it may, and at most 33 MB/s."""


class Cluster:
    """A local cluster with the colocation agent."""

    def __init__(self, own: Home, port: int) -> None:
        self.own = own
        self.port = port
        self.node = str(ask(own, first_node))

    @property
    def place(self) -> str:
        """Of the pods' network."""
        (found,) = self.own.state.rglob("network.json")
        return str(found)

    def figure(self, name: str) -> float:
        """A metric of the agent."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        (value,) = re.findall(rf"^hekla_agent_network_{name} (\S+)$", text, re.M)
        return float(value)

    def run(self, name: str, script: str, *arguments: str, level: str = "") -> str:
        """A pod that runs; gives its address."""
        marks = {"volcano.sh/qos-level": level} if level else {}
        container = {
            "name": "c",
            "image": "i",
            "command": [sys.executable, "-c", script, *arguments],
        }
        body = {
            "metadata": {"name": name, "namespace": "default", "annotations": marks},
            "spec": {"nodeName": self.node, "containers": [container], "terminationGracePeriodSeconds": 0},
        }  # fmt: skip

        async def create(client: Client) -> None:
            await client.create(POD.untyped, body)

        async def address(client: Client) -> Any:
            pod = await client.get(POD.untyped, name, "default")
            return pod["status"].get("phase") == "Running" and pod["status"].get("podIP")

        ask(self.own, create)
        return str(until(f"{name} runs", lambda: ask(self.own, address)))

    def end(self, name: str) -> None:
        async def delete(client: Client) -> None:
            await client.delete(POD, name, "default", grace=0)

        ask(self.own, delete)


async def first_node(client: Client) -> str:
    return (await client.list(NODE)).items[0].metadata.name


async def configure(client: Client) -> None:
    document = {"globalConfig": {"networkQosConfig": {"enable": True}}}
    marks = {"annotations": {"volcano.sh/network-bandwidth-rate": str(RATE)}}
    await client.patch(NODE.untyped, await first_node(client), {"metadata": marks})
    data = {"data": {KEY: json.dumps(document)}}
    await client.patch(CONFIG_MAP.untyped, NAME, data, "kube-system")


async def turn_off(client: Client) -> None:
    data = {"data": {KEY: json.dumps({"globalConfig": {}})}}
    await client.patch(CONFIG_MAP.untyped, NAME, data, "kube-system")


@pytest.fixture
def cluster(links: object) -> Iterator[Cluster]:
    if not detect().network:
        pytest.skip("this machine gives pods no network of their own")
    if why := unavailable(TrafficControl()):
        pytest.skip(f"this kernel does not shape traffic: {why}")
    port = adjacent_ports(3)
    with home() as own:
        own.good("up", "--nodes=1", "--colocation", f"--metrics-port={port}")
        yield Cluster(own, port + 2)
        print(own.good("logs", "agent")[-3000:])  # which a failure shows


@pytest.mark.slow
def test_pods_of_a_cluster_share_the_way_out(cluster: Cluster) -> None:
    ask(cluster.own, configure)
    sink = cluster.run("sink", SINK)
    figure = cluster.figure

    def sends(limit: float) -> bool:
        return (
            figure("offline_limit_bytes") == limit
            and 0.5 * limit < figure("offline_bandwidth_bytes") < 1.2 * limit
        )

    cluster.run("offline", SEND, sink, level="BE")
    until("offline pods have the high limit", lambda: sends(HIGH))
    cluster.run("online", SEND, sink, level="LS")
    until("offline pods have the low limit", lambda: sends(LOW))
    assert figure("online_bandwidth_bytes") > 20e6
    cluster.end("online")
    until("offline pods have the high limit again", lambda: sends(HIGH))
    assert figure("pods_unlimited") == 0
    assert len(call(cluster.place, ours)) == 3
    ask(cluster.own, turn_off)
    until("nothing is left of it", lambda: not call(cluster.place, ours))
