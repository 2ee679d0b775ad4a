"""The hypernode controllers as a process: its flags, and when it says that it is ready."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hekla.api import topology
from hekla.api.kubernetes import core
from hekla.controllers.hypernode.controller import KEY
from hekla.controllers.hypernode.daemon import FLAGS, options_problem, overlap
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.flags import parse
from tests.apiserver_process import ApiServerProcess, apiserver, shared_apiserver
from tests.controllers.cluster import PATIENCE, controllers, install
from tests.ports import free_port

__all__ = ["apiserver", "shared_apiserver"]


@pytest.mark.scenario("controllers", 170)
def test_flags_that_do_not_go_together() -> None:
    assert options_problem(parse(FLAGS, [])) is None
    for flag in ("--kube-api-qps=0", "--kube-api-burst=-1"):
        assert "has to be above 0" in (options_problem(parse(FLAGS, [flag])) or "")
    both = ["--enable-healthz", "--enable-metrics"]
    assert options_problem(parse(FLAGS, both)) is None
    assert "one place" in (
        options_problem(parse(FLAGS, [*both, "--listen-address=127.0.0.1:11251"])) or ""
    )
    assert (
        overlap(":1", "0.0.0.0:1")
        and not overlap("127.0.0.1:1", "127.0.0.2:1")
        and not overlap(":0", ":0")
    )


class Copy:
    """One copy of the process."""

    def __init__(self, server: ApiServerProcess, log: Path) -> None:
        self.port = free_port()
        flags = [
            "--enable-healthz",
            f"--healthz-address=127.0.0.1:{self.port}",
            "--leader-elect-lease-duration=60s",
            "--leader-elect-renew-deadline=50s",
            "--leader-elect-retry-period=1s",
        ]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "hekla",
                    "hypernode-controllers",
                    f"--kubeconfig={server.internal_kubeconfig}",
                    *flags,
                ],
                stdout=output,
                stderr=output,
            )

    def answers(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def until(self, path: str, status: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.answers(path) != status:
            assert time.monotonic() < deadline, (path, self.answers(path))
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


@contextmanager
def copies(server: ApiServerProcess, directory: Path) -> Iterator[list[Copy]]:
    made = [Copy(server, directory / "one.log")]
    try:
        made[0].until("/readyz", 200)
        made.append(Copy(server, directory / "two.log"))
        yield made
    finally:
        for copy in made:
            if copy.process.poll() is None:
                copy.stop()


@pytest.mark.scenario("controllers", 149)
@pytest.mark.scenario("plugins-placement", 81)
@pytest.mark.scenario("controllers", 170)
async def test_another_copy_takes_over(shared_apiserver: ApiServerProcess, tmp_path: Path) -> None:
    async with Client(load(str(shared_apiserver.internal_kubeconfig))) as client:
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": "volcano-system"}})

        async def count(name: str, wanted: int) -> None:
            for _ in range(1200):
                found = await client.get(topology.HYPER_NODE, name)
                if found.status.node_count == wanted:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(f"{name} has {found.status.node_count} nodes")

        def of(*nodes: str) -> dict[str, object]:
            return {
                "tier": 1,
                "members": [
                    {"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes
                ],
            }

        waiting = Copy(shared_apiserver, tmp_path / "early.log")
        await asyncio.to_thread(waiting.until, "/healthz", 200)
        assert waiting.answers("/readyz") == 503, (
            "the kinds are not there, so its caches cannot be full"
        )
        await install(client)
        await asyncio.to_thread(waiting.until, "/readyz", 200)
        waiting.stop()
        with copies(shared_apiserver, tmp_path) as (first, second):
            await asyncio.to_thread(second.until, "/readyz", 200)  # a follower that sees a leader
            await client.create(
                topology.HYPER_NODE.untyped, {"metadata": {"name": "h1"}, "spec": of("a", "b")}
            )
            await count("h1", 2)
            first.stop()
            await client.create(
                topology.HYPER_NODE.untyped, {"metadata": {"name": "h2"}, "spec": of("a")}
            )
            await count("h2", 1)
            await asyncio.to_thread(second.until, "/readyz", 200)


CONFIG = """
networkTopologyDiscovery:
- source: label
  enabled: true
  config: {networkTopologyTypes: {rack: [{nodeLabel: example.com/rack}, {nodeLabel: kubernetes.io/hostname}]}}
"""


@pytest.mark.scenario("controllers", 150)
@pytest.mark.scenario("plugins-placement", 81)
async def test_the_owner_of_hypernodes_changes(apiserver: ApiServerProcess, tmp_path: Path) -> None:
    """From all controllers to nobody to the process of its own, and back: names and uids stay, and
    each catches up."""
    async with Client(load(str(apiserver.internal_kubeconfig))) as client:
        await install(client)
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": "volcano-system"}})
        config = {"metadata": {"name": "volcano-controller-configmap"}, "data": {KEY: CONFIG}}
        await client.create(core.CONFIG_MAP.untyped, config, "volcano-system")
        await client.create(
            core.NODE.untyped, {"metadata": {"name": "n0", "labels": {"example.com/rack": "a"}}}
        )

        async def state() -> tuple[str, str, int]:
            found = (await client.list(topology.HYPER_NODE)).items
            return (
                (found[0].metadata.name, found[0].metadata.uid, found[0].status.node_count)
                if len(found) == 1
                else ("", "", 0)
            )

        async def nodes(count: int) -> tuple[str, str]:
            for _ in range(1200):
                name, uid, counted = await state()
                if counted == count:
                    return name, uid
                await asyncio.sleep(0.05)
            raise AssertionError(await state())

        async def node(name: str) -> None:
            await client.create(
                core.NODE.untyped, {"metadata": {"name": name, "labels": {"example.com/rack": "a"}}}
            )

        async with controllers(apiserver, "--controllers=hyperNode-controller"):
            first = await nodes(1)
        await node("n1")
        await asyncio.sleep(0.5)
        assert await nodes(1) == first, "nobody looks"
        alone = Copy(apiserver, tmp_path / "alone.log")
        assert await nodes(2) == first
        await asyncio.to_thread(alone.stop)
        await node("n2")
        async with controllers(apiserver, "--controllers=hyperNode-controller"):
            assert await nodes(3) == first
