"""Network QoS as the agent switches it: limits by the node's annotation, and an agent as a process
whose pods have links in this machine's kernel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hekla.agent.cgroups import CLASS_ID, Version
from hekla.agent.configuration import ConfigurationError, NetworkQosConfig
from hekla.agent.handlers import network_qos
from hekla.agent.network.part import SKIPPED, limit_texts, os_of
from hekla.agent.network.state import StateFiles
from hekla.agent.network.traffic_control import DEVICE, TrafficControl
from hekla.agent.pods import Metadata
from hekla.agent.pods import Node as NodeObject
from hekla.api.kubernetes import core
from tests.agent.network.links import Links, links, ours
from tests.agent.process import AgentProcess
from tests.agent.test_live import Node, node, shared_apiserver
from tests.agent.trees import Trees, pod

__all__ = ["links", "node", "shared_apiserver"]

SECTION = NetworkQosConfig(
    enable=True,
    online_bandwidth_watermark_percent=80,
    offline_low_bandwidth_percent=10,
    offline_high_bandwidth_percent=40,
    qos_check_interval=10_000_000,
)
RATE = "volcano.sh/network-bandwidth-rate"


def node_with(**annotations: str) -> NodeObject:
    marks = {f"volcano.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return NodeObject(metadata=Metadata(name="n1", annotations=marks))


def test_limits_are_percentages_of_what_the_node_can_send() -> None:
    assert limit_texts(SECTION, node_with(network_bandwidth_rate="1999")) == {
        "online_bandwidth_watermark": "1599Mbps",
        "interval": "10000000",
        "offline_low_bandwidth": "199Mbps",
        "offline_high_bandwidth": "799Mbps",
    }


def test_a_small_percentage_of_little_is_not_nothing() -> None:
    texts = limit_texts(SECTION, node_with(network_bandwidth_rate="5"))
    assert (texts["offline_low_bandwidth"], texts["offline_high_bandwidth"]) == ("1Mbps", "2Mbps")


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        ({}, f"node n1 network bandwidth rate not exists, annotation {RATE}"),
        ({"network_bandwidth_rate": "10G"}, f"annotation {RATE} is '10G', expected a whole number"),
        ({"network_bandwidth_rate": "0"}, "expected a whole number of Mbps above 0"),
    ],
)
def test_a_node_that_does_not_say_it(marks: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        limit_texts(SECTION, node_with(**marks))


def test_the_operating_system_is_named(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    assert os_of(release) == "unknown:unknown"
    release.write_text('NAME="openEuler"\nVERSION="22.03 (LTS-SP2)"\n')
    assert os_of(release) == "openEuler:22.03 (LTS-SP2)"


def test_the_class_of_packets_where_the_kernel_has_it(tmp_path: Path) -> None:
    trees = Trees(tmp_path, Version.V1)
    offline = trees.add(pod("offline", level="BE"))
    assert list(network_qos.writes(offline, trees.context())) == []
    directories = [trees.cgroups.pod(offline), trees.cgroups.container(offline, "c0")]
    for directory in directories:
        path = trees.cgroups.path(directory, CLASS_ID)
        path.parent.mkdir(parents=True)
        path.write_text("0\n")
    trees.cgroups.apply(network_qos.writes(offline, trees.context()))
    assert {trees.says(directory, CLASS_ID) for directory in directories} == {"4294967295"}
    online = pod("offline", level="LC")
    trees.cgroups.apply(network_qos.writes(online, trees.context()))
    assert {trees.says(directory, CLASS_ID) for directory in directories} == {"0"}
    own = pod("offline", level="BE", annotations={"kubernetes.io/egress-bandwidth": "1M"})
    assert list(network_qos.writes(own, trees.context())) == []


class LinkedNode:
    """A node of the API server whose pods have links here."""

    def __init__(self, node: Node, links: Links) -> None:
        self.node = node
        self.links = links
        node.agent.environment["POD_NETWORK"] = links.place

    @property
    def agent(self) -> AgentProcess:
        return self.node.agent

    async def create(self, name: str, **more: Any) -> None:
        await self.node.create(name, **more)
        at = {"status": {"podIP": self.links.addresses[name]}}
        await self.node.client.patch(core.POD.untyped, name, at, "default", subresource="status")

    async def kernel_has(self, *what: str) -> None:
        def now() -> set[str]:
            return set(self.links.call(ours))

        await self.node.until(lambda: now() == set(what), now)


@pytest_asyncio.fixture(loop_scope="module")
async def linked(node: Node, links: Links) -> AsyncIterator[LinkedNode]:
    if why := links.call(TrafficControl().unavailable):
        pytest.skip(f"this kernel does not shape traffic: {why}")
    yield LinkedNode(node, links)
    links.call(TrafficControl().remove)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_the_agent_shapes_offline_pods_and_leaves_nothing(
    linked: LinkedNode, tmp_path: Path
) -> None:
    node = linked.node
    await node.label(colocation="true")
    await linked.create("online")
    await linked.create("offline", level="BE")
    linked.agent.start()
    await node.event("ConfigApplySuccess")
    on = {"networkQosConfig": {"enable": True, "qosCheckInterval": 50_000_000}}
    await node.configure(**on)
    await node.event("ConfigApplyFailed", f"annotation {RATE}")
    await node.client.patch(core.NODE.untyped, "n1", {"metadata": {"annotations": {RATE: "1000"}}})
    shaped = (DEVICE, f"htb of {DEVICE}", "ingress of offline")
    await linked.kernel_has(*shaped)

    files = StateFiles(tmp_path / "state")
    limits = files.limits()
    assert limits is not None and limits.offline_high_bandwidth == 50_000_000
    await node.until(lambda: files.status_file.exists(), lambda: "no status")
    metrics = linked.agent.get("/metrics")
    assert 'hekla_agent_feature_active{feature="NetworkQoS"} 1.0' in metrics
    assert "hekla_agent_configuration_applied 1.0" in metrics
    assert "hekla_agent_network_offline_limit_bytes 5e+07" in metrics
    assert "hekla_agent_network_pods_unlimited 0.0" in metrics

    limited = {"metadata": {"annotations": {"kubernetes.io/egress-bandwidth": "10M"}}}
    await node.client.patch(core.POD.untyped, "offline", limited, "default")
    assert (await node.event("NetworkQoSSkipped")).message == SKIPPED
    await linked.kernel_has(*shaped[:2])
    back = {"metadata": {"annotations": {"kubernetes.io/egress-bandwidth": None}}}
    await node.client.patch(core.POD.untyped, "offline", back, "default")
    await linked.kernel_has(*shaped)

    linked.agent.kill()
    assert set(linked.links.call(ours)) == set(shaped)
    await node.configure(networkQosConfig={"enable": False})
    linked.agent.start()
    await linked.kernel_has()
    limits = files.limits()
    assert limits is not None and limits.offline_low_bandwidth == 1024**5 // 8

    await node.configure(**on)
    await linked.kernel_has(*shaped)
    assert linked.agent.stop() == 0
    assert linked.links.call(ours) == []
