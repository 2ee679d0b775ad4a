"""The health of nodes, what it means for their pods, and pods of nodes that are gone, on a real API
server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.coordination import LEASE
from hekla.kube.client import Client
from hekla.kube.leader import micro_time
from tests.controller_manager.live import cluster, eventually, is_gone, pod, report

NODES, LEASES = core.NODE.untyped, LEASE.untyped
PREFIX = "node.kubernetes.io/"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("nodes"), "--node-monitor-grace-period=1500ms") as started:
        yield started


class Machine:
    """A node that somebody renews the lease of."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.task: asyncio.Task[None] | None = None

    async def start(self, **conditions: str) -> None:
        await self.client.create(NODES, {"metadata": {"name": self.name}})
        await self.say(Ready="True", **conditions)
        await self.client.create(
            LEASES,
            {"metadata": {"name": self.name}, "spec": {"holderIdentity": self.name}},
            "kube-node-lease",
        )
        self.task = asyncio.create_task(self.renew())

    async def say(self, **conditions: str) -> None:
        entries = [
            {
                "type": kind,
                "status": status,
                "reason": "Told",
                "lastHeartbeatTime": micro_time()[:19] + "Z",
            }
            for kind, status in conditions.items()
        ]
        await self.client.patch(
            NODES,
            self.name,
            {"status": {"conditions": entries}},
            type="strategic",
            subresource="status",
        )

    async def renew(self) -> None:
        while True:
            await self.client.patch(
                LEASES, self.name, {"spec": {"renewTime": micro_time()}}, "kube-node-lease"
            )
            await asyncio.sleep(0.2)

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None

    async def get(self) -> dict[str, Any]:
        return await self.client.get(NODES, self.name)

    async def taints(self) -> set[tuple[str, str]]:
        taints = (await self.get())["spec"].get("taints", ())
        return {(taint["key"].removeprefix(PREFIX), taint["effect"]) for taint in taints}

    async def has(self, *taints: tuple[str, str]) -> None:
        async def look() -> bool:
            return await self.taints() == set(taints)

        await eventually(look)


@pytest.fixture
async def machines(client) -> AsyncIterator[list[Machine]]:
    """Two healthy nodes, since a cluster whose every node is lost evicts nobody."""
    made = [Machine(client, name) for name in ("first", "second")]
    for machine in made:
        await machine.start()
    yield made
    for machine in made:
        await machine.stop()
        await client.delete(NODES, machine.name)
        await client.delete(LEASES, machine.name, "kube-node-lease")


async def test_taints_follow_the_conditions(client, machines):
    first, _ = machines
    await client.patch(
        NODES, "first", {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}}
    )

    await first.say(MemoryPressure="True", NetworkUnavailable="True")
    await first.has(
        ("mine", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    )

    await first.say(MemoryPressure="False", NetworkUnavailable="False")
    await client.patch(NODES, "first", {"spec": {"unschedulable": True}})
    await first.has(("mine", "NoSchedule"), ("unschedulable", "NoSchedule"))

    await client.patch(NODES, "first", {"spec": {"unschedulable": None}})
    await first.has(("mine", "NoSchedule"))
    assert (await first.get())["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0"


async def test_a_node_that_falls_silent_is_unknown_and_comes_back(client, namespace, machines):
    first, _ = machines
    await first.say(MemoryPressure="False")
    await client.create(
        core.POD.untyped,
        pod(
            "short",
            nodeName="first",
            tolerations=[
                {
                    "key": f"{PREFIX}unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 1,
                },
            ],
        ),
        namespace,
    )
    await client.create(core.POD.untyped, pod("long", nodeName="first"), namespace)
    await report(client, namespace, "long")

    await first.stop()

    await first.has(("unreachable", "NoSchedule"), ("unreachable", "NoExecute"))
    conditions = {c["type"]: c for c in (await first.get())["status"]["conditions"]}
    assert conditions["Ready"]["status"] == conditions["MemoryPressure"]["status"] == "Unknown"
    assert (conditions["Ready"]["reason"], conditions["Ready"]["message"]) == (
        "NodeStatusUnknown",
        "Kubelet stopped posting node status.",
    )
    assert conditions["DiskPressure"]["reason"] == "NodeStatusNeverUpdated"

    async def going() -> dict[str, Any] | None:
        found = await client.get(core.POD.untyped, "short", namespace)
        return found if found["metadata"].get("deletionTimestamp") else None

    gone = await eventually(going)
    target = next(c for c in gone["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (target["reason"], target["status"]) == ("DeletionByTaintManager", "True")
    long = await client.get(core.POD.untyped, "long", namespace)
    assert "deletionTimestamp" not in long["metadata"]

    async def told() -> bool:
        found = await client.get(core.POD.untyped, "long", namespace)
        return any(
            c["type"] == "Ready" and c["status"] == "False" for c in found["status"]["conditions"]
        )

    await eventually(told)

    await first.say(Ready="True")
    first.task = asyncio.create_task(first.renew())
    await first.has()


async def test_when_all_nodes_are_lost_nobody_is_evicted(client, machines):
    for machine in machines:
        await machine.stop()
    for machine in machines:
        await machine.has(("unreachable", "NoSchedule"))

    await machines[0].say(Ready="True")
    machines[0].task = asyncio.create_task(machines[0].renew())

    await machines[0].has()
    await machines[1].has(("unreachable", "NoSchedule"), ("unreachable", "NoExecute"))


async def test_a_taint_of_an_administrator_evicts_at_once(client, namespace, machines):
    await client.create(
        core.POD.untyped,
        pod("stays", nodeName="second", tolerations=[{"key": "flood", "operator": "Exists"}]),
        namespace,
    )
    await client.create(core.POD.untyped, pod("goes", nodeName="second"), namespace)

    await client.patch(
        NODES, "second", {"spec": {"taints": [{"key": "flood", "effect": "NoExecute"}]}}
    )

    async def going() -> bool:
        return (
            "deletionTimestamp"
            in (await client.get(core.POD.untyped, "goes", namespace))["metadata"]
        )

    await eventually(going)
    assert (
        "deletionTimestamp"
        not in (await client.get(core.POD.untyped, "stays", namespace))["metadata"]
    )
    await client.delete(core.POD, "goes", namespace, grace=0)
    await client.delete(core.POD, "stays", namespace, grace=0)


async def test_a_pod_that_never_had_a_node_goes_at_once(client, namespace):
    await client.create(core.POD.untyped, pod("waits"), namespace)

    await client.delete(core.POD, "waits", namespace, grace=30)

    await eventually(lambda: is_gone(client, core.POD, "waits", namespace))
