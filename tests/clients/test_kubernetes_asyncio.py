"""The asyncio client: lists, watches, exec over WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cluster.conftest import Namespace

kubernetes_asyncio: Any = pytest.importorskip("kubernetes_asyncio")
from kubernetes_asyncio import client, config, watch  # noqa: E402 (after the line that skips where it is not installed)
from kubernetes_asyncio.stream import WsApiClient  # noqa: E402 (as above)

pytestmark = pytest.mark.scenario("local-cluster", 150)


@pytest_asyncio.fixture
async def door(kubeconfig: Path) -> AsyncIterator[Any]:
    await config.load_kube_config(str(kubeconfig))
    async with client.ApiClient() as made:
        yield made


async def test_the_tutorial(door: Any, ns: Namespace) -> None:
    core = client.CoreV1Api(door)
    made = await core.create_namespaced_config_map(
        ns.name, {"metadata": {"name": "one"}, "data": {"k": "v"}}
    )
    assert made.data == {"k": "v"}
    assert (await core.patch_namespaced_config_map("one", ns.name, {"data": {"n": "1"}})).data == {
        "k": "v",
        "n": "1",
    }
    assert "one" in [
        item.metadata.name for item in (await core.list_namespaced_config_map(ns.name)).items
    ]
    seen = []
    async with watch.Watch().stream(
        core.list_namespaced_config_map,
        ns.name,
        resource_version=made.metadata.resource_version,
        timeout_seconds=5,
    ) as events:
        async for event in events:
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                await core.delete_namespaced_config_map("one", ns.name)
            if len(seen) == 2:
                break
    assert seen == [("MODIFIED", "one"), ("DELETED", "one")]


async def test_exec(kubeconfig: Path, ns: Namespace, sleeper: str) -> None:
    await config.load_kube_config(str(kubeconfig))
    async with WsApiClient() as door:
        core = client.CoreV1Api(door)
        said = await core.connect_get_namespaced_pod_exec(
            sleeper,
            ns.name,
            command=["sh", "-c", "echo out; echo err >&2; exit 0"],
            stderr=True,
            stdin=False,
            stdout=True,
            tty=False,
        )
        assert sorted(said.split()) == ["err", "out"]
        socket = await core.connect_get_namespaced_pod_exec(
            sleeper,
            ns.name,
            command=["sh", "-c", "read line; echo $line; exit 4"],
            stderr=True,
            stdin=True,
            stdout=True,
            tty=False,
            _preload_content=False,
        )
        async with socket as talk:
            await talk.send_bytes(b"\x00typed\n")
            channels: dict[int, bytes] = {}
            async for message in talk:
                if message.data:
                    channels[message.data[0]] = (
                        channels.get(message.data[0], b"") + message.data[1:]
                    )
        assert channels[1] == b"typed\n"
        assert WsApiClient.parse_error_data(channels[3]) == 4
