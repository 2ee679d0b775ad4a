"""Which action answers an event."""

import msgspec
import pytest

from hekla.controllers.job.policies import (
    Ruling,
    Trigger,
    decide,
    exit_code,
    failure,
    task_completed,
    triggers,
)
from hekla.controllers.records import ContainerState, ContainerStatus, Terminated
from tests.controllers.job.world import UID, World, job_of, pod_of, policy, task


@pytest.mark.scenario("controllers", 59)
def test_what_decides() -> None:
    everything = policy("RestartJob", "OutOfSync", "PodRunning", "CommandIssued", "PodFailed")
    job = job_of(task("a"), policies=[everything])
    assert decide(job, Trigger("PodFailed", action="EnqueueJob")) == Ruling("EnqueueJob")
    for internal in ("OutOfSync", "PodRunning", "CommandIssued"):
        assert decide(job, Trigger(internal)) == Ruling("SyncJob")
    assert decide(job, Trigger("PodFailed", job_uid=UID)) == Ruling("RestartJob")
    assert decide(job, Trigger("PodFailed", job_uid="another")) == Ruling("SyncJob")
    job.status.version = 2
    assert decide(job, Trigger("PodFailed", version=1)) == Ruling("SyncJob")
    assert decide(job, Trigger("PodFailed", version=2)) == Ruling("RestartJob")


@pytest.mark.scenario("controllers", 59)
def test_a_pending_pod_needs_a_timeout() -> None:
    timed = job_of(task("a"), policies=[policy("RestartPod", "PodPending", timeout="10s")])
    assert decide(timed, Trigger("PodPending")) == Ruling("RestartPod", 10.0)
    for event in ("PodPending", "*"):
        untimed = job_of(task("a"), policies=[policy("RestartPod", event)])
        assert decide(untimed, Trigger("PodPending")) == Ruling("SyncJob")


def test_a_task_that_has_no_answer_leaves_it_to_the_job() -> None:
    job = job_of(
        task("a", policies=[policy("AbortJob", "PodEvicted")]),
        policies=[policy("RestartJob", "PodFailed")],
    )
    assert decide(job, Trigger("PodFailed", task="a")).action == "RestartJob"
    assert decide(job, Trigger("PodEvicted", task="a")).action == "AbortJob"
    assert decide(job, Trigger("PodEvicted", task="b")).action == "SyncJob"


def test_the_exit_code_is_that_of_the_first_container() -> None:
    job = job_of(task("a"))
    ended = ContainerStatus(
        name="main", state=ContainerState(terminated=Terminated(exit_code=3, reason="OOMKilled"))
    )
    pod = pod_of(job, "a", 0, "Failed", container_statuses=[ended])
    assert exit_code(pod) == 3
    assert failure(pod) == "pod train-a-0: container main exited with code 3 (OOMKilled)"
    sidecar = ContainerStatus(name="sidecar")
    assert exit_code(pod_of(job, "a", 0, "Failed", container_statuses=[sidecar, ended])) == 0
    lost = pod_of(job, "a", 0, "Failed", reason="Evicted", message="the node was low on memory")
    assert failure(lost) == "pod train-a-0 failed: Evicted: the node was low on memory"


@pytest.mark.scenario("controllers", 78)
def test_a_task_is_complete_when_all_of_it_succeeded() -> None:
    job = job_of(task("a", 2))
    done, running = pod_of(job, "a", 0, "Succeeded"), pod_of(job, "a", 1, "Running")
    assert not task_completed(job.spec.tasks[0], [done, running])
    assert task_completed(job.spec.tasks[0], [done, pod_of(job, "a", 1, "Succeeded")])
    assert not task_completed(task("none", 0), [])


@pytest.mark.scenario("controllers", 77)
@pytest.mark.scenario("controllers", 78)
def test_pods_without_the_controllers_marks_say_nothing() -> None:
    job = job_of(task("a"))
    pod = pod_of(job, "a", 0, "Failed")
    assert [trigger.event for trigger in triggers(job, [pod])] == ["PodFailed"]
    for missing in ("task", "version", "job"):
        marks = msgspec.structs.replace(pod.metadata.annotations, **{missing: ""})
        stranger = msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, annotations=marks)
        )
        assert stranger.job_version is None


def test_old_and_leaving_pods_say_nothing() -> None:
    job = job_of(task("a", 3))
    old, leaving, marked = (pod_of(job, "a", index, "Failed") for index in range(3))
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    marked.metadata.annotations = msgspec.structs.replace(
        marked.metadata.annotations, out_of_sync="true"
    )
    assert not list(triggers(job, [leaving, marked]))
    job.status.version = 1
    assert not list(triggers(job, [old]))


def test_a_timeout_that_is_no_duration_stops_nobody() -> None:
    """Stored before admission refused it, or past it: its policy is passed over and named, the next
    one answers."""
    broken = policy("RestartJob", "PodFailed", timeout="5 minutes")
    world = World(
        job_of(
            task("a", 2),
            policies=[
                broken,
                policy("AbortJob", "*", timeout="9" * 400 + "h"),
                policy("TerminateJob", "*"),
            ],
        )
    )
    world.started().fail("train-a-0")
    world.reconcile()
    assert world.phase == "Terminating"
    assert any(
        event.startswith("PolicyIgnored: a policy's timeout '5 minutes' is no duration")
        for event in world.events
    )
