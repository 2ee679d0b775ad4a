"""Jobs with storage on a cluster as `hekla up` makes it, and the example of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.api import batch
from hekla.api.kubernetes import core
from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.api.kubernetes.storage import STORAGE_CLASS
from hekla.kube.client import Client
from hekla.kube.connection import config
from tests.cluster.conftest import cluster_of_our_own
from tests.controller_manager.live import eventually, is_gone

PAGE = Path(__file__).parents[2] / "docs/local-cluster.md"


@pytest.fixture(scope="module")
def kubeconfig():
    with cluster_of_our_own(nodes=2) as made:
        yield made


@pytest.fixture
async def client(kubeconfig):
    async with Client(config.load(str(kubeconfig))) as connected:
        yield connected


def example() -> list[dict[str, Any]]:
    """The manifests of the page's section on storage."""
    section = PAGE.read_text().partition("## Storage")[2].partition("\n## ")[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return list(yaml.safe_load_all(found.group(1)))


async def phase_of(client: Client, name: str) -> str:
    job = await client.get(batch.JOB.untyped, name, "default")
    found: str = job.get("status", {}).get("state", {}).get("phase", "")
    return found


async def completed(client: Client, name: str) -> None:
    async def look() -> bool:
        return await phase_of(client, name) == "Completed"

    await eventually(look)


async def directories(client: Client) -> dict[str, Path]:
    """Claim -> directory."""
    volumes = (await client.list(PERSISTENT_VOLUME.untyped)).items
    return {
        volume["spec"]["claimRef"]["name"]: Path(volume["spec"]["hostPath"]["path"])
        for volume in volumes
        if "hostPath" in volume["spec"]
    }


async def test_a_job_finds_what_another_one_left(client):
    documents = example()
    for kind in (PERSISTENT_VOLUME_CLAIM, batch.JOB):
        for body in documents:
            if body["kind"] == kind.kind and body["apiVersion"] == kind.api_version:
                await client.create(kind.untyped, body, "default")
    job = next(body for body in documents if body["kind"] == "Job")
    name = job["metadata"]["name"]
    await completed(client, name)
    claim = next(body for body in documents if body["kind"] == "PersistentVolumeClaim")["metadata"][
        "name"
    ]
    directory = (await directories(client))[claim]
    assert (directory / "model.txt").read_text() == "trained\n"
    pods = (
        await client.list(core.POD.untyped, "default", labels=f"volcano.sh/job-name={name}")
    ).items

    reader = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "reader"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "c",
                    "image": "busybox",
                    "command": ["grep", "trained", "/models/model.txt"],
                    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                }
            ],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }
    await client.create(core.POD.untyped, reader, "default")

    async def succeeded() -> Any:
        found = await client.get(core.POD.untyped, "reader", "default")
        return found if found["status"]["phase"] == "Succeeded" else None

    found = await eventually(succeeded)
    # The volume is tied to the node of its first pod.
    assert found["spec"]["nodeName"] == pods[0]["spec"]["nodeName"]

    await client.delete(core.POD, "reader", "default")
    await client.delete(batch.JOB, name, "default")
    await client.delete(PERSISTENT_VOLUME_CLAIM, claim, "default")
    await eventually(lambda: is_gone(client, PERSISTENT_VOLUME_CLAIM, claim, "default"))

    async def cleared() -> bool:
        return not directory.exists()

    await eventually(cleared)


async def test_a_job_brings_its_own_volumes(client):
    task = {
        "name": "worker",
        "replicas": 1,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "c",
                        "image": "busybox",
                        "command": ["sh", "-c", "echo kept > /scratch/answer"],
                    }
                ],
            }
        },
    }
    volume = {
        "mountPath": "/scratch",
        "volumeClaim": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    body = {
        "metadata": {"name": "own"},
        "spec": {
            "minAvailable": 1,
            "schedulerName": "volcano",
            "volumes": [volume],
            "tasks": [task],
        },
    }

    await client.create(batch.JOB.untyped, body, "default")

    await completed(client, "own")
    directory = next(
        path for name, path in (await directories(client)).items() if name.startswith("own-")
    )
    assert (directory / "answer").read_text() == "kept\n"
    await client.delete(batch.JOB, "own", "default")


async def test_a_volume_of_one_node_draws_its_pod_there(client, tmp_path):
    """Static volumes: the scheduler picks node and volume together, and writes the volume's
    claimRef itself."""
    nodes = sorted(
        node["metadata"]["name"] for node in (await client.list(core.NODE.untyped)).items
    )
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "manual"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    affinity = {
        "required": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": [nodes[1]]}
                    ]
                },
            ]
        }
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "board"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "local": {"path": str(tmp_path)},
            "nodeAffinity": affinity,
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "on-board"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "boarder"},
        "spec": {
            "containers": [{"name": "c", "image": "pause"}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "on-board"}}],
        },
    }

    await client.create(STORAGE_CLASS.untyped, storage_class)
    await client.create(PERSISTENT_VOLUME.untyped, volume)
    await client.create(PERSISTENT_VOLUME_CLAIM.untyped, claim, "default")
    await client.create(core.POD.untyped, pod, "default")

    async def bound() -> Any:
        return (await client.get(core.POD.untyped, "boarder", "default"))["spec"].get("nodeName")

    assert await eventually(bound) == nodes[1]
    assert (await client.get(PERSISTENT_VOLUME_CLAIM.untyped, "on-board", "default"))["spec"][
        "volumeName"
    ] == "board"
