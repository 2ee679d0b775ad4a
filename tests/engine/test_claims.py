"""Pods that claim devices: who gets which, on which node, and what is said where nobody can."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World, policy

DRIVER = "gpu.example.com"


def world(*nodes: str, plugins: Any = ("gang", "predicates", "nodeorder"), actions: str = "enqueue, allocate, backfill") -> World:
    here = World(policy(plugins=list(plugins), actions=actions))
    here.nodes(*nodes, cpu=64)
    device_class(here, "gpu")
    return here


def device_class(here: World, name: str, *selectors: str, **spec: Any) -> None:
    cel = [{"cel": {"expression": one}} for one in selectors]
    here.state.upsert_other("DeviceClass", {"metadata": {"name": name}, "spec": {"selectors": cel, **spec}})


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def slice_of(
    here: World, pool: str, *devices: Any, driver: str = DRIVER, number: int = 0, of: int = 1, generation: int = 1, **spec: Any
) -> None:
    """A ResourceSlice; without a word on nodes it belongs to the node that its pool is named after."""
    if not {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & set(spec):
        spec = {"nodeName": pool, **spec}
    here.state.upsert_other("ResourceSlice", {
        "metadata": {"name": f"{driver}-{pool}-{number}"},
        "spec": {
            "driver": driver, "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
            "devices": [device(one) if isinstance(one, str) else one for one in devices], **spec,
        },
    })  # fmt: skip


def request(name: str = "req", cls: str = "gpu", count: int = 1, *, every: bool = False, when: Any = (), **more: Any) -> dict[str, Any]:
    mode = {"allocationMode": "All"} if every else {"allocationMode": "ExactCount", "count": count}
    selectors = [{"cel": {"expression": one}} for one in when]
    return {"name": name, "exactly": {"deviceClassName": cls, "selectors": selectors, **mode, **more}}


def first_of(name: str, *alternatives: tuple[str, int], cls: str = "gpu") -> dict[str, Any]:
    listed = [{"name": one, "deviceClassName": cls, "allocationMode": "ExactCount", "count": count} for one, count in alternatives]
    return {"name": name, "firstAvailable": listed}


def claim(here: World, name: str, *requests: dict[str, Any], status: Any = None, uid: str = "", **spec: Any) -> None:
    listed = list(requests) or [request()]
    here.state.upsert_other("ResourceClaim", {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"claim-{name}"},
        "spec": {"devices": {"requests": listed, **spec}}, "status": status or {},
    })  # fmt: skip


def pod(here: World, name: str, *claims: str, **more: Any) -> None:
    here.job(name, pods=0, min_available=1)
    here.pod(f"{name}-0", job=name, spec=using(*claims), **more)


def using(*claims: str) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    return {"resourceClaims": [{"name": f"c{at}", "resourceClaimName": one} for at, one in enumerate(claims)], "containers": containers}


def devices(here: World, name: str, pod: str) -> set[str]:
    """What a claim was given for a pod in the last cycle."""
    bind = next(one for one in here.decisions.binds if one.pod == f"default/{pod}")
    return {one["device"] for one in bind.claims[f"default/{name}"]["devices"]["results"]}


def settle(here: World) -> None:
    """As the world's, and claims show what they were given."""
    for bind in here.decisions.binds:
        for key, allocation in bind.claims.items():
            tree = here.state.others["ResourceClaim"][key]
            users = [*tree["status"].get("reservedFor", ()), {"resource": "pods", "name": bind.pod.partition("/")[2], "uid": bind.uid}]
            here.state.upsert_other("ResourceClaim", {**tree, "status": {"allocation": allocation, "reservedFor": users}})
    here.settle()


def release(here: World, name: str) -> None:
    """What the controller of claims does once no pod needs one any more."""
    tree = here.state.others["ResourceClaim"][f"default/{name}"]
    here.state.upsert_other("ResourceClaim", {**tree, "status": {}})


def refusal(here: World, name: str) -> str:
    return here.state.jobs[f"default/{name}"].fit_errors[f"default/{name}-0"].text


@pytest.mark.scenario("scheduler-core", 17)
def test_a_pod_goes_where_its_device_is():
    here = world("n1", "n2")
    slice_of(here, "n2", "gpu-0")
    claim(here, "mine")
    pod(here, "one", "mine")
    bind, = here.run().binds
    assert bind.node == "n2"
    assert bind.claims["default/mine"] == {
        "devices": {"results": [{"request": "req", "driver": DRIVER, "pool": "n2", "device": "gpu-0"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]},
    }


@pytest.mark.scenario("plugins-placement", 77)
def test_one_device_serves_ten_claims_one_after_another():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    for number in range(10):
        claim(here, f"c{number}")
        pod(here, f"p{number}", f"c{number}")
    served = set()
    for _ in range(10):
        bind, = here.run().binds
        name = bind.job.partition("/")[2]
        served.add(name)
        settle(here)
        assert not here.run().binds
        waiting = {f"p{number}" for number in range(10)} - served
        assert {refusal(here, one) for one in waiting} <= {"0/1 nodes are unavailable: 1 cannot allocate all claims."}
        here.end(name)
        release(here, name.replace("p", "c"))
    assert len(served) == 10


@pytest.mark.scenario("plugins-placement", 77)
def test_ten_pods_share_one_claim():
    here = world("n1", "n2")
    slice_of(here, "n2", "gpu-0")
    claim(here, "shared")
    here.job("team", pods=0, min_available=10)
    for number in range(10):
        here.pod(f"team-{number}", job="team", spec=using("shared"))
    assert {bind.node for bind in here.run().binds} == {"n2"} and len(here.decisions.binds) == 10
    assert {str(bind.claims) for bind in here.decisions.binds} == {str(here.decisions.binds[0].claims)}


@pytest.mark.scenario("plugins-placement", 78)
def test_a_class_that_is_missing_is_named_and_waited_for():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    claim(here, "mine", request("req", cls="nope"))
    pod(here, "one", "mine")
    assert not here.run().binds
    assert refusal(here, "one") == (
        "0/1 nodes are unavailable: 1 plugin DynamicResources pre-predicates failed request req: device class nope does not exist."
    )
    device_class(here, "nope")
    assert here.run().binds


@pytest.mark.scenario("plugins-placement", 78)
def test_a_selector_that_means_nothing_keeps_pods_waiting_until_it_is_corrected():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    device_class(here, "gpu", "false")
    claim(here, "mine")
    pod(here, "one", "mine")
    assert not here.run().binds and refusal(here, "one") == "0/1 nodes are unavailable: 1 cannot allocate all claims."
    device_class(here, "gpu", f'device.driver == "{DRIVER}"')
    assert here.run().binds


@pytest.mark.scenario("plugins-placement", 78)
def test_a_pod_whose_status_says_that_no_claim_is_needed_starts_without():
    here = world("n1")
    here.job("one", pods=0, min_available=1)
    here.pod("one-0", job="one", spec={"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]}, cpu=1)
    assert not here.run().binds and "waiting for the resource claim controller" in refusal(here, "one")
    tree = here.pods["default/one-0"]
    tree["status"]["resourceClaimStatuses"] = [{"name": "c"}]
    here.state.upsert_pod(tree)
    assert here.run().binds


@pytest.mark.scenario("plugins-placement", 79)
def test_pods_with_a_device_each_go_to_nodes_with_one_each():
    here = world("n1", "n2", "n3")
    here.job("wide", pods=0, min_available=3)
    for number in range(1, 4):
        slice_of(here, f"n{number}", "gpu-0")
        claim(here, f"c{number}")
        here.pod(f"wide-{number}", job="wide", spec=using(f"c{number}"))
    assert {bind.node for bind in here.run().binds} == {"n1", "n2", "n3"}


@pytest.mark.scenario("plugins-placement", 80)
def test_the_first_alternative_decides_for_the_node_that_has_it():
    here = world("b", "a")
    slice_of(here, "a", "gpu-0", "gpu-1")
    slice_of(here, "b", "gpu-0")
    claim(here, "mine", first_of("my-request", ("preferred", 2), ("second", 1)))
    pod(here, "one", "mine")
    bind, = here.run().binds
    assert bind.node == "a"
    results = bind.claims["default/mine"]["devices"]["results"]
    assert [one["request"] for one in results] == ["my-request/preferred"] * 2


@pytest.mark.scenario("scheduler-core", 18)
def test_a_selector_that_fails_on_a_device_binds_nothing_and_says_so():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    device_class(here, "gpu", f'device.attributes["{DRIVER}"].model == "x"')
    claim(here, "mine")
    pod(here, "one", "mine")
    assert not here.run().binds and here.phase("one") == "Inqueue"
    assert "selector of device gpu-0 failed" in refusal(here, "one")
