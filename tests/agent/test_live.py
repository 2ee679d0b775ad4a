"""An agent as a process on a real API server, over cgroups that are plain files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
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
from hekla.agent.reload import DEFAULT_DOCUMENT, KEY, NAME
from hekla.api import config
from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import AlreadyExists, NotFound
from tests.agent.process import PATIENCE, AgentProcess
from tests.agent.trees import Trees, batch, pod, pod_tree, status
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import running

__all__ = ["shared_apiserver"]

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMESPACE = "volcano-system"
ON = {"enable": True}


class Node:
    """One node of the API server, its cgroups and its agent."""

    def __init__(self, client: Client, server: ApiServerProcess, directory: Path) -> None:
        self.client = client
        self.trees = Trees(directory / "fs" / "cgroup")
        self.agent = AgentProcess(directory, server, "--kube-pod-namespace=volcano-system")

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

    async def stored(self) -> str:
        """The ConfigMap's document, once there is one."""
        found: list[str] = []

        async def look() -> bool:
            with contextlib.suppress(NotFound):
                found.append((await self.client.get(core.CONFIG_MAP, NAME, NAMESPACE)).data[KEY])
            return bool(found)

        deadline = time.monotonic() + PATIENCE
        while not await look():
            assert time.monotonic() < deadline, self.agent.log.read_text()
            await asyncio.sleep(0.02)
        return found[0]

    async def store(self, text: str) -> None:
        """A ConfigMap from before the agent."""
        body = {"metadata": {"name": NAME}, "data": {KEY: text}}
        await self.client.create(core.CONFIG_MAP.untyped, body, NAMESPACE)

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
        with contextlib.suppress(AlreadyExists):
            await client.create(core.NAMESPACE.untyped, {"metadata": {"name": NAMESPACE}})
        await client.create(core.NODE.untyped, {"metadata": {"name": "n1"}})
        here = Node(client, shared_apiserver, tmp_path)
        yield here
        here.agent.close()
        for namespace in ("default", NAMESPACE):
            for each in (await client.list(core.POD.untyped, namespace)).items:
                await client.delete(core.POD, each["metadata"]["name"], namespace, grace=0)
            await client.delete_collection(core.EVENT, namespace)
        with contextlib.suppress(NotFound):
            await client.delete(core.CONFIG_MAP, NAME, NAMESPACE)
        await client.delete(core.NODE, "n1")


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
            (cgroups.qos_root(), MEMORY_LOW): str(1 << 29),
            (cgroups.qos_root(), MEMORY_MIN): "107374182",
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
            (cgroups.qos_root(), MEMORY_LOW): "0",
            (cgroups.qos_root(), MEMORY_MIN): "0",
        }
    )
    assert node.agent.stop() == 0


@pytest.mark.scenario("agent", "5")
async def test_a_configuration_is_taken_over_or_refused(node: Node) -> None:
    await node.label(colocation="true")
    offline = await node.create("offline", level="BE")
    directory = node.trees.cgroups.pod(offline)
    node.agent.start()
    assert json.loads(await node.stored()) == msgspec.to_builtins(DEFAULT_DOCUMENT)
    await node.event("ConfigApplySuccess", "Successfully applied config")

    pool = {"selector": {"matchLabels": {"volcano.sh/colocation": "true"}}, "cpuQosConfig": ON}
    await node.document({"globalConfig": {}, "nodesConfig": [pool]})
    await node.says({(directory, CPU_IDLE): "1"})

    await node.document(
        {
            "globalConfig": {"evictingConfig": {"evictingCPUHighWatermark": -3}},
            "nodesConfig": [{**pool, "cpuQosConfig": {"enable": False}}],
        }
    )
    failed = await node.event("ConfigApplyFailed", "evictingCPUHighWatermark")
    assert failed.message == (
        "Failed to apply config([evictingCPUHighWatermark must be a positive number, "
        "cpu evicting low watermark is higher than high watermark]); "
        "evictingCPUHighWatermark is -3, evictingCPULowWatermark is 30, evictingCPUHighWatermark -3"
    )
    assert node.trees.says(directory, CPU_IDLE) == "1", "the old one is in force"

    await node.document({"globalConfig": {"cpuQoSConfigs": ON}, "nodesConfig": [pool]})
    ignored = await node.event("ConfigIgnored")
    assert ignored.message == (
        "Ignored of the config: not known: globalConfig.cpuQoSConfigs (did you mean cpuQosConfig?)"
    )
    await node.label(colocation=None)
    await node.says({(directory, CPU_IDLE): "0"})

    await node.client.delete(core.CONFIG_MAP, NAME, NAMESPACE)
    await node.until(
        lambda: f"ConfigMap {NAMESPACE}/{NAME} is gone" in node.agent.log.read_text(), lambda: ""
    )
    await node.label(colocation="true")
    await node.says({(directory, CPU_IDLE): "1"})  # what it said stays in force
    await node.client.create(
        core.CONFIG_MAP.untyped, {"metadata": {"name": NAME}, "data": {"config": "{}"}}, NAMESPACE
    )
    await node.event("ConfigApplyFailed", f"ConfigMap {NAMESPACE}/{NAME} has no key {KEY}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "failed to unmarshal old configMap data: not JSON: "),
        ("{}", "empty glaobal config"),
    ],
)
async def test_a_document_that_nobody_can_use_stops_the_start(
    node: Node, text: str, message: str
) -> None:
    await node.store(text)
    node.agent.start()
    assert node.agent.process is not None
    assert await asyncio.to_thread(node.agent.process.wait, PATIENCE) == 1
    assert message in node.agent.log.read_text()


async def test_an_older_document_is_completed(node: Node) -> None:
    await node.store('{"globalConfig": {"evictingConfig": {"evictingCPUHighWatermark": 70}}}')
    node.agent.start()
    await node.event("ConfigApplySuccess")
    assert json.loads(await node.stored()) == {
        "globalConfig": {
            "evictingConfig": {"evictingCPUHighWatermark": 70},
            "overSubscriptionConfig": {"enable": True, "overSubscriptionTypes": "cpu,memory"},
        }
    }


async def test_what_the_agent_says_is_on_its_own_pod(
    node: Node, shared_apiserver: ApiServerProcess, tmp_path: Path
) -> None:
    own = pod_tree("agent-x")
    own["metadata"]["namespace"] = NAMESPACE
    made = await node.client.create(core.POD.untyped, own, NAMESPACE)
    node.agent.command.append("--kube-pod-name=agent-x")
    node.agent.command.append("--supported-features=-CPUQoS,*")
    await node.label(colocation="true")
    await node.store('{"globalConfig": {"cpuQosConfig": {"enable": true}}}')
    node.agent.start()
    for reason in ("ConfigApplySuccess", "ConfigIgnored"):
        about = (await node.event(reason)).involved_object
        assert (about.kind, about.uid) == ("Pod", made["metadata"]["uid"])
    ignored = await node.event("ConfigIgnored")
    assert ignored.message.endswith(
        "unsupported feature: feature(CPUQoS) is not supported by volcano-agent"
    )


async def test_a_limit_that_follows_usage_ends_with_the_agent(node: Node) -> None:
    """A killed one leaves it, and the next one takes it back."""
    root = node.trees.cgroups.qos_root("BestEffort")
    await node.label(oversubscription="true")
    await node.store('{"globalConfig": {"cpuThrottlingConfig": {"enable": true}}}')
    node.agent.start()
    await node.event("ConfigApplySuccess")
    node.trees.put(root, CPU_QUOTA, "50000 100000")
    assert node.agent.stop() == 0
    assert node.trees.says(root, CPU_QUOTA) == "max"

    node.trees.put(root, CPU_QUOTA, "50000 100000")
    await node.label(oversubscription=None)
    node.agent.start()
    await node.says({(root, CPU_QUOTA): "max"})


async def test_what_the_machine_goes_without_is_on_the_node(node: Node) -> None:
    node.agent.start()
    await node.event("ConfigApplySuccess")
    found = await node.client.get(core.NODE, "n1")
    condition = next(one for one in found.status.conditions if one.type == "ColocationReady")
    assert (condition.status, condition.reason) == ("True", "WorksInPart")
    assert (
        "OverSubscription: no cpu.stat, no memory.stat: "
        "nothing is offered beyond what pods have not asked for" in condition.message
    )


async def test_a_pod_whose_cgroups_come_late_or_go_early(node: Node) -> None:
    await node.label(colocation="true")
    await node.store(
        '{"globalConfig": {"cpuBurstConfig": {"enable": true}, "cpuQosConfig": {"enable": true}}}'
    )
    late = await node.create(
        "late", level="BE", annotations={"volcano.sh/enable-quota-burst": "true"}
    )
    directory = node.trees.cgroups.pod(late)
    quota = node.trees.cgroups.path(directory, CPU_QUOTA)
    quota.unlink()
    node.agent.start()
    await node.says({(directory, CPU_IDLE): "1"})
    await node.until(
        lambda: f"CPUBurst: {quota} is not there" in node.agent.log.read_text(), lambda: ""
    )
    quota.write_text("70000 100000")
    await node.says({(directory, CPU_BURST): "0"})

    other = node.trees.cgroups.pod(await node.create("other", level="BE"))
    await node.says({(other, CPU_IDLE): "1"})
    shutil.rmtree(quota.parent)
    await node.label(colocation=None)
    await node.says({(other, CPU_IDLE): "0"})
    await node.label(colocation="true")
    await node.says({(other, CPU_IDLE): "1"})
    assert not quota.parent.exists()
    assert "Traceback" not in node.agent.log.read_text()


@pytest.mark.scenario("agent", "6")
async def test_ratios_come_from_a_configuration_and_go_with_it(
    node: Node, shared_apiserver: ApiServerProcess
) -> None:
    """Through the controllers, whose annotation is all that the agent sees."""
    await node.label(colocation="true")
    await node.store('{"globalConfig": {"memoryQosV2Config": {"enable": true}}}')
    resources = {"limits": {"memory": "1Gi"}, "requests": {"memory": "512Mi"}}
    each = await node.create("calm", qos_class="Burstable", containers=[resources])
    await node.client.patch(
        core.POD.untyped, "calm", {"metadata": {"labels": {"app": "calm"}}}, "default"
    )
    inside = node.trees.cgroups.container(each, "c0")
    files = (MEMORY_HIGH, MEMORY_LOW, MEMORY_MIN)
    node.agent.start()
    async with running(shared_apiserver):
        spec = {
            "selector": {"matchLabels": {"app": "calm"}},
            "memoryQos": {"highRatio": 80, "lowRatio": 50, "minRatio": 20},
        }
        body = {"metadata": {"name": "calm"}, "spec": spec}
        kind = config.COLOCATION_CONFIGURATION
        await node.client.create(kind.untyped, body, "default")
        for values in (("858993459", "268435456", "107374182"), ("max", "0", "0")):
            await node.says(
                {(inside, file): text for file, text in zip(files, values, strict=True)}
            )
            if values[0] != "max":
                await node.client.delete(kind, "calm", "default")


@pytest.mark.slow(seconds=60)
async def test_the_agent_outlives_its_api_server(
    node: Node, shared_apiserver: ApiServerProcess
) -> None:
    """Killed under it, and back: what is set stays, and what is new is taken over."""
    await node.label(colocation="true")
    await node.store('{"globalConfig": {"cpuQosConfig": {"enable": true}}}')
    offline = await node.create("offline", level="BE")
    directory = node.trees.cgroups.pod(offline)
    node.agent.start()
    await node.says({(directory, CPU_IDLE): "1"})
    shared_apiserver.kill()
    assert node.agent.get("/healthz") == "ok"
    assert node.trees.says(directory, CPU_IDLE) == "1"
    shared_apiserver.start()
    await node.stored()  # our client sees that its connections have gone
    await node.configure(cpuQosConfig={"enable": False})
    await node.says({(directory, CPU_IDLE): "0"})
