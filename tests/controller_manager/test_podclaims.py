"""Claims of devices that are made for pods and given back after them, on a real API server."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.resource import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICE
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.events import Recorder
from hekla.local.controller_manager.daemon import owners
from hekla.local.controller_manager.pods import PODS, Pod
from hekla.local.controller_manager.volumes.podclaims import ResourceClaimController
from tests.controller_manager.live import cluster, eventually, is_gone, pod, report

CLAIMS, TEMPLATES = RESOURCE_CLAIM.untyped, RESOURCE_CLAIM_TEMPLATE.untyped
DEVICES = {
    "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}
}
ALLOCATION = {
    "devices": {
        "results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}]
    }
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("claims")) as started:
        yield started


async def allocate(client: Client, namespace: str, claim: str, *pods: dict[str, Any]) -> None:
    """What the scheduler writes."""
    await client.patch(
        CLAIMS,
        claim,
        {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}},
        namespace,
    )
    reserved = [
        {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]}
        for p in pods
    ]
    body = {"status": {"allocation": ALLOCATION, "reservedFor": reserved}}
    await client.patch(CLAIMS, claim, body, namespace, subresource="status")


async def test_a_template_becomes_a_claim_of_the_pod_and_ends_with_it(client, namespace):
    wanted = [{"name": "gpus", "resourceClaimTemplateName": "one-gpu"}]
    made = await client.create(
        core.POD.untyped, pod("trainer", resourceClaims=wanted, nodeName="somewhere"), namespace
    )
    template = {
        "metadata": {"name": "one-gpu"},
        "spec": {"metadata": {"labels": {"of": "gpu"}}, "spec": DEVICES},
    }
    await client.create(TEMPLATES, template, namespace)  # later than the pod

    async def named() -> Any:
        statuses = (await client.get(core.POD.untyped, "trainer", namespace))["status"].get(
            "resourceClaimStatuses"
        )
        return statuses and statuses[0].get("resourceClaimName")

    name = await eventually(named)
    assert name.startswith("trainer-gpus-")
    claim = await client.get(CLAIMS, name, namespace)
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpus"
    assert claim["metadata"]["labels"] == {"of": "gpu"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert len((await client.list(CLAIMS, namespace)).items) == 1

    await allocate(client, namespace, name, made)
    await report(client, namespace, "trainer", phase="Succeeded", ready=False)

    await eventually(lambda: is_gone(client, CLAIMS, name, namespace))


async def test_a_taint_on_a_device_ends_the_pods_that_do_not_bear_it(client, namespace):
    driver = f"{namespace}.example.com"
    made: dict[str, Any] = {
        "metadata": {"name": namespace},
        "spec": {
            "driver": driver,
            "nodeName": "somewhere",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        },
    }
    made = await client.create(RESOURCE_SLICE.untyped, made)
    ever = {"operator": "Exists"}
    for name, tolerations in (
        ("weak", None),
        ("tough", [ever]),
        ("patient", [{**ever, "tolerationSeconds": 1}]),
    ):
        user = await client.create(core.POD.untyped, pod(name, nodeName="somewhere"), namespace)
        await client.create(CLAIMS, {"metadata": {"name": name}, "spec": DEVICES}, namespace)
        result = {
            **ALLOCATION["devices"]["results"][0],
            "driver": driver,
            "tolerations": tolerations,
        }
        reserved = [{"resource": "pods", "name": name, "uid": user["metadata"]["uid"]}]
        body = {
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        }
        await client.patch(CLAIMS, name, body, namespace, subresource="status")
        await report(client, namespace, name, phase="Running", ready=True)
    made["spec"]["devices"][0]["taints"] = [{"key": "hot", "effect": "NoExecute"}]
    await client.update(RESOURCE_SLICE.untyped, made)

    async def leaving() -> set[str]:
        pods = (await client.list(core.POD.untyped, namespace)).items
        return {"weak", "tough", "patient"} - {
            one["metadata"]["name"] for one in pods if not one["metadata"].get("deletionTimestamp")
        }

    async def both() -> bool:
        return await leaving() == {"weak", "patient"}

    await eventually(both)


async def test_a_shared_claim_is_freed_by_the_last_of_its_pods(client, namespace):
    await client.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": DEVICES}, namespace)
    uses = [{"name": "gpus", "resourceClaimName": "shared"}]
    pods = [
        await client.create(
            core.POD.untyped, pod(name, resourceClaims=uses, nodeName="n"), namespace
        )
        for name in ("a", "b")
    ]
    await allocate(client, namespace, "shared", *pods)

    async def reserved(*names: str) -> bool:
        status = (await client.get(CLAIMS, "shared", namespace)).get("status", {})
        return [one["name"] for one in status.get("reservedFor", [])] == list(names) and (
            "allocation" in status
        ) == bool(names)

    await client.delete(core.POD, "a", namespace, grace=0)
    await eventually(lambda: reserved("b"))
    await report(client, namespace, "b", phase="Failed", ready=False)
    await eventually(lambda: reserved())

    async def unprotected() -> bool:
        return not (await client.get(CLAIMS, "shared", namespace))["metadata"].get("finalizers")

    await eventually(unprotected)


class Late:
    """A server whose watches bring nothing yet."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patches: list[dict[str, Any]] = []

    async def create(self, kind: Any, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        name = f"{body['metadata']['generateName']}{len(self.created)}"
        self.created.append({**body, "metadata": {**body["metadata"], "name": name}})
        self.created[-1]["metadata"]["namespace"] = namespace
        return self.created[-1]

    async def patch(self, kind: Any, name: str, patch: dict[str, Any], *_: Any, **__: Any) -> None:
        self.patches.append(patch)


async def test_a_claim_is_created_once_however_late_the_watch_of_claims() -> None:
    server = Late()
    client = cast(Client, server)
    pods = Cache(client, PODS)
    claims = Cache(client, CLAIMS, indexes={"owner": owners})
    templates = Cache(client, TEMPLATES)
    controller = ResourceClaimController(
        client, pods, claims, templates, Recorder(client, "resource-claim")
    )
    templates._put("n/one-gpu", {"metadata": {"name": "one-gpu", "namespace": "n"}, "spec": {"spec": DEVICES}})  # fmt: skip
    wanted = [{"name": "gpus", "resourceClaimTemplateName": "one-gpu"}]
    tree = pod("trainer", resourceClaims=wanted)
    tree["metadata"].update(namespace="n", uid="u")

    async def look(status: dict[str, Any]) -> int:
        """The pod comes with this status; how many claims have been created by then."""
        pods._put("n/trainer", msgspec.convert({**tree, "status": status}, Pod))
        await controller.reconcile("pod/n/trainer")
        return len(server.created)

    assert await look({}) == 1
    assert await look({}) == 1, "the status has not come back"
    first = server.patches[0]["status"]
    assert await look(first) == 1, "the status has come back, the claim has not"
    claims._put("n/trainer-gpus-0", server.created[0])
    assert await look(first) == 1
    claims._remove("n/trainer-gpus-0")
    assert await look(first) == 2, "the claim is gone, and the pod needs one"
    pods._remove("n/trainer")
    assert controller.created == {}
