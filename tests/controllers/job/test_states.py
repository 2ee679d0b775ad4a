"""The state table, row by row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.batch import JobPhase
from hekla.controllers.job.counts import Counts
from hekla.controllers.job.states import (
    FAILED,
    TABLE,
    Situation,
    Verb,
    restarted,
    started,
    transition,
)
from tests.controllers.job.world import job_of, task

RESTARTS = ("RestartTask", "RestartPod", "RestartPartition")


def situation(
    counts: Counts, *, replicas: int = 2, retry_count: int = 0, **spec: object
) -> Situation:
    job = job_of(task("a", replicas), **spec)
    return Situation(job.spec, counts, retry_count, job.spec.min_available)


def outcome(phase: str, action: str, counts: Counts, **more: object) -> str | None:
    return transition(phase, action).outcome(situation(counts, **more))


def counts(**columns: int) -> Counts:
    made = Counts()
    for column, number in columns.items():
        if column == "terminating":
            made.terminating = number
        else:
            for _ in range(number):
                made.add("a", column.capitalize())
    return made


@pytest.mark.scenario("controllers", 73)
@pytest.mark.parametrize("phase", ["", "Pending", "Running", "anything else"])
@pytest.mark.parametrize(
    ("action", "following"),
    [
        ("RestartJob", "Restarting"),
        ("AbortJob", "Aborting"),
        ("TerminateJob", "Terminating"),
        ("CompleteJob", "Completing"),
        *((action, "Restarting") for action in RESTARTS),
    ],
)
def test_a_working_job_obeys_whatever_its_pods_do(phase: str, action: str, following: str) -> None:
    for alive in (Counts(), counts(pending=2), counts(running=2)):
        assert outcome(phase, action, alive) == following
    assert transition(phase, action).retry == action.startswith("Restart")


@pytest.mark.scenario("controllers", 72)
def test_an_aborted_job_can_be_resumed_and_the_finished_cannot() -> None:
    for phase in ("Aborting", "Aborted"):
        assert outcome(phase, "ResumeJob", counts(terminating=1)) == "Restarting"
        assert transition(phase, "ResumeJob").retry
    for phase in ("Completed", "Failed", "Terminated"):
        for action in ("ResumeJob", "RestartJob", "AbortJob", "SyncJob"):
            assert outcome(phase, action, Counts()) is None
            assert transition(phase, action).verb is Verb.KILL and transition(phase, action).soft


@pytest.mark.scenario("controllers", 72)
@pytest.mark.parametrize(
    ("phase", "end"),
    [("Aborting", "Aborted"), ("Completing", "Completed"), ("Terminating", "Terminated")],
)
def test_a_stopping_job_waits_for_its_pods(phase: str, end: str) -> None:
    assert outcome(phase, "SyncJob", counts(terminating=1)) is None
    assert outcome(phase, "SyncJob", counts(running=1)) is None
    assert outcome(phase, "SyncJob", counts(succeeded=1, failed=1)) == end


@pytest.mark.scenario("controllers", 74)
def test_a_pending_job_runs_once_its_gang_does() -> None:
    assert outcome("Pending", "SyncJob", counts(running=1, succeeded=1)) == "Running"
    assert outcome("Pending", "ResumeJob", counts(running=1, pending=1)) is None


@pytest.mark.scenario("controllers", 75)
def test_a_restarting_job_fails_when_its_retries_are_used_and_waits_for_the_old_pods() -> None:
    assert restarted(situation(Counts(), retry_count=3)) == FAILED
    assert restarted(situation(Counts(), retry_count=1, min_available=1)) == "Pending"
    assert restarted(situation(counts(terminating=2), retry_count=1, min_available=1)) is None
    assert restarted(situation(counts(terminating=1), retry_count=1, min_available=1)) == "Pending"


@pytest.mark.scenario("controllers", 76)
@pytest.mark.parametrize(
    ("replicas", "minimum", "pods", "following"),
    [
        (2, 2, {"succeeded": 2}, "Completed"),
        (2, 2, {"succeeded": 1}, None),
        (5, 3, {"pending": 5}, "Pending"),
        (5, 3, {"pending": 3, "running": 2}, "Pending"),
        (5, 3, {"pending": 2, "running": 1, "succeeded": 1, "failed": 1}, None),
        (2, 1, {"succeeded": 1, "failed": 1}, "Completed"),
        (2, 2, {"succeeded": 1, "failed": 1}, "Failed"),
        (2, 2, {"failed": 2}, "Failed"),
        (0, 0, {}, None),
    ],
)
def test_a_running_job_ends_by_what_its_pods_did(
    replicas: int, minimum: int, pods: dict[str, int], following: str | None
) -> None:
    assert (
        outcome("Running", "SyncJob", counts(**pods), replicas=replicas, min_available=minimum)
        == following
    )


def test_enough_successes_complete_a_job_at_once() -> None:
    assert (
        outcome("Running", "SyncJob", counts(succeeded=2, running=3), replicas=5, min_success=2)
        == "Completed"
    )
    assert (
        outcome("Running", "SyncJob", counts(succeeded=1, failed=4), replicas=5, min_success=2)
        == "Failed"
    )


def test_a_task_that_missed_its_minimum_fails_the_job() -> None:
    job = job_of(task("a", 2, min_available=2), task("b", 1), min_available=3)
    pods = Counts()
    for name, phase in (("a", "Succeeded"), ("a", "Failed"), ("b", "Succeeded")):
        pods.add(name, phase)
    assert transition("Running", "SyncJob").outcome(Situation(job.spec, pods, 0, 3)) == "Failed"


def test_every_phase_has_a_row_and_every_row_an_answer_to_anything() -> None:
    assert set(TABLE) == set(JobPhase)
    for phase in JobPhase:
        assert transition(phase, "what nobody has heard of")


def test_a_suspend_during_a_restart_is_obeyed() -> None:
    for action, following in (
        ("AbortJob", "Aborting"),
        ("TerminateJob", "Terminating"),
        ("CompleteJob", "Completing"),
    ):
        assert outcome("Restarting", action, Counts()) == following
    assert (
        transition("Restarting", "RestartJob").verb is Verb.KILL
        and not transition("Restarting", "RestartJob").retry
    )


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_running_needs_the_whole_minimum(
    running: int, succeeded: int, failed: int, minimum: int
) -> None:
    now = situation(
        counts(running=running, succeeded=succeeded, failed=failed),
        replicas=12,
        min_available=minimum,
    )
    assert (started(now) == "Running") == (running + succeeded + failed >= minimum)
