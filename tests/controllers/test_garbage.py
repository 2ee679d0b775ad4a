"""When a finished job may go."""

import pytest

from hekla.api.text.times import stamp
from hekla.controllers.garbage import needs_cleanup, seconds_left
from tests.controllers.job.world import job_of, task


@pytest.mark.scenario("controllers", 134)
@pytest.mark.parametrize(
    ("ttl", "phase", "answer"),
    [
        (10, "Completed", True),
        (0, "Failed", True),
        (10, "Terminated", True),
        (None, "Completed", False),
        (10, "Aborted", False),
        (10, "Running", False),
    ],
)
def test_who_is_cleaned_up(ttl: int | None, phase: str, answer: bool) -> None:
    job = job_of(task("a"), ttl_seconds_after_finished=ttl)
    job.status.state.phase = phase
    assert needs_cleanup(job) is answer


@pytest.mark.scenario("controllers", 135)
def test_when() -> None:
    job = job_of(task("a"), ttl_seconds_after_finished=10)
    job.status.state.phase = "Completed"
    with pytest.raises(
        ValueError, match="unable to find the time when the Job default/train finished"
    ):
        seconds_left(job, 1000.0)
    job.status.state.last_transition_time = stamp(1000)
    assert (
        seconds_left(job, 1004.0) == 6
        and seconds_left(job, 1010.0) == 0
        and seconds_left(job, 1020.0) < 0
    )
    job.status.state.phase = "Running"
    with pytest.raises(ValueError, match="job default/train should not be cleaned up"):
        seconds_left(job, 1000.0)
