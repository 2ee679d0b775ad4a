"""Disruption budgets and what an eviction may do, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.kinds import Kind
from hekla.api.kubernetes import apps, core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.api.kubernetes.policy import POD_DISRUPTION_BUDGET
from hekla.kube.client import Client
from hekla.kube.errors import TooManyRequests
from tests.controller_manager.live import cluster, eventually, is_gone, pod, report

BUDGETS = POD_DISRUPTION_BUDGET.untyped


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("budgets")) as started:
        yield started


async def make_budget(client: Client, namespace: str, **spec: Any) -> None:
    body = {
        "metadata": {"name": "guard"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }
    await client.create(BUDGETS, body, namespace)


async def counted(client: Client, namespace: str, **numbers: int) -> dict[str, Any]:
    """The status, once it has these numbers for this generation of the budget."""

    async def look() -> Any:
        found = await client.get(BUDGETS, "guard", namespace)
        status = found.get("status", {})
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return (
            status
            if current and all(status.get(name, 0) == number for name, number in numbers.items())
            else None
        )

    status: dict[str, Any] = await eventually(look)
    return status


async def make_pods(
    client: Client, namespace: str, *names: str, ready: bool = True, **metadata: Any
) -> None:
    for name in names:
        body = pod(name, labels={"app": "web"}, nodeName="somewhere")
        body["metadata"].update(metadata)
        await client.create(core.POD.untyped, body, namespace)
        await report(client, namespace, name, ready=ready)


async def evict(client: Client, namespace: str, name: str) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    await client.post(core.POD, name, namespace, "eviction", body)


async def test_as_many_pods_may_go_as_are_above_the_minimum(client, namespace):
    await make_budget(client, namespace, minAvailable=2)
    await make_pods(client, namespace, "a", "b", "c")
    status = await counted(
        client, namespace, disruptionsAllowed=1, currentHealthy=3, desiredHealthy=2, expectedPods=3
    )
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "True",
        "SufficientPods",
    )

    await evict(client, namespace, "a")

    with pytest.raises(TooManyRequests) as refused:
        await evict(client, namespace, "b")
    assert refused.value.causes[0].reason == "DisruptionBudget"
    status = await counted(client, namespace, disruptionsAllowed=0, currentHealthy=2)
    assert status["conditions"][0]["reason"] == "InsufficientPods"
    await client.delete(core.POD, "a", namespace, grace=0)
    await make_pods(client, namespace, "d")
    await counted(client, namespace, disruptionsAllowed=1, currentHealthy=3)
    assert (
        "deletionTimestamp" not in (await client.get(core.POD.untyped, "b", namespace))["metadata"]
    )


async def test_a_share_is_counted_of_what_the_deployment_wants(client, namespace):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
    }
    body = {
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    await client.create(apps.DEPLOYMENT.untyped, body, namespace)
    await make_budget(client, namespace, maxUnavailable="50%")

    await counted(
        client, namespace, expectedPods=3, desiredHealthy=1, currentHealthy=0, disruptionsAllowed=0
    )
    names = [
        found["metadata"]["name"]
        for found in (await client.list(core.POD.untyped, namespace)).items
    ]
    for name in names:
        await report(client, namespace, name)
    await counted(client, namespace, currentHealthy=3, disruptionsAllowed=2)

    await client.patch(apps.DEPLOYMENT, "web", {"spec": {"replicas": 5}}, namespace)
    await counted(client, namespace, expectedPods=5, desiredHealthy=2)


async def test_the_scale_of_a_custom_resource_counts(client, namespace):
    definition = {
        "metadata": {"name": "fleets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "fleets", "singular": "fleet", "kind": "Fleet"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                    "subresources": {
                        "scale": {
                            "specReplicasPath": ".spec.size",
                            "statusReplicasPath": ".status.size",
                        }
                    },
                }
            ],
        },
    }
    await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
    fleets: Kind[dict[str, Any]] = Kind("example.com", "v1", "Fleet", "fleets", True, dict)
    fleet = await eventually(
        lambda: client.create(fleets, {"metadata": {"name": "f"}, "spec": {"size": 4}}, namespace)
    )
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Fleet",
        "name": "f",
        "uid": fleet["metadata"]["uid"],
        "controller": True,
    }
    await make_pods(client, namespace, "a", "b", "c", ownerReferences=[owner])

    await make_budget(client, namespace, maxUnavailable=2)

    await counted(
        client, namespace, expectedPods=4, desiredHealthy=2, currentHealthy=3, disruptionsAllowed=1
    )


async def test_where_nobody_can_count_nobody_is_disrupted(client, namespace):
    owner = await client.create(core.CONFIG_MAP.untyped, {"metadata": {"name": "odd"}}, namespace)
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "odd",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    await make_pods(client, namespace, "a", ownerReferences=[reference])

    await make_budget(client, namespace, minAvailable="10%")

    status = await counted(client, namespace, disruptionsAllowed=0)
    assert status["conditions"][0]["reason"] == "SyncFailed"


async def test_an_unhealthy_pod_goes_where_the_policy_lets_it(client, namespace):
    await make_budget(client, namespace, minAvailable=2, unhealthyPodEvictionPolicy="AlwaysAllow")
    await make_pods(client, namespace, "fine")
    await make_pods(client, namespace, "broken", ready=False)
    await counted(client, namespace, currentHealthy=1, disruptionsAllowed=0)

    await evict(client, namespace, "broken")
    with pytest.raises(TooManyRequests):
        await evict(client, namespace, "fine")

    assert (await client.get(core.POD.untyped, "broken", namespace))["metadata"][
        "deletionTimestamp"
    ]
    await client.delete(core.POD, "broken", namespace, grace=0)
    await eventually(lambda: is_gone(client, core.POD, "broken", namespace))
