"""An API server and a kubelet as processes, and the few words in which stories about pods are told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.local.kubelet.runtime.runtime import stop_all
from tests.apiserver_process import ApiServerProcess

POD = core.POD.untyped
NODE_NAME = "n1"
PATIENCE = 60.0
"""Seconds for which a story waits on a machine that has other things to do: a bound for what is
stuck."""


class KubeletProcess:
    """One `hekla kubelet`."""

    def __init__(
        self, directory: Path, server: ApiServerProcess, *flags: str, prefix: tuple[str, ...] = ()
    ) -> None:
        self.root = directory / "kubelet"
        self.log = directory / "kubelet.log"
        pki = server.pki
        self.command = [
            *prefix,
            sys.executable,
            "-m",
            "hekla",
            "kubelet",
            f"--kubeconfig={server.internal_kubeconfig}",
            f"--root-dir={self.root}",
            f"--node-name={NODE_NAME}",
            f"--tls-cert-file={pki / 'kubelet.crt'}",
            f"--tls-private-key-file={pki / 'kubelet.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            *flags,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> None:
        """Ends it as nobody expects."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        stop_all(self.root, grace=0.0)


class Cluster:
    """What a story needs."""

    def __init__(
        self, client: Client, server: ApiServerProcess, kubelet: KubeletProcess, namespace: str
    ) -> None:
        self.client = client
        self.server = server
        self.kubelet = kubelet
        self.namespace = namespace

    async def create(self, name: str, *command: str, **more: Any) -> Json:
        """A pod of one container `c`, bound to the node.  `more` are members of its spec; `c` those
        of its container."""
        container = {"name": "c", "image": "busybox", "command": list(command), **more.pop("c", {})}
        metadata = {"name": name, "namespace": self.namespace, **more.pop("metadata", {})}
        spec: Json = {
            "nodeName": NODE_NAME,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 3,
            "containers": [container],
            **more,
        }
        return await self.client.create(
            POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    async def pod(self, name: str) -> Json:
        return await self.client.get(POD, name, self.namespace)

    async def until(
        self, name: str, condition: Callable[[Json], Any], seconds: float = PATIENCE
    ) -> Json:
        """Waits until the pod is as told; fails with the pod as it is."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                pod = await self.pod(name)
            except NotFound:
                pod = {}
            if condition(pod):
                return pod
            assert time.monotonic() < deadline, (
                f"{name} never became so; its status: {pod.get('status')}"
            )
            await asyncio.sleep(0.03)

    async def phase(self, name: str, phase: str, seconds: float = PATIENCE) -> Json:
        return await self.until(
            name, lambda pod: pod.get("status", {}).get("phase") == phase, seconds
        )

    async def waits(self, name: str, reason: str) -> Json:
        """Until the container waits for this reason."""
        return await self.until(
            name,
            lambda pod: (
                pod and container(pod).get("state", {}).get("waiting", {}).get("reason") == reason
            ),
        )

    async def gone(self, name: str, seconds: float = PATIENCE) -> None:
        await self.until(name, lambda pod: not pod, seconds)

    async def log(self, name: str, **options: Any) -> str:
        query = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in options.items()
        }
        answer = await self.client.request("GET", core.POD.path(self.namespace, name, "log"), query)
        return answer.body.decode()

    async def log_has(self, name: str, text: str, seconds: float = PATIENCE) -> str:
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = await self.log(name)
            except (ApiError, TransportError):  # there is no log yet, or its server is away
                found = ""
            if text in found:
                return found
            assert time.monotonic() < deadline, f"the log of {name} never said {text!r}: {found!r}"
            await asyncio.sleep(0.03)

    async def events(self, name: str) -> list[str]:
        listing = await self.client.list(
            core.EVENT, self.namespace, fields=f"involvedObject.name={name}"
        )
        return [event.reason for event in listing.items]

    async def event(self, name: str, reason: str, seconds: float = PATIENCE) -> core.Event:
        deadline = time.monotonic() + seconds
        while True:
            listing = await self.client.list(
                core.EVENT, self.namespace, fields=f"involvedObject.name={name}"
            )
            for event in listing.items:
                if event.reason == reason:
                    return event
            assert time.monotonic() < deadline, (
                f"no event {reason} about {name}: {[e.reason for e in listing.items]}"
            )
            await asyncio.sleep(0.05)


def container(pod: Json, name: str = "c") -> Json:
    """The status of a container."""
    statuses = [
        *pod["status"].get("containerStatuses", []),
        *pod["status"].get("initContainerStatuses", []),
    ]
    return next((status for status in statuses if status["name"] == name), {})


def condition(pod: Json, kind: str) -> Json:
    return next((c for c in pod.get("status", {}).get("conditions", []) if c["type"] == kind), {})


@asynccontextmanager
async def cluster(
    directory: Path,
    *flags: str,
    nodes: int = 1,
    namespace: str = "default",
    prefix: tuple[str, ...] = (),
) -> AsyncIterator[Cluster]:
    """A whole cluster without controllers; there when so many nodes are Ready.  `prefix` makes the
    kubelet another user's."""
    with ApiServerProcess.started(directory) as server:
        kubelet = KubeletProcess(directory, server, *flags, prefix=prefix)
        kubelet.start()
        try:
            async with Client(load(str(server.internal_kubeconfig))) as client:
                account = {"metadata": {"name": "default", "namespace": namespace}}
                await ensure(client.create(core.SERVICE_ACCOUNT.untyped, account))
                await wait_for_nodes(client, kubelet, nodes)
                yield Cluster(client, server, kubelet, namespace)
        finally:
            kubelet.close()


async def ensure(creation: Awaitable[Any]) -> None:
    try:
        await creation
    except AlreadyExists:
        pass


async def wait_for_nodes(client: Client, kubelet: KubeletProcess, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        nodes = (await client.list(core.NODE)).items
        if (
            sum(
                any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
                for node in nodes
            )
            >= count
        ):
            return
        assert time.monotonic() < deadline, (
            f"the nodes never came:\n{kubelet.log.read_text()[-3000:]}"
        )
        await asyncio.sleep(0.05)
