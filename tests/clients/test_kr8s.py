"""kr8s: objects that know how to wait, exec and forward ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import Namespace

kr8s: Any = pytest.importorskip("kr8s")
pytestmark = pytest.mark.scenario("local-cluster", 150)


async def test_the_tutorial(kubeconfig: Path, ns: Namespace, sleeper: str) -> None:
    from kr8s.asyncio.objects import ConfigMap, Pod

    api = await kr8s.asyncio.api(kubeconfig=str(kubeconfig), namespace=ns.name)
    one = await ConfigMap(
        {"metadata": {"name": "one", "namespace": ns.name}, "data": {"k": "v"}}, api=api
    )
    await one.create()
    assert await one.exists()
    await one.patch({"data": {"n": "1"}})
    assert dict(one.data) == {"k": "v", "n": "1"}
    await one.label({"a": "b"})
    assert [
        found.name async for found in api.get("configmaps", namespace=ns.name, label_selector="a=b")
    ] == ["one"]
    await one.delete()
    pod = await Pod.get(sleeper, namespace=ns.name, api=api)
    await pod.wait("condition=Ready", timeout=60)
    assert await pod.ready()
    assert [line async for line in pod.logs(tail_lines=1)] == ["up"]


async def test_exec(kubeconfig: Path, ns: Namespace, sleeper: str) -> None:
    from kr8s.asyncio.objects import Pod

    api = await kr8s.asyncio.api(kubeconfig=str(kubeconfig), namespace=ns.name)
    pod = await Pod.get(sleeper, namespace=ns.name, api=api)
    done = await pod.exec(["sh", "-c", "echo out; echo err >&2"])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\n", b"err\n")
    done = await pod.exec(["sh", "-c", "exit 3"], check=False)
    assert done.returncode == 3


async def test_port_forward(kubeconfig: Path, ns: Namespace, sleeper: str) -> None:
    from kr8s.asyncio.objects import Pod

    api = await kr8s.asyncio.api(kubeconfig=str(kubeconfig), namespace=ns.name)
    pod = await Pod.get(sleeper, namespace=ns.name, api=api)
    async with pod.portforward(8124, local_port="auto") as port, httpx.AsyncClient() as http:
        assert (await http.get(f"http://127.0.0.1:{port}/")).text == "hello"
