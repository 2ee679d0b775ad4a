"""The hypernode controllers by themselves need no more than the rights over topology that the chart
gives to their account."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hekla.api import topology
from hekla.api.kubernetes import core
from hekla.controllers.hypernode.controller import KEY
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import Forbidden
from tests.apiserver_process import ApiServerProcess, apiserver
from tests.controllers.cluster import install
from tests.controllers.hypernode.test_daemon import CONFIG
from tests.deploy.accounts import HYPERNODES, grant
from tests.deploy.chart import NAMESPACE
from tests.ports import free_port

__all__ = ["apiserver"]


@pytest.mark.scenario("plugins-placement", 81)
async def test_the_process_of_its_own_does_with_rights_over_topology(
    apiserver: ApiServerProcess, tmp_path: Path
) -> None:
    async with Client(load(str(apiserver.internal_kubeconfig))) as client:
        await install(client)
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": NAMESPACE}})
        config = {"metadata": {"name": "volcano-controller-configmap"}, "data": {KEY: CONFIG}}
        await client.create(core.CONFIG_MAP.untyped, config, NAMESPACE)
        own = await asyncio.to_thread(
            grant, apiserver.kubeconfig, "hypernode-controller", HYPERNODES
        )
        async with Client(load(str(own))) as narrow:
            with pytest.raises(Forbidden):
                await narrow.list(core.POD.untyped)
        for name in ("n0", "n1"):
            await client.create(
                core.NODE.untyped, {"metadata": {"name": name, "labels": {"example.com/rack": "a"}}}
            )
        log = (tmp_path / "log").open("wb")
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hekla",
                "hypernode-controllers",
                f"--kubeconfig={own}",
                f"--healthz-address=127.0.0.1:{free_port()}",
            ],
            stdout=log,
            stderr=log,
        )
        try:

            async def counted(nodes: int) -> None:
                found: list[Any] = []
                for _ in range(1200):
                    found = (await client.list(topology.HYPER_NODE)).items
                    if [one.status.node_count for one in found] == ([nodes] if nodes else []):
                        return
                    await asyncio.sleep(0.05)
                raise AssertionError(f"{found}\n{(tmp_path / 'log').read_text()[-3000:]}")

            await counted(2)
            await client.create(
                core.NODE.untyped, {"metadata": {"name": "n2", "labels": {"example.com/rack": "a"}}}
            )
            await counted(3)
            for name in ("n0", "n1", "n2"):
                await client.patch(
                    core.NODE.untyped, name, {"metadata": {"labels": {"example.com/rack": None}}}
                )
            await counted(0)
        finally:
            process.terminate()
            process.wait(10)
            log.close()
        assert "forbidden" not in (tmp_path / "log").read_text().lower()
