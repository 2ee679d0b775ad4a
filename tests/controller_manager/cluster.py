"""A cluster of an API server and the built-in controllers, both as processes, whose scheduler and
nodes are the test itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hekla.api.kubernetes import core
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection import config
from tests.apiserver_process import ApiServerProcess
from tests.controller_manager.live import PATIENCE, eventually, new_namespace

__all__ = [
    "Controllers",
    "Json",
    "Kubelet",
    "client",
    "controllers",
    "eventually",
    "kubelet",
    "namespace",
    "server",
]


class Controllers:
    """`hekla kube-controllers` beside an API server; can be killed and started again."""

    def __init__(self, server: ApiServerProcess) -> None:
        self.server = server
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        flags = [
            f"--kubeconfig={self.server.internal_kubeconfig}",
            f"--root-ca-file={self.server.pki / 'ca.crt'}",
        ]
        return subprocess.Popen([sys.executable, "-m", "hekla", "kube-controllers", *flags])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def restart(self) -> None:
        self.process = self._start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with ApiServerProcess.started(tmp_path_factory.mktemp("controllers")) as started:
        yield started


@pytest.fixture(scope="module")
def controllers(server: ApiServerProcess) -> Iterator[Controllers]:
    running = Controllers(server)
    yield running
    running.stop()


@pytest.fixture
async def client(server: ApiServerProcess, controllers: Controllers) -> AsyncIterator[Client]:
    async with Client(config.load(str(server.internal_kubeconfig))) as connected:
        yield connected


@pytest.fixture
async def namespace(client: Client) -> str:
    name = await new_namespace(client)
    await eventually(lambda: client.get(core.SERVICE_ACCOUNT, "default", name))
    return name


def now() -> str:
    return stamp(time.time())


class Kubelet:
    """Does with the pods of a namespace what the test tells it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def pods(self, *, leaving: bool = False) -> dict[str, Json]:
        """By name; those on their way out only when asked for."""
        found = (await self.client.list(core.POD.untyped, self.namespace)).items
        return {
            pod["metadata"]["name"]: pod
            for pod in found
            if leaving or "deletionTimestamp" not in pod["metadata"]
        }

    async def names(self) -> list[str]:
        return sorted(await self.pods(leaving=True))

    async def report(
        self,
        name: str,
        phase: str,
        *,
        ready: bool | None = None,
        code: int | None = None,
        **more: Any,
    ) -> None:
        """A status; `code` ends the containers with it."""
        pod = await self.client.get(core.POD.untyped, name, self.namespace)
        ready = phase == "Running" if ready is None else ready
        status: Json = {
            "phase": phase,
            "podIP": "127.0.0.9",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "False",
                    "lastTransitionTime": now(),
                },
                *more.pop("conditions", []),
            ],
            **more,
        }
        if code is not None:
            ended = {
                "terminated": {
                    "exitCode": code,
                    "finishedAt": now(),
                    "startedAt": now(),
                    "reason": "Error",
                }
            }
            status["containerStatuses"] = [
                {
                    "name": c["name"],
                    "image": c["image"],
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": ended,
                }
                for c in pod["spec"]["containers"]
            ]
        await self.client.patch(
            core.POD, name, {"status": status}, self.namespace, subresource="status"
        )

    async def ready(self, name: str) -> None:
        await self.report(name, "Running")

    async def ready_all(self) -> None:
        for name, pod in (await self.pods()).items():
            if pod.get("status", {}).get("phase") == "Pending":
                await self.ready(name)

    async def remove(self, name: str) -> None:
        """The end of a pod, without grace."""
        await self.client.delete(core.POD, name, self.namespace, grace=0)


@pytest.fixture
def kubelet(client: Client, namespace: str) -> Kubelet:
    return Kubelet(client, namespace)


def template(app: str, **spec: Any) -> Json:
    containers = [{"name": "main", "image": "pause"}]
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec},
    }


def workload(name: str, **spec: Any) -> Json:
    """An object of apps/v1 of this name: its pods' label is the name."""
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name), **spec},
    }
