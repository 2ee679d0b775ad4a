"""PodGroups and their sub-groups as objects come and change.  Reference: scheduler-core 10.11,
10.13."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hekla.engine.cycle import cycle, hooks_of, open_session
from hekla.engine.model.queues.devicequota import claims_of, minimum
from hekla.engine.model.reading import policy_of
from hekla.engine.model.tasks import Status, SubGroupPolicy, Topology
from hekla.engine.world import World, policy
from tests.engine.trees import hyper


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


@pytest.fixture
def world() -> World:
    here = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    here.nodes("n1", cpu=8)
    return here


# minimums by role


@core(131)
@pytest.mark.parametrize(
    ("roles", "total"),
    [({"a": 1, "b": 2}, 3), ({"a": 2}, 2), ({"a": 1, "b": 5}, 6), ({"c": 4}, 4), ({}, 0)],
)
def test_minimums_by_role_are_replaced_as_a_whole(
    world: World, roles: dict[str, int], total: int
) -> None:
    world.job("job", pods=0, min_available=6, group={"minTaskMember": {"a": 3}})
    world.job("job", pods=0, min_available=6, group={"minTaskMember": roles})
    job = world.state.jobs["default/job"]
    assert (job.role_minimums, job.role_total) == (roles, total)


# sub-groups


def read(**more: Any) -> SubGroupPolicy:
    return policy_of({"name": "p", "matchLabelKeys": ["k"], **more})


@core(132)
def test_a_sub_group_without_a_size_needs_one(world: World) -> None:
    world.job("job", pods=0, group={"subGroupPolicy": [{"name": "p", "matchLabelKeys": ["k"]}]})
    world.pod("x", job="job", cpu=1, labels={"k": "3"})
    (part,) = world.state.jobs["default/job"].sub_jobs.values()
    assert (part.min_available, part.match_index, part.uid) == (1, 3, "default/job/p-3")


@core(132)
@pytest.mark.parametrize(
    ("mode", "tier", "is_hard"),
    [("hard", 1, True), ("hard", None, False), ("soft", 1, False), ("", 1, False)],
)
def test_hard_takes_a_mode_and_a_tier(mode: str, tier: int | None, is_hard: bool) -> None:
    assert Topology(mode, tier, "").hard is is_hard


@core(132)
@pytest.mark.parametrize(
    ("stated", "labels", "values"),
    [
        (read(), {"k": "v"}, ["v"]), (read(), {}, None), (read(), {"k": ""}, None),
        (read(labelSelector={"matchLabels": {"a": "b"}}), {"k": "v"}, None),
        (read(labelSelector={"matchLabels": {"a": "b"}}), {"k": "v", "a": "b"}, ["v"]),
        (read(labelSelector={"matchExpressions": [{"key": "a", "operator": "Nonsense"}]}), {"k": "v", "a": "b"}, None),
        (read(labelSelector={}), {"k": "v"}, ["v"]), (read(matchLabelKeys=[]), {"k": "v"}, None),
    ],
)  # fmt: skip
def test_which_pods_a_policy_takes(
    stated: SubGroupPolicy, labels: dict[str, str], values: list[str] | None
) -> None:
    assert stated.match(labels) == values


@core(132)
def test_who_no_policy_takes_is_in_the_default_one(world: World) -> None:
    world.job("job", pods=0, group={"subGroupPolicy": [{"name": "p", "matchLabelKeys": ["k"]}]})
    world.pod("x", job="job", cpu=1)
    task = world.state.tasks["default/x"]
    assert task.subjob is not None
    assert task.subjob.uid == "default/job"


@core(133)
def test_what_a_sub_group_counts(world: World) -> None:
    policies = [{"name": "p", "matchLabelKeys": ["k"], "subGroupSize": 3}]
    world.job("job", pods=0, min_available=0, group={"subGroupPolicy": policies})
    kinds = (
        ("best", None, "", ""),
        ("asks", 1, "", ""),
        ("gone", 1, "n1", "Failed"),
        ("lost", 1, "n1", "Unknown"),
        ("runs", 1, "n1", ""),
    )
    for name, cpu, node, phase in kinds:
        world.pod(name, job="job", cpu=cpu, node=node, phase=phase, labels={"k": "1"})
    world.pod("waits", job="job", cpu=1, labels={"k": "1"})
    (part,) = world.state.jobs["default/job"].sub_jobs.values()
    assert not part.is_pipelined()
    session = open_session(world.state, hooks_of(world.state, world.policy), world.now)
    session.statement().pipeline(world.state.tasks["default/waits"], 0)
    assert part.is_pipelined()
    assert not part.is_ready()


# claims of devices


def claim(
    world: World,
    name: str,
    count: int | None = 1,
    capacity: dict[str, str] | None = None,
    **more: Any,
) -> None:
    exactly = {"deviceClassName": "gpu.com", **({} if count is None else {"count": count}), **more}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    request = {"name": "r", "exactly": exactly}
    world.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"devices": {"requests": [request]}},
        },
    )


def using(*claims: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims]}


def least(world: World) -> tuple[int, dict[str, int]]:
    found = minimum(world.state, world.state.jobs["default/job"])
    assert found is not None
    return found["gpu.com"].count, found["gpu.com"].capacity


@core(134)
def test_a_role_s_minimum_times_what_one_of_it_claims(world: World) -> None:
    claim(world, "one", 1, {"memory": "8Gi"})
    world.job("job", pods=0, min_available=2, group={"minTaskMember": {"worker": 2}})
    world.pod("job-worker-0", job="job", role="worker", cpu=1, spec=using("one"))
    for _ in range(2):
        assert least(world) == (2, {"memory": 16 * 2**30})


@core(134)
def test_without_roles_the_first_by_name(world: World) -> None:
    world.job("job", pods=0, min_available=2)
    for name, count in (("c", 4), ("a", 2), ("b", 1)):
        claim(world, name, count)
        world.pod(name, job="job", cpu=1, spec=using(name))
    assert least(world)[0] == 3


@core(134)
def test_an_absurd_minimum_costs_nothing(world: World) -> None:
    claim(world, "one")
    world.job(
        "job", pods=0, min_available=2**31 - 1, group={"minTaskMember": {"worker": 2**31 - 1}}
    )
    world.pod("job-worker-0", job="job", role="worker", cpu=1, spec=using("one"))
    began = time.process_time()
    assert least(world)[0] == 2**31 - 1
    assert time.process_time() - began < 0.1


@core(157)
def test_claims_of_one_class_add_up(world: World) -> None:
    claim(world, "two", 2)
    claim(world, "none", None)
    claim(world, "all", 1, allocationMode="All")
    world.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {"name": "either", "namespace": "default", "uid": "either"},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "r",
                            "firstAvailable": [
                                {"name": "a", "deviceClassName": "gpu.com", "count": 7}
                            ],
                        }
                    ]
                }
            },
        },
    )
    world.pod("user", cpu=1, spec=using("two", "none", "all", "either"))
    got = claims_of(world.state, world.state.tasks["default/user"])
    assert {name: claimed["gpu.com"].count for name, claimed in got.items()} == {
        "default/two": 2,
        "default/none": 1,
    }


@core(157)
def test_capacity_is_multiplied_by_the_count(world: World) -> None:
    claim(world, "two", 2, {"memory": "8Gi"})
    world.pod("user", cpu=1, spec=using("two"))
    assert claims_of(world.state, world.state.tasks["default/user"])["default/two"][
        "gpu.com"
    ].capacity == {"memory": 16 * 2**30}


# what a cycle must not change


@core(135)
def test_a_cycle_does_not_rewrite_the_spec_of_a_group(world: World) -> None:
    hyper(world, "s0", 1, "n1", tier_name="rack")
    stated = {"networkTopology": {"mode": "soft", "highestTierName": "rack"}}
    world.job("job", cpu=1, group=stated)
    world.run()
    assert world.groups["default/job"]["spec"]["networkTopology"] == {
        "mode": "soft",
        "highestTierName": "rack",
    }
    job = world.state.jobs["default/job"]
    assert job.topology is not None and job.effective is not None
    assert (job.topology.mode, job.effective.mode) == ("soft", "hard")


@core(136)
@core(150)
def test_annotations_of_a_bind_are_the_task_s_own(world: World) -> None:
    world.job("job", cpu=1, annotations={})
    task = world.state.tasks["default/job-task-0"]
    task.annotations["volcano.sh/added"] = "later"
    (bind,) = world.run().binds
    assert bind.annotations == {"scheduling.k8s.io/group-name": "job", "volcano.sh/added": "later"}
    assert "volcano.sh/added" not in world.pods["default/job-task-0"]["metadata"]["annotations"]


@core(138)
@pytest.mark.parametrize("noted", ["", "null", "{}", "[]", "GPU-0,oops"])
def test_devices_that_say_nothing_stop_nothing(noted: str) -> None:
    here = World(
        policy(
            plugins=[
                "gang",
                "predicates",
                {"name": "deviceshare", "arguments": {"deviceshare.VGPUEnable": True}},
            ]
        )
    )
    here.nodes("n1", cpu=8, annotations={"volcano.sh/node-vgpu-register": noted})
    here.job("plain", cpu=1)
    one = {"volcano.sh/vgpu-number": "1"}
    here.job(
        "wants",
        cpu=1,
        spec={"containers": [{"name": "m", "resources": {"limits": one, "requests": one}}]},
    )
    decisions = here.run()
    assert set(decisions.bound()) == {"default/plain-task-0"}


# the cache


@core(148)
@pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler", "somebody"])
def test_a_pod_with_a_group_makes_a_job_of_that_name(world: World, scheduler: str) -> None:
    world.pod("x", job="later", cpu=1, scheduler=scheduler)
    assert list(world.state.jobs) == ["default/later"]


@core(149)
def test_a_bind_holds_its_room_at_once(world: World) -> None:
    world.job("job", cpu=3)
    world.run()
    task = world.state.tasks["default/job-task-0"]
    assert task.status is Status.BINDING
    assert world.state.nodes.used[0, 0] == 3000


@core(149)
def test_a_bind_that_is_refused_leaves_all_as_it_was(world: World) -> None:
    world.job("job", cpu=3)
    before = world.state.nodes.used.copy(), world.state.tasks["default/job-task-0"].status
    world.run()
    world.state.bind_failed("default/job-task-0")
    task = world.state.tasks["default/job-task-0"]
    assert (world.state.nodes.used == before[0]).all()
    assert (task.status, task.row) == (before[1], -1)
    assert world.state.jobs["default/job"].allocated["cpu"] == 0
    assert "default/job-task-0" not in world.state.nodes.tasks[0]


def order_of(world: World) -> list[str]:
    table = world.state.nodes
    return [name for row, name in enumerate(table.names) if table.ready[row]]


@core(152)
@pytest.mark.parametrize(
    ("gone", "rest"), [("n1", ["n2", "n3"]), ("n2", ["n1", "n3"]), ("n3", ["n1", "n2"])]
)
def test_nodes_keep_their_order(world: World, gone: str, rest: list[str]) -> None:
    world.nodes("n2", "n3", cpu=1)
    assert order_of(world) == ["n1", "n2", "n3"]
    world.state.remove_node(gone)
    assert order_of(world) == rest
    world.state.remove_node("never-there")
    world.nodes(gone, cpu=1)
    assert order_of(world) == [*rest, gone]


@core(156)
def test_a_pod_may_come_before_its_volume_claim(world: World) -> None:
    world.job(
        "job",
        cpu=1,
        spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    )
    assert world.run().binds == []
    world.state.upsert_other(
        "PersistentVolume",
        {
            "metadata": {"name": "disk"},
            "spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "u"}},
        },
    )
    world.state.upsert_other(
        "PersistentVolumeClaim",
        {
            "metadata": {
                "name": "data",
                "namespace": "default",
                "uid": "u",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": "disk"},
            "status": {"phase": "Bound"},
        },
    )
    assert len(world.run().binds) == 1


@core(156)
def test_a_pod_may_come_before_its_claim_of_a_template(world: World) -> None:
    world.job(
        "job", cpu=1, spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    )
    assert world.run().binds == []
    assert "default/job-task-0" in world.state.tasks


@core(160)
def test_a_late_event_does_not_undo_a_bind(world: World) -> None:
    world.job("job", cpu=1)
    world.run()
    world.state.upsert_pod(world.pods["default/job-task-0"])
    assert world.state.tasks["default/job-task-0"].status is Status.BINDING


@core(161)
def test_every_node_is_looked_at_so_no_sample_is_too_small() -> None:
    """Of 6,000 nodes a sample would be 300; the only one with room is found wherever it stands."""
    here = World(policy(plugins=["gang", "predicates", "nodeorder"], actions="allocate"))
    here.nodes(*(f"n{number}" for number in range(6000)), cpu=1)
    here.nodes("n4321", cpu=2)
    here.job("one", cpu=2)
    assert cycle(here.state, here.policy, here.now).nodes_of("one") == {"n4321"}
