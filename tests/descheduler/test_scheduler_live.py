"""`nodeFit: engine` with a scheduler's process: what it would put back stays, and what it would not goes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hekla.api import crds, scheduling
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from tests.kubelet.live_cluster import POD, Cluster, cluster

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
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Cluster, Path]]:
    """Two fake nodes; the first gives away 9 of its 10 cores, the second one."""
    directory = tmp_path_factory.mktemp("asks")
    flags = ("--nodes=0", "--fake-nodes=2", "--fake-node-name=fake", "--fake-node-cpu=10")
    async with cluster(directory, *flags, nodes=2) as made:
        for definition in crds.all():
            await made.client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
        queue = {"metadata": {"name": "default"}, "spec": {"weight": 1}}
        await made.client.create(scheduling.QUEUE.untyped, queue)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
        for name, node in (("a", "fake-0"), ("b", "fake-0"), ("c", "fake-0"), ("d", "fake-1")):
            container = {
                "name": "c",
                "image": "pause",
                "resources": {"requests": {"cpu": "1" if name == "d" else "3"}},
            }
            group = {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"minMember": 1, "queue": "default"},
            }
            await made.client.create(scheduling.POD_GROUP.untyped, group)
            metadata = {
                "ownerReferences": [owner],
                "annotations": {"scheduling.k8s.io/group-name": name},
            }
            await made.create(
                name,
                nodeName=node,
                schedulerName="volcano",
                containers=[container],
                metadata=metadata,
            )
        yield made, directory


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hekla", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


async def descheduled(here: tuple[Cluster, Path], scheduler: str) -> str:
    """What a descheduler says that runs one cycle beside a scheduler of this policy."""
    made, directory = here
    (directory / "policy.yaml").write_text(POLICY)
    (directory / "scheduler.yaml").write_text(scheduler)
    log = directory / "scheduler.log"
    kubeconfig = f"--kubeconfig={made.server.internal_kubeconfig}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hekla", "scheduler", kubeconfig, "--leader-elect=false",
             "--leader-elect-resource-namespace=kube-system",
             f"--scheduler-conf={directory / 'scheduler.yaml'}", "--snapshot-address=127.0.0.1:0",
             f"--client-ca-file={made.server.pki / 'ca.crt'}"],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        for _ in range(600):
            if b"snapshot" in log.read_bytes():
                break
            await asyncio.sleep(0.05)
        done = await asyncio.to_thread(
            run, "descheduler", f"--kubeconfig={made.server.kubeconfig}", f"--policy-config-file={directory / 'policy.yaml'}", "--once",
            "--secure-port=0",
        )  # fmt: skip
        return done.stderr
    finally:
        process.terminate()
        process.wait(20)


async def test_the_scheduler_decides_whether_a_pod_goes(here: tuple[Cluster, Path]) -> None:
    made, _ = here
    said = await descheduled(here, PACK)
    assert (
        "LowNodeUtilization left 3 pods: the scheduler would put it on the same node again" in said
    )
    assert "the scheduler was asked 1 times where pods would land" in said
    assert len((await made.client.list(POD, "default")).items) == 4
    said = await descheduled(here, EVEN)
    assert "totalEvicted=1" in said


async def test_without_a_scheduler_nobody_goes(here: tuple[Cluster, Path]) -> None:
    made, directory = here
    (directory / "policy.yaml").write_text(POLICY.replace("cpu: 60", "cpu: 45"))
    done = await asyncio.to_thread(
        run, "descheduler", f"--kubeconfig={made.server.kubeconfig}", f"--policy-config-file={directory / 'policy.yaml'}", "--once",
        "--secure-port=0",
    )  # fmt: skip
    assert (
        "profile asks evicts nothing: nodeFit is engine, and the scheduler's snapshot from 127.0.0.1:"
        in done.stderr
    )
    assert "totalEvicted=0" in done.stderr
