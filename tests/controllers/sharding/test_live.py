"""Shards against a real API server."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hekla.api import crds, shard
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.controllers.sharding.config import KEY
from hekla.controllers.sharding.controller import ShardingController, differs
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.controller import run
from hekla.kube.errors import ApiError
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster

__all__ = ["shared_apiserver"]

TWO = """
schedulerConfigs:
- name: low
  policies: [{name: allocation-rate, arguments: {minCPUUtil: 0, maxCPUUtil: 0.6}}, {name: node-limit, arguments: {maxNodes: 100}}]
- name: high
  policies: [{name: allocation-rate, arguments: {minCPUUtil: 0.7, maxCPUUtil: 1}}]
shardSyncPeriod: 500ms
"""
ONE = "schedulerConfigs: [{name: low, policies: [{name: node-limit, arguments: {minNodes: 1, maxNodes: 1}}]}]\nshardSyncPeriod: 500ms"


class Shards:
    """The controller at work, and what it has written."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cache = Cache(client, shard.NODE_SHARD)
        self.controller = ShardingController(
            client, config_map="sharding", namespace="default", period=0.5
        )
        self.writes = 0

    @property
    def now(self) -> dict[str, list[str]]:
        return {each.metadata.name: sorted(each.spec.nodes_desired) for each in self.cache}

    async def are(self, **wanted: list[str]) -> None:
        await Cluster.until(
            self, lambda: self.now == wanted, lambda: f"{wanted}; they are {self.now}"
        )  # type: ignore[arg-type]

    async def configure(self, text: str) -> None:
        data = {"metadata": {"name": "sharding"}, "data": {KEY: text}}
        try:
            await self.client.create(core.CONFIG_MAP.untyped, data, "default")
        except ApiError:
            await self.client.patch(core.CONFIG_MAP.untyped, "sharding", data, "default")

    async def node(self, name: str, cpu: int = 4) -> None:
        await self.client.create(core.NODE.untyped, {"metadata": {"name": name}})
        capacity = {"cpu": str(cpu), "memory": "8Gi", "pods": "110"}
        status = {"status": {"capacity": capacity, "allocatable": capacity}}
        await self.client.patch(core.NODE.untyped, name, status, subresource="status")

    async def pod(self, name: str, node: str, cpu: str) -> None:
        container: dict[str, Any] = {
            "name": "main",
            "image": "busybox",
            "resources": {"requests": {"cpu": cpu}},
        }
        body = {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}
        await self.client.create(core.POD.untyped, body, "default")


@pytest.fixture
async def shards(shared_apiserver: ApiServerProcess) -> AsyncIterator[Shards]:
    import asyncio

    async with Client(load(str(shared_apiserver.internal_kubeconfig)), pool=16) as client:
        for definition in crds.all():
            with contextlib.suppress(ApiError):
                await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
        made = Shards(client)
        await made.cache.start()
        await made.cache.synced()
        await made.configure(TWO)
        work = asyncio.ensure_future(run([made.controller]))
        yield made
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        for kind in (core.NODE, shard.NODE_SHARD):
            for each in (await client.list(kind.untyped)).items:
                await client.delete(kind, each["metadata"]["name"])
        for pod in (await client.list(core.POD.untyped, "default")).items:
            await client.delete(core.POD, pod["metadata"]["name"], "default", grace=0)
        await client.delete(core.CONFIG_MAP, "sharding", "default")
        await made.cache.stop()


@pytest.mark.scenario("controllers", 152)
@pytest.mark.scenario("controllers", 155)
@pytest.mark.scenario("controllers", 166)
async def test_nodes_come_and_go(shards: Shards) -> None:
    await shards.are(low=[], high=[])
    await shards.node("n1")
    await shards.node("n2")
    await shards.are(low=["n1", "n2"], high=[])
    await shards.client.delete(shard.NODE_SHARD, "low")
    await shards.are(low=["n1", "n2"], high=[])
    await shards.client.delete(core.NODE, "n1")
    await shards.are(low=["n2"], high=[])


@pytest.mark.scenario("controllers", 153)
async def test_a_node_moves_with_its_load(shards: Shards) -> None:
    await shards.node("n1")
    await shards.are(low=["n1"], high=[])
    await shards.pod("busy", "n1", "3400m")
    await shards.are(low=[], high=["n1"])
    await shards.client.delete(core.POD, "busy", "default", grace=0)
    await shards.are(low=["n1"], high=[])
    await shards.pod("between", "n1", "2600m")
    await shards.are(low=[], high=[])


@pytest.mark.scenario("controllers", 154)
@pytest.mark.scenario("controllers", 156)
@pytest.mark.scenario("controllers", 164)
async def test_the_configuration_changes(shards: Shards) -> None:
    for name in ("n1", "n2", "n3"):
        await shards.node(name)
    await shards.are(low=["n1", "n2", "n3"], high=[])
    await shards.configure("schedulerConfigs: []")
    await shards.configure("a: [")
    await shards.configure(ONE)
    await shards.are(low=["n1"])
    await shards.configure(ONE.replace("name: low", "name: other"))
    await shards.are(other=["n1"])


@pytest.mark.scenario("controllers", 164)
async def test_a_bad_document_leaves_the_last_one_in_force(shards: Shards) -> None:
    before = shards.controller.config
    for text in (
        "schedulerConfigs: []",
        "a: [",
        None,
        "schedulerConfigs: [{name: a, policies: [{name: wrmup}]}]",
    ):
        shards.controller.configure(text)
    assert shards.controller.config is before
    shards.controller.configure(ONE + "\nenableNodeEventTrigger: false")
    assert shards.controller.config.period == 0.5 and not shards.controller.config.node_events


@pytest.mark.scenario("controllers", 157)
async def test_nothing_is_written_while_nothing_changes(shards: Shards) -> None:
    import asyncio

    await shards.node("n1")
    await shards.are(low=["n1"], high=[])
    versions = {each.metadata.name: each.metadata.resource_version for each in shards.cache}
    await asyncio.sleep(1.2)  # two periods
    assert {each.metadata.name: each.metadata.resource_version for each in shards.cache} == versions


def test_what_is_worth_a_write() -> None:
    ten = [f"n{at}" for at in range(10)]
    twenty = [f"n{at}" for at in range(20)]
    assert differs(ten, ten[:9]) and differs(ten, [*ten[:9], "x"])
    assert not differs(ten, ten[::-1]), "another order alone is not"
    assert not differs(twenty, [*twenty[:19], "x"]) and differs(twenty, [*twenty[:18], "x", "y"])
