"""Pods that claim devices, on a cluster as `hekla up` makes it; the test stands in for the driver
that offers them.

The scheduler allocates, the controller of claims gives back.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from hekla.api import scheduling
from hekla.api.kubernetes import core
from hekla.api.kubernetes.resource import (
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
)
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import NotFound
from tests.cluster.conftest import cluster_of_our_own
from tests.controller_manager.live import eventually, is_gone

DRIVER = "gpu.example.com"


@pytest.fixture(scope="module")
def kubeconfig():
    with cluster_of_our_own(nodes=1, fake_nodes=3) as made:
        yield made


@pytest.fixture
async def client(kubeconfig):
    async with Client(config.load(str(kubeconfig))) as connected:
        await _clear(connected)
        yield connected
        await _clear(connected)


async def _clear(client: Client) -> None:
    for pod in (await client.list(core.POD.untyped, "default")).items:
        await client.delete(core.POD, pod["metadata"]["name"], "default", grace=0)
    for kind in (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE):
        for one in (await client.list(kind.untyped, "default")).items:
            with suppress(NotFound):  # claims made from templates go with their pods, by themselves
                await client.delete(kind, one["metadata"]["name"], "default")

    async def empty() -> bool:
        return not (await client.list(RESOURCE_CLAIM.untyped, "default")).items

    await eventually(empty)
    for kind in (RESOURCE_SLICE, DEVICE_CLASS):
        for one in (await client.list(kind.untyped)).items:
            await client.delete(kind, one["metadata"]["name"])


async def fakes(client: Client) -> list[str]:
    nodes = (await client.list(core.NODE.untyped)).items
    return sorted(node["metadata"]["name"] for node in nodes if "fake" in node["metadata"]["name"])


async def driver(client: Client, node: str, *devices: str) -> None:
    """Offer these devices on a node."""
    await client.create(
        RESOURCE_SLICE.untyped,
        {
            "metadata": {"name": f"gpus-{node}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": one, "attributes": {"model": {"string": "a100"}}} for one in devices
                ],
            },
        },
    )


async def device_class(
    client: Client, name: str, text: str = f'device.driver == "{DRIVER}"'
) -> None:
    await client.create(
        DEVICE_CLASS.untyped,
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}]}},
    )


def wanting(count: int = 1, of: str = "gpu") -> dict[str, Any]:
    return {
        "devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": of, "count": count}}]
        }
    }


async def pod(
    client: Client,
    name: str,
    claim: dict[str, str],
    scheduler: str = "default-scheduler",
    **annotations: str,
) -> None:
    container = {
        "name": "c",
        "image": "busybox",
        "resources": {"claims": [{"name": "g"}], "requests": {"cpu": "100m"}},
    }
    await client.create(
        core.POD.untyped,
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                "resourceClaims": [{"name": "g", **claim}],
                "tolerations": [{"operator": "Exists"}],
            },
        },
        "default",
    )


async def node_of(client: Client, name: str) -> str:
    found = await client.get(core.POD.untyped, name, "default")
    return str(found["spec"].get("nodeName") or "")


async def message_of(client: Client, name: str) -> str:
    found = await client.get(core.POD.untyped, name, "default")
    return next(
        (
            str(one.get("message"))
            for one in found["status"].get("conditions") or ()
            if one["type"] == "PodScheduled"
        ),
        "",
    )


async def running(client: Client, name: str) -> dict[str, Any]:
    async def look() -> Any:
        found = await client.get(core.POD.untyped, name, "default")
        return found if found["status"].get("phase") == "Running" else None

    found: dict[str, Any] = await eventually(look)
    return found


@pytest.mark.scenario("plugins-placement", 76)
async def test_a_template_makes_a_claim_that_is_allocated_and_given_back(client):
    node = (await fakes(client))[1]
    await driver(client, node, "gpu-0")
    await device_class(client, "gpu")
    await client.create(
        RESOURCE_CLAIM_TEMPLATE.untyped,
        {"metadata": {"name": "one-gpu"}, "spec": {"spec": wanting()}},
        "default",
    )
    await pod(client, "train", {"resourceClaimTemplateName": "one-gpu"})
    found = await running(client, "train")
    assert found["spec"]["nodeName"] == node
    name = found["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    claim = await client.get(RESOURCE_CLAIM.untyped, name, "default")
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["request"], result["driver"], result["pool"], result["device"]) == (
        "gpu",
        DRIVER,
        node,
        "gpu-0",
    )
    assert [one["name"] for one in claim["status"]["reservedFor"]] == ["train"]

    await pod(client, "next", {"resourceClaimTemplateName": "one-gpu"})

    async def refused() -> bool:
        return "cannot allocate all claims" in await message_of(client, "next")

    await eventually(refused)
    await client.delete(core.POD, "train", "default", grace=0)
    await eventually(lambda: is_gone(client, RESOURCE_CLAIM, name, "default"))
    assert (await running(client, "next"))["spec"]["nodeName"] == node


@pytest.mark.scenario("plugins-placement", 76)
async def test_several_pods_share_a_claim_that_a_user_made(client):
    nodes = await fakes(client)
    await driver(client, nodes[0], "gpu-0")
    await device_class(client, "gpu")
    await client.create(
        RESOURCE_CLAIM.untyped, {"metadata": {"name": "ours"}, "spec": wanting()}, "default"
    )
    group = {"metadata": {"name": "team"}, "spec": {"minMember": 4, "queue": "default"}}
    await client.create(scheduling.POD_GROUP.untyped, group, "default")
    names = [f"shares-{number}" for number in range(4)]
    for name in names:
        await pod(
            client,
            name,
            {"resourceClaimName": "ours"},
            "volcano",
            **{"scheduling.k8s.io/group-name": "team"},
        )
    assert {(await running(client, name))["spec"]["nodeName"] for name in names} == {nodes[0]}
    claim = await client.get(RESOURCE_CLAIM.untyped, "ours", "default")
    assert sorted(one["name"] for one in claim["status"]["reservedFor"]) == names

    for name in names:
        await client.delete(core.POD, name, "default", grace=0)

    async def free() -> bool:
        return (
            not (await client.get(RESOURCE_CLAIM.untyped, "ours", "default"))
            .get("status", {})
            .get("allocation")
        )

    await eventually(free)
    await client.delete(scheduling.POD_GROUP, "team", "default")


@pytest.mark.scenario("plugins-placement", 78)
async def test_a_class_that_comes_late_lets_its_pods_start(client):
    node = (await fakes(client))[2]
    await driver(client, node, "gpu-0")
    await client.create(
        RESOURCE_CLAIM.untyped,
        {"metadata": {"name": "mine"}, "spec": wanting(of="late")},
        "default",
    )
    await pod(client, "waits", {"resourceClaimName": "mine"})

    async def told() -> bool:
        return "request gpu: device class late does not exist" in await message_of(client, "waits")

    await eventually(told)
    await device_class(client, "late")
    assert (await running(client, "waits"))["spec"]["nodeName"] == node


@pytest.mark.scenario("plugins-placement", 79)
async def test_one_device_a_node_makes_pods_go_apart(client):
    nodes = await fakes(client)
    for node in nodes:
        await driver(client, node, "gpu-0")
    await device_class(client, "gpu")
    await client.create(
        RESOURCE_CLAIM_TEMPLATE.untyped,
        {"metadata": {"name": "one-gpu"}, "spec": {"spec": wanting()}},
        "default",
    )
    for number in range(len(nodes)):
        await pod(client, f"apart-{number}", {"resourceClaimTemplateName": "one-gpu"})
    assert (
        sorted(
            [
                (await running(client, f"apart-{number}"))["spec"]["nodeName"]
                for number in range(len(nodes))
            ]
        )
        == nodes
    )
