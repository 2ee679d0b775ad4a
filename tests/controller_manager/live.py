"""What stories on a real API server with the built-in controllers beside it have in common."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.errors import Conflict, NotFound
from tests.apiserver_process import ApiServerProcess

PATIENCE = 60.0
"""Seconds for which a story waits on a machine that has other things to do: a bound for what is
stuck."""


@contextlib.contextmanager
def controllers(server: ApiServerProcess, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """`hekla kube-controllers` on a server, for the time of a `with`."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hekla",
            "kube-controllers",
            f"--kubeconfig={server.internal_kubeconfig}",
            f"--root-ca-file={server.pki / 'ca.crt'}",
            *flags,
        ]
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)


@contextlib.contextmanager
def cluster(directory: Path, *flags: str) -> Iterator[ApiServerProcess]:
    """An API server with the controllers beside it."""
    with ApiServerProcess.started(directory) as server, controllers(server, *flags):
        yield server


async def eventually(look: Callable[[], Awaitable[Any]], seconds: float = PATIENCE) -> Any:
    """What `look` gives once it neither raises NotFound nor gives a falsehood."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            seen = await look()
        except (NotFound, Conflict):
            seen = None
        if seen:
            return seen
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.03)


async def is_gone(client: Client, kind: Any, name: str, namespace: str | None = None) -> bool:
    try:
        await client.get(kind, name, namespace)
    except NotFound:
        return True
    return False


async def new_namespace(client: Client) -> str:
    made = await client.create(core.NAMESPACE.untyped, {"metadata": {"generateName": "story-"}})
    name: str = made["metadata"]["name"]
    return name


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    containers = [{"name": "main", "image": "pause"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"schedulerName": "nobody", "containers": containers, **spec},
    }


async def report(
    client: Client,
    namespace: str,
    name: str,
    phase: str = "Running",
    ip: str = "127.0.0.9",
    ready: bool = True,
) -> None:
    """What a kubelet would say of a pod."""
    status = {
        "phase": phase,
        "podIP": ip,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    await client.patch(
        core.POD, name, {"status": status}, namespace, type="strategic", subresource="status"
    )
