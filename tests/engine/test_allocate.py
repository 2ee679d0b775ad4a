"""enqueue and allocate without domains: who enters, who is served when, what stops whom.
Reference: scheduler-core 10.1, 10.2."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.model.tasks import Status
from hekla.engine.world import World, policy
from tests.engine.flags import only


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


ENQUEUE = [
    only("drf", "JobOrder", "JobEnqueued"),
    only("proportion", "QueueOrder", "JobEnqueued"),
    only("sla", "JobOrder", "JobEnqueued", **{"sla-waiting-time": "3m"}),
    only("gang", "JobOrder"),
]
WITH_GANG = [
    only("gang", "JobOrder", "JobReady", "JobPipelined", "JobStarving"),
    only("drf", "JobOrder", "Preemptable"),
    only("proportion", "QueueOrder", "Reclaimable", "Allocatable"),
    "predicates",
    "nodeorder",
]
WITHOUT_GANG = [
    only("drf", "JobOrder"),
    only("proportion", "QueueOrder"),
    "predicates",
    "nodeorder",
]


def world(plugins: list[Any], actions: str) -> World:
    return World(policy(plugins=plugins, actions=actions))


# enqueue


@core(1)
def test_who_is_in_stays_in() -> None:
    here = world(ENQUEUE, "enqueue")
    here.nodes("n1", cpu=2)
    here.job("in", pods=2, cpu=1, phase="Inqueue")
    here.run()
    assert here.phase("in") == "Inqueue"


@core(2)
def test_who_states_no_minimum_is_let_in() -> None:
    here = world(ENQUEUE, "enqueue")
    for name in ("c1", "c2"):
        here.queue(name)
        here.job(f"in-{name}", cpu=1, queue=name, phase="Pending")
    here.run()
    assert [here.phase("in-c1"), here.phase("in-c2")] == ["Inqueue", "Inqueue"]


@core(3)
def test_who_runs_goes_on_running() -> None:
    here = world(ENQUEUE, "enqueue")
    here.nodes("n1", cpu=2)
    here.job("runs", pods=2, cpu=1, on=["n1", "n1"], phase="Running")
    here.run()
    assert here.phase("runs") == "Running"


@core(4)
def test_a_queue_that_does_not_exist_harms_nobody() -> None:
    here = world(ENQUEUE, "enqueue, allocate")
    here.queue("c2")
    here.nodes("n1", cpu=2)
    here.job("lost", cpu=1, queue="c1", phase="Pending")
    decisions = here.run()
    assert here.phase("lost") == "Pending"
    assert (decisions.binds, decisions.problems) == ([], [])
    (told,) = decisions.pod_groups
    assert (told.key, told.phase) == ("default/lost", "Pending")
    assert told.conditions[0]["message"].startswith("lost names queue c1, which does not exist")


@core(5)
def test_more_than_the_queue_may_ever_have_stays_out() -> None:
    here = world(ENQUEUE, "enqueue")
    here.nodes("n1", cpu=20, memory="20Gi")
    here.queue("small", capability={"cpu": "1", "memory": "1G"})
    here.job(
        "big", cpu=1, queue="small", phase="Pending", min_resources={"cpu": "8", "memory": "8G"}
    )
    here.run()
    assert here.phase("big") == "Pending"


# allocate


@core(12)
def test_the_queue_with_the_smaller_share_is_served_first() -> None:
    here = world(WITHOUT_GANG, "allocate")
    here.queue("q-1")
    here.queue("q-2")
    here.nodes("n1", cpu=5)
    here.job("holds", cpu=1, on=["n1"], queue="q-1")
    here.job("waits", cpu=2, queue="q-1")
    here.job("comes", cpu=3, queue="q-2")
    assert set(here.run().bound()) == {"default/comes-task-0"}


@core(13)
def test_shares_are_counted_again_after_each_job() -> None:
    here = world(WITHOUT_GANG, "allocate")
    here.queue("q-1")
    here.queue("q-2")
    here.nodes("n1", cpu=5)
    here.job("holds", cpu=1, on=["n1"], queue="q-1")
    here.job("waits", cpu=2, queue="q-1")
    here.job("first", cpu=2, queue="q-2")
    here.job("second", cpu=1, queue="q-2")
    assert list(here.run().bound()) == ["default/first-task-0", "default/waits-task-0"]


@core(14)
def test_a_group_that_has_all_it_wants_holds_nobody_up() -> None:
    here = world(WITHOUT_GANG, "allocate")
    here.nodes("n1", cpu=2)
    here.job("content", cpu=1, on=["n1"], phase="Running")
    here.job("next", cpu=1)
    assert set(here.run().bound()) == {"default/next-task-0"}


@core(15)
@pytest.mark.parametrize(
    ("configurations", "value"), [([], True), ([{"predicateErrorCacheEnable": False}], False)]
)
def test_the_flag_of_the_error_cache(configurations: list[dict[str, Any]], value: bool) -> None:
    listed = [{"name": "allocate", "arguments": one} for one in configurations]
    made = policy(plugins=["gang"], configurations=listed)
    assert made.configurations.get("allocate", {}).get("predicateErrorCacheEnable", True) is value


@core(16)
@pytest.mark.parametrize(("cpu", "binds"), [(1, 0), (2, 2)])
def test_a_gang_with_a_volume_that_is_bound_already(cpu: int, binds: int) -> None:
    here = world(WITH_GANG, "allocate")
    here.nodes("n1", cpu=cpu)
    here.state.upsert_other(
        "StorageClass",
        {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"},
    )
    here.state.upsert_other(
        "PersistentVolume",
        {
            "metadata": {"name": "disk"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "claimRef": {"namespace": "default", "name": "data", "uid": "u1"},
            },
            "status": {"phase": "Bound"},
        },
    )
    here.state.upsert_other(
        "PersistentVolumeClaim",
        {
            "metadata": {
                "name": "data",
                "namespace": "default",
                "uid": "u1",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "volumeName": "disk",
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Bound"},
        },
    )
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    here.job("pair", pods=2, cpu=1, spec=volume)
    assert len(here.run().binds) == binds
    assert here.phase("pair") == "Inqueue"
    assert len(here.state.jobs["default/pair"].counts.statuses[Status.BINDING]) == binds


def device_world(expression: str = "") -> World:
    """A node with one device of class gpu.example.com, and a pod that claims one."""
    here = world(WITH_GANG, "allocate")
    here.nodes("n1", cpu=2)
    device = {"name": "gpu-0", "attributes": {"kind": {"string": "gpu"}}}
    here.state.upsert_other(
        "ResourceSlice",
        {
            "metadata": {"name": "slice"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "n1",
                "devices": [device],
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            },
        },
    )
    selectors = [{"cel": {"expression": expression}}] if expression else []
    here.state.upsert_other(
        "DeviceClass", {"metadata": {"name": "gpu.example.com"}, "spec": {"selectors": selectors}}
    )
    here.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {"name": "gpu", "namespace": "default", "uid": "claim-1"},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "one",
                            "exactly": {
                                "deviceClassName": "gpu.example.com",
                                "count": 1,
                                "allocationMode": "ExactCount",
                            },
                        }
                    ]
                }
            },
        },
    )
    here.job("user", cpu=1, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})
    return here


@core(17)
@pytest.mark.parametrize("expression", ["", 'device.driver == "gpu.example.com"'])
def test_a_device_that_matches_is_taken(expression: str) -> None:
    here = device_world(expression)
    assert here.run().bound() == {"default/user-task-0": "n1"}
    assert len(here.state.jobs["default/user"].counts.statuses[Status.BINDING]) == 1


@core(18)
def test_an_expression_that_fails_binds_nothing() -> None:
    here = device_world('device.attributes["gpu.example.com"].absent > 1')
    assert here.run().binds == []
    assert here.phase("user") == "Inqueue"
