"""Network QoS on the local cluster: pods that send, on the kubelet's network, and an agent that finds
them there."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.agent.network.pod_network import call, unavailable
from hekla.agent.network.traffic_control import TrafficControl
from hekla.agent.reload import KEY, NAME
from hekla.api.kubernetes.core import CONFIG_MAP, NODE, POD
from hekla.kube.client import Client
from hekla.local.kubelet.runtime.isolation import detect
from tests.agent.network.links import links, ours
from tests.agent.process import AgentProcess
from tests.local.home import Home, ask, home, until

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
    """A local cluster with an agent of its node."""

    def __init__(self, own: Home, directory: Path) -> None:
        self.own = own
        self.place = ""
        self.node = str(ask(own, first_node))
        self.directory = directory

    def start_agent(self) -> AgentProcess:
        found = until("pods have a network", lambda: list(self.own.state.rglob("network.json")))
        self.place = str(found[0])
        return AgentProcess(
            self.directory, self.own.directory() / "kubeconfig", "--supported-features=NetworkQoS",
            "--kube-pod-namespace=default", node=self.node, environment={"POD_NETWORK": self.place},
        ).start()  # fmt: skip

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
    document = json.dumps({"globalConfig": {"networkQosConfig": {"enable": True}}})
    metadata = {"name": NAME, "namespace": "default"}
    await client.create(CONFIG_MAP.untyped, {"metadata": metadata, "data": {KEY: document}})
    marks = {
        "labels": {"volcano.sh/colocation": "true"},
        "annotations": {"volcano.sh/network-bandwidth-rate": str(RATE)},
    }
    await client.patch(NODE.untyped, await first_node(client), {"metadata": marks})


@pytest.fixture
def cluster(links: object, tmp_path: Path) -> Iterator[Cluster]:
    if not detect().network:
        pytest.skip("this machine gives pods no network of their own")
    if why := unavailable(TrafficControl()):
        pytest.skip(f"this kernel does not shape traffic: {why}")
    with home() as own:
        own.good("up", "--nodes=1")
        yield Cluster(own, tmp_path)


@pytest.mark.slow
def test_pods_of_a_cluster_share_the_way_out(cluster: Cluster) -> None:
    ask(cluster.own, configure)
    sink = cluster.run("sink", SINK)
    agent = cluster.start_agent()

    def figure(name: str) -> float:
        (value,) = re.findall(rf"^hekla_agent_network_{name} (\S+)$", agent.get("/metrics"), re.M)
        return float(value)

    def sends(limit: float) -> bool:
        return (
            figure("offline_limit_bytes") == limit
            and 0.5 * limit < figure("offline_bandwidth_bytes") < 1.2 * limit
        )

    try:
        cluster.run("offline", SEND, sink, level="BE")
        until("offline pods have the high limit", lambda: sends(HIGH))
        cluster.run("online", SEND, sink, level="LS")
        until("offline pods have the low limit", lambda: sends(LOW))
        assert figure("online_bandwidth_bytes") > 20e6
        cluster.end("online")
        until("offline pods have the high limit again", lambda: sends(HIGH))
        assert figure("pods_unlimited") == 0
        assert agent.stop() == 0
        assert call(cluster.place, ours) == []
    except AssertionError:
        print(agent.log.read_text()[-3000:])
        raise
    finally:
        agent.close()
