"""A node whose control groups are files in a directory, with an agent in this process and a real API
server: what the agent writes is what a cluster would see."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from hekla.agent.agent import Agent, Settings
from hekla.agent.cgroups import Cgroups, Driver, Version
from hekla.agent.configuration import DEFAULTS, ColocationConfig, NodeLabelConfig
from hekla.agent.features import Feature
from hekla.agent.machine import Machine, machine
from hekla.agent.metrics import Metrics
from hekla.agent.node_probes import node_probes
from hekla.agent.pods import NODE, Node
from hekla.agent.usage import Sources, UsageCollector
from hekla.agent.watermarks import Kind
from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.errors import NotFound
from hekla.kube.events import Recorder

PATIENCE = 60.0
MIB = 1 << 20
CPU, MEMORY = 10_000, 1024 * MIB
"""What the node has: millicores and bytes."""
LENDING = {"volcano.sh/oversubscription": "true"}


class NodeStory:
    """What a test says about a node, and what it asks."""

    def __init__(
        self, client: Client, name: str, directory: Path, supports: frozenset[Feature]
    ) -> None:
        self.client = client
        self.name = name
        self.now = 0.0
        self.spent = dict.fromkeys(("", "burstable", "besteffort"), 0.0)
        self.machine = machine_of(directory)
        cgroups = Cgroups(Version.V2, Driver.CGROUPFS, self.machine.cgroup)
        self.root = self.machine.cgroup / "kubepods"
        for part in self.spent:
            (self.root / part).mkdir(parents=True, exist_ok=True)
        self.quota = self.root / "besteffort" / "cpu.max"
        self.quota.write_text("max 100000")
        self.recorder = Recorder(client, "volcano-agent")
        self.metrics = Metrics()
        self.agent = Agent(
            client, self.recorder, self.metrics, self.machine, cgroups, Settings(name, supports)
        )
        self.collector = UsageCollector(
            Sources.of(cgroups, self.machine), self.metrics.left_out, processors=10, clock=lambda: self.now
        )  # fmt: skip
        self.limits: dict[Kind, float] = {}
        self.probes = node_probes(self.agent, self.collector, self.limits)
        self.uses()
        self.collector.measure()

    def uses(self, cpu: int = 0, memory: int = 0, best_effort: int = 0) -> None:
        """For the next ten seconds: millicores of all pods, bytes, and millicores of the best-effort
        ones among them."""
        self.now += 10.0
        for part, used in (
            ("", cpu),
            ("burstable", cpu - best_effort),
            ("besteffort", best_effort),
        ):
            self.spent[part] += used * 10_000
            (self.root / part / "cpu.stat").write_text(f"usage_usec {self.spent[part]:.0f}\n")
        (self.root / "memory.stat").write_text(f"anon {memory}\nfile 0\nkernel 0\n")

    async def round(
        self, cpu: int = 0, memory: int = 0, times: int = 1, best_effort: int = 0
    ) -> None:
        """So many rounds of ten seconds with this usage; the agent knows what is on the server."""
        for _ in range(times):
            await self.agent_knows()
            await self.late_round(cpu, memory, best_effort)

    async def late_round(self, cpu: int = 0, memory: int = 0, best_effort: int = 0) -> None:
        """A round before the agent's informers have heard of the last one."""
        self.uses(cpu, memory, best_effort)
        await self.probes.round()

    async def configure(self, config: Mapping[str, Any] | None = None) -> None:
        """Put a configuration in force, as the configuration manager would for the node's labels."""
        label = (await self.node()).metadata.labels.get("volcano.sh/oversubscription") == "true"
        given = msgspec.convert(config or {}, ColocationConfig)
        changes = {
            field: getattr(given, field)
            for field in given.__struct_fields__
            if getattr(given, field) is not None
        }
        labels = NodeLabelConfig(node_colocation_enable=label, node_over_subscription_enable=label)
        await self.agent.refresh(
            msgspec.structs.replace(DEFAULTS, node_label_config=labels, **changes)
        )

    async def label(self, value: str) -> None:
        await self.patch({"metadata": {"labels": {"volcano.sh/oversubscription": value}}})
        await self.configure()

    async def patch(self, patch: Json) -> None:
        """Change the node; the agent knows of it then."""
        await self.client.patch(NODE, self.name, patch)
        await self.agent_knows()

    async def agent_knows(self) -> None:
        """Until the agent's informers have what the server has."""
        node = await self.node()
        listing = await self.client.list(core.POD.untyped, fields=f"spec.nodeName={self.name}")
        there = {pod["metadata"]["uid"] for pod in listing.items}
        await self.until(
            lambda: (
                self.agent.node is not None
                and self.agent.node.metadata.resource_version == node.metadata.resource_version
                and {pod.metadata.uid for pod in self.agent.pod_cache} == there
            )
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)

    async def pod(self, name: str, level: str = "BE", **more: Any) -> Json:
        """A running pod; `request` and `lent` are millicores, of the node's own and of what is lent."""
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        if request := more.get("request"):
            requests["cpu"] = f"{request}m"
        if lent := more.get("lent"):
            limits["kubernetes.io/batch-cpu"] = requests["kubernetes.io/batch-cpu"] = str(lent)
        marks = {
            **({"volcano.sh/qos-level": level} if level else {}),
            **more.get("annotations", {}),
        }
        body = {
            "metadata": {"name": name, "namespace": "default", "annotations": marks, "labels": more.get("labels", {})},
            "spec": {
                "nodeName": self.name,
                "automountServiceAccountToken": False,
                "priorityClassName": more.get("priority", ""),
                "containers": [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}}],
            },
        }  # fmt: skip
        made = await self.client.create(core.POD.untyped, body)
        ready = [{"type": "Ready", "status": "True"}]
        status = {"status": {"phase": "Running", "conditions": ready}}
        await self.client.patch(core.POD.untyped, name, status, "default", subresource="status")
        await self.agent_knows()
        return made

    async def names(self) -> set[str]:
        listing = await self.client.list(core.POD.untyped, fields=f"spec.nodeName={self.name}")
        return {pod["metadata"]["name"] for pod in listing.items}

    async def node(self) -> Node:
        return await self.client.get(NODE, self.name)

    async def taints(self) -> list[str]:
        taints = [taint.key for taint in (await self.node()).spec.taints]
        return [key for key in taints if not key.startswith("node.kubernetes.io/")]

    async def lent(self) -> tuple[Any, Any]:
        """What the node's status says; capacity and allocatable say the same."""
        status = (await self.node()).status
        found = [
            tuple(part.get(f"kubernetes.io/batch-{kind}") for kind in ("cpu", "memory"))
            for part in (status.capacity, status.allocatable)
        ]
        assert found[0] == found[1]
        return found[0][0], found[0][1]

    async def condition(self) -> tuple[str, str, str] | None:
        for one in (await self.node()).status.conditions:
            if one.type == "OfflineJobEvicting":
                return one.status, one.reason, one.message
        return None

    async def told(self, name: str, reason: str) -> list[tuple[str, str]]:
        """Type and message of the events about an object with this reason, once there are any."""
        deadline = time.monotonic() + PATIENCE
        about = f"involvedObject.name={name}"
        while True:
            events = (await self.client.list(core.EVENT, "default", fields=about)).items
            if found := [(one.type, one.message) for one in events if one.reason == reason]:
                return found
            assert time.monotonic() < deadline, [(one.reason, one.message) for one in events]
            await asyncio.sleep(0.005)


def machine_of(directory: Path) -> Machine:
    kubelet = directory / "kubelet"
    kubelet.mkdir(parents=True, exist_ok=True)
    stat, meminfo = directory / "stat", directory / "meminfo"
    stat.write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    meminfo.write_text(f"MemTotal: {MEMORY // 1024} kB\nMemAvailable: {MEMORY // 1024} kB\n")
    here = machine(
        {
            "SYS_FS_PATH": str(directory / "sys"),
            "KUBELET_ROOT_DIR": str(kubelet),
            "PROC_STAT_PATH": str(stat),
            "MEM_INFO_PATH_ENV": str(meminfo),
        }
    )
    return replace(here, proc=directory / "proc")


@asynccontextmanager
async def node_story(
    client: Client, name: str, directory: Path, *, labels: Mapping[str, str] = LENDING,
    supports: frozenset[Feature] = frozenset(Feature), **node: Any,
) -> AsyncIterator[NodeStory]:  # fmt: skip
    """A node with an agent that has the default configuration; the server keeps the node."""
    size = {"cpu": f"{CPU}m", "memory": str(MEMORY), "pods": "110"}
    try:
        await client.get(NODE, name)
    except NotFound:
        await client.create(
            core.NODE.untyped,
            {
                "metadata": {"name": name, "labels": dict(labels), **node.pop("metadata", {})},
                "status": {"capacity": size, "allocatable": size},
                **node,
            },
        )
    story = NodeStory(client, name, directory, supports)
    await story.agent.start()
    try:
        await story.agent_knows()
        await story.configure()
        yield story
    finally:
        await story.agent.close()
        await story.recorder.close()
