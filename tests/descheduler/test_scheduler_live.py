"""`nodeFit: engine` with a scheduler's process: what it would put back stays, and what it would not goes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from hekla.api import crds, scheduling
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.kube.errors import NotFound
from tests.descheduler.test_live import KEPT, KEPT_AT
from tests.kubelet.live_cluster import PATIENCE, POD, Cluster, cluster

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow(seconds=60)]

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: asks
  pluginConfig:
  - {name: DefaultEvictor, args: {nodeFit: engine}}
  - name: LowNodeUtilization
    args: {thresholds: {cpu: 30}, targetThresholds: {cpu: 60}}
  plugins:
    balance: {enabled: [LowNodeUtilization]}
"""
SCHEDULERS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: predicates
  - name: WHICH
"""
PACK, EVEN = SCHEDULERS.replace("WHICH", "binpack"), SCHEDULERS.replace("WHICH", "nodeorder")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Two fake nodes of ten cores."""
    directory = tmp_path_factory.mktemp("asks")
    flags = ("--nodes=0", "--fake-nodes=2", "--fake-node-name=fake", "--fake-node-cpu=10")
    async with cluster(directory, *flags, nodes=2) as made:
        for definition in crds.all():
            await made.client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
        queue = {"metadata": {"name": "default"}, "spec": {"weight": 1}}
        await made.client.create(scheduling.QUEUE.untyped, queue)
        for name in "abcd":
            group = {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"minMember": 1, "queue": "default"},
            }
            await made.client.create(scheduling.POD_GROUP.untyped, group)
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def here(nodes: Cluster) -> AsyncIterator[Cluster]:
    """The first gives away 9 of its cores, the second one, and no descheduler has been there."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
    for name, node, cpu in (
        ("a", "fake-0", "3"),
        ("b", "fake-0", "3"),
        ("c", "fake-0", "3"),
        ("d", "fake-1", "1"),
    ):
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        metadata = {
            "ownerReferences": [owner],
            "annotations": {"scheduling.k8s.io/group-name": name},
        }
        await nodes.create(
            name,
            nodeName=node,
            schedulerName="volcano",
            containers=[container],
            metadata=metadata,
        )
    yield nodes
    for pod in (await nodes.client.list(POD, "default")).items:
        await nodes.client.delete(POD, pod["metadata"]["name"], "default", grace=0)
    with suppress(NotFound):
        await nodes.client.delete(core.CONFIG_MAP.untyped, KEPT, KEPT_AT)


@asynccontextmanager
async def scheduler(here: Cluster, place: Path, policy: str) -> AsyncIterator[None]:
    """A scheduler of this policy, as long as it says where its snapshots are."""
    (place / "scheduler.yaml").write_text(policy)
    log = place / "scheduler.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hekla", "scheduler", f"--kubeconfig={here.server.internal_kubeconfig}", "--leader-elect=false",
             "--leader-elect-resource-namespace=kube-system",
             f"--scheduler-conf={place / 'scheduler.yaml'}", "--snapshot-address=127.0.0.1:0",
             f"--client-ca-file={here.server.pki / 'ca.crt'}"],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE
        while "snapshots at 127.0.0.1 port" not in log.read_text():
            assert time.monotonic() < deadline and process.poll() is None, log.read_text()[-3000:]
            await asyncio.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


async def descheduled(here: Cluster, place: Path) -> str:
    """What a descheduler says that runs one cycle."""
    (place / "policy.yaml").write_text(POLICY)
    command = [
        sys.executable, "-m", "hekla", "descheduler", f"--kubeconfig={here.server.kubeconfig}",
        f"--policy-config-file={place / 'policy.yaml'}", "--once", "--secure-port=0",
    ]  # fmt: skip
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr


async def test_what_the_scheduler_would_put_back_stays(here: Cluster, tmp_path: Path) -> None:
    async with scheduler(here, tmp_path, PACK):
        said = await descheduled(here, tmp_path)
    assert (
        "LowNodeUtilization left 3 pods: the scheduler would put it on the same node again" in said
    )
    assert "the scheduler was asked 1 times where pods would land" in said
    assert "totalEvicted=0" in said and len((await here.client.list(POD, "default")).items) == 4


async def test_what_the_scheduler_would_put_elsewhere_goes(here: Cluster, tmp_path: Path) -> None:
    async with scheduler(here, tmp_path, EVEN):
        assert "totalEvicted=1" in await descheduled(here, tmp_path)


async def test_where_the_scheduler_has_gone_nobody_goes(here: Cluster, tmp_path: Path) -> None:
    async with scheduler(here, tmp_path, EVEN):
        pass  # where it was stays written
    said = await descheduled(here, tmp_path)
    assert (
        "profile asks evicts nothing: nodeFit is engine, and the scheduler's snapshot from 127.0.0.1:"
        in said
    )
    assert "totalEvicted=0" in said and len((await here.client.list(POD, "default")).items) == 4
