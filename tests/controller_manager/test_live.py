"""The built-in controllers on a real API server, both as processes."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.kubernetes import apps, core
from hekla.api.kubernetes.discovery import ENDPOINT_SLICE
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden
from tests.controller_manager.live import cluster, eventually, is_gone, new_namespace


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("controllers")) as started:
        yield started


@pytest.fixture
async def namespace(client) -> str:
    name = await new_namespace(client)
    await eventually(lambda: client.get(core.SERVICE_ACCOUNT, "default", name))
    return name


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def owner_of(tree: dict[str, Any], *, block: bool = False) -> dict[str, Any]:
    meta = tree["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": meta["name"],
        "uid": meta["uid"],
        "blockOwnerDeletion": block,
    }


TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "pause"}]},
}


async def ready(client: Client, namespace: str, pod: str, ip: str = "127.0.0.9") -> None:
    """What a kubelet would report."""
    status = {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch(core.POD, pod, {"status": status}, namespace, subresource="status")


async def test_a_new_namespace_has_an_account_and_the_certificate(client, namespace):
    root = await eventually(
        lambda: client.get(core.CONFIG_MAP.untyped, "kube-root-ca.crt", namespace)
    )
    assert "BEGIN CERTIFICATE" in root["data"]["ca.crt"]

    await client.delete(core.SERVICE_ACCOUNT, "default", namespace)

    assert await eventually(lambda: client.get(core.SERVICE_ACCOUNT, "default", namespace))


async def test_the_token_of_an_account_goes_with_it(client, namespace):
    for name in ("robot", "other"):
        await client.create(core.SERVICE_ACCOUNT.untyped, {"metadata": {"name": name}}, namespace)
        secret = {
            "metadata": {
                "name": f"{name}-token",
                "annotations": {"kubernetes.io/service-account.name": name},
            },
            "type": "kubernetes.io/service-account-token",
        }
        made = await client.create(core.SECRET.untyped, secret, namespace)
        assert made["data"]["token"]

    await client.delete(core.SERVICE_ACCOUNT, "robot", namespace)

    assert await eventually(lambda: is_gone(client, core.SECRET, "robot-token", namespace))
    assert await client.get(core.SECRET, "other-token", namespace)


async def test_dependents_go_with_their_owner(client, namespace):
    owner = await client.create(core.CONFIG_MAP.untyped, config_map("owner"), namespace)
    await client.create(
        core.CONFIG_MAP.untyped, config_map("child", ownerReferences=[owner_of(owner)]), namespace
    )

    await client.delete(core.CONFIG_MAP, "owner", namespace, propagation="Background")

    assert await eventually(lambda: is_gone(client, core.CONFIG_MAP, "child", namespace))


async def test_orphans_stay_and_forget_their_owner(client, namespace):
    owner = await client.create(core.CONFIG_MAP.untyped, config_map("owner"), namespace)
    await client.create(
        core.CONFIG_MAP.untyped, config_map("child", ownerReferences=[owner_of(owner)]), namespace
    )

    await client.delete(core.CONFIG_MAP, "owner", namespace, propagation="Orphan")

    assert await eventually(lambda: is_gone(client, core.CONFIG_MAP, "owner", namespace))
    child = await client.get(core.CONFIG_MAP.untyped, "child", namespace)
    assert not child["metadata"].get("ownerReferences")


async def test_in_the_foreground_the_owner_waits_for_those_that_block(client, namespace):
    owner = await client.create(core.CONFIG_MAP.untyped, config_map("owner"), namespace)
    child = config_map(
        "child", ownerReferences=[owner_of(owner, block=True)], finalizers=["example.com/hold"]
    )
    await client.create(core.CONFIG_MAP.untyped, child, namespace)

    await client.delete(core.CONFIG_MAP, "owner", namespace, propagation="Foreground")
    await eventually(lambda: deleting(client, "child", namespace))

    assert (
        "foregroundDeletion"
        in (await client.get(core.CONFIG_MAP.untyped, "owner", namespace))["metadata"]["finalizers"]
    )
    await client.patch(core.CONFIG_MAP, "child", {"metadata": {"finalizers": None}}, namespace)
    assert await eventually(lambda: is_gone(client, core.CONFIG_MAP, "owner", namespace))


async def test_owners_in_a_circle_go_together(client, namespace):
    made = [
        await client.create(core.CONFIG_MAP.untyped, config_map(name), namespace)
        for name in ("one", "two", "three")
    ]
    for owner, dependent in zip(made, ("two", "three", "one")):
        patch = {"metadata": {"ownerReferences": [owner_of(owner, block=True)]}}
        await client.patch(core.CONFIG_MAP, dependent, patch, namespace)

    await client.delete(core.CONFIG_MAP, "one", namespace, propagation="Foreground")

    for name in ("one", "two", "three"):
        await eventually(lambda name=name: is_gone(client, core.CONFIG_MAP, name, namespace))


async def deleting(client: Client, name: str, namespace: str) -> bool:
    return (
        "deletionTimestamp"
        in (await client.get(core.CONFIG_MAP.untyped, name, namespace))["metadata"]
    )


async def test_an_object_whose_owner_never_existed_is_collected(client, namespace):
    nobody = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "nobody",
        "uid": "00000000-0000-0000-0000-000000000000",
    }
    await client.create(
        core.CONFIG_MAP.untyped, config_map("lost", ownerReferences=[nobody]), namespace
    )

    assert await eventually(lambda: is_gone(client, core.CONFIG_MAP, "lost", namespace))


async def test_one_of_two_owners_going_leaves_the_object(client, namespace):
    first = await client.create(core.CONFIG_MAP.untyped, config_map("first"), namespace)
    second = await client.create(core.CONFIG_MAP.untyped, config_map("second"), namespace)
    child = config_map("child", ownerReferences=[owner_of(first), owner_of(second)])
    await client.create(core.CONFIG_MAP.untyped, child, namespace)

    await client.delete(core.CONFIG_MAP, "first", namespace)

    async def only_second() -> bool:
        owners = (await client.get(core.CONFIG_MAP.untyped, "child", namespace))["metadata"][
            "ownerReferences"
        ]
        return [owner["name"] for owner in owners] == ["second"]

    assert await eventually(only_second)


async def test_a_namespace_goes_with_all_it_holds(client, namespace):
    held = config_map("held", finalizers=["example.com/hold"])
    await client.create(core.CONFIG_MAP.untyped, held, namespace)
    await client.delete(core.NAMESPACE, namespace)

    async def explained() -> str:
        conditions = (await client.get(core.NAMESPACE.untyped, namespace))["status"].get(
            "conditions", []
        )
        return next(
            (c["message"] for c in conditions if c["type"] == "NamespaceFinalizersRemaining"), ""
        )

    assert "example.com/hold in 1 resource instances" in await eventually(explained)
    with pytest.raises(Forbidden):
        await client.create(core.CONFIG_MAP.untyped, config_map("late"), namespace)
    await client.patch(core.CONFIG_MAP, "held", {"metadata": {"finalizers": None}}, namespace)
    assert await eventually(lambda: is_gone(client, core.NAMESPACE, namespace))


async def test_a_replica_set_keeps_its_number(client, namespace):
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    await client.create(
        apps.REPLICA_SET.untyped, {"metadata": {"name": "web"}, "spec": spec}, namespace
    )
    pods = await eventually(lambda: of_number(client, namespace, 3))

    await client.delete(core.POD, pods[0].metadata.name, namespace, grace=0)
    await eventually(lambda: of_number(client, namespace, 3))
    await client.patch(apps.REPLICA_SET, "web", {"spec": {"replicas": 1}}, namespace)

    assert await eventually(lambda: of_number(client, namespace, 1))


async def test_a_pod_whose_label_changes_is_released_and_replaced(client, namespace):
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    await client.create(
        apps.REPLICA_SET.untyped, {"metadata": {"name": "web"}, "spec": spec}, namespace
    )
    (pod,) = await eventually(lambda: of_number(client, namespace, 1))

    await client.patch(
        core.POD, pod.metadata.name, {"metadata": {"labels": {"app": "other"}}}, namespace
    )

    await eventually(lambda: of_number(client, namespace, 2))
    released = await eventually(lambda: without_owner(client, namespace))
    assert [p.metadata.name for p in released] == [pod.metadata.name]


async def of_number(client: Client, namespace: str, count: int) -> list[core.Pod] | None:
    pods = (await client.list(core.POD, namespace)).items
    return pods if len(pods) == count else None


async def without_owner(client: Client, namespace: str) -> list[core.Pod]:
    return [
        pod
        for pod in (await client.list(core.POD, namespace)).items
        if not pod.metadata.owner_references
    ]


async def test_a_deployment_rolls_from_one_template_to_the_next(client, namespace):
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    await client.create(
        apps.DEPLOYMENT.untyped, {"metadata": {"name": "web"}, "spec": spec}, namespace
    )

    async def settled(revision: str) -> bool:
        for pod in (await client.list(core.POD, namespace)).items:
            if pod.status.phase != "Running":
                await ready(client, namespace, pod.metadata.name)
        deployment = await client.get(apps.DEPLOYMENT.untyped, "web", namespace)
        status, meta = deployment.get("status", {}), deployment["metadata"]
        counts = [status.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        seen = status.get("observedGeneration") == meta["generation"]
        return (
            seen
            and counts == [2, 2, 2]
            and meta.get("annotations", {}).get("deployment.kubernetes.io/revision") == revision
        )

    await eventually(lambda: settled("1"))
    await client.patch(
        apps.DEPLOYMENT,
        "web",
        {"spec": {"template": {"metadata": {"annotations": {"again": "1"}}}}},
        namespace,
    )
    await eventually(lambda: settled("2"))

    sets = (await client.list(apps.REPLICA_SET.untyped, namespace)).items
    assert sorted(s["spec"]["replicas"] for s in sets) == [0, 2]
    conditions = (await client.get(apps.DEPLOYMENT.untyped, "web", namespace))["status"][
        "conditions"
    ]
    assert {c["type"]: c["reason"] for c in conditions} == {
        "Available": "MinimumReplicasAvailable",
        "Progressing": "NewReplicaSetAvailable",
    }


async def test_endpoints_follow_the_pods_of_a_service(client, namespace):
    service = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    await client.create(core.SERVICE.untyped, service, namespace)
    await client.create(
        core.POD.untyped,
        {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": TEMPLATE["spec"]},
        namespace,
    )

    await ready(client, namespace, "p", "127.0.0.77")

    async def addresses() -> list[str]:
        tree = await client.get(core.ENDPOINTS.untyped, "web", namespace)
        return [a["ip"] for subset in tree.get("subsets", ()) for a in subset.get("addresses", ())]

    assert await eventually(addresses) == ["127.0.0.77"]

    async def in_slices() -> list[bool]:
        slices = (
            await client.list(
                ENDPOINT_SLICE.untyped, namespace, labels="kubernetes.io/service-name=web"
            )
        ).items
        return [
            one["conditions"]["ready"] for each in slices for one in each.get("endpoints") or ()
        ]

    assert await eventually(in_slices) == [True]
