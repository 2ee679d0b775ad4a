"""Pollux's workloads: the length of a job by the traces beside them, and least attained service."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scoreboard import pollux
from hekla.simulator.workload import InputError


def artifact(directory: Path, jobs: str, duration: str = "") -> Path:
    """One application, made up: steps of 2 s on one GPU and 3 s on eight, without any loss by
    larger batches; 90 epochs' worth of ncf is ten epochs of 50 steps."""
    traces = directory / "traces" / "ncf"
    traces.mkdir(parents=True)
    for batch in (100, 800):
        lines = [f"{50 * (number + 1)},0,0,0.0,1.0" for number in range(12)]
        header = "progress,iteration,metric,grad_sqr,grad_var"
        (traces / f"validation-{batch}.csv").write_text("\n".join([header, *lines]) + "\n")
    (traces / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,50,1.0,0.0\n1,150,3.0,0.0\n44,100,3.0,1.0\n44,200,5.0,1.0\n"
    )
    (traces / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n3,12,60,4.0,2.0\n"
    )
    (directory / "workloads").mkdir()
    header = "name,time,application,num_replicas,batch_size" + duration
    (directory / "workloads" / "workload-1.csv").write_text(f"{header}\n{jobs}")
    return directory


def test_the_length_follows_from_steps_and_progress(tmp_path: Path) -> None:
    """On one GPU a step of 100 samples is between the two that were measured; eight GPUs do eight
    times as much in a step, where the gradient is all noise."""
    application = pollux.Application(artifact(tmp_path, "") / "traces" / "ncf")
    assert application.length(1, 100) == pytest.approx(500 * 2.0)
    assert application.length(8, 800) == pytest.approx(500 / 8 * 3.0)
    # 100 of 12 GPUs, 9 samples each: the nearest that was measured.
    assert application.length(12, 100) == pytest.approx(500 / (12 * 9 / 100) * 4.0)


def test_a_short_job_does_not_wait_for_a_long_one(tmp_path: Path) -> None:
    """All GPUs go to the long job; after 16 GPU-hours, a quarter of an hour, the short one takes
    them, and the long one goes on where it was, 30 s later."""
    jobs = "long,0,ncf,64,800,7200\nshort,600,ncf,64,800,1800\n"
    path = artifact(tmp_path, jobs, ",duration")
    (found,) = pollux.workloads(path)
    # long: 900 s, then it waits for 1,800 s and starts again; short: waits from 600 to 900.
    long, short = 7200 + 1800 + 30, 300 + 1800
    assert pollux.completion(found) == pytest.approx((long + short) / 2, abs=60)


def test_means_of_all_workloads(tmp_path: Path) -> None:
    path = artifact(tmp_path, "only,0,ncf,1,100\n")
    (figure,) = pollux.measure({pollux.LAS}, path)
    assert figure.value == pytest.approx(1000 / 3600)
    assert "workload-1 0.28" in figure.conditions


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("big,0,ncf,65,100\n", r"workload-1.csv:2: num_replicas = 65: from 1 to 64"),
        ("odd,soon,ncf,1,100\n", r"workload-1.csv:2: .*'soon'"),
        ("other,0,gpt,1,100\n", r"gpt: there is no validation-BATCH.csv in it"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, row: str, problem: str) -> None:
    path = artifact(tmp_path, row)
    (found,) = pollux.workloads(path)
    with pytest.raises(InputError, match=problem):
        pollux.read(found)


def test_a_workload_may_say_how_long_jobs_take(tmp_path: Path) -> None:
    """Then its name, arrival and number of GPUs are enough, and a file is, too."""
    path = tmp_path / "mine.csv"
    path.write_text("name,time,num_replicas,duration\none,0,4,3600\n")
    (figure,) = pollux.measure({pollux.LAS}, path)
    assert figure.value == pytest.approx(1.0)


def test_neither_a_length_nor_what_it_follows_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("name,time,num_replicas\none,0,4\n")
    with pytest.raises(InputError, match=r"mine.csv:2: no column 'batch_size', and no duration"):
        pollux.read(path)


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no \*.csv in it"):
        pollux.workloads(tmp_path)
