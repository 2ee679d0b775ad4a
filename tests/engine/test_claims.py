"""Pods that claim devices: who gets which, on which node, and what is said where nobody can."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.engine.world import World, policy

DRIVER = "gpu.example.com"


def world(
    *nodes: str,
    plugins: Any = ("gang", "predicates", "nodeorder"),
    actions: str = "enqueue, allocate, backfill",
) -> World:
    here = World(policy(plugins=list(plugins), actions=actions))
    here.nodes(*nodes, cpu=64)
    device_class(here, "gpu")
    return here


def device_class(here: World, name: str, *selectors: str, **spec: Any) -> None:
    cel = [{"cel": {"expression": one}} for one in selectors]
    here.state.upsert_other(
        "DeviceClass", {"metadata": {"name": name}, "spec": {"selectors": cel, **spec}}
    )


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def slice_of(
    here: World,
    pool: str,
    *devices: Any,
    driver: str = DRIVER,
    number: int = 0,
    of: int = 1,
    generation: int = 1,
    **spec: Any,
) -> None:
    """A ResourceSlice; without a word on nodes it belongs to the node that its pool is named after."""
    if not {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & set(spec):
        spec = {"nodeName": pool, **spec}
    here.state.upsert_other(
        "ResourceSlice",
        {
            "metadata": {"name": f"{driver}-{pool}-{number}"},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
                "devices": [device(one) if isinstance(one, str) else one for one in devices],
                **spec,
            },
        },
    )


def request(
    name: str = "req",
    cls: str = "gpu",
    count: int = 1,
    *,
    every: bool = False,
    when: Any = (),
    **more: Any,
) -> dict[str, Any]:
    mode = {"allocationMode": "All"} if every else {"allocationMode": "ExactCount", "count": count}
    selectors = [{"cel": {"expression": one}} for one in when]
    return {
        "name": name,
        "exactly": {"deviceClassName": cls, "selectors": selectors, **mode, **more},
    }


def first_of(name: str, *alternatives: tuple[str, int], cls: str = "gpu") -> dict[str, Any]:
    listed = [
        {"name": one, "deviceClassName": cls, "allocationMode": "ExactCount", "count": count}
        for one, count in alternatives
    ]
    return {"name": name, "firstAvailable": listed}


def claim(
    here: World,
    name: str,
    *requests: dict[str, Any],
    status: Any = None,
    uid: str = "",
    **spec: Any,
) -> None:
    listed = list(requests) or [request()]
    here.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {"name": name, "namespace": "default", "uid": uid or f"claim-{name}"},
            "spec": {"devices": {"requests": listed, **spec}},
            "status": status or {},
        },
    )


def pod(here: World, name: str, *claims: str, **more: Any) -> None:
    here.job(name, pods=0, min_available=1)
    here.pod(f"{name}-0", job=name, spec=using(*claims), **more)


def using(*claims: str) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "resourceClaims": [
            {"name": f"c{at}", "resourceClaimName": one} for at, one in enumerate(claims)
        ],
        "containers": containers,
    }


def devices(here: World, name: str, pod: str) -> set[str]:
    """What a claim was given for a pod in the last cycle."""
    bind = next(one for one in here.decisions.binds if one.pod == f"default/{pod}")
    return {one["device"] for one in bind.claims[f"default/{name}"]["devices"]["results"]}


def settle(here: World) -> None:
    """As the world's, and claims show what they were given."""
    for bind in here.decisions.binds:
        for key, allocation in bind.claims.items():
            tree = here.state.others["ResourceClaim"][key]
            users = [
                *(tree["status"].get("reservedFor") or ()),
                {"resource": "pods", "name": bind.pod.partition("/")[2], "uid": bind.uid},
            ]
            here.state.upsert_other(
                "ResourceClaim",
                {**tree, "status": {"allocation": allocation, "reservedFor": users}},
            )
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
    (bind,) = here.run().binds
    assert bind.node == "n2"
    assert bind.claims["default/mine"] == {
        "devices": {
            "results": [{"request": "req", "driver": DRIVER, "pool": "n2", "device": "gpu-0"}]
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
            ]
        },
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
        (bind,) = here.run().binds
        name = bind.job.partition("/")[2]
        served.add(name)
        settle(here)
        assert not here.run().binds
        waiting = {f"p{number}" for number in range(10)} - served
        assert {refusal(here, one) for one in waiting} <= {
            "0/1 nodes are unavailable: 1 cannot allocate all claims."
        }
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
    assert {str(bind.claims) for bind in here.decisions.binds} == {
        str(here.decisions.binds[0].claims)
    }


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
    assert (
        not here.run().binds
        and refusal(here, "one") == "0/1 nodes are unavailable: 1 cannot allocate all claims."
    )
    device_class(here, "gpu", f'device.driver == "{DRIVER}"')
    assert here.run().binds


@pytest.mark.scenario("plugins-placement", 78)
def test_a_pod_whose_status_says_that_no_claim_is_needed_starts_without():
    here = world("n1")
    here.job("one", pods=0, min_available=1)
    here.pod(
        "one-0",
        job="one",
        spec={"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]},
        cpu=1,
    )
    assert not here.run().binds and "waiting for the resource claim controller" in refusal(
        here, "one"
    )
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
    (bind,) = here.run().binds
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


# ---------------------------------------------------------------------------- what requests may say


def held(here: World) -> dict[Any, int]:
    return dict(here.state.claims.usage.held)


def test_all_devices_of_a_node_or_none():
    here = world("n1", "n2")
    slice_of(here, "n1", "gpu-0", "gpu-1")
    slice_of(here, "n2", "gpu-0", "gpu-1", "gpu-2")
    claim(here, "one", request(when=[f'device.driver == "{DRIVER}"']))
    here.job("first", pods=0, min_available=1)
    here.pod(
        "first-0",
        job="first",
        spec={**using("one"), "nodeSelector": {"kubernetes.io/hostname": "n1"}},
    )
    here.run()
    settle(here)
    claim(here, "every", request(every=True))
    pod(here, "second", "every")
    (bind,) = here.run().binds
    assert bind.node == "n2" and devices(here, "every", "second-0") == {"gpu-0", "gpu-1", "gpu-2"}
    settle(here)
    claim(here, "again", request(every=True))
    pod(here, "third", "again")
    assert not here.run().binds


def test_looking_after_a_device_that_is_in_use():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    for name, admin in (("user", False), ("admin", True), ("late", False)):
        claim(here, name, request(**({"adminAccess": True} if admin else {})))
        pod(here, name, name)
        if admin:
            (bind,) = here.run().binds
            assert bind.claims["default/admin"]["devices"]["results"][0]["adminAccess"] is True
            settle(here)
            here.end("user")
            release(here, "user")
        elif name == "user":
            here.run()
            settle(here)
    assert len(here.run().binds) == 1  # who only looks after it does not keep it from others


def test_who_waits_for_devices_is_told_so():
    here = world("n1", "n2")
    slice_of(here, "n1", "gpu-0")
    claim(here, "mine", request(count=2))
    pod(here, "a", "mine")
    here.run()
    assert here.why("a") == (
        "a needs 1 pod of cpu=1; 0 fit. 2 nodes: 2 have no devices that its claims ask for. "
        "It starts when the devices that its claims ask for come free, or more are offered."
    )
    claim(
        here,
        "ours",
        status={
            "allocation": {
                "devices": {"results": []},
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ]
                        }
                    ]
                },
            }
        },
    )
    here.nodes("n1", cpu=64, unschedulable=True)
    pod(here, "b", "ours")
    here.run()
    assert "1 has no way to the devices that its claims were given" in here.why(
        "b"
    ) and "1 is cordoned" in here.why("b")


def test_devices_that_agree_and_devices_that_differ():
    here = world("n1")
    numa = [
        {
            "name": f"gpu-{at}",
            "attributes": {"numa": {"int": at % 2}, "id": {"string": f"x{at // 2}"}},
        }
        for at in range(4)
    ]
    slice_of(here, "n1", *numa)
    claim(here, "same", request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/numa"}])
    pod(here, "a", "same")
    here.run()
    assert devices(here, "same", "a-0") in ({"gpu-0", "gpu-2"}, {"gpu-1", "gpu-3"})
    other = world("n1")
    slice_of(other, "n1", *numa)
    claim(
        other,
        "apart",
        request(count=2),
        constraints=[{"distinctAttribute": f"{DRIVER}/numa"}, {"matchAttribute": f"{DRIVER}/id"}],
    )
    pod(other, "a", "apart")
    other.run()
    assert devices(other, "apart", "a-0") in ({"gpu-0", "gpu-1"}, {"gpu-2", "gpu-3"})
    claim(other, "unknown", request(), constraints=[{"matchAttribute": "other.example.com/numa"}])
    pod(other, "b", "unknown")
    assert not other.run().binds or all(bind.pod != "default/b-0" for bind in other.decisions.binds)


def test_a_tainted_device_goes_to_who_tolerates_it():
    here = world("n1")
    slice_of(
        here,
        "n1",
        device("gpu-0", taints=[{"key": "broken", "value": "yes", "effect": "NoSchedule"}]),
    )
    claim(here, "mine")
    pod(here, "a", "mine")
    assert not here.run().binds
    claim(here, "tough", request(tolerations=[{"key": "broken", "operator": "Exists"}]))
    pod(here, "b", "tough")
    (bind,) = here.run().binds
    assert bind.pod == "default/b-0"
    assert bind.claims["default/tough"]["devices"]["results"][0]["tolerations"] == [
        {"key": "broken", "operator": "Exists"}
    ]


def test_parts_of_a_device_share_its_counters():
    """One card of 40 GiB that can be had whole, or in two halves: a half keeps the whole from
    others, not the other half."""
    here = world("n1")

    def part(name: str, memory: str) -> dict[str, Any]:
        return device(
            name,
            consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": memory}}}],
            attributes={"size": {"string": memory}},
        )

    counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
    slice_of(
        here,
        "n1",
        part("whole", "40Gi"),
        part("half-0", "20Gi"),
        part("half-1", "20Gi"),
        sharedCounters=counters,
    )
    half = [f'device.attributes["{DRIVER}"].size == "20Gi"']
    whole = [f'device.attributes["{DRIVER}"].size == "40Gi"']
    for name, when in (("a", half), ("b", whole), ("c", half), ("d", half)):
        claim(here, name, request(when=when))
        pod(here, name, name)
    assert {bind.pod for bind in here.run().binds} == {"default/a-0", "default/c-0"}
    settle(here)
    for name in ("a", "c", "d"):
        here.end(name)
        release(here, name)
    here.state.remove_pod("default/d-0")
    assert {bind.pod for bind in here.run().binds} == {"default/b-0"}


def test_shares_of_a_device_add_up_to_its_capacity():
    here = world("n1")
    policy_of_bandwidth = {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}
    capacity = {"bandwidth": {"value": "10G", "requestPolicy": policy_of_bandwidth}}
    slice_of(here, "n1", device("nic", allowMultipleAllocations=True, capacity=capacity))
    for name, amount in (("a", "4G"), ("b", "4500M"), ("c", "2G"), ("d", None)):
        claim(
            here,
            name,
            request(**({"capacity": {"requests": {"bandwidth": amount}}} if amount else {})),
        )
        pod(here, name, name)
    placed = {
        bind.pod: bind.claims[f"default/{bind.job.partition('/')[2]}"]["devices"]["results"][0]
        for bind in here.run().binds
    }
    shares = {pod: one["consumedCapacity"]["bandwidth"] for pod, one in placed.items()}
    assert shares == {"default/a-0": "4G", "default/b-0": "5G", "default/d-0": "1G"}
    assert len({one["shareID"] for one in placed.values()}) == 3
    assert here.state.claims.usage.consumed == {(DRIVER, "n1", "nic"): {"bandwidth": 10**13}}


def test_devices_behind_the_network_are_seen_from_their_nodes():
    here = world("n1")
    here.nodes("n2", cpu=64, labels={"rack": "r1"})
    here.nodes("n3", cpu=64, labels={"rack": "r1"})
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    slice_of(here, "fabric", "d-0", "d-1", nodeSelector={"nodeSelectorTerms": [term]})
    here.job("pair", pods=0, min_available=2)
    for number in range(2):
        claim(here, f"c{number}")
        here.pod(f"pair-{number}", job="pair", spec=using(f"c{number}"))
    found = here.run().binds
    assert len(found) == 2 and {bind.node for bind in found} <= {"n2", "n3"}
    assert {
        one["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0]
        for bind in found
        for one in bind.claims.values()
    } == {"r1"}
    assert len(held(here)) == 2
    everywhere = world("n1")
    slice_of(everywhere, "cloud", "d-0", allNodes=True)
    claim(everywhere, "mine")
    pod(everywhere, "a", "mine")
    (bind,) = everywhere.run().binds
    assert "nodeSelector" not in bind.claims["default/mine"]


def test_each_device_may_say_where_it_is():
    here = world("n1", "n2")
    listed = [device("d-0", nodeName="n2"), device("d-1", allNodes=True)]
    slice_of(here, "mixed", *listed, perDeviceNodeSelection=True)
    claim(here, "both", request(count=2))
    pod(here, "a", "both")
    (bind,) = here.run().binds
    assert bind.node == "n2"


def test_a_pool_that_is_being_written_is_left_alone():
    here = world("n1")
    slice_of(here, "n1", "gpu-0", number=0, of=2)
    claim(here, "mine")
    pod(here, "a", "mine")
    assert not here.run().binds
    slice_of(here, "n1", "gpu-1", number=1, of=2)
    assert here.run().binds
    newer = world("n1")
    slice_of(newer, "n1", "old", number=0, generation=1)
    slice_of(newer, "n1", "new", number=1, generation=2)
    claim(newer, "mine")
    pod(newer, "a", "mine")
    newer.run()
    assert devices(newer, "mine", "a-0") == {"new"}


def test_what_drivers_are_told():
    here = world("n1")
    device_class(
        here, "gpu", config=[{"opaque": {"driver": DRIVER, "parameters": {"mode": "class"}}}]
    )
    slice_of(here, "n1", "gpu-0", "gpu-1")
    own = [
        {"requests": [name], "opaque": {"driver": DRIVER, "parameters": {"mode": "claim"}}}
        for name in ("b", "z")
    ]
    claim(here, "mine", request("a"), request("b"), config=own)
    pod(here, "p", "mine")
    (bind,) = here.run().binds
    assert [
        (one["source"], one["requests"]) for one in bind.claims["default/mine"]["devices"]["config"]
    ] == [("FromClass", ["a"]), ("FromClass", ["b"]), ("FromClaim", ["b"])]


def test_a_claim_of_another_pod_is_not_taken():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    here.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {
                "name": "theirs",
                "namespace": "default",
                "ownerReferences": [{"kind": "Pod", "name": "x", "uid": "other"}],
            },
            "spec": {"devices": {"requests": [request()]}},
            "status": {},
        },
    )
    pod(here, "a", "theirs")
    assert not here.run().binds and "was not created for the pod" in refusal(here, "a")


def test_nonsense_is_left_out_and_said():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    here.state.upsert_other(
        "ResourceSlice", {"metadata": {"name": "bad"}, "spec": {"driver": "x", "pool": None}}
    )
    here.state.upsert_other(
        "ResourceSlice",
        {
            "metadata": {"name": "odd"},
            "spec": {
                "driver": DRIVER,
                "nodeName": "n1",
                "pool": {"name": "odd", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d", "attributes": {"numa": {"int": {"deep": 1}}}}],
            },
        },
    )
    assert ("ResourceSlice", "bad") in here.state.rejected
    claim(here, "strange", {"name": "r", "exactly": {"deviceClassName": "gpu", "count": "many"}})
    claim(here, "stranger", constraints=[{"matchAttribute": f"{DRIVER}/numa"}])
    claim(here, "mine")
    for name in ("strange", "stranger", "mine"):
        pod(here, name, name)
    assert [bind.pod for bind in here.run().binds] == [
        "default/mine-0"
    ] and not here.decisions.problems
    assert "cannot be understood" in refusal(here, "strange")


def test_what_was_decided_counts_until_the_api_shows_it_and_a_refused_bind_gives_it_back():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    for name in ("a", "b"):
        claim(here, name)
        pod(here, name, name)
    (first,) = here.run().binds
    # Nobody has written anything yet, and the device is gone all the same.
    assert not here.run().binds
    here.state.bind_failed(first.pod)
    (again,) = here.run().binds
    assert len(held(here)) == 1 and again.claims
    settle(here)
    assert not here.state.claims.promises and len(held(here)) == 1


@pytest.mark.scenario("plugins-placement", 82)
def test_queues_have_a_quota_of_devices():
    here = world("n1", plugins=["gang", "predicates", "capacity"])
    slice_of(
        here, "n1", *(device(f"gpu-{at}", capacity={"cores": {"value": "400"}}) for at in range(8))
    )
    here.queue(
        "q",
        capability={
            "deviceclass/gpu": "4",
            "cores.deviceclass/gpu": "400",
            "cpu": "100",
            "memory": "1000Gi",
        },
    )

    def ask(name: str, count: int, cores: int = 0) -> None:
        more = {"capacity": {"requests": {"cores": str(cores)}}} if cores else {}
        claim(here, f"claim-{name}", request(count=count, **more))
        here.job(name, pods=0, min_available=1, queue="q")
        here.pod(f"{name}-0", job=name, spec=using(f"claim-{name}"))

    ask("two", 2, 1)
    here.job("shares", pods=0, min_available=1, queue="q")
    here.pod("shares-0", job="shares", spec=using("claim-two"))
    assert {bind.pod for bind in here.run().binds} == {"default/two-0", "default/shares-0"}
    settle(here)
    (allocated,) = [queue.allocated for queue in here.decisions.queues if queue.name == "q"]
    assert allocated["deviceclass/gpu"] == "2"
    ask("three", 3, 1)
    assert not here.run().binds  # 2 + 3 of 4
    here.state.remove_pod("default/three-0")
    ask("many-cores", 1, 300)
    assert here.run().binds
    settle(here)
    ask("more-cores", 1, 200)
    assert not here.run().binds  # 302 + 200 of 400
    here.end("many-cores")
    release(here, "claim-many-cores")
    assert [bind.pod for bind in here.run().binds] == ["default/more-cores-0"]


def test_the_example_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "scheduler" / "dynamic-resources.md").read_text()
    example, _ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    here = world("n1", "n2")
    for tree in yaml.safe_load_all(example):
        tree.setdefault("status", {})
        if tree["kind"] == "Pod":
            here.state.upsert_pod(tree)
        else:
            here.state.upsert_other(tree["kind"], tree)
    (bind,) = here.run().binds
    assert bind.node == "n1" and devices(here, "neighbours", "train") == {"gpu-1", "gpu-2"}
