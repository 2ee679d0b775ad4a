"""Pods that ask for an extended resource which is devices of a class; and claims that are taken
back because they are in the way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hekla.engine.model.decisions import Freed
from hekla.engine.world import World
from tests.engine.test_claims import (
    claim,
    device_class,
    pod,
    refusal,
    request,
    slice_of,
    using,
    world,
)

GPU = "example.com/gpu"


def asking(**resources: int) -> dict[str, Any]:
    requests = {
        "cpu": "1",
        **{f"example.com/{name}": str(count) for name, count in resources.items()},
    }
    return {
        "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]
    }


def one(here: World, name: str, spec: dict[str, Any] | None = None, **more: Any) -> None:
    here.job(name, pods=0, min_available=1)
    here.pod(f"{name}-0", job=name, spec=spec or asking(gpu=2), **more)


def backed(*nodes: str) -> World:
    here = world(*nodes)
    device_class(here, "gpu", extendedResourceName=GPU)
    return here


def given(here: World, name: str) -> list[str]:
    bind = next(bind for bind in here.decisions.binds if bind.pod == f"default/{name}-0")
    return sorted(result["device"] for result in bind.implied["allocation"]["devices"]["results"])


def test_devices_of_a_class_are_had_by_the_name_of_a_resource():
    here = backed("n1", "n2")
    slice_of(here, "n1", "gpu-0")
    slice_of(here, "n2", "gpu-0", "gpu-1", "gpu-2")
    one(here, "a")
    (bind,) = here.run().binds
    assert (bind.node, bind.claims, given(here, "a")) == ("n2", {}, ["gpu-0", "gpu-1"])
    assert bind.implied["spec"] == {
        "devices": {
            "requests": [
                {
                    "name": "container-0-request-0",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "allocationMode": "ExactCount",
                        "count": 2,
                    },
                }
            ]
        }
    }
    assert bind.implied["mappings"] == ((0, GPU, "container-0-request-0"),)
    one(here, "b")
    one(here, "c", asking(gpu=1))
    assert [bind.job for bind in here.run().binds] == ["default/c"], (
        "one device is left on each node"
    )


def test_the_own_name_of_a_class_will_do():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    one(
        here,
        "a",
        {
            "containers": [
                {
                    "name": "main",
                    "resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}},
                }
            ]
        },
    )
    here.run()
    assert given(here, "a") == ["gpu-0"]


def test_a_class_that_comes_later_lets_the_pod_start_and_one_that_goes_takes_that_back():
    here = world("n1")
    slice_of(here, "n1", "gpu-0", "gpu-1")
    one(here, "a", asking(gpu=1))
    assert not here.run().binds and "Insufficient example.com/gpu" in refusal(here, "a")
    device_class(here, "gpu", extendedResourceName=GPU)
    assert here.run().binds
    here.state.remove_other("DeviceClass", "gpu")
    one(here, "b", asking(gpu=1))
    assert not here.run().binds


def test_of_two_classes_the_one_that_was_made_last_counts():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    for name, made in (
        ("b", "2026-01-01T00:00:00Z"),
        ("a", "2026-01-01T00:00:00Z"),
        ("old", "2025-01-01T00:00:00Z"),
    ):
        here.state.upsert_other(
            "DeviceClass",
            {
                "metadata": {"name": name, "creationTimestamp": made},
                "spec": {"extendedResourceName": GPU},
            },
        )
    one(here, "a", asking(gpu=1))
    (bind,) = here.run().binds
    assert bind.implied["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "a"


def test_a_node_that_has_the_resource_itself_gives_it_without_a_claim():
    here = backed("dra", "plugin")
    here.nodes("plugin", cpu=64, **{GPU: 3})
    slice_of(here, "dra", "gpu-0", "gpu-1")
    for name in ("a", "b"):
        one(here, name)
    binds = {bind.node: bind for bind in here.run().binds}
    assert set(binds) == {"dra", "plugin"}
    assert binds["plugin"].implied == {} and binds["dra"].implied
    one(here, "c", asking(gpu=1))
    (bind,) = here.run().binds
    assert (bind.node, bind.implied) == ("plugin", {})


def test_what_a_node_lacks_of_two_resources_is_had_from_devices():
    here = world("n1")
    here.nodes("n1", cpu=64, **{"example.com/nic": 1})
    device_class(here, "gpu", 'device.driver == "gpu.example.com"', extendedResourceName=GPU)
    device_class(
        here, "nic", 'device.driver == "nic.example.com"', extendedResourceName="example.com/nic"
    )
    slice_of(here, "n1", "gpu-0")
    one(here, "a", asking(gpu=1, nic=1))
    (bind,) = here.run().binds
    assert [one["name"] for one in bind.implied["spec"]["devices"]["requests"]] == [
        "container-0-request-0"
    ]
    assert bind.implied["mappings"] == ((0, GPU, "container-0-request-0"),)


def test_containers_that_are_over_before_leave_their_devices_to_the_others():
    def container(name: str, count: int, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {GPU: str(count)}}, **more}

    here = backed("n1")
    slice_of(here, "n1", *(f"gpu-{at}" for at in range(6)))
    one(
        here,
        "a",
        {
            "initContainers": [
                container("warm", 3),
                container("beside", 1, restartPolicy="Always"),
            ],
            "containers": [container("main", 2)],
        },
    )
    (bind,) = here.run().binds
    assert bind.implied["mappings"] == (
        (0, GPU, "container-0-request-0"),
        (0, GPU, "container-2-request-0"),
        (1, GPU, "container-1-request-0"),
        (2, GPU, "container-2-request-0"),
    )
    counts = {
        one["name"]: one["exactly"]["count"] for one in bind.implied["spec"]["devices"]["requests"]
    }
    assert counts == {
        "container-1-request-0": 1,
        "container-2-request-0": 2,
        "container-0-request-0": 1,
    }


def test_the_written_claim_takes_the_place_of_the_promise():
    here = backed("n1")
    slice_of(here, "n1", "gpu-0", "gpu-1")
    one(here, "a", asking(gpu=1))
    (bind,) = here.run().binds
    here.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {
                "name": "a-0-extended-resources-x",
                "namespace": "default",
                "uid": "c",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "a-0", "uid": bind.uid}
                ],
            },
            "spec": bind.implied["spec"],
            "status": {"allocation": bind.implied["allocation"]},
        },
    )
    assert here.state.claims.promises == {} and list(here.state.claims.usage.held.values()) == [1]
    here.settle()
    here.end("a")
    here.state.remove_other("ResourceClaim", "default/a-0-extended-resources-x")
    one(here, "b")
    here.run()
    assert given(here, "b") == ["gpu-0", "gpu-1"] and list(
        here.state.claims.usage.held.values()
    ) == [1, 1]


def test_a_gang_by_extended_resources_is_whole_or_absent():
    here = backed("n1", "n2")
    for node in ("n1", "n2"):
        slice_of(here, node, "gpu-0", "gpu-1")
    here.job("team", pods=0, min_available=3)
    for number in range(3):
        here.pod(f"team-{number}", job="team", spec=asking(gpu=2))
    assert not here.run().binds and here.state.claims.promises == {}
    here.nodes("n3", cpu=64)
    slice_of(here, "n3", "gpu-0", "gpu-1")
    assert {bind.node for bind in here.run().binds} == {"n1", "n2", "n3"}


def test_a_claim_that_was_made_for_a_bind_that_never_was_is_given_up():
    here = backed("n1")
    slice_of(here, "n1", "gpu-0")
    left = {
        "request": "container-0-request-0",
        "driver": "gpu.example.com",
        "pool": "n1",
        "device": "gpu-0",
    }
    one(here, "a", asking(gpu=1))
    pod_tree = here.pods["default/a-0"]
    here.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {
                "name": "old",
                "namespace": "default",
                "uid": "old",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [
                    {"kind": "Pod", "name": "a-0", "uid": pod_tree["metadata"]["uid"]}
                ],
            },
            "spec": {"devices": {"requests": []}},
            "status": {"allocation": {"devices": {"results": [left]}}},
        },
    )
    pod_tree["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "old",
        "requestMappings": [],
    }
    here.state.upsert_pod(pod_tree)
    decisions = here.run()
    assert not decisions.binds
    assert decisions.freed == [Freed("default/old", pod_tree["metadata"]["uid"])]
    here.state.remove_other("ResourceClaim", "default/old")
    here.run()
    assert given(here, "a") == ["gpu-0"]


def test_the_example_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "scheduler" / "dynamic-resources.md").read_text()
    _, example = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    here = world("n1", "n2")
    here.state.pods.bare_pod_schedulers = frozenset({"default-scheduler"})
    for tree in yaml.safe_load_all(example):
        if tree["kind"] == "Pod":
            here.state.upsert_pod(tree)
        else:
            here.state.upsert_other(tree["kind"], tree)
    (bind,) = here.run().binds
    assert (bind.node, bind.pod) == ("n1", "default/plain") and len(
        bind.implied["allocation"]["devices"]["results"]
    ) == 2


# -------------------------------------------------------------------------------- claims in the way


def on(node: str, *users: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "req", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"}
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [{"resource": "pods", "name": user, "uid": user} for user in users],
    }


def test_a_claim_that_keeps_its_only_pod_from_every_node_is_freed():
    here = world("n1", "n2")
    slice_of(here, "n1", "gpu-0")
    slice_of(here, "n2", "gpu-0")
    claim(here, "mine", status=on("n1"))
    here.nodes("n1", cpu=64, unschedulable=True)
    pod(here, "a", "mine")
    decisions = here.run()
    uid = here.pods["default/a-0"]["metadata"]["uid"]
    assert (decisions.binds, decisions.freed) == ([], [Freed("default/mine", uid)])
    claim(here, "mine")
    (bind,) = here.run().binds
    assert bind.node == "n2" and not here.decisions.freed


def test_a_claim_that_others_use_stays():
    here = world("n1", "n2")
    slice_of(here, "n1", "gpu-0")
    claim(here, "shared", status=on("n1", "somebody"))
    here.nodes("n1", cpu=64, unschedulable=True)
    pod(here, "a", "shared")
    assert not here.run().binds and here.decisions.freed == []


def test_a_claim_whose_node_will_do_stays():
    here = world("n1", "n2")
    slice_of(here, "n1", "gpu-0")
    claim(here, "mine", status=on("n1"))
    pod(here, "a", "mine")
    assert [bind.node for bind in here.run().binds] == ["n1"] and here.decisions.freed == []


def test_a_claim_is_not_freed_for_a_pod_that_waits_for_another_claim_only():
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    claim(here, "mine", status=on("n1"))
    claim(here, "other", request(count=9))
    here.job("a", pods=0, min_available=1)
    here.pod("a-0", job="a", spec=using("mine", "other"))
    assert not here.run().binds and here.decisions.freed == []
