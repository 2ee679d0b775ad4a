"""The page about a simulation: what it draws, that it is small, and that a browser opens it."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.cli import simulate as command
from hekla.engine.world import policy
from hekla.simulator.differences import differences
from hekla.simulator.outcome import outcome
from hekla.simulator.page.page import page
from hekla.simulator.page.stays import Stay, edges_of, held, means, stays
from hekla.simulator.run import Act, JobRun, Run
from hekla.simulator.simulation import simulate
from hekla.simulator.workload import SimulatedJob, Workload, node, queue

SECOND = 1_000_000
PLAIN = policy(plugins=["gang", "predicates"], actions="allocate, backfill")
ROOT = Path(__file__).parents[2]


def two_jobs(until: int | None = None) -> Run:
    jobs = [
        SimulatedJob("a<b", 0, 60 * SECOND, {"cpu": "2"}, 2, 2, queue="one"),
        SimulatedJob("c", 30 * SECOND, 60 * SECOND, {"cpu": "4"}, queue="two"),
    ]
    cluster = [node("n1", {"cpu": "4", "pods": "9"}), queue("one"), queue("two")]
    (found,) = simulate(Workload(jobs, cluster), [PLAIN], until)
    return found


def test_pods_stay_from_their_bind_to_their_end() -> None:
    spans = [(one.act.pod, one.start, one.end) for one in stays(two_jobs(70 * SECOND))]
    assert spans == [
        ("simulated/a<b-0", 0, 60),
        ("simulated/a<b-1", 0, 60),
        ("simulated/c-0", 60, 70),
    ]


def test_what_is_held_over_time() -> None:
    run = two_jobs()
    assert held(stays(run), "cpu", edges_of(120.0, 4)).tolist() == [4000] * 4


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9)), max_size=12),
    st.integers(1, 7),
)
def test_means_are_those_of_each_stay_by_itself(given: list[tuple[int, int, int]], bins: int) -> None:  # fmt: skip
    act = Act(0, "bind", JobRun(SimulatedJob("j", 0, 1, {})), "p", "n", {})
    of = [Stay(start, start + length, act) for start, length, _ in given]
    sizes = {id(one): size for one, (*_, size) in zip(of, given)}
    edges = np.linspace(0.0, 80.0, bins + 1)
    plain = [
        sum(max(0.0, min(one.end, right) - max(one.start, left)) * sizes[id(one)] for one in of)
        / (right - left)
        for left, right in pairwise(edges)
    ]
    assert np.allclose(means(of, lambda one: sizes[id(one)], edges), plain, atol=1e-6)


def many(jobs: int) -> Run:
    """Jobs in a row on 300 nodes, as a simulation would have them."""
    runs = [
        JobRun(SimulatedJob(f"j{at}", 0, SECOND, {}, processors=1, queue=f"q{at % 20}"), at, at + 1)
        for at in range(jobs)
    ]
    acts = [
        Act((at // 300 + more) * SECOND, what, run, f"x/{at}", f"n{at % 300:03}", {"cpu": 1000.0})
        for at, run in enumerate(runs)
        for what, more in (("bind", 0), ("end", 1))
    ]
    acts.sort(key=lambda act: (act.moment, act.what == "bind"))
    until = (jobs // 300 + 1) * SECOND
    return Run(runs, until, nodes=300, capacity={"cpu": 3e5}, used={"cpu": 1e3 * jobs}, acts=acts)


def test_ten_thousand_jobs_are_a_page_that_opens() -> None:
    run = many(10_000)
    text = page("many", [outcome("p", run)], [run])
    assert len(text) < 200_000
    assert "others" in text and "n000" in text


def test_a_page_names_no_other_place_and_is_the_same_each_time() -> None:
    runs = [two_jobs(), two_jobs(70 * SECOND)]
    outcomes = [outcome(name, run) for name, run in zip(("x", "y"), runs)]
    outcomes[1].differences = differences("x", *runs)
    text = page("t", outcomes, runs)
    assert text == page("t", outcomes, runs)
    found = set(re.findall(r"(?:https?:)?//[^\s\"'<)]+", text))
    assert found == {"http://www.w3.org/2000/svg"}, "the name of SVG, which nobody fetches"
    assert "<script" not in text and "url(" not in text
    assert "prefers-color-scheme:dark" in text and 'class="gantt"' in text
    assert "a&lt;b" in text and "a<b" not in text


def test_nothing_that_ran_is_a_page_too() -> None:
    jobs = [SimulatedJob("a", 10 * SECOND, SECOND, {"cpu": "1"})]
    cluster = [node("n1", {"cpu": "4", "pods": "9"}), queue("default")]
    (run,) = simulate(Workload(jobs, cluster), [PLAIN], 5 * SECOND)
    assert not re.search(r"\bnan\b", page("t", [outcome("p", run)], [run]))


@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="there is no Chromium here (apt-get install chromium)"
)
def test_a_browser_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    names = ("as-they-fit", "easy")
    policies = [f"--policy=examples/simulate/{name}.yaml" for name in names]
    assert command.main(["examples/simulate/jobs.yaml", *policies, "-o", "html"]) == 0
    (tmp_path / "page.html").write_text(capsys.readouterr().out)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]  # fmt: skip
    done = subprocess.run(
        [*browser, "--dump-dom", f"file://{tmp_path}/page.html"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "jobs.yaml: as-they-fit, easy" in done.stdout
    assert done.stdout.count("<svg") == 2 + 2 + 2 + 2 + 2 + 1 + 1, "charts, and keys beside them"
    assert "They part at 1,800 s" in done.stdout
