"""The PodGroup of a job: what has to fit together."""

from typing import Any

import msgspec
import pytest

from hekla.api import batch, scheduling
from hekla.api.meta import ObjectMeta
from hekla.controllers.job.podgroup import (
    by_priority,
    by_task_minimum,
    complaint,
    difference,
    group_body,
    live_spec,
    min_resources,
)
from hekla.controllers.job.volumes import claim_name
from hekla.podrules.usage import pod_usage
from tests.controllers.job.world import UID, container, job_of, task


def sized(
    name: str, replicas: int, cpu: str, minimum: int | None, priority: str = ""
) -> batch.TaskSpec:
    spec: dict[str, Any] = {"containers": [container(resources={"requests": {"cpu": cpu}})]}
    if priority:
        spec["priorityClassName"] = priority
    return task(name, replicas, min_available=minimum, template={"spec": spec})


def priority_of(name: str) -> int:
    return {"high": 100}.get(name, 0)


ALL = None


@pytest.mark.scenario("controllers", 60)
@pytest.mark.parametrize(
    ("minimum", "master", "worker", "important", "cpu"),
    [
        (2, 1, 1, "", "150m"),
        (3, ALL, 1, "", "200m"),
        (3, 1, ALL, "", "250m"),
        (2, 1, 1, "", "150m"),
        (3, 1, 1, "master", "200m"),
        (3, 1, 1, "worker", "250m"),
        (3, 0, 1, "worker", "250m"),
        (4, ALL, 1, "worker", "300m"),
        (4, 1, 1, "worker", "300m"),
    ],
)
def test_min_resources_take_the_important_pods(
    minimum: int, master: int | None, worker: int | None, important: str, cpu: str
) -> None:
    tasks = [
        sized(
            "master",
            2,
            "50m",
            2 if master is None else master,
            "high" if important == "master" else "",
        ),
        sized(
            "worker",
            2,
            "100m",
            2 if worker is None else worker,
            "high" if important == "worker" else "",
        ),
    ]
    found = min_resources(job_of(*tasks, min_available=minimum), priority_of)
    assert found["cpu"] == found["requests.cpu"] == cpu
    assert found["pods"] == found["count/pods"] == str(minimum)


@pytest.mark.scenario("controllers", 60)
@pytest.mark.parametrize(
    ("minimum", "master", "worker", "important", "taken"),
    [(2, ALL, 1, "master", 100), (2, ALL, 1, "worker", 150), (2, 1, ALL, "", 150)],
)
def test_the_second_way_alone(
    minimum: int, master: int | None, worker: int | None, important: str, taken: int
) -> None:
    tasks = by_priority(
        [
            sized(
                "master",
                2,
                "50m",
                2 if master is None else master,
                "high" if important == "master" else "",
            ),
            sized(
                "worker",
                2,
                "100m",
                2 if worker is None else worker,
                "high" if important == "worker" else "",
            ),
        ],
        priority_of,
    )
    milli = {"master": 50, "worker": 100}
    assert (
        sum(count * milli[t.name] for t, count in zip(tasks, by_task_minimum(tasks, minimum)))
        == taken
    )


@pytest.mark.scenario("controllers", 61)
@pytest.mark.parametrize(
    ("minimum", "master", "worker", "cpu"),
    [
        (2, 1, 2, "100m"),
        (2, 2, 1, "100m"),
        (3, 2, 2, "200m"),
        (3, 1, 1, "200m"),
        (3, 1, 2, "250m"),
        (2, 1, 1, "150m"),
    ],
)
def test_min_resources_without_priorities(minimum: int, master: int, worker: int, cpu: str) -> None:
    job = job_of(
        sized("master", 2, "50m", master), sized("worker", 2, "100m", worker), min_available=minimum
    )
    assert min_resources(job, priority_of)["cpu"] == cpu


@pytest.mark.scenario("controllers", 12)
def test_resources_have_both_of_their_names() -> None:
    amounts = {"cpu": "1", "memory": "1000Mi", "nvidia.com/gpu": "1"}
    template = {
        "spec": {"containers": [container(resources={"requests": amounts, "limits": amounts})]}
    }
    job = job_of(task("a", template=template), task("b", template=template))
    assert min_resources(job, priority_of) == {
        "count/pods": "2",
        "pods": "2",
        "cpu": "2",
        "requests.cpu": "2",
        "limits.cpu": "2",
        "memory": "2000Mi",
        "requests.memory": "2000Mi",
        "limits.memory": "2000Mi",
        "nvidia.com/gpu": "2",
        "requests.nvidia.com/gpu": "2",
    }


def test_init_containers_count_at_their_peak() -> None:
    def wants(cpu: str, **more: Any) -> dict[str, Any]:
        return container(resources={"requests": {"cpu": cpu}}, **more)

    spec = {
        "containers": [wants("1"), wants("1")],
        "initContainers": [wants("500m", restartPolicy="Always"), wants("3"), wants("1")],
        "overhead": {"cpu": "250m"},
    }
    # 3 and the sidecar, more than 2 and the sidecar; and the overhead.
    assert str(pod_usage(spec)["cpu"]) == "3750m"


@pytest.mark.scenario("controllers", 70)
@pytest.mark.parametrize(("minimum", "size"), [(1, 3), (3, 3), (0, 2)])
def test_a_partitioned_task_is_a_sub_group(minimum: int, size: int) -> None:
    policy = batch.PartitionPolicy(
        total_partitions=3,
        partition_size=size,
        min_partitions=minimum,
        network_topology=scheduling.NetworkTopology(mode="hard", highest_tier_allowed=1),
    )
    job = job_of(task("task1", 9, min_available=None, partition_policy=policy), task("plain"))
    spec = live_spec(job, priority_of)
    (entry,) = spec["subGroupPolicy"]
    assert entry == {
        "name": "task1",
        "subGroupSize": size,
        "minSubGroups": minimum,
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "task1"}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    assert spec["minTaskMember"] == {"task1": minimum * size or 9, "plain": 1}


def test_the_group_of_a_new_job() -> None:
    job = job_of(task("a", 3), queue="research", min_available=2, priority_class_name="high")
    job.metadata.labels, job.metadata.annotations = {"team": "x"}, {"note": "y"}
    body = group_body(job, live_spec(job, priority_of))
    assert body["metadata"]["name"] == f"train-{UID}"
    assert (
        body["metadata"]["labels"] == {"team": "x"}
        and body["metadata"]["annotations"]["note"] == "y"
    )
    assert body["metadata"]["ownerReferences"][0]["controller"]
    assert body["spec"]["queue"] == "research" and body["spec"]["minMember"] == 2
    assert body["spec"]["priorityClassName"] == "high" and body["spec"]["minTaskMember"] == {"a": 3}


def existing(job: batch.Job) -> scheduling.PodGroup:
    return scheduling.POD_GROUP.convert(group_body(job, live_spec(job, priority_of)))


@pytest.mark.scenario("controllers", 69)
def test_a_group_follows_its_job_in_what_may_change() -> None:
    job = job_of(sized("a", 3, "1", 3), priority_class_name="low")
    group = existing(job)
    assert difference(group, live_spec(job, priority_of)) == {}
    job.spec.priority_class_name = "high"
    assert difference(group, live_spec(job, priority_of)) == {"priorityClassName": "high"}
    job.spec.min_available = job.spec.tasks[0].min_available = job.spec.tasks[0].replicas = 2
    assert set(difference(group, live_spec(job, priority_of))) == {
        "priorityClassName",
        "minMember",
        "minTaskMember",
        "minResources",
    }
    job.spec.tasks[0].partition_policy = batch.PartitionPolicy(total_partitions=1, partition_size=2)
    assert "subGroupPolicy" in difference(group, live_spec(job, priority_of))


def test_amounts_that_are_equal_are_no_difference() -> None:
    job = job_of(sized("a", 1, "1000m", 1))
    group = existing(job)
    group.spec.min_resources = {**group.spec.min_resources, "cpu": "1", "requests.cpu": "1"}
    assert difference(group, live_spec(job, priority_of)) == {}


@pytest.mark.scenario("controllers", 68)
def test_what_the_scheduler_complains_of() -> None:
    job = job_of(task("a"), name="job1")
    group = scheduling.PodGroup(metadata=ObjectMeta(name="g"))
    assert complaint(job, None) == complaint(job, group) == ""

    def condition(type: str, at: str) -> scheduling.PodGroupCondition:
        return scheduling.PodGroupCondition(
            type=type, status="True", last_transition_time=at, message="test message"
        )

    unschedulable = condition("Unschedulable", "2026-01-01T00:00:10Z")
    group.status.conditions = [unschedulable]
    text = "PodGroup default:job1 unschedulable, reason: test message"
    assert complaint(job, group) == text
    group.status.conditions = [condition("Scheduled", "2026-01-01T00:00:01Z"), unschedulable]
    assert complaint(job, group) == text
    group.status.conditions = [unschedulable, condition("Scheduled", "2026-01-01T00:00:20Z")]
    assert complaint(job, group) == ""


def test_why_a_group_waits_is_a_complaint_until_it_is_let_in() -> None:
    job = job_of(task("a"), name="job1")
    group = scheduling.PodGroup(metadata=ObjectMeta(name="g"))
    explained = scheduling.PodGroupCondition(
        type="Waiting",
        status="True",
        last_transition_time="2026-01-01T00:00:30Z",
        message="job1 has 0 of the 1 pod that it needs.",
    )
    group.status.conditions = [explained]
    assert (
        complaint(job, group)
        == "PodGroup default:job1 waiting, reason: job1 has 0 of the 1 pod that it needs."
    )
    group.status.phase = "Inqueue"
    assert complaint(job, group) == ""
    held = scheduling.PodGroupCondition(
        type="Unschedulable",
        status="True",
        last_transition_time="2026-01-01T00:00:10Z",
        message="full",
    )
    group.status.conditions = [held, explained]
    assert complaint(job, group) == "PodGroup default:job1 unschedulable, reason: full"
    ignored = scheduling.PodGroupCondition(
        type="Ignored",
        status="True",
        last_transition_time="2026-01-01T00:00:50Z",
        message="no plugin",
    )
    group.status.conditions = [ignored, explained]
    assert complaint(job, group) == ""


def test_names_of_claims_are_the_same_at_every_look() -> None:
    job = job_of(task("a"), volumes=[batch.VolumeSpec(mount_path="/x", volume_claim={})])
    again = msgspec.convert(msgspec.to_builtins(job), batch.Job)
    assert claim_name(job, 0) == claim_name(again, 0)
