"""What the scheduler hears of the cluster, from a real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hekla.api import crds, scheduling, topology
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.engine.model.state import State
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.scheduler import informers as feeding
from hekla.scheduler.informers import Informers, sources
from tests.apiserver_process import ApiServerProcess


async def test_a_kind_that_only_some_plugins_read_may_be_missing_and_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeding, "PATIENCE", 0.3)
    with ApiServerProcess.started(tmp_path) as server:
        async with Client(config.load(str(server.internal_kubeconfig))) as client:
            for kind in (scheduling.POD_GROUP, scheduling.QUEUE):
                await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, crds.definition(kind))
            state = State()
            feed = Informers(client, state, sources(state))
            await asyncio.wait_for(feed.start(), 60)
            assert "hypernodes" in caplog.text
            assert "goes on without" in caplog.text

            await client.create(
                CUSTOM_RESOURCE_DEFINITION.untyped, crds.definition(topology.HYPER_NODE)
            )
            spec = {
                "tier": 1,
                "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}],
            }
            await client.create(
                topology.HYPER_NODE.untyped, {"metadata": {"name": "rack"}, "spec": spec}
            )
            async with asyncio.timeout(60):
                while "rack" not in state.others.get("HyperNode", {}):
                    await asyncio.sleep(0.05)
            for name in ("something-else", "volcano-vgpu-device-config"):
                config_map = {
                    "metadata": {"name": name},
                    "data": {"device-config.yaml": "nvidia: {}"},
                }
                await client.create(core.CONFIG_MAP.untyped, config_map, "kube-system")
            async with asyncio.timeout(60):
                while not state.others.get("ConfigMap"):
                    await asyncio.sleep(0.05)
            found = state.others["ConfigMap"]
            # Of all ConfigMaps the one that says how cards are cut.
            assert list(found) == ["kube-system/volcano-vgpu-device-config"]
            assert found["kube-system/volcano-vgpu-device-config"]["data"] == {
                "device-config.yaml": "nvidia: {}"
            }
            for cache in feed.caches:
                await cache.stop()
