"""Volumes decide where a pod may go, and a placement decides where unbound volumes go."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.model import volumes
from hekla.engine.world import World, policy

HOST = "kubernetes.io/hostname"


def world(*nodes: str, **labels: str) -> World:
    here = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    here.nodes(*nodes, cpu=4, labels=labels)
    return here


def storage(
    here: World,
    name: str,
    *,
    wait: bool = True,
    provisioner: str = volumes.NO_PROVISIONER,
    **more: Any,
) -> None:
    mode = volumes.WAIT if wait else "Immediate"
    here.state.upsert_other(
        "StorageClass",
        {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more},
    )


def volume(
    here: World, name: str, size: str = "1Gi", *, node: str = "", of: str = "local", **labels: str
) -> None:
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "storageClassName": of,
        "accessModes": ["ReadWriteOnce"],
    }
    if node:
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    here.state.upsert_other(
        "PersistentVolume",
        {
            "metadata": {
                "name": name,
                "labels": {
                    key.replace("__", "/").replace("_", "."): value for key, value in labels.items()
                },
            },
            "spec": spec,
            "status": {"phase": "Available"},
        },
    )


def claim(
    here: World, name: str, size: str = "1Gi", *, of: str = "local", bound: str = "", **meta: Any
) -> None:
    here.state.upsert_other(
        "PersistentVolumeClaim",
        {
            "metadata": {"name": name, "namespace": "default", **meta},
            "spec": {
                "storageClassName": of,
                "volumeName": bound,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
            },
            "status": {"phase": "Bound" if bound else "Pending"},
        },
    )


def pod(here: World, name: str, *claims: str) -> None:
    mounts = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    here.job(name, pods=0, min_available=1)
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    here.pod(f"{name}-task-0", job=name, spec={"volumes": mounts, "containers": containers})


def refusal(here: World, name: str) -> str:
    return here.state.jobs[f"default/{name}"].fit_errors[f"default/{name}-task-0"].text


@pytest.mark.scenario("plugins-placement", 20)
def test_pods_follow_the_volume_that_their_claim_is_bound_to() -> None:
    here = world("n1", "n2")
    volume(here, "disk", node="n2")
    claim(here, "data", bound="disk")
    pod(here, "a", "data")
    pod(here, "b", "data")
    assert set(here.run().bound().values()) == {"n2"}
    here.state.remove_node("n2")
    pod(here, "c", "data")
    here.run()
    assert volumes.NOT_AFFINE in refusal(here, "c")


def test_a_claim_takes_the_smallest_volume_that_suits() -> None:
    here = world("n1")
    storage(here, "local")
    volume(here, "large", "10Gi", node="n1")
    volume(here, "small", "2Gi", node="n1")
    volume(here, "tiny", "1Gi", node="n1")
    claim(here, "data", "2Gi")
    pod(here, "a", "data")
    (bind,) = here.run().binds
    assert bind.volumes == {"default/data": "small"}


def test_a_volume_is_promised_once_even_within_a_cycle() -> None:
    here = world("n1", "n2")
    storage(here, "local")
    volume(here, "v1", node="n1")
    volume(here, "v2", node="n2")
    for name in ("a", "b", "c"):
        claim(here, f"data-{name}")
        pod(here, name, f"data-{name}")
    binds = here.run().binds
    assert {bind.volumes[f"default/data-{bind.pod.split('/')[1][0]}"] for bind in binds} == {
        "v1",
        "v2",
    }
    assert len(binds) == 2
    (left,) = {"a", "b", "c"} - {bind.pod.split("/")[1][0] for bind in binds}
    assert volumes.NOT_FOUND in refusal(here, left)


def test_a_gang_that_does_not_fit_gives_its_volumes_back() -> None:
    here = world("n1")
    storage(here, "local")
    volume(here, "v1", node="n1")
    claim(here, "data")
    here.job("gang", pods=1, cpu=9, min_available=2)
    mount = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    here.pod("gang-task-9", job="gang", cpu=1, spec=mount)
    assert here.run().binds == []
    assert here.state.volumes.promises == {}


def test_a_shared_claim_keeps_its_pods_together() -> None:
    here = world("n1", "n2")
    storage(here, "fast", provisioner="csi.example")
    claim(here, "data", of="fast")
    here.job("pair", pods=0, min_available=2)
    for number in range(2):
        mount = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
        here.pod(f"pair-task-{number}", job="pair", cpu=2, spec=mount)
    assert len(set(here.run().bound().values())) == 1


def test_claims_that_nothing_can_be_done_about() -> None:
    here = world("n1")
    storage(here, "now", wait=False, provisioner="csi.example")
    claim(here, "immediate", of="now")
    claim(here, "leaving", of="now", deletionTimestamp="2026-01-01T00:00:00Z")
    claim(here, "gone", bound="nowhere")
    for name, reason in (
        ("missing", 'persistentvolumeclaim "missing" not found'),
        ("leaving", 'persistentvolumeclaim "leaving" is being deleted'),
        ("immediate", volumes.IMMEDIATE),
        ("gone", volumes.NOT_THERE),
    ):
        pod(here, f"wants-{name}", name)
        here.run()
        assert reason in refusal(here, f"wants-{name}")
    claim(here, "missing", bound="disk")
    volume(here, "disk")
    assert set(here.run().bound()) == {"default/wants-missing-task-0"}, "as soon as it is there"


@pytest.mark.scenario("plugins-placement", 23)
def test_a_volume_is_provisioned_where_its_class_allows() -> None:
    here = world("n1", zone="a")
    here.nodes("n2", labels={"zone": "b"})
    only = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    storage(here, "fast", provisioner="csi.example", allowedTopologies=only)
    claim(here, "data", of="fast")
    pod(here, "a", "data")
    (bind,) = here.run().binds
    assert (bind.node, bind.volumes) == ("n2", {"default/data": ""})


def test_storage_that_runs_out_is_said() -> None:
    here = world("n1")
    storage(here, "fast", provisioner="csi.example")
    here.state.upsert_other(
        "CSIDriver", {"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": True}}
    )
    here.state.upsert_other(
        "CSIStorageCapacity",
        {
            "metadata": {"name": "one", "namespace": "default"},
            "storageClassName": "fast",
            "capacity": "5Gi",
            "nodeTopology": {"matchLabels": {HOST: "n1"}},
        },
    )
    claim(here, "data", "6Gi", of="fast")
    pod(here, "a", "data")
    here.run()
    assert volumes.NOT_ENOUGH in refusal(here, "a")
    claim(here, "less", "4Gi", of="fast")
    pod(here, "b", "less")
    assert len(here.run().binds) == 1


def test_zones_of_a_volume_are_zones_of_its_pods() -> None:
    here = world("n1", **{"topology.kubernetes.io/zone": "a"})
    here.nodes("n2", labels={"topology.kubernetes.io/zone": "c"})
    volume(here, "disk", topology_kubernetes_io__zone="b__c")
    claim(here, "data", bound="disk")
    pod(here, "a", "data")
    assert here.run().nodes_of("a") == {"n2"}


def test_a_node_attaches_no_more_volumes_than_its_driver_can() -> None:
    here = world("n1")
    storage(here, "fast", provisioner="csi.example")
    drivers = [{"name": "csi.example", "allocatable": {"count": 1}}]
    here.state.upsert_other("CSINode", {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    for name in ("a", "b"):
        claim(here, f"data-{name}", of="fast")
        pod(here, name, f"data-{name}")
    assert len(here.run().binds) == 1
    assert "node(s) exceed max volume count" in refusal(here, "b")
