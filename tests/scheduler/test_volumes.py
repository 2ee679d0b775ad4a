"""What the scheduler writes for the claims of a pod, and what it waits for, before it binds the
pod."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hekla.engine.model.state import State
from hekla.scheduler.volumes import VolumeBinder, VolumeError

NODE = "volume.kubernetes.io/selected-node"


class Client:
    """Keeps the patches, in place of a server."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, dict[str, Any]]] = []

    async def patch(
        self, kind: Any, name: str, patch: dict[str, Any], namespace: str | None = None
    ) -> None:
        self.patches.append((name, patch))


def claim(volume: str = "", **annotations: str) -> dict[str, Any]:
    metadata = {
        "name": "data",
        "namespace": "ns",
        "uid": "u1",
        "resourceVersion": "7",
        "annotations": annotations,
    }
    return {"metadata": metadata, "spec": {"volumeName": volume} if volume else {}}


@pytest.fixture
def state() -> State:
    made = State()
    made.upsert_other("PersistentVolumeClaim", claim())
    made.upsert_other(
        "PersistentVolume", {"metadata": {"name": "pv", "resourceVersion": "3"}, "spec": {}}
    )
    return made


def show(state: State, binder: VolumeBinder, tree: dict[str, Any]) -> None:
    state.upsert_other("PersistentVolumeClaim", tree)
    binder.claim_changed(None, tree)


BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


async def test_a_volume_that_was_promised_is_told_its_claim(state):
    client = Client()
    binder = VolumeBinder(client, state)
    task = asyncio.create_task(binder.bind({"ns/data": "pv"}, "n1"))
    await asyncio.sleep(0)

    ((name, patch),) = client.patches
    assert name == "pv" and patch["spec"]["claimRef"]["uid"] == "u1"
    assert patch["metadata"]["resourceVersion"] == "3"  # somebody who was faster is not overwritten
    await asyncio.sleep(0)
    assert not task.done()

    show(state, binder, claim("pv", **BOUND))
    await task
    assert not binder.waiting


async def test_a_volume_that_is_to_be_made_is_told_its_node(state):
    client = Client()
    binder = VolumeBinder(client, state)
    task = asyncio.create_task(binder.bind({"ns/data": ""}, "n1"))
    await asyncio.sleep(0)
    assert client.patches == [("data", {"metadata": {"uid": "u1", "annotations": {NODE: "n1"}}})]

    show(state, binder, claim(**{NODE: "n1"}))
    await asyncio.sleep(0)
    show(state, binder, claim("pv", **{NODE: "n1"}, **BOUND))
    await task


async def test_a_provisioner_that_refuses_the_node_sets_the_pod_free(state):
    binder = VolumeBinder(Client(), state)
    task = asyncio.create_task(binder.bind({"ns/data": ""}, "n1"))
    await asyncio.sleep(0)
    show(state, binder, claim(**{NODE: "n1"}))
    for _ in range(3):
        await asyncio.sleep(0)

    show(state, binder, claim())

    with pytest.raises(VolumeError, match="refused node n1"):
        await task


async def test_a_claim_that_goes_sets_the_pod_free(state):
    binder = VolumeBinder(Client(), state)
    task = asyncio.create_task(binder.bind({"ns/data": ""}, "n1"))
    await asyncio.sleep(0)
    state.remove_other("PersistentVolumeClaim", "ns/data")
    binder.claim_changed(claim(), None)

    with pytest.raises(VolumeError, match="ns/data is gone"):
        await task
