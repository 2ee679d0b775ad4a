"""Logs in Standard Workload Format: what a line says, and what is refused."""

from __future__ import annotations

import pytest

from hekla.simulator import swf
from hekla.simulator.workload import InputError

HEADER = ["; Version: 2", "; MaxNodes: 8", "; MaxProcs: 16"]


def line(
    number: int,
    submit: float = 0,
    run: float = 60,
    processors: int = 4,
    asked: float = -1,
    requested: int = -1,
) -> str:
    return (
        f"{number} {submit} -1 {run} {processors} -1 -1 {requested} {asked} -1 1 1 1 -1 -1 -1 -1 -1"
    )


def test_a_job_and_its_machine() -> None:
    workload = swf.read([*HEADER, line(7, submit=5, run=60, asked=3600)], "a.swf")
    (job,) = workload.jobs
    assert (job.name, job.submit, job.duration, job.walltime) == (
        "job-00000007",
        5_000_000,
        60_000_000,
        3_600_000_000,
    )
    assert (job.pods, job.requests, job.processors) == (1, {"cpu": "4"}, 4)
    (machine, _) = workload.cluster
    assert machine["status"]["allocatable"]["cpu"] == "16"


def test_processors_as_pods_on_nodes_of_that_size() -> None:
    workload = swf.read([*HEADER, line(1, processors=6)], "a.swf", pod_processors=4)
    (job,) = workload.jobs
    assert (job.pods, job.min_available, job.requests) == (2, 2, {"cpu": "4"})
    assert sum(one["kind"] == "Node" for one in workload.cluster) == 4


@pytest.mark.parametrize(
    ("estimates", "walltime"),
    [("requested", 600_000_000), ("actual", 60_000_000), ("none", None)],
)
def test_where_walltimes_come_from(estimates: str, walltime: int | None) -> None:
    workload = swf.read([line(1, asked=600)], "a.swf", estimates=estimates)
    assert workload.jobs[0].walltime == walltime


def test_who_asked_for_nothing_is_taken_to_have_known() -> None:
    assert swf.read([line(1, run=60)], "a.swf").jobs[0].walltime == 60_000_000


def test_processors_that_were_asked_for_come_first() -> None:
    assert swf.read([line(1, processors=3, requested=8)], "a.swf").jobs[0].processors == 8


def test_jobs_that_never_ran_are_left_out_and_counted() -> None:
    workload = swf.read([line(1), line(2, run=-1), line(3, processors=-1)], "a.swf")
    assert [job.name for job in workload.jobs] == ["job-00000001"]
    assert workload.notes == ["jobs that never ran: 2; left out"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2 3", "a.swf:2: 3 fields; a job has 18 (at least 9)"),
        (line(1).replace("60", "soon"), 'a.swf:2: run time = "soon": a number, -1 where it is unknown'),
        (line(1).replace("60", "inf"), 'a.swf:2: run time = "inf": a number, -1 where it is unknown'),
        (line(1, submit=-5), "a.swf:2: submit time = -5: seconds, from 0 up"),
        ("", "a.swf: no line of it is a job that ran"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        swf.read(["; a log", text], "a.swf")
    assert str(error.value) == said


def test_parts_of_jobs_and_jobs_cancelled_at_once_are_left_out() -> None:
    """A job that was interrupted has a line for all of it, and one for each part."""
    whole = line(1, run=60)
    part = whole.replace(" -1 1 1 1 ", " -1 3 1 1 ")
    cancelled = line(2, run=0).replace(" -1 1 1 1 ", " -1 5 1 1 ")
    workload = swf.read([whole, part, cancelled, line(3, run=0)], "a.swf")
    assert [job.name for job in workload.jobs] == ["job-00000001", "job-00000003"]
    assert workload.notes == [
        "jobs that never ran: 1; left out",
        "lines of parts of jobs (status 2 to 4): 1; left out",
    ]


def test_a_machine_of_which_nodes_alone_are_known_has_room_for_every_job() -> None:
    workload = swf.read(["; MaxProcs: -1", "; MaxNodes: 8", line(1, processors=12)], "a.swf")
    assert workload.cluster[0]["status"]["allocatable"]["cpu"] == "12"
