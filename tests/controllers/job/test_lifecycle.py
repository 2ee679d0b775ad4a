"""Whole lives of jobs, in a world without a cluster."""

import pytest

from hekla.api.text.times import instant
from hekla.controllers.job.plan import DependentsAction
from tests.controllers.job.world import World, job_of, policy, task


def test_a_job_waits_for_its_group_then_runs_then_completes() -> None:
    world = World(job_of(task("a", 2)), group_phase="Pending")
    world.settle()
    assert world.phase == "Pending" and not world.pods and world.group is not None

    world.group.status.phase = "Inqueue"
    world.settle()
    assert sorted(world.pods) == ["train-a-0", "train-a-1"]
    assert world.phase == "Pending" and world.status.pending == 2

    world.become("Running")
    assert world.settle() == "Running"
    assert world.status.task_status_count["a"].phase == {"Running": 2}

    world.become("Succeeded")
    assert world.settle() == "Completed"
    assert world.status.succeeded == 2 and world.status.version == 1
    assert world.group is None and len(world.pods) == 2
    assert world.history == ["Pending", "Running", "Completed"]


@pytest.mark.scenario("controllers", 9)
def test_the_last_retry_keeps_what_failed() -> None:
    job = job_of(
        task("bad"),
        task("good"),
        max_retry=2,
        min_success=2,
        policies=[policy("RestartJob", "PodFailed", "PodEvicted")],
    )
    world = World(job).started()
    world.fail("train-bad-0", 1)
    assert world.settle() == "Pending" and world.status.retry_count == 1
    world.become("Running")
    world.settle()
    world.fail("train-bad-0", 1)
    assert world.settle() == "Failed"
    assert world.status.retry_count == 2 and list(world.pods) == ["train-bad-0"]
    assert world.status.failed == 1
    assert world.status.state.message == "pod train-bad-0: container main exited with code 1"


@pytest.mark.scenario("controllers", 10)
def test_a_completed_task_completes_the_job_and_keeps_its_pods() -> None:
    job = job_of(
        task("quick", policies=[policy("CompleteJob", "TaskCompleted")]), task("slow"), max_retry=1
    )
    world = World(job).started()
    world.become("Succeeded", "train-quick-0")
    assert world.settle() == "Completed"
    assert list(world.pods) == ["train-quick-0"] and world.status.retry_count == 0


@pytest.mark.scenario("controllers", 11)
def test_two_successes_are_enough() -> None:
    world = World(job_of(task("a", 3), task("b", 2), min_success=2)).started()
    world.become("Succeeded", "train-a-0", "train-a-1")
    assert world.settle() == "Completed"
    assert sorted(world.pods) == ["train-a-0", "train-a-1"], "what still ran is cleaned up"


def test_a_restart_replaces_every_pod_with_one_of_the_next_version() -> None:
    world = World(
        job_of(task("a", 2), policies=[policy("RestartJob", "PodFailed")]), graceful=True
    ).started()
    old = world.group
    world.fail("train-a-0", 7)
    world.reconcile()
    assert (
        world.phase == "Restarting" and world.status.terminating == 2 and world.status.version == 1
    )
    assert world.group is None and world.status.state.reason == "PodFailed"
    world.settle()
    assert world.phase == "Restarting" and world.group is not old, "the old pods have not left yet"
    world.leave()
    assert world.settle() == "Pending"
    assert {pod.job_version for pod in world.pods.values()} == {1}
    world.become("Running")
    assert world.settle() == "Running"


def test_a_group_of_the_earlier_run_does_not_let_pods_in() -> None:
    world = World(
        job_of(task("a"), policies=[policy("RestartJob", "PodFailed")]), group_phase="Inqueue"
    ).started()
    stale = world.group
    world.fail("train-a-0")
    world.reconcile()
    world.group, world.group_phase = stale, "Pending"
    world.reconcile()
    assert not world.pods and world.group is not stale


def test_several_failures_at_one_time_are_one_restart_of_pods() -> None:
    world = World(job_of(task("a", 4), policies=[policy("RestartPod", "PodFailed")])).started()
    world.fail("train-a-1")
    world.fail("train-a-3")
    made = world.reconcile()
    assert [pod.metadata.name for pod in made.delete] == ["train-a-1", "train-a-3"]
    assert (
        world.phase == "Restarting" and world.status.retry_count == 1 and world.status.version == 0
    )
    assert world.status.running == 2 and world.status.terminating == 2, "the others stay counted"
    assert world.group is not None
    assert world.settle() == "Pending"
    world.become("Running")
    assert world.settle() == "Running"


@pytest.mark.scenario("controllers", 64)
def test_targets_are_met_exactly() -> None:
    world = World(
        job_of(task("a", 2), task("b", 2), policies=[policy("RestartTask", exit_code=3)])
    ).started()
    world.fail("train-a-1", 3)
    made = world.reconcile()
    assert sorted(pod.metadata.name for pod in made.delete) == ["train-a-0", "train-a-1"]


@pytest.mark.scenario("controllers", 24)
def test_restarting_a_pod_does_not_arm_the_eviction_policy() -> None:
    policies = [
        policy("RestartPod", "PodFailed"),
        policy("TerminateJob", "PodEvicted", timeout="5m"),
    ]
    world = World(job_of(task("a"), policies=policies)).started()
    world.fail("train-a-0")
    world.reconcile()
    assert world.phase == "Restarting"
    world.settle()
    world.become("Running")
    assert world.settle() == "Running"
    world.now += 1000
    assert world.settle() == "Running"


@pytest.mark.scenario("controllers", 25)
@pytest.mark.scenario("controllers", 26)
@pytest.mark.scenario("controllers", 27)
@pytest.mark.parametrize(
    ("action", "end"),
    [("RestartJob", "Pending"), ("TerminateJob", "Terminated"), ("AbortJob", "Aborted")],
)
def test_an_eviction_is_answered(action: str, end: str) -> None:
    world = World(job_of(task("a", 2), policies=[policy(action, "PodEvicted")])).started()
    world.evict("train-a-0")
    assert world.settle() == end


@pytest.mark.scenario("controllers", 28)
def test_any_event_is_not_the_start_of_a_pod() -> None:
    world = World(job_of(task("a", 2), policies=[policy("RestartJob", "*")])).started()
    assert world.status.retry_count == 0
    world.evict("train-a-0")
    assert world.settle() == "Pending" and world.status.version == 1


@pytest.mark.scenario("controllers", 29)
@pytest.mark.scenario("controllers", 30)
@pytest.mark.parametrize(("action", "end"), [("RestartJob", "Pending"), ("AbortJob", "Aborted")])
def test_a_broken_gang_is_answered_again_and_again(action: str, end: str) -> None:
    world = World(job_of(task("a", 2), policies=[policy(action, "Unknown")])).started()
    world.group_unknown()
    assert world.settle() == end
    if action == "RestartJob":
        world.become("Running")
        world.settle()
        world.group_unknown()
        assert world.settle() == "Pending" and world.status.version == 2


@pytest.mark.scenario("controllers", 32)
def test_too_many_container_restarts_fail_the_task() -> None:
    from hekla.controllers.records import ContainerStatus

    world = World(job_of(task("a"), policies=[policy("TerminateJob", "TaskFailed")])).started()
    world.become("Running", container_statuses=[ContainerStatus(name="main", restart_count=2)])
    assert world.settle() == "Running"
    world.become("Running", container_statuses=[ContainerStatus(name="main", restart_count=4)])
    assert world.settle() == "Terminated"


@pytest.mark.scenario("controllers", 33)
def test_an_exit_code_has_its_own_policy() -> None:
    world = World(job_of(task("a"), policies=[policy("RestartJob", exit_code=3)])).started()
    world.fail("train-a-0", 3)
    world.reconcile()
    assert world.phase == "Restarting"
    other = World(job_of(task("a"), policies=[policy("RestartJob", exit_code=3)])).started()
    other.fail("train-a-0", 4)
    assert other.settle() == "Failed"


@pytest.mark.scenario("controllers", 36)
def test_the_policy_of_the_task_comes_first() -> None:
    job = job_of(
        task("a", policies=[policy("RestartJob", "PodFailed")]),
        policies=[policy("AbortJob", "PodFailed")],
    )
    world = World(job).started()
    world.fail("train-a-0")
    world.reconcile()
    assert world.phase == "Restarting"


@pytest.mark.scenario("controllers", 79)
def test_a_pod_that_hangs_pending_is_given_its_time() -> None:
    world = World(
        job_of(
            task("a", 2),
            min_available=2,
            policies=[policy("RestartJob", "PodPending", timeout="10s")],
        )
    )
    world.settle()
    world.become("Running", "train-a-0")
    made = world.reconcile()
    assert made.wake == pytest.approx(11.0)  # creation times are whole seconds
    world.now += 12
    world.reconcile()
    assert world.phase == "Restarting"

    lucky = World(
        job_of(task("a"), policies=[policy("RestartJob", "PodPending", timeout="10s")])
    ).started()
    lucky.now += 100
    assert lucky.settle() == "Running"


@pytest.mark.scenario("controllers", 80)
def test_a_replacement_that_runs_cancels_the_delayed_answer() -> None:
    world = World(
        job_of(task("a", 2), policies=[policy("AbortJob", "PodEvicted", timeout="1m")])
    ).started()
    world.evict("train-a-0")
    world.reconcile()
    assert world.phase == "Pending" and "train-a-0" in world.pods and world.inbox
    world.become("Running")
    world.settle()
    assert not world.inbox
    world.now += 100
    assert world.settle() == "Running"

    late = World(
        job_of(task("a", 2), policies=[policy("AbortJob", "PodEvicted", timeout="1m")])
    ).started()
    late.evict("train-a-0")
    late.settle()
    late.now += 61
    assert late.settle() == "Aborted"


@pytest.mark.scenario("controllers", 81)
def test_the_first_of_two_delayed_restarts_cancels_the_second() -> None:
    world = World(
        job_of(task("a", 3), policies=[policy("RestartJob", "PodFailed", timeout="1m")])
    ).started()
    world.fail("train-a-0")
    world.now += 30
    world.fail("train-a-1")
    world.reconcile()
    world.now += 31
    assert world.settle() == "Pending" and world.status.retry_count == 1
    world.become("Running")
    world.now += 60
    assert world.settle() == "Running" and world.status.retry_count == 1


@pytest.mark.scenario("controllers", 172)
def test_suspend_and_resume() -> None:
    world = World(job_of(task("a", 2)), graceful=True).started()
    world.command("AbortJob")
    assert world.phase == "Aborting" and world.status.terminating == 2 and world.group is None
    world.settle()
    assert world.phase == "Aborting"
    world.leave()
    assert world.settle() == "Aborted" and not world.pods
    world.command("ResumeJob")
    assert world.phase == "Restarting" and world.status.retry_count == 1
    assert world.settle() == "Pending"
    world.become("Running")
    assert world.settle() == "Running"


@pytest.mark.scenario("controllers", 173)
def test_a_pending_job_is_suspended_too() -> None:
    world = World(job_of(task("a", 2)), group_phase="Pending")
    world.settle()
    world.command("AbortJob")
    assert world.settle() == "Aborted" and not world.created


def test_a_resume_keeps_what_had_ended() -> None:
    world = World(job_of(task("a", 2))).started()
    world.become("Succeeded", "train-a-0")
    world.settle()
    world.command("AbortJob")
    assert world.settle() == "Aborted" and list(world.pods) == ["train-a-0"]
    world.command("ResumeJob")
    world.settle()
    assert sorted(world.pods) == ["train-a-0", "train-a-1"]
    world.become("Succeeded")
    assert world.settle() == "Completed"


def test_the_controller_may_die_between_the_new_phase_and_the_stop() -> None:
    world = World(job_of(task("a", 2), policies=[policy("RestartJob", "PodFailed")])).started()
    world.fail("train-a-0")
    from hekla.controllers.job.plan import View, plan

    made = plan(View(world.job, dict(world.pods), world.group, world.now))
    world.apply(made, crash_after_status=True)
    assert world.phase == "Restarting" and len(world.pods) == 2
    assert world.settle() == "Pending"
    assert {pod.job_version for pod in world.pods.values()} == {1}, (
        "no pod of the old version outlives a restart"
    )
    assert world.status.retry_count == 1


@pytest.mark.scenario("controllers", 14)
@pytest.mark.scenario("controllers", 15)
@pytest.mark.scenario("controllers", 16)
def test_a_job_is_scaled_up_and_down_and_to_nothing() -> None:
    world = World(job_of(task("a", 2), policies=[policy("RestartJob", "PodEvicted")])).started()

    def scale(replicas: int) -> None:
        world.job.spec.tasks[0].replicas = world.job.spec.tasks[0].min_available = replicas
        world.job.spec.min_available = replicas
        world.settle()
        world.become("Running")
        world.settle()

    scale(4)
    assert len(world.pods) == 4 and world.phase == "Running"
    scale(1)
    assert list(world.pods) == ["train-a-0"] and world.phase == "Running"
    scale(0)
    assert not world.pods and world.phase == "Running"
    scale(2)
    assert len(world.pods) == 2 and world.phase == "Running" and world.status.retry_count == 0


def test_pods_of_a_task_that_left_the_spec_go() -> None:
    world = World(job_of(task("a"), task("b"))).started()
    world.job.spec.tasks.pop()
    world.job.spec.min_available = 1
    world.settle()
    assert list(world.pods) == ["train-a-0"]


def test_a_pod_that_fails_while_it_is_deleted_is_no_failure() -> None:
    world = World(job_of(task("a", 2), policies=[policy("AbortJob", "PodFailed")])).started()
    world.pods["train-a-0"].metadata.deletion_timestamp = "2001-01-01T00:00:00Z"
    world.fail("train-a-0", 143)
    world.reconcile()
    assert world.phase != "Aborting"


def test_a_dependent_task_starts_when_the_other_is_up() -> None:
    from hekla.api.batch import DependsOn
    from hekla.controllers.records import ContainerStatus

    job = job_of(task("a"), task("b", depends_on=DependsOn(name=["a"])), min_available=1)
    world = World(job)
    world.settle()
    assert list(world.pods) == ["train-a-0"]
    world.become(
        "Running", "train-a-0", container_statuses=[ContainerStatus(name="main", ready=False)]
    )
    world.settle()
    assert list(world.pods) == ["train-a-0"], "running is not ready"
    world.become(
        "Running", "train-a-0", container_statuses=[ContainerStatus(name="main", ready=True)]
    )
    world.settle()
    assert list(world.pods) == ["train-a-0", "train-b-0"]


def test_the_end_of_a_job_is_the_time_of_its_last_phase() -> None:
    world = World(job_of(task("a"))).started()
    world.now += 90
    world.become("Succeeded")
    world.settle()
    ended = instant(world.status.state.last_transition_time)
    assert ended == 1_000_090 and world.status.running_duration == "1m30s"
    world.now += 1000
    world.settle()
    assert instant(world.status.state.last_transition_time) == ended


def test_actions_are_told() -> None:
    world = World(job_of(task("a"), policies=[policy("TerminateJob", "PodFailed")])).started()
    world.fail("train-a-0")
    world.reconcile()
    assert world.events == ["ExecuteAction: Start to execute action TerminateJob "]


def test_a_partition_is_restarted_as_a_whole() -> None:
    import msgspec

    from hekla.api.batch import PartitionPolicy

    partitions = PartitionPolicy(total_partitions=2, partition_size=2)
    job = job_of(
        task("a", 4, partition_policy=partitions),
        policies=[policy("RestartPartition", "PodFailed")],
    )
    world = World(job).started()
    for index in range(4):
        meta = world.pods[f"train-a-{index}"].metadata
        meta.labels = msgspec.structs.replace(meta.labels, partition=str(index // 2))
    world.fail("train-a-2")
    made = world.reconcile()
    assert sorted(pod.metadata.name for pod in made.delete) == ["train-a-2", "train-a-3"]
    assert world.phase == "Restarting" and world.status.running == 2


def test_a_restart_of_a_partition_that_is_not_there_keeps_no_pod_away() -> None:
    world = World(
        job_of(task("a", 2), policies=[policy("RestartPartition", "PodFailed")])
    ).started()
    world.fail("train-a-0")
    world.pods.pop("train-a-1")
    made = world.reconcile()
    assert not made.delete and world.status.retry_count == 0 and world.status.failed == 1
    assert world.created[-1] == "train-a-1", "the other pod comes back while the failed one stands"


@pytest.mark.scenario("controllers", 35)
@pytest.mark.parametrize(
    ("event", "action", "end"),
    [
        ("PodFailed", "RestartJob", "Pending"),
        ("PodEvicted", "RestartJob", "Pending"),
        ("PodEvicted", "TerminateJob", "Terminated"),
        ("TaskCompleted", "CompleteJob", "Completed"),
    ],
)
def test_policies_of_a_task(event: str, action: str, end: str) -> None:
    world = World(job_of(task("a", policies=[policy(action, event)]), task("b"))).started()
    if event == "PodFailed":
        world.fail("train-a-0")
    elif event == "PodEvicted":
        world.evict("train-a-0")
    else:
        world.become("Succeeded", "train-a-0")
    assert world.settle() == end


@pytest.mark.scenario("controllers", 63)
def test_a_full_stop_takes_the_group_and_a_targeted_one_leaves_it() -> None:
    for action, there in (
        ("RestartJob", False),
        ("RestartPod", True),
        ("RestartTask", True),
        ("AbortJob", False),
    ):
        world = World(job_of(task("a", 2), policies=[policy(action, "PodFailed")])).started()
        world.fail("train-a-0")
        world.reconcile()
        assert (world.group is not None) is there, action


@pytest.mark.scenario("controllers", 65)
def test_only_what_is_missing_is_created() -> None:
    world = World(job_of(task("a", 6)))
    world.reconcile()
    world.reconcile()
    assert len(world.created) == 6
    for index in (0, 2, 3, 5):
        del world.pods[f"train-a-{index}"]
    world.created.clear()
    world.settle()
    assert (
        sorted(world.created) == ["train-a-0", "train-a-2", "train-a-3", "train-a-5"]
        and len(world.pods) == 6
    )


def test_the_end_of_a_job_and_what_follows_from_it_are_one_write() -> None:
    world = World(job_of(task("a", 2))).started()
    world.become("Succeeded")
    made = world.reconcile()
    assert (world.phase, world.status.succeeded, world.group) == ("Completed", 2, None)
    assert made.status_first and made.dependents is DependentsAction.DELETE_ALL
    assert world.status.version == 1 and world.status.running_duration
    settled = world.status
    world.settle()
    assert world.status == settled


def test_a_job_that_ends_while_pods_have_to_be_stopped_says_so_first() -> None:
    completes = policy("CompleteJob", "TaskCompleted")
    world = World(job_of(task("a", 1, policies=[completes]), task("b", 1))).started()
    world.become("Succeeded", "train-a-0")
    world.reconcile()
    assert world.phase == "Completing" and "train-b-0" not in world.pods
    assert world.settle() == "Completed"
    world = World(job_of(task("a", 1), plugins={"svc": []})).started()
    world.become("Succeeded")
    made = world.reconcile()
    assert made.dependents is not DependentsAction.DELETE_ALL, (
        "the plugin's objects are still there"
    )
    assert world.settle() == "Completed" and not world.status.controlled_resources
