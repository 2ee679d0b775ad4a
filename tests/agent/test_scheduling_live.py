"""An agent and a scheduler as processes on one API server: offline work comes to a node that lends, and
goes where the node is needed; pods go where the processors of one NUMA node are free."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from hekla.agent.numatopology import TopologyReporter
from hekla.agent.own_node import EVICTING, EVICTING_TAINT
from hekla.api import crds, nodeinfo, scheduling
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import ApiError, NotFound
from tests.agent.process import AgentProcess
from tests.agent.test_numatopology import Host
from tests.agent.trees import Trees
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.deploy import accounts
from tests.kubelet.live_cluster import ensure

__all__ = ["shared_apiserver"]

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATIENCE = 30.0
PAGE = Path(__file__).parents[2] / "docs" / "oversubscription.md"
GIB = 1 << 30
LENT = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: nodeorder
  - name: numa-aware
"""


class Cluster:
    """A server with the batch kinds, and a scheduler."""

    def __init__(self, client: Client, server: ApiServerProcess, log: Path) -> None:
        self.client = client
        self.server = server
        self.logs = [log]

    async def node(self, name: str, cpu: int, memory: int, **labels: str) -> None:
        size = {"cpu": str(cpu), "memory": str(memory), "pods": "110"}
        ready = [{"type": "Ready", "status": "True", "reason": "Test"}]
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": size, "capacity": size, "conditions": ready},
        }
        await self.client.create(core.NODE.untyped, body)
        # Nobody is here to take off the taint that a new node has.
        await self.client.patch(core.NODE, name, {"spec": {"taints": None}})

    async def pod(self, name: str, resources: Json, node: str = "", **annotations: str) -> None:
        """A pod that asks for these resources and is limited to them; placed already, or not."""
        body = {
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {
                "schedulerName": "volcano",
                "nodeName": node or None,
                "automountServiceAccountToken": False,
                "containers": [
                    {"name": "c", "image": "i", "resources": {"limits": resources, "requests": resources}}
                ],
            },
        }  # fmt: skip
        await self.client.create(core.POD.untyped, body)

    async def offline(self, name: str) -> None:
        """The pod of the page, which asks for two lent cores."""
        (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
        body = yaml.safe_load(text)
        body["metadata"] |= {"name": name, "namespace": "default"}
        body["spec"]["automountServiceAccountToken"] = False
        await self.client.create(core.POD.untyped, body)

    async def get(self, name: str) -> Json:
        try:
            return await self.client.get(core.POD.untyped, name, "default")
        except NotFound:
            return {}

    def said(self) -> str:
        """The ends of what the processes have logged."""
        return "\n".join(log.read_text()[-6000:] for log in self.logs)

    async def until(self, what: str, good: Callable[[], Awaitable[Any]]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := await good()):
            assert time.monotonic() < deadline, f"{what}\n{self.said()}"
            await asyncio.sleep(0.02)
        return found

    async def bound(self, name: str) -> str:
        async def node() -> Any:
            return (await self.get(name)).get("spec", {}).get("nodeName")

        return str(await self.until(f"{name} is bound", node))

    async def waits(self, name: str) -> str:
        """Why the pod is not placed."""

        async def why() -> Any:
            conditions = (await self.get(name)).get("status", {}).get("conditions") or ()
            return next((one["message"] for one in conditions if one["status"] == "False"), "")

        return str(await self.until(f"{name} waits", why))

    async def gone(self, name: str, why: str) -> None:
        async def evicted() -> bool:
            return not await self.get(name)

        async def told() -> bool:
            events = await self.client.list(
                core.EVENT, "default", fields=f"involvedObject.name={name}"
            )
            return ("Evicted", why) in {(one.reason, one.message) for one in events.items}

        await self.until(f"{name} is evicted", evicted)
        await self.until(f"an event says why {name} went", told)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    shared_apiserver: ApiServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    directory = tmp_path_factory.mktemp("scheduler")
    (directory / "policy.yaml").write_text(POLICY)
    log = directory / "scheduler.log"
    async with Client(load(str(shared_apiserver.internal_kubeconfig))) as client:
        here = Cluster(client, shared_apiserver, log)
        await client.create(core.NAMESPACE, {"metadata": {"name": "volcano-system"}})
        account = {"metadata": {"name": "default", "namespace": "default"}}
        await ensure(client.create(core.SERVICE_ACCOUNT.untyped, account))
        for definition in crds.all():
            await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
        for kind in (scheduling.QUEUE, scheduling.POD_GROUP, nodeinfo.NUMATOPOLOGY):

            async def served(kind: Any = kind) -> bool:
                try:
                    await client.list(kind.untyped, limit=1)
                except ApiError:
                    return False
                return True

            await here.until(f"{kind.kind} is served", served)
        command = [
            *(sys.executable, "-m", "hekla", "scheduler", "--leader-elect=false"),
            f"--kubeconfig={shared_apiserver.internal_kubeconfig}",
            f"--scheduler-conf={directory / 'policy.yaml'}",
            "--schedule-period=100ms",
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield here
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.mark.scenario("agent", "1 3 4")
async def test_offline_work_comes_and_goes(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.client
    await cluster.node("other", 8, 8 * GIB)
    await cluster.node("lender", 8, GIB, **{"volcano.sh/oversubscription": "true"})
    trees = Trees(tmp_path / "fs" / "cgroup")
    root = trees.cgroups.root / "kubepods"
    for part in ("", "burstable", "besteffort"):
        (root / part / "cpu.stat").write_text("usage_usec 1000\n")

    def uses(part: float) -> None:
        (root / "memory.stat").write_text(f"anon {int(part * GIB)}\nfile 0\nkernel 0\n")

    async def lent() -> list[object]:
        status = (await client.get(core.NODE, "lender")).status
        parts = (status.capacity, status.allocatable)
        return [part.get(name) for part in parts for name in LENT]

    async def tainted() -> bool:
        node = await client.get(core.NODE, "lender")
        return EVICTING_TAINT.key in {taint.key for taint in node.spec.taints}

    await cluster.offline("first")
    assert "batch-cpu" in await cluster.waits("first")

    uses(0.25)
    account = await asyncio.to_thread(
        accounts.grant, cluster.server.kubeconfig, "agent", accounts.AGENT
    )
    agent = AgentProcess(
        tmp_path, account, "--sampling-interval=50ms", "--numatopology-check-period=50ms",
        f"--device-path={Host(tmp_path).files.devices}", node="lender",
    ).start()  # fmt: skip
    cluster.logs.append(agent.log)
    try:
        assert await cluster.bound("first") == "lender"  # 1: lent is what is idle
        assert await lent() == ["4800", "483183820"] * 2
        topology = await client.get(nodeinfo.NUMATOPOLOGY, "lender")
        assert topology.spec.numares["cpu"].allocatable == "0-7"
        node = await client.get(core.NODE, "lender")
        (owner,) = topology.metadata.owner_references  # it goes with its node
        assert (owner.kind, owner.name, owner.uid) == ("Node", "lender", node.metadata.uid)

        uses(0.75)  # 4: the node is needed
        await cluster.gone("first", "Evict offline pod due to memory resource pressure")
        assert await tainted()
        await cluster.offline("second")
        assert "1 node(s) had untolerated taint" in await cluster.waits("second")
        assert not (await cluster.get("second"))["spec"].get("nodeName")
        uses(0.2)
        assert await cluster.bound("second") == "lender"
        assert not await tainted()

        agent.kill()  # 3: turned off while nobody looked
        await client.patch(
            core.NODE, "lender", {"metadata": {"labels": {"volcano.sh/oversubscription": "no"}}}
        )
        agent.start()
        await cluster.gone("second", "Evict offline pod due to node overSubscription is turned off")
        assert await lent() == [None] * 4
        node = await client.get(core.NODE, "lender")
        assert node.metadata.labels["volcano.sh/oversubscription"] == "false"
        assert "forbidden" not in agent.log.read_text()
    finally:
        agent.close()


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_an_agent_that_is_killed_again_and_again_evicts_once_and_leaves_no_taint(
    cluster: Cluster, tmp_path: Path
) -> None:
    client = cluster.client
    await cluster.node("killed", 8, GIB, **{"volcano.sh/oversubscription": "true"})
    root = Trees(tmp_path / "fs" / "cgroup").cgroups.root / "kubepods"
    for part in ("", "burstable", "besteffort"):
        (root / part / "cpu.stat").write_text("usage_usec 1000\n")
    memory = root / "memory.stat"
    memory.write_text(f"anon {GIB}\nfile 0\nkernel 0\n")
    pods = {f"kill-{number}" for number in range(12)}
    for name in pods:
        await cluster.pod(name, {}, node="killed", **{"volcano.sh/qos-level": "BE"})
    chance = random.Random(388)
    agent = AgentProcess(
        tmp_path, cluster.server, "--sampling-interval=50ms", node="killed"
    ).start()
    cluster.logs.append(agent.log)
    try:
        for _ in range(5):
            left = len(pods & await names_of(client))
            await asyncio.to_thread(agent.get, "/healthz")

            async def fewer(left: int = left) -> bool:
                return len(pods & await names_of(client)) < left or not left

            await cluster.until("one more is evicted", fewer)
            await asyncio.sleep(chance.random() / 10)  # somewhere in the next two rounds
            agent.kill()
            agent.start()

        async def all_gone() -> bool:
            return not pods & await names_of(client)

        await cluster.until("all offline pods are evicted", all_gone)
        memory.write_text("anon 1000\nfile 0\nkernel 0\n")

        async def thawed() -> bool:
            node = await client.get(core.NODE, "killed")
            calm = any(
                one.type == EVICTING and one.status == "False" for one in node.status.conditions
            )
            return calm and EVICTING_TAINT.key not in {taint.key for taint in node.spec.taints}

        await cluster.until("the node takes pods again", thawed)
        events = (await client.list(core.EVENT, "default")).items
        evicted = [
            one for one in events if one.reason == "Evicted" and one.involved_object.name in pods
        ]
        assert len(evicted) <= len(pods) and {one.count for one in evicted} == {1}
    finally:
        agent.close()


async def names_of(client: Client) -> set[str]:
    return {
        pod["metadata"]["name"] for pod in (await client.list(core.POD.untyped, "default")).items
    }


async def test_a_pod_goes_where_one_numa_node_has_its_processors(
    cluster: Cluster, tmp_path: Path
) -> None:
    hosts, reporters = {}, {}
    for name, free in (("numa-a", "0-1,4-5"), ("numa-b", "4-7")):
        await cluster.node(name, 8, 8 * GIB, numa="yes")
        hosts[name] = Host(tmp_path / name)
        hosts[name].kubelet(
            f'{{"policyName": "static", "defaultCpuSet": "{free}", "entries": {{}}}}',
            cpuManagerPolicy="static",
            topologyManagerPolicy="single-numa-node",
        )
        reporters[name] = TopologyReporter(cluster.client, name, hosts[name].files)
    assert [await one.report() for one in reporters.values()] == [True, True]
    assert [await one.report() for one in reporters.values()] == [False, False]  # nothing is new

    policy = {"volcano.sh/numa-topology-policy": "single-numa-node"}
    four = {"cpu": "4", "memory": "1Gi"}
    await cluster.pod("numa-first", four, **policy)
    assert await cluster.bound("numa-first") == "numa-b"
    await cluster.pod("numa-second", four, **policy)
    assert "numa" in await cluster.waits("numa-second")

    # The kubelet of numa-a has ended a pod.
    hosts["numa-a"].files.cpu_manager_state.write_text(
        '{"policyName": "static", "defaultCpuSet": "0-7", "entries": {}}'
    )
    assert await reporters["numa-a"].report()
    assert await cluster.bound("numa-second") == "numa-a"

    hosts["numa-a"].files.cpu_manager_state.write_text("{")  # half written
    assert not await reporters["numa-a"].report()
    kept = await cluster.client.get(nodeinfo.NUMATOPOLOGY, "numa-a")
    assert kept.spec.numares["cpu"].allocatable == "0-7"
    assert int(kept.metadata.annotations["timestamp"]) > 1_000_000_000
