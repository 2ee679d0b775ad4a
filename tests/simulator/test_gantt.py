"""The picture of a simulation: bars where pods ran, pale ones where their job stood still."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hekla.engine.world import policy
from hekla.simulator import jobfile
from hekla.simulator.gantt import PALE, bars, gantt, standing
from hekla.simulator.run import Run
from hekla.simulator.simulation import simulate

MINUTE = 60_000_000


def pair(plugins: list[str]) -> Run:
    """Two jobs of two pods that move together, and room for three."""
    workload = jobfile.read(
        "nodes: [{name: n, count: 3, allocatable: {cpu: 1}}]\n"
        "jobs: [{name: one&two, count: 2, duration: 10m, pods: 2, requests: {cpu: 1}, work: {together: true}}]",
        "jobs.yaml",
    )
    (run,) = simulate(workload, [policy(plugins=plugins, actions="allocate")])
    return run


def test_a_bar_for_each_pod_and_none_above_another() -> None:
    run = pair(["gang", "predicates"])
    found = bars(run, run.until)
    assert [(one.begin, one.end) for one in found] == [
        (0, 10 * MINUTE), (0, 10 * MINUTE), (10 * MINUTE, 20 * MINUTE), (10 * MINUTE, 20 * MINUTE),
    ]  # fmt: skip
    assert {one.line for one in found} == {0}
    assert standing(run, run.until) == {}


def test_who_waits_for_the_rest_of_its_job_is_pale() -> None:
    run = pair(["drf", "predicates"])
    assert standing(run, run.until) == {"simulated/one&two-1": [(0, 10 * MINUTE)]}
    assert gantt([("apart", run)]).count(f'fill="{PALE}"') == 1


def test_it_is_a_document_whatever_names_are() -> None:
    """Well formed, with a panel for each policy, and the same each time."""
    run = pair(["gang", "predicates"])
    text = gantt([("a<b", run), ("c", run)], ["n-0", "n-1", "n-2"])
    assert text == gantt([("a<b", run), ("c", run)], ["n-0", "n-1", "n-2"])
    root = ElementTree.fromstring(text)
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("a<b") == 1 and "one&two-0-0" in words
    assert words.count("n-2") == 2, "a node on which nothing ran is shown, too"
    assert re.findall(r">(\d+ min)<", text)[:3] == ["0 min", "2 min", "4 min"]


def test_who_never_ends_runs_to_the_edge() -> None:
    run = pair(["drf", "predicates"])
    run.acts[:] = [one for one in run.acts if one.what == "bind" and one.moment == 0]
    assert {one.end for one in bars(run, 99)} == {99}
