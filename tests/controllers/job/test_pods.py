"""The pods of a job: what is in them, and that a thousand cost little."""

from typing import Any

import msgspec
import pytest

from hekla.api import batch, names
from hekla.controllers import records
from hekla.controllers.job.plugins import plugins_of
from hekla.controllers.job.pod_template import BodyTemplate, Slot
from hekla.controllers.job.pods import template_of
from hekla.controllers.job.volumes import claim_name
from hekla.controllers.records import POD
from tests.controllers.job.world import UID, World, container, job_of, task


def pod(job: batch.Job, at: int = 0, index: int = 0, **more: Any) -> dict[str, Any]:
    return template_of(job, job.spec.tasks[at], plugins_of(job), **more).pod(index)


@pytest.mark.scenario("controllers", 54)
def test_what_the_controller_writes_on_a_pod() -> None:
    job = job_of(task("task1", 2), name="job1", queue="q")
    job.status.version, job.status.retry_count = 3, 1
    made = pod(job, index=1)
    assert made["metadata"]["name"] == "job1-task1-1"
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"]["annotations"] == {
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "task1",
        "scheduling.k8s.io/group-name": f"job1-{UID}",
        "volcano.sh/job-name": "job1",
        "volcano.sh/queue-name": "q",
        "volcano.sh/job-version": "3",
        "volcano.sh/template-uid": "job1-task1",
        "volcano.sh/job-retry-count": "1",
    }
    assert made["metadata"]["labels"] == {
        "volcano.sh/task-index": "1",
        "volcano.sh/job-name": "job1",
        "volcano.sh/task-spec": "task1",
        "volcano.sh/job-namespace": "default",
        "volcano.sh/queue-name": "q",
    }
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "job1",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_the_controllers_own_record_reads_what_its_mold_writes() -> None:
    job = job_of(task("a", 2))
    read = POD.decode(template_of(job, job.spec.tasks[0], []).body(1))
    assert (read.metadata.name, read.job_key, read.owner_uid, read.job_version) == (
        "train-a-1",
        "default/train",
        UID,
        0,
    )
    assert (
        read.metadata.annotations.task == "a" and read.metadata.annotations.group == f"train-{UID}"
    )


def test_what_the_user_wrote_survives() -> None:
    template = {
        "metadata": {
            "labels": {"app": "x", "volcano.sh/job-name": "a lie"},
            "annotations": {"note": "<0>"},
        },
        "spec": {"containers": [container(futureField={"deep": [1, 2]})], "futureSpec": True},
    }
    job = job_of(task("a", template=template))
    made = pod(job)
    assert (
        made["metadata"]["labels"]["app"] == "x"
        and made["metadata"]["labels"]["volcano.sh/job-name"] == "train"
    )
    assert made["metadata"]["annotations"]["note"] == "<0>"
    assert made["spec"]["futureSpec"] and made["spec"]["containers"][0]["futureField"] == {
        "deep": [1, 2]
    }
    assert "schedulerName" not in job.spec.tasks[0].template["spec"], (
        "the job's own template is not touched"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"plugins": {"env": []}},
        {"volumes": [batch.VolumeSpec(mount_path="/x", volume_claim_name="data")]},
    ],
)
def test_what_is_added_to_a_pod_is_not_added_to_the_template(more: dict[str, Any]) -> None:
    job = job_of(task("a"), **more)
    before = msgspec.json.encode(job)
    made = pod(job)
    assert made["spec"]["containers"][0].keys() & {"env", "volumeMounts"}
    assert msgspec.json.encode(job) == before


@pytest.mark.scenario("controllers", 55)
def test_the_template_knows_better_than_the_job() -> None:
    own = {
        "spec": {"containers": [container()], "schedulerName": "mine", "priorityClassName": "high"}
    }
    made = pod(job_of(task("a", template=own), priority_class_name="low"))
    assert (made["spec"]["schedulerName"], made["spec"]["priorityClassName"]) == ("mine", "high")
    made = pod(job_of(task("a"), priority_class_name="low"))
    assert (made["spec"]["schedulerName"], made["spec"]["priorityClassName"]) == ("volcano", "low")


@pytest.mark.scenario("controllers", 56)
def test_a_claim_is_mounted_once() -> None:
    job = job_of(
        task("a"),
        volumes=[
            batch.VolumeSpec(mount_path="/one", volume_claim_name="data"),
            batch.VolumeSpec(mount_path="/two", volume_claim_name="data"),
            batch.VolumeSpec(mount_path="/three", volume_claim={"accessModes": ["ReadWriteOnce"]}),
        ],
    )
    made = pod(job)
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in made["spec"]["volumes"]]
    assert claims == ["data", claim_name(job, 2)]
    assert claims[1].startswith("train-pvc-") and len(claims[1]) == len("train-pvc-") + 12
    assert [mount["mountPath"] for mount in made["spec"]["containers"][0]["volumeMounts"]] == [
        "/one",
        "/three",
    ]


@pytest.mark.scenario("controllers", 57)
def test_forwarded_pods_say_so() -> None:
    made = pod(job_of(task("a")), forwarded=True)["metadata"]
    assert (
        made["labels"][names.JOB_FORWARDING] == made["annotations"][names.JOB_FORWARDING] == "true"
    )


@pytest.mark.scenario("controllers", 58)
@pytest.mark.parametrize(
    ("size", "index", "partition"),
    [(2, 0, "0"), (2, 1, "0"), (2, 2, "1"), (5, 10, "2"), (1, 0, "0"), (0, 5, "0")],
)
def test_the_partition_of_a_pod(size: int, index: int, partition: str) -> None:
    policy = batch.PartitionPolicy(total_partitions=9, partition_size=size)
    assert (
        pod(job_of(task("a", 20, partition_policy=policy)), index=index)["metadata"]["labels"][
            names.PARTITION_ID
        ]
        == partition
    )
    assert names.PARTITION_ID not in pod(job_of(task("a")))["metadata"]["labels"]


def test_hints_of_the_job_reach_its_pods() -> None:
    job = job_of(task("a", topology_policy="restricted"))
    job.metadata.annotations = {
        names.PREEMPTABLE: "true",
        names.JDB_MIN_AVAILABLE: "2",
        names.JDB_MAX_UNAVAILABLE: "1",
        "other": "x",
    }
    job.metadata.labels = {names.COOLDOWN_TIME: "5m", "other": "x"}
    made = pod(job)["metadata"]
    assert (
        made["annotations"][names.PREEMPTABLE] == "true"
        and made["annotations"][names.NUMA_TOPOLOGY_POLICY] == "restricted"
    )
    assert (
        made["annotations"][names.JDB_MIN_AVAILABLE] == "2"
        and names.JDB_MAX_UNAVAILABLE not in made["annotations"]
    )
    assert made["labels"][names.COOLDOWN_TIME] == "5m"
    assert "other" not in made["annotations"] and "other" not in made["labels"]


def test_a_template_fills_in_the_index_and_what_follows_from_it() -> None:
    slot = Slot("m")
    template = BodyTemplate(
        {
            "name": f"a-{slot.index}",
            "next": slot.plus(1),
            "same": f"{slot.index}/{slot.index}",
            "é": "<m>",
        },
        slot,
    )
    assert msgspec.json.decode(template.body(9)) == {
        "name": "a-9",
        "next": "10",
        "same": "9/9",
        "é": "<m>",
    }


@pytest.mark.scenario("controllers", 66)
def test_pods_that_have_to_wait_hold_up_nobody() -> None:
    """Two of three workers are there, and their master is gone: it is made, and the third worker
    when the master is up."""
    waits = batch.DependsOn(name=["master"])
    world = World(job_of(task("master", 1), task("work", 3, depends_on=waits)))
    world.settle()
    world.become(
        "Running",
        "train-master-0",
        container_statuses=[records.ContainerStatus(name="main", ready=True)],
    )
    world.settle()
    assert len(world.pods) == 4
    for name in ("train-master-0", "train-work-2"):
        world.pods.pop(name)
    world.settle()
    assert set(world.pods) == {"train-master-0", "train-work-0", "train-work-1"}
    world.become(
        "Running",
        "train-master-0",
        container_statuses=[records.ContainerStatus(name="main", ready=True)],
    )
    world.settle()
    assert len(world.pods) == 4
