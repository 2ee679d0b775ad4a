"""The page of claims: its pictures are what the commands above them draw, and its table is what the
recipes give."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from hekla.cli import simulate
from hekla.engine.policies import read_policy
from hekla.simulator import jobfile, simulation
from hekla.simulator.run import JobRun, Run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "claims.md"
CLAIMS = ROOT / "examples" / "claims"
PICTURE = re.compile(r"```\n\$ hekla simulate ([^\n]*)\n[^`]*```\n\n!\[[^]]*\]\((\S+)\)", re.DOTALL)


def test_pictures_are_drawn_again_to_the_byte(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hekla simulate ... -o svg > docs/claims/NAME.svg` makes one anew."""
    monkeypatch.chdir(ROOT)
    drawn = PICTURE.findall(PAGE.read_text())
    assert {picture for _, picture in drawn} == {
        f"claims/{path.name}" for path in (ROOT / "docs" / "claims").iterdir()
    }
    for command, picture in drawn:
        assert simulate.main([*shlex.split(command), "-o", "svg"]) == 0
        assert capsys.readouterr().out == (ROOT / "docs" / picture).read_text(), picture


def claim(name: str, jobs: str, rules: str, seed: int = 0, **other: str) -> Run:
    """A recipe under one of its policies; `other`: words of the file in place of which others
    stand."""
    directory = CLAIMS / name
    text = (directory / f"{jobs}.yaml").read_text()
    for old, new in other.items():
        assert f"{old}: " in text
        text = re.sub(rf"\b{old}: [\d.]+", f"{old}: {new}", text, count=1)
    workload = jobfile.read(text, jobs, seed)
    policy = read_policy(yaml.safe_load((directory / f"{rules}.yaml").read_text()))
    (run,) = simulation.simulate(workload, [policy])
    return run


def whole(run: Run) -> str:
    """Seconds until all jobs have ended."""
    if any(one.ended is None for one in run.jobs):
        return "never"
    return f"{max(one.ended or 0 for one in run.jobs) / 1e6:,.0f}"


def held(run: Run) -> str:
    """Minutes from a job's first pod to its end, the mean."""
    first: dict[str, int] = {}
    for act in run.acts:
        first.setdefault(act.run.job.key, act.moment)
    if any(one.ended is None for one in run.jobs):
        return "never"
    return f"{fmean((one.ended or 0) - first[one.job.key] for one in run.jobs) / 6e7:.0f}"


def of_kind(run: Run, name: str) -> Sequence[JobRun]:
    return [one for one in run.jobs if one.job.name.rpartition("-")[0] == name]


@pytest.mark.parametrize("room", range(6, 12))
def test_a_gang_takes_its_time_whatever_room_there_is(room: int) -> None:
    """For six to eleven pods.  Pod by pod, two jobs end only where one has five of its six pods
    beside the other, and three never do."""
    for number in (1, 2, 3):
        assert held(claim("gang", f"jobs-{number}", "gang", count=f"{room}")) == "24"
    alone = [held(claim("gang", f"jobs-{n}", "pod-at-a-time", count=f"{room}")) for n in (1, 2, 3)]
    assert alone == ["24", "36" if room == 11 else "never", "never"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_queries_of_drawn_lengths_gain_a_quarter(seed: int) -> None:
    lasted = [
        max(
            one.ended or 0
            for one in claim("spark", jobs, "policy", seed, duration="57.23\n  sigma: 0.5").jobs
        )
        for jobs in ("queries-static", "queries-minimum")
    ]
    assert 23 <= round(100 * (1 - lasted[1] / lasted[0])) <= 25


def minutes_of_trainings(run: Run) -> float:
    return fmean((one.ended or 0) - (one.started or 0) for one in of_kind(run, "train")) / 6e7


def wait_of_large(run: Run) -> str:
    waits = [(one.started or 0) - one.job.submit for one in of_kind(run, "large")]
    return f"{fmean(waits) / 6e7:.0f}"


def test_the_table_is_what_the_recipes_give() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ")
    ][1:]
    spread, packed = (claim("recommender", "jobs", one) for one in ("spread", "packed"))
    faster = 100 * (minutes_of_trainings(spread) / minutes_of_trainings(packed) - 1)
    expected = [
        ", ".join(held(claim("gang", f"jobs-{n}", "pod-at-a-time")) for n in (1, 2, 3)),
        ", ".join(held(claim("gang", f"jobs-{n}", "gang")) for n in (1, 2, 3)),
        ", ".join(
            whole(claim("task-topology", "jobs", one)) for one in ("spread", "task-topology")
        ),
        ", ".join(whole(claim("io-aware", "jobs", one)) for one in ("spread", "io-aware")),
        ", ".join(
            whole(claim("spark", one, "policy")) for one in ("queries-static", "queries-minimum")
        ),
        whole(claim("spark", "queries", "policy")),
        f"{faster:.0f} %",
        ", ".join((wait_of_large(spread), wait_of_large(packed))),
    ]
    assert [row[2] for row in rows] == expected
