"""The page about clusters that one has, followed word by word on an API server alone."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.api import batch, crds, scheduling
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.api.kubernetes.coordination import LEASE
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import ApiError, NotFound
from tests.apiserver_process import ApiServerProcess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "on-your-cluster.md").read_text().partition("## As processes")[2]
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()
]
PATIENCE = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServerProcess]:
    with ApiServerProcess.started(tmp_path) as started:
        yield started


@pytest.fixture
def daemons(server: ApiServerProcess, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The page's daemons, with its words; started when the kinds are there."""
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.terminate()
    for process in running:
        process.wait(30)


def start(server: ApiServerProcess, directory: Path) -> list[subprocess.Popen[bytes]]:
    (directory / "policy.yaml").write_bytes(
        (ROOT / "hekla" / "local" / "cluster" / "policy.yaml").read_bytes()
    )
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    started = []
    for line in COMMANDS:
        program, *arguments = shlex.split(line.replace('"$KUBECONFIG"', str(server.kubeconfig)))
        if program != "hekla" or "|" in arguments:
            continue
        with (directory / f"{arguments[0]}.log").open("wb") as log:
            command = [sys.executable, "-m", "hekla", *arguments]
            started.append(
                subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
            )
    return started


async def until(answer: Any, told: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            found = await answer()
        except NotFound:
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, f"{told} did not come to pass in {PATIENCE:.0f} s"
        await asyncio.sleep(0.1)


async def test_the_page_is_followed(
    server: ApiServerProcess, daemons: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert COMMANDS[:2] == [
        "hekla crds | kubectl apply -f -",
        "kubectl create namespace volcano-system",
    ]
    async with Client(load(str(server.kubeconfig))) as client:
        for definition in crds.all():
            await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": "volcano-system"}})
        await client.create(
            core.SERVICE_ACCOUNT.untyped, {"metadata": {"name": "default"}}, "default"
        )
        size = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        ready = [{"type": "Ready", "status": "True", "reason": "Test"}]
        await client.create(
            core.NODE.untyped,
            {
                "metadata": {"name": "n1"},
                "status": {"allocatable": size, "capacity": size, "conditions": ready},
            },
        )
        daemons += start(server, tmp_path)
        assert len(daemons) == 3

        async def queue_is_open() -> bool:
            return (await client.get(scheduling.QUEUE, "default")).status.state == "Open"

        async def bare_job_is_refused() -> bool:
            try:
                await client.create(
                    batch.JOB.untyped,
                    {"metadata": {"name": "bare"}, "spec": {"minAvailable": 1}},
                    "default",
                )
            except ApiError as error:
                return "admission webhook" in str(error)
            await client.delete(batch.JOB, "bare", "default")
            return False

        await until(queue_is_open, "an open queue default")
        await until(bare_job_is_refused, "a refusal by the webhooks")
        manifest = yaml.safe_load((ROOT / "examples" / "hello.yaml").read_text())
        made = await client.create(batch.JOB.untyped, manifest, "default")
        assert made["spec"]["queue"] == "default", "the webhooks have filled it in"

        async def pod_is_bound() -> bool:
            pods = (await client.list(core.POD, "default")).items
            return bool(pods) and all(pod.spec.node_name == "n1" for pod in pods)

        await until(pod_is_bound, "a pod on the node")
        leases = await client.list(LEASE, "volcano-system")
        assert {"volcano", "vc-controller-manager"} <= {
            lease.metadata.name for lease in leases.items
        }
