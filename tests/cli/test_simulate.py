"""`hekla simulate`: its flags, its files and its errors."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from hekla.cli import simulate
from hekla.cli.hekla import main

LOG = "; MaxProcs: 4\n1 0 -1 10 4 -1 -1 -1 -1 -1 1\n2 1 -1 10 2 -1 -1 -1 -1 -1 1\n"
POLICY = 'actions: "allocate, backfill"\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n'
CLUSTER = "kind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 2, pods: 10}}\n---\n" + (
    "kind: Node\nmetadata: {name: n2}\nstatus: {allocatable: {cpu: 4, pods: 10}}\n"
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.swf.gz").write_bytes(gzip.compress(LOG.encode()))
    (tmp_path / "one.yaml").write_text(POLICY)
    (tmp_path / "two.yaml").write_text(POLICY)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def test_a_packed_log_as_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "log.swf.gz", "--policy", "one.yaml", "-o", "json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out)
    assert figures["policy"] == "one"
    assert figures["all"]["mean_wait"] == 4.5
    assert figures["utilisation"] == {"cpu": 0.75}


def test_policies_side_by_side_on_a_cluster(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--cluster", "cluster.yaml", "--policy", "one.yaml", "--policy", "two.yaml"]
    assert main(["simulate", "log.swf.gz", *arguments, "-o", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "one,job-00000001,default,4,4,0,0,10,0,1,0"
    assert [line.split(",")[0] for line in lines] == ["policy", "one", "one", "two", "two"]


def test_it_stops_when_it_is_told(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "log.swf.gz", "--until", "5s", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["all"]["ended"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.swf"], "none.swf: no such file or directory"),
        (["log.swf.gz", "--until", "late"], "--until = late: a duration such as 36h, or seconds"),
        (["log.swf.gz", "--pod-processors", "0"], "--pod-processors = 0: a whole number from 1 up"),
        (["one.yaml"], 'one.yaml:1: key "actions" does not exist; known are jobs, nodes, queues, network, objects'),
        (["log.swf.gz", "--policy", "cluster.yaml"], "cluster.yaml:"),
        (["log.swf.gz", "--cluster", "one.yaml"], "one.yaml: object 1 has no kind; Node, Queue, ..."),
    ],
)  # fmt: skip
def test_bad_input_is_an_error_before_anything_runs(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["simulate", *arguments]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert not told.out
    assert "Traceback" not in told.err


def test_who_has_not_started_and_what_is_ignored_is_told(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = "nodes: [{allocatable: {cpu: 2}}, {name: other, allocatable: {cpu: 2}}]\njobs:\n"
    jobs += "- {name: wide, duration: 5, requests: {cpu: 3}}\n"
    jobs += "- {name: high, duration: 5, requests: {cpu: 4}, priorityClass: top}\n"
    jobs += "objects: [{kind: PriorityClass, metadata: {name: top}, value: 9}]\n"
    (files / "jobs.yaml").write_text("\ufeff" + jobs)
    assert main(["simulate", "jobs.yaml", "--policy", "one.yaml"]) == 0
    told = capsys.readouterr()
    assert "one: 2 jobs have not started.\n  wide needs 1 pod of cpu=3; 0 fit. 2 nodes:" in told.out
    assert told.err.startswith(
        "note: one: PodGroup simulated/high: The scheduler ignores priorityClassName (plugin priority)"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    clock = iter([0.0, 0.5, 2.0, 2.0, 2.1, 2.1])
    monkeypatch.setattr(simulate.time, "monotonic", lambda: next(clock))
    progress = simulate.progress_on(terminal)
    assert progress is not None
    progress(1, 4)
    assert terminal.getvalue() == ""
    progress(2, 4)
    assert terminal.getvalue() == f"\r[{'#' * 15}{'.' * 15}] 2 of 4 jobs"
    progress(4, 4)
    assert terminal.getvalue().endswith("\r")
    assert simulate.progress_on(io.StringIO()) is None


def test_the_period_of_cycles(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = []
    for period in ("0", "3s"):
        assert main(["simulate", "log.swf.gz", "--schedule-period", period, "-o", "json"]) == 0
        counts.append(json.loads(capsys.readouterr().out)[0]["cycles"])
    assert counts[0] < counts[1]
    assert main(["simulate", "log.swf.gz", "--schedule-period", "often"]) == 2
    assert "--schedule-period = often: a duration" in capsys.readouterr().err
