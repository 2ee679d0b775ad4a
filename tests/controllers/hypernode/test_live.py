"""Hypernodes against a real API server."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from hekla.api import topology
from hekla.api.kubernetes import core
from hekla.kube.cache import Cache
from hekla.kube.errors import AlreadyExists
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, running

__all__ = ["shared_apiserver"]

CONFIG = """
networkTopologyDiscovery:
- source: label
  enabled: true
  config:
    networkTopologyTypes:
      rack:
      - nodeLabel: example.com/rack
      - nodeLabel: kubernetes.io/hostname
"""


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        yield made


@pytest.mark.scenario("controllers", 146)
@pytest.mark.scenario("plugins-placement", 81)
async def test_racks_are_found_by_their_labels(cluster: Cluster) -> None:
    client = cluster.client
    with contextlib.suppress(AlreadyExists):  # with the accounts of a release it is there
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": "volcano-system"}})
    config = {
        "metadata": {"name": "volcano-controller-configmap"},
        "data": {"volcano-controller.conf": CONFIG},
    }
    await client.create(core.CONFIG_MAP.untyped, config, "volcano-system")
    for name in ("n0", "n1"):
        await client.create(
            core.NODE.untyped, {"metadata": {"name": name, "labels": {"example.com/rack": "a"}}}
        )
    hypernodes = Cache(client, topology.HYPER_NODE)
    await hypernodes.start()

    def counts() -> list[int]:
        return sorted(node.status.node_count for node in hypernodes)

    await cluster.until(lambda: counts() == [2], lambda: str(hypernodes.all()))
    assert hypernodes.all()[0].spec.tier_name == "example.com/rack"
    await client.patch(core.NODE.untyped, "n1", {"metadata": {"labels": {"example.com/rack": "b"}}})
    await cluster.until(lambda: counts() == [1, 1], lambda: str(hypernodes.all()))
    await client.delete(topology.HYPER_NODE, hypernodes.all()[0].metadata.name)
    await cluster.until(lambda: counts() == [1, 1], lambda: str(hypernodes.all()))
    for name in ("n0", "n1"):
        await client.patch(
            core.NODE.untyped, name, {"metadata": {"labels": {"example.com/rack": None}}}
        )
    await cluster.until(lambda: len(hypernodes) == 0, lambda: str(hypernodes.all()))
    await hypernodes.stop()
