"""An agent as a process on a real API server, over cgroups that are plain files."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hekla.agent.cgroups import (
    CPU_BURST,
    CPU_IDLE,
    CPU_QUOTA,
    CPU_SHARE,
    MEMORY_HIGH,
    MEMORY_LIMIT,
    MEMORY_LOW,
    MEMORY_MIN,
)
from hekla.agent.pods import Pod
from hekla.agent.reload import KEY, NAME
from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from tests.agent.process import PATIENCE, AgentProcess
from tests.agent.trees import Trees, batch, pod, pod_tree, status
from tests.apiserver_process import ApiServerProcess, shared_apiserver

__all__ = ["shared_apiserver"]

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMESPACE = "volcano-system"
ON = {"enable": True}


class Node:
    """One node of the API server, its cgroups and its agent."""

    def __init__(self, client: Client, server: ApiServerProcess, directory: Path) -> None:
        self.client = client
        self.trees = Trees(directory / "fs" / "cgroup")
        self.agent = AgentProcess(directory, server)

    async def create(self, name: str, **more: Any) -> Pod:
        """A ready pod, with its directories."""
        tree = pod_tree(name, **more)
        made = await self.client.create(core.POD.untyped, tree, "default")
        uid = made["metadata"]["uid"]
        now = {
            "status": status(
                name, more.get("qos_class", "BestEffort"), len(tree["spec"]["containers"])
            )
        }
        here = self.trees.add(pod(name, uid=uid, **more))
        await self.client.patch(core.POD.untyped, name, now, "default", subresource="status")
        return here

    async def configure(self, **sections: Json) -> None:
        await self.document({"globalConfig": sections})

    async def document(self, document: Json) -> None:
        await self.client.patch(
            core.CONFIG_MAP.untyped, NAME, {"data": {KEY: json.dumps(document)}}, NAMESPACE
        )

    async def label(self, **labels: str | None) -> None:
        marks = {f"volcano.sh/{name}": value for name, value in labels.items()}
        await self.client.patch(core.NODE.untyped, "n1", {"metadata": {"labels": marks}})

    async def until(self, good: Callable[[], object], what: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not good():
            assert time.monotonic() < deadline, (what(), self.agent.log.read_text()[-3000:])
            await asyncio.sleep(0.02)

    async def says(self, values: dict[tuple[str, Any], str]) -> None:
        """Until the files say so."""

        def now() -> dict[tuple[str, Any], str]:
            return {one: self.trees.says(*one) for one in values}

        await self.until(lambda: now() == values, now)

    async def event(self, reason: str, text: str = "") -> core.Event:
        """An event about the node, which is where an agent without a pod writes."""
        deadline = time.monotonic() + PATIENCE
        while True:
            events = (await self.client.list(core.EVENT)).items
            for event in events:
                if event.reason == reason and text in event.message:
                    return event
            assert time.monotonic() < deadline, (
                [(event.reason, event.message) for event in events],
                self.agent.log.read_text()[-3000:],
            )
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(loop_scope="module")
async def node(shared_apiserver: ApiServerProcess, tmp_path: Path) -> AsyncIterator[Node]:
    async with Client(load(str(shared_apiserver.internal_kubeconfig))) as client:
        for kind, obj in (
            (core.NAMESPACE, {"metadata": {"name": NAMESPACE}}),
            (core.NODE, {"metadata": {"name": "n1"}}),
        ):
            await client.create(kind.untyped, obj)
        here = Node(client, shared_apiserver, tmp_path)
        yield here
        here.agent.close()
        for each in (await client.list(core.POD.untyped, "default")).items:
            await client.delete(core.POD, each["metadata"]["name"], "default", grace=0)
        await client.delete(core.CONFIG_MAP, NAME, NAMESPACE)
        await client.delete(core.NODE, "n1")
        await client.delete_collection(core.EVENT, "default")


@pytest.mark.scenario("agent", "2 5 6 7 9")
async def test_online_and_offline(node: Node) -> None:
    await node.label(colocation="true")
    offline = await node.create("offline", level="BE", containers=[batch(500, 2000, 1 << 30)])
    memory = {"memory": str(1 << 30)}
    online = await node.create(
        "online",
        level="LS",
        qos_class="Burstable",
        annotations={
            "volcano.sh/enable-quota-burst": "true",
            "volcano.sh/colocation-config": '{"memoryQos":{"highRatio":80,"lowRatio":50,"minRatio":20}}',
        },
        containers=[{"limits": memory, "requests": {"memory": str(1 << 29), "cpu": "500m"}}],
    )
    cgroups = node.trees.cgroups
    (outside, inside), (served, server) = (
        (cgroups.pod(one), cgroups.container(one, "c0")) for one in (offline, online)
    )
    for directory in (served, server):
        node.trees.put(directory, CPU_QUOTA, "100000 100000")
    node.trees.put(served, CPU_SHARE, "20")
    node.agent.start()

    assert node.agent.get("/healthz") == "ok"
    resources = {
        (inside, CPU_SHARE): "50",
        (inside, CPU_QUOTA): "200000 100000",
        (inside, MEMORY_LIMIT): str(1 << 30),
        (outside, CPU_QUOTA): "200000 100000",
        (outside, MEMORY_LIMIT): str(1 << 30),
    }
    await node.says({**resources, (outside, CPU_SHARE): "50"})
    about = (await node.event("ConfigApplySuccess")).involved_object
    assert (about.kind, about.name) == ("Node", "n1")

    await node.configure(
        cpuQosConfig=ON, cpuBurstConfig=ON, memoryQosConfig=ON, memoryQosV2Config=ON
    )
    await node.says(
        {
            **resources,
            (outside, CPU_IDLE): "1",
            (served, CPU_IDLE): "0",
            (served, CPU_SHARE): "40",
            (served, CPU_BURST): "100000",
            (server, CPU_BURST): "100000",
            (server, MEMORY_HIGH): "858993459",
            (server, MEMORY_LOW): "268435456",
            (server, MEMORY_MIN): "107374182",
        }
    )
    assert 'hekla_agent_feature_active{feature="CPUQoS"} 1.0' in node.agent.get("/metrics")

    node.agent.kill()
    await node.label(colocation="false")
    node.agent.start()
    await node.says(
        {
            **resources,
            (outside, CPU_IDLE): "0",
            (outside, CPU_SHARE): "50",
            (served, CPU_SHARE): "20",
            (served, CPU_BURST): "0",
            (server, MEMORY_HIGH): "max",
            (server, MEMORY_LOW): "0",
            (server, MEMORY_MIN): "0",
        }
    )
    assert node.agent.stop() == 0
