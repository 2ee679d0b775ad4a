"""What jobs took is in a small file, for the next scheduler."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from hekla.engine.model.time.runs import KEPT, SAVED, Kind, Run, Runs
from hekla.engine.world import World, policy
from hekla.scheduler.memory.run_store import RunStore, read, write
from tests.engine.test_learned_walltimes import run_one, walltime, world

TRAIN = Kind("ada", "train-*", "1 cpu=1000")


def scene(path: Path) -> tuple[World, RunStore]:
    made = world(leastRuns=1)
    return made, RunStore(str(path), made.state, lambda: made.policy)


async def test_the_next_scheduler_knows_what_this_one_saw(tmp_path: Path) -> None:
    path = tmp_path / "state" / "walltimes.db"
    first, store = scene(path)
    await store.load()
    run_one(first, "train-0", 100)
    await store.save()
    second, store = scene(path)
    await store.load()
    second.job("train-1", cpu=1)
    second.run()
    assert walltime(second, "train-1") == 100


async def test_nothing_is_written_without_a_path_or_for_a_policy_that_does_not_learn(
    tmp_path: Path,
) -> None:
    made, _ = scene(tmp_path / "a.db")
    run_one(made, "train-0", 100)
    await RunStore("", made.state, lambda: made.policy).save()
    await RunStore(str(tmp_path / "a.db"), made.state, lambda: policy(["gang"])).save()
    assert not list(tmp_path.iterdir())


async def test_two_schedulers_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "walltimes.db"
    (one, first), (two, second) = scene(path), scene(path)
    run_one(one, "train-0", 100)
    run_one(two, "tune-0", 200)
    await first.save()
    await second.save()
    assert {run.kind.name: run.seconds for run in read(str(path))} == {
        "train-*": 100,
        "tune-*": 200,
    }


async def test_a_file_that_somebody_else_holds_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hekla.scheduler.memory.run_store.PATIENCE", 0.01)
    path = tmp_path / "walltimes.db"
    made, store = scene(path)
    write(str(path), [])
    run_one(made, "train-0", 100)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("begin exclusive")
        await store.save()
        await store.save()
        other.execute("rollback")
    assert [one.message for one in caplog.records] == [
        f"walltimes: {path} cannot be written; it is tried again: database is locked"
    ]
    await store.save()
    assert len(read(str(path))) == 1


@pytest.mark.parametrize("damage", ["no database", "another database", "a directory"])
async def test_a_file_that_cannot_be_used_is_told_of_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    path = tmp_path / "walltimes.db"
    if damage == "no database":
        path.write_text("these are no runs " * 100)
    elif damage == "another database":
        with sqlite3.connect(path) as file:
            file.execute("create table runs (what text)")
    else:
        path.mkdir()
    made, store = scene(path)
    with caplog.at_level(logging.WARNING):
        await store.load()
        run_one(made, "train-0", 100)
        await store.save()
    made.job("train-1", cpu=1)
    made.run()
    assert walltime(made, "train-1") == 100, "it goes on in memory"
    read_so, written_so = (one.message for one in caplog.records)
    assert read_so.startswith(
        f"walltimes: {path} cannot be read, so that walltimes are learned anew: "
    )
    assert written_so.startswith(f"walltimes: {path} cannot be written; it is tried again: ")
    if damage == "no database":
        assert path.read_text().startswith("these are no runs")


async def test_a_full_disk_is_survived(caplog: pytest.LogCaptureFixture) -> None:
    made, store = scene(Path("/dev/full"))
    run_one(made, "train-0", 100)
    await store.save()
    assert "cannot be written; it is tried again" in caplog.text
    runs = made.state.job_table.runs
    assert runs is not None
    assert len(runs.unsaved) == 1


def test_a_run_that_is_written_twice_stands_once_and_old_ones_make_room(tmp_path: Path) -> None:
    path = str(tmp_path / "walltimes.db")
    write(path, [Run(f"job-{number}", TRAIN, 10.0, float(number)) for number in range(KEPT + 5)])
    write(path, [Run("job-68", TRAIN, 20.0, 68.5), Run("job-67", TRAIN, 5.0, 67.0)])
    found = read(path)
    assert len(found) == KEPT
    assert found[0].uid == "job-5"
    assert {one.uid: one.seconds for one in found[-2:]} == {"job-67": 10.0, "job-68": 20.0}


def test_saved_runs_are_an_object_of_the_state() -> None:
    made = world()
    made.state.upsert_other(SAVED, {"metadata": {"name": "runs"}, "runs": "none"})
    made.run()
    assert isinstance(made.state.job_table.runs, Runs)
