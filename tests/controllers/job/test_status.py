"""The books of a job, and when a task counts as up."""

import pytest

from hekla.api import batch
from hekla.api.text.times import stamp
from hekla.controllers.job.dependencies import is_up, ready
from hekla.controllers.job.status import dated, entered, phase_before
from hekla.controllers.records import ContainerStatus
from tests.controllers.job.world import job_of, pod_of, task


@pytest.mark.scenario("controllers", 71)
def test_a_phase_has_one_condition_and_the_newest_stands_last() -> None:
    status = entered(batch.JobStatus(), "Pending", 10)
    assert [condition.status for condition in status.conditions] == ["Pending"]
    status = entered(entered(status, "Running", 20), "Pending", 30)
    assert [(c.status, c.last_transition_time) for c in status.conditions] == [
        ("Running", stamp(20)),
        ("Pending", stamp(30)),
    ]
    assert phase_before(status) == "Running" and status.state.last_transition_time == stamp(30)


def test_a_phase_that_was_not_written_yet_stays_in_the_history() -> None:
    pending = entered(batch.JobStatus(), "Pending", 10)
    running = entered(pending, "Running", 20)
    again = dated(entered(pending, "Running", 21), running)
    assert again == running
    aborting = dated(entered(pending, "Aborting", 30), running)
    assert aborting.state.phase == "Aborting"
    assert [
        (condition.status, condition.last_transition_time) for condition in aborting.conditions
    ] == [("Pending", stamp(10)), ("Running", stamp(20)), ("Aborting", stamp(30))]


@pytest.mark.scenario("controllers", 67)
def test_when_a_pod_is_up() -> None:
    job = job_of(task("a"))
    done, fine = ContainerStatus(name="one", ready=False), ContainerStatus(name="two", ready=True)
    assert is_up(pod_of(job, "a", 0, "Succeeded", container_statuses=[done]))
    assert is_up(pod_of(job, "a", 0, "Running", container_statuses=[fine, fine]))
    assert not is_up(pod_of(job, "a", 0, "Running", container_statuses=[fine, done]))
    assert not is_up(pod_of(job, "a", 0, "Pending"))


def test_one_of_several_dependencies_or_all() -> None:
    for iteration, answer in (("any", True), ("all", False), ("", False)):
        depends = batch.DependsOn(name=["a", "b"], iteration=iteration)
        job = job_of(task("a"), task("b"), task("c", depends_on=depends))
        places = {"a": {0: pod_of(job, "a", 0, "Succeeded")}}
        assert (
            ready({task.name: task for task in job.spec.tasks}, job.spec.tasks[2], places) is answer
        )
    unknown = job_of(task("a", depends_on=batch.DependsOn(name=["nobody"])))
    assert not ready({"a": unknown.spec.tasks[0]}, unknown.spec.tasks[0], {})
