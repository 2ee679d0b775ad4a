"""A recorded day under another policy: what would have become of each of its jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hekla.cli import rehearse
from hekla.scheduler.policy_file import PolicyFile
from hekla.scheduler.recording import read
from hekla.simulator.rehearsal import departure
from tests.simulator.test_recording import Scheduler, busy_hour, simulated

ROOT = Path(__file__).parents[2]
STRICT = "examples/rehearse/strict.yaml"


@pytest.fixture
def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorded day under the built-in policy, in which `third` passes `second`."""
    monkeypatch.chdir(ROOT)
    scheduler = Scheduler(tmp_path / "day", PolicyFile(""))
    busy_hour(scheduler)
    scheduler.recording.close()
    return scheduler.recording.directory


def test_the_page_shows_what_is_printed(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rehearse.main([STRICT, "--recording", str(day)]) == 0
    page = (ROOT / "docs/what-if.md").read_text()
    shown = re.search(r"```\n\$ hekla rehearse [^\n]*\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    printed = capsys.readouterr()
    assert printed.out == shown[1]
    assert not printed.err, "the simulation of the recorded policy is the recorded day"


def test_programs_get_every_job(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rehearse.main([STRICT, "--recording", str(day), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["job"]: one["verdict"] for one in told["jobs"]} == {
        "lab/first": "same",
        "lab/second": "sooner",
        "lab/third": "later",
    }
    assert [one["policy"] for one in told["policies"]] == ["recorded", "strict"]


def test_a_day_that_is_cut_off_has_jobs_that_never_start(
    day: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [STRICT, "--recording", str(day), "--until", "10s", "-o", "json"]
    assert rehearse.main(words) == 0
    jobs = {one["job"]: one for one in json.loads(capsys.readouterr().out)["jobs"]}
    assert (jobs["lab/third"]["verdict"], jobs["lab/third"]["would_start"]) == ("never", None)


def test_the_recorded_policy_itself_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text((ROOT / STRICT).read_text())
    scheduler = Scheduler(tmp_path / "day", PolicyFile(str(rules)))
    busy_hour(scheduler)
    scheduler.recording.close()
    assert rehearse.main([str(rules), "--recording", str(tmp_path / "day")]) == 0
    assert "Every job would have started when it did." in capsys.readouterr().out


def test_where_a_simulation_leaves_its_recording_is_said(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "day", PolicyFile(""))
    busy_hour(scheduler)
    run = simulated(scheduler)
    assert departure(read(tmp_path / "day"), run) == ""
    run.acts = [act._replace(node="n9") for act in run.acts]
    assert departure(read(tmp_path / "day"), run).startswith("in cycle 2 the recording binds lab/")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.yaml", "--recording", "examples"], "missing.yaml"),
        ([STRICT, "--recording", "examples"], "no recording"),
    ],
)
def test_mistakes_are_named(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert rehearse.main(words) == 2
    assert said in capsys.readouterr().err
