"""Claims that the scheduler makes for extended resources, and claims that it takes back: as it
writes them, and on a live server."""

from __future__ import annotations

import contextlib
import copy
from functools import partial
from typing import Any

import pytest

from hekla.api.kubernetes import core, resource
from hekla.kube.errors import ApiError, Conflict, NotFound
from hekla.scheduler.claims import ClaimBinder, ClaimError
from tests.scheduler.test_claims import GIVEN, Server, claim, users
from tests.scheduler.test_live import Site, client, site

Tree = dict[str, Any]

__all__ = ["client", "site"]

GPU = "example.com/gpu"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
SPEC = {
    "devices": {
        "requests": [
            {
                "name": "r",
                "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            }
        ]
    }
}
IMPLIED = {"spec": SPEC, "allocation": GIVEN, "mappings": ((1, GPU, "r"),)}


class Making(Server):
    """As the other, and objects can be made and deleted.  `broken`: what answers with an error."""

    def __init__(self, *objects: dict[str, Any], broken: str = "") -> None:
        super().__init__(*objects)
        self.broken = broken

    async def create(self, kind: Any, body: Any, namespace: str) -> Any:
        name = body["metadata"]["generateName"] + str(len(self.objects))
        metadata = {
            **body["metadata"],
            "name": name,
            "namespace": namespace,
            "uid": name,
            "resourceVersion": "1",
        }
        self.objects[name] = {**copy.deepcopy(body), "metadata": metadata}
        return copy.deepcopy(self.objects[name])

    async def patch(
        self, kind: Any, name: str, patch: Any, namespace: str | None = None, **how: Any
    ) -> Any:
        if "status" in patch:
            if self.broken == "status":
                raise ApiError(500, "InternalError", "no")
            self.objects[name].setdefault("status", {}).update(patch["status"])
            return copy.deepcopy(self.objects[name])
        return await super().patch(kind, name, patch, namespace, **how)

    async def delete(self, kind: Any, name: str, namespace: str, uid: str = "") -> None:
        assert self.objects[name]["metadata"]["uid"] == uid
        del self.objects[name]


def the_pod(**status: Any) -> dict[str, Any]:
    spec = {"initContainers": [{"name": "first"}], "containers": [{"name": "main"}]}
    return {
        "metadata": {"name": "pod", "namespace": "ns", "uid": "u1", "resourceVersion": "1"},
        "spec": spec,
        "status": status,
    }


async def test_the_claim_is_made_and_the_pod_says_which_container_has_what():
    server = Making(the_pod())
    await ClaimBinder(server).make(IMPLIED, "ns/pod", "u1")
    (name,) = set(server.objects) - {"pod"}
    made = server.objects[name]
    assert name.startswith("pod-extended-resources-") and made["spec"] == SPEC
    assert made["metadata"]["annotations"] == {EXTENDED: "true"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert made["status"]["allocation"] == GIVEN and users(server, name) == ["pod"]
    assert server.objects["pod"]["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": name,
        "requestMappings": [{"containerName": "main", "resourceName": GPU, "requestName": "r"}],
    }


async def test_one_that_was_made_for_a_bind_that_failed_is_not_left_behind():
    server = Making(the_pod(), broken="status")
    binder = ClaimBinder(server)
    with pytest.raises(ApiError):
        await binder.make(IMPLIED, "ns/pod", "u1")
    await binder.unmake("u1")
    assert set(server.objects) == {"pod"} and binder.made == {}
    server.broken = ""
    await binder.make(IMPLIED, "ns/pod", "u1")
    # Another process that knows nothing of the first.
    await ClaimBinder(server).make(IMPLIED, "ns/pod", "u1")
    assert len(server.objects) == 2


async def test_a_pod_that_was_made_anew_gets_no_claim_of_the_old_one():
    server = Making(the_pod())
    with pytest.raises(ClaimError, match="another one now"):
        await ClaimBinder(server).make(IMPLIED, "ns/pod", "u0")
    assert set(server.objects) == {"pod"}


async def test_what_is_in_the_way_is_freed_unless_somebody_relies_on_it():
    mine, other = (
        {"resource": "pods", "name": "pod", "uid": "u1"},
        {"resource": "pods", "name": "other", "uid": "u2"},
    )
    server = Making(
        claim("unused", allocation=GIVEN),
        claim("mine", allocation=GIVEN, reservedFor=[mine]),
        claim("shared", allocation=GIVEN, reservedFor=[mine, other]),
    )
    binder = ClaimBinder(server)
    for name in ("unused", "mine", "shared", "gone"):
        await binder.free(f"ns/{name}", "u1")
    assert server.objects["unused"]["status"] == server.objects["mine"]["status"] == {}
    assert (
        users(server, "shared") == ["pod", "other"]
        and server.objects["shared"]["status"]["allocation"] == GIVEN
    )


async def offer(site: Site, *devices: dict[str, Any]) -> tuple[Tree, Tree]:
    """One node with these devices; the slice that lists them, and a container that asks for one by
    the name of a resource."""
    node = await site.node("n1")
    driver, name = f"{site.name}.example.com", f"{site.name}.example.com/gpu"
    chosen = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    body: Tree = {
        "metadata": {"name": site.name},
        "spec": {"selectors": chosen, "extendedResourceName": name},
    }
    await site.client.create(resource.DEVICE_CLASS.untyped, body)
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    listed: Tree = {
        "metadata": {"name": site.name},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)},
    }
    made = await site.client.create(resource.RESOURCE_SLICE.untyped, listed)
    amounts = {"cpu": "100m", name: "1"}
    return made, {
        "name": "main",
        "image": "pause",
        "resources": {"requests": amounts, "limits": amounts},
    }


async def claim_of(site: Site, pod: str) -> Tree:
    said = (await site.pod(pod))["status"]["extendedResourceClaimStatus"]
    return await site.client.get(
        resource.RESOURCE_CLAIM.untyped, said["resourceClaimName"], "default"
    )


def devices_in(claim: Tree) -> list[str]:
    return [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]


async def is_refused(site: Site, pod: str) -> bool:
    conditions = (await site.pod(pod))["status"].get("conditions") or []
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


async def test_a_pod_has_devices_of_a_driver_by_the_name_of_a_resource(site: Site) -> None:
    _, container = await offer(site, {"name": "gpu-0"})
    site.start()
    await site.job("one", 1, containers=[container])
    await site.until_bound(1)
    said = (await site.pod("one-0"))["status"]["extendedResourceClaimStatus"]
    name = f"{site.name}.example.com/gpu"
    assert said["requestMappings"] == [
        {"containerName": "main", "resourceName": name, "requestName": "container-0-request-0"}
    ]
    made = await claim_of(site, "one-0")
    assert devices_in(made) == ["gpu-0"]
    assert [one["name"] for one in made["status"]["reservedFor"]] == [f"{site.name}-one-0"]
    await site.job("two", 1, containers=[container])
    await site.until(partial(is_refused, site, "two-0"), "the second pod finds no device")
    await site.client.delete(core.POD, f"{site.name}-one-0", "default", grace=0)
    # Where no controllers run beside the server the claim goes by hand, as it would with its pod.
    with contextlib.suppress(NotFound, Conflict):
        await site.client.update_status(resource.RESOURCE_CLAIM.untyped, {**made, "status": {}})
        name, free = said["resourceClaimName"], {"metadata": {"finalizers": None}}
        await site.client.patch(resource.RESOURCE_CLAIM.untyped, name, free, "default")
        await site.client.delete(resource.RESOURCE_CLAIM.untyped, name, "default")
    await site.until_bound(1)


async def test_a_device_that_its_driver_has_tainted_is_given_to_nobody_until_it_is_well_again(
    site: Site,
) -> None:
    taint = {"key": f"{site.name}.example.com/hot", "effect": "NoSchedule"}
    made, container = await offer(site, {"name": "gpu-0", "taints": [taint]}, {"name": "gpu-1"})
    site.start()
    await site.job("one", 1, containers=[container])
    await site.until_bound(1)
    assert devices_in(await claim_of(site, "one-0")) == ["gpu-1"]
    await site.job("two", 1, containers=[container])
    await site.until(
        partial(is_refused, site, "two-0"), "the second pod waits for the device that is tainted"
    )

    made["spec"]["pool"]["generation"] = 2
    del made["spec"]["devices"][0]["taints"]
    await site.client.update(resource.RESOURCE_SLICE.untyped, made)
    await site.until_bound(2)
    assert devices_in(await claim_of(site, "two-0")) == ["gpu-0"]
