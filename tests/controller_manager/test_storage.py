"""Claims, volumes and the cluster's own storage, on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.api.kubernetes.storage import STORAGE_CLASS
from hekla.kube.client import Client
from hekla.kube.errors import Conflict
from hekla.local.controller_manager.volumes.writer import VolumeWriter
from tests.controller_manager.live import cluster, eventually, is_gone, pod

CLAIMS, VOLUMES = PERSISTENT_VOLUME_CLAIM.untyped, PERSISTENT_VOLUME.untyped


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("storage")
    with cluster(directory, f"--storage-dir={directory / 'volumes'}") as started:
        yield started


def claim(
    name: str, *, storage: str = "1Gi", modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": list(modes),
            "resources": {"requests": {"storage": storage}},
            **spec,
        },
    }


def volume(
    name: str,
    *,
    storage: str = "1Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    labels=None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "accessModes": list(modes),
            "capacity": {"storage": storage},
            "hostPath": {"path": "/nowhere"},
            **spec,
        },
    }


async def bound(client: Client, namespace: str, name: str) -> dict[str, Any]:
    async def look() -> Any:
        found = await client.get(CLAIMS, name, namespace)
        return found if found.get("status", {}).get("phase") == "Bound" else None

    found: dict[str, Any] = await eventually(look)
    return found


async def in_phase(client: Client, name: str, phase: str) -> None:
    async def look() -> bool:
        return bool((await client.get(VOLUMES, name)).get("status", {}).get("phase") == phase)

    await eventually(look)


async def test_a_claim_takes_the_smallest_volume_that_suits(client, namespace):
    for name, storage in (("large", "10Gi"), ("medium", "3Gi"), ("small", "1Gi")):
        await client.create(VOLUMES, volume(name, storage=storage, storageClassName="manual"))

    await client.create(CLAIMS, claim("data", storage="2Gi", storageClassName="manual"), namespace)

    found = await bound(client, namespace, "data")
    assert found["spec"]["volumeName"] == "medium"
    assert found["status"]["capacity"] == {"storage": "3Gi"}
    notes = found["metadata"]["annotations"]
    assert (
        notes["pv.kubernetes.io/bind-completed"]
        == notes["pv.kubernetes.io/bound-by-controller"]
        == "yes"
    )
    taken = await client.get(VOLUMES, "medium")
    assert taken["status"]["phase"] == "Bound"
    assert taken["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    assert taken["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


async def test_a_late_look_at_a_volume_takes_nothing_back(client, namespace):
    """One that saw the volume before it was bound, and writes after."""
    await client.create(VOLUMES, volume("late", storageClassName="late"))
    await in_phase(client, "late", "Available")
    seen = await client.get(VOLUMES, "late")
    await client.create(CLAIMS, claim("data", storageClassName="late"), namespace)
    await bound(client, namespace, "data")
    late = VolumeWriter(client)

    with pytest.raises(Conflict):
        await late.set_volume_phase({**seen, "status": {"phase": "Pending"}}, "Available")

    assert (await client.get(VOLUMES, "late"))["status"]["phase"] == "Bound"


async def test_selector_mode_and_access_are_looked_at(client, namespace):
    await client.create(
        VOLUMES,
        volume("block", storageClassName="picky", labels={"disk": "fast"}, volumeMode="Block"),
    )
    await client.create(VOLUMES, volume("slow", storageClassName="picky", labels={"disk": "slow"}))
    await client.create(VOLUMES, volume("once", storageClassName="picky", labels={"disk": "fast"}))
    await client.create(
        VOLUMES,
        volume(
            "many",
            storageClassName="picky",
            labels={"disk": "fast"},
            modes=("ReadWriteMany", "ReadWriteOnce"),
            storage="9Gi",
        ),
    )

    selector = {"matchLabels": {"disk": "fast"}}
    await client.create(
        CLAIMS,
        claim("data", storageClassName="picky", modes=("ReadWriteMany",), selector=selector),
        namespace,
    )

    assert (await bound(client, namespace, "data"))["spec"]["volumeName"] == "many"


async def test_a_reserved_volume_waits_for_its_claim(client, namespace):
    await client.create(
        VOLUMES,
        volume("mine", storageClassName="held", claimRef={"namespace": namespace, "name": "late"}),
    )
    await client.create(CLAIMS, claim("early", storageClassName="held"), namespace)
    await client.create(CLAIMS, claim("late", storageClassName="held"), namespace)

    assert (await bound(client, namespace, "late"))["spec"]["volumeName"] == "mine"
    assert (await client.get(CLAIMS, "early", namespace))["status"]["phase"] == "Pending"
    await client.create(VOLUMES, volume("another", storageClassName="held"))
    assert (await bound(client, namespace, "early"))["spec"]["volumeName"] == "another"


async def test_a_claim_that_names_its_volume_gets_it(client, namespace):
    await client.create(VOLUMES, volume("first", storageClassName=""))
    await client.create(VOLUMES, volume("named", storageClassName="", storage="5Gi"))

    await client.create(CLAIMS, claim("data", storageClassName="", volumeName="named"), namespace)

    assert (await bound(client, namespace, "data"))["spec"]["volumeName"] == "named"


async def test_what_is_retained_stays_released(client, namespace):
    await client.create(VOLUMES, volume("kept", storageClassName="keep"))
    await client.create(CLAIMS, claim("data", storageClassName="keep"), namespace)
    await bound(client, namespace, "data")

    await client.delete(CLAIMS, "data", namespace)

    await eventually(lambda: is_gone(client, CLAIMS, "data", namespace))
    await in_phase(client, "kept", "Released")
    await client.create(CLAIMS, claim("data", storageClassName="keep"), namespace)
    await client.patch(VOLUMES, "kept", {"spec": {"claimRef": None}})
    assert (await bound(client, namespace, "data"))["spec"]["volumeName"] == "kept"


async def test_a_claim_without_its_volume_is_lost(client, namespace):
    await client.create(VOLUMES, volume("gone", storageClassName="risk"))
    await client.create(CLAIMS, claim("data", storageClassName="risk"), namespace)
    await bound(client, namespace, "data")

    await client.delete(VOLUMES, "gone")  # waits for the claim, by its finalizer
    await client.patch(VOLUMES, "gone", {"metadata": {"finalizers": None}})

    async def lost() -> bool:
        return bool((await client.get(CLAIMS, "data", namespace))["status"]["phase"] == "Lost")

    await eventually(lost)


async def test_a_claim_in_use_is_deleted_only_after_its_pod(client, namespace):
    await client.create(VOLUMES, volume("used", storageClassName="use"))
    await client.create(CLAIMS, claim("data", storageClassName="use"), namespace)
    await bound(client, namespace, "data")
    source = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    await client.create(
        core.POD.untyped, pod("user", nodeName="somewhere", volumes=source), namespace
    )

    await client.delete(CLAIMS, "data", namespace)
    await client.delete(VOLUMES, "used")

    assert (await client.get(CLAIMS, "data", namespace))["metadata"]["deletionTimestamp"]
    await client.delete(core.POD, "user", namespace, grace=0)
    await eventually(lambda: is_gone(client, CLAIMS, "data", namespace))
    await eventually(lambda: is_gone(client, VOLUMES, "used"))


async def test_the_default_class_waits_for_a_node_then_makes_a_directory(client, namespace, server):
    made = await eventually(lambda: client.get(STORAGE_CLASS.untyped, "standard"))
    assert made["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
    await client.create(CLAIMS, claim("data"), namespace)

    async def told() -> bool:
        found = await client.get(CLAIMS, "data", namespace)
        return bool(
            found["spec"].get("storageClassName") == "standard"
            and found["status"]["phase"] == "Pending"
        )

    await eventually(told)
    await client.patch(
        CLAIMS,
        "data",
        {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-a"}}},
        namespace,
    )

    found = await bound(client, namespace, "data")
    assert (
        found["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"]
        == "rancher.io/local-path"
    )
    there = await client.get(VOLUMES, found["spec"]["volumeName"])
    directory = Path(there["spec"]["hostPath"]["path"])
    assert directory.is_dir() and directory.parent == server.directory / "volumes"
    terms = there["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a"]}
            ]
        }
    ]
    (directory / "answer").write_text("42")

    await client.patch(
        CLAIMS, "data", {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}, namespace
    )

    async def grown() -> bool:
        return bool(
            (await client.get(CLAIMS, "data", namespace))["status"]["capacity"]
            == {"storage": "3Gi"}
        )

    await eventually(grown)
    await client.delete(CLAIMS, "data", namespace)
    await eventually(lambda: is_gone(client, VOLUMES, there["metadata"]["name"]))
    assert not directory.exists()


async def test_a_volume_that_claims_to_be_made_here_removes_nothing_elsewhere(
    client, namespace, tmp_path
):
    treasure = tmp_path / "pvc-treasure_x"
    treasure.mkdir()
    body = volume(
        "pvc-treasure",
        storageClassName="x",
        persistentVolumeReclaimPolicy="Delete",
        hostPath={"path": str(treasure)},
        claimRef={
            "namespace": namespace,
            "name": "never",
            "uid": "00000000-0000-0000-0000-000000000001",
        },
    )
    body["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "rancher.io/local-path"}

    await client.create(VOLUMES, body)

    await eventually(lambda: is_gone(client, VOLUMES, "pvc-treasure"))
    assert treasure.is_dir()


async def test_an_ephemeral_volume_has_a_claim_that_goes_with_its_pod(client, namespace):
    template = {
        "metadata": {"labels": {"of": "scratch"}},
        "spec": claim("x", storageClassName="none")["spec"],
    }
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]

    made = await client.create(core.POD.untyped, pod("worker", volumes=volumes), namespace)

    found = await eventually(lambda: client.get(CLAIMS, "worker-scratch", namespace))
    assert found["metadata"]["labels"] == {"of": "scratch"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    await client.delete(core.POD, "worker", namespace, grace=0)
    await eventually(lambda: is_gone(client, CLAIMS, "worker-scratch", namespace))
