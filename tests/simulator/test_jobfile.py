"""Jobs in YAML: what a file says, and how an error names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.simulator import clusterfile, jobfile
from hekla.simulator.workload import InputError, of_kind

WHOLE = """\
nodes:
- allocatable: {cpu: 8}
jobs:
- name: a
  duration: 1m
  requests: {cpu: 500m}
"""


def test_what_is_left_out_is_filled_in() -> None:
    workload = jobfile.read(WHOLE, "jobs.yaml")
    (job,) = workload.jobs
    assert (job.name, job.submit, job.duration, job.walltime) == ("a", 0, 60_000_000, None)
    assert (job.pods, job.min_available, job.queue, job.processors) == (1, 1, "default", 0.5)
    assert [one["kind"] for one in workload.cluster] == ["Node", "Queue"]


def test_a_job_that_comes_again() -> None:
    text = WHOLE + "  count: 3\n  every: 10s\n  submit: 5\n"
    jobs = jobfile.read(text, "jobs.yaml").jobs
    assert [(job.name, job.submit) for job in jobs] == [
        ("a-0", 5_000_000),
        ("a-1", 15_000_000),
        ("a-2", 25_000_000),
    ]


def test_what_is_drawn_depends_on_the_seed_and_the_name() -> None:
    text = WHOLE + "  count: 400\n  every: 10s\n  arrivals: poisson\n  sigma: 0.5\n"
    other = (
        text
        + "- {name: b, duration: 1, requests: {cpu: 1}, count: 2, every: 1, arrivals: poisson}\n"
    )
    one, same, beside, third = (
        [(job.submit, job.duration) for job in jobfile.read(given, "j", seed).jobs[:400]]
        for given, seed in ((text, 1), (text, 1), (other, 1), (text, 2))
    )
    assert one == same == beside != third
    assert one[0][0] == 0 and one == sorted(one, key=lambda job: job[0])
    assert 3_500_000_000 < one[-1][0] < 4_500_000_000
    assert 55_000_000 < sorted(length for _, length in one)[200] < 65_000_000


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("duration: 1m", "duraton: 1m", 'j:5: jobs.0: key "duraton" does not exist; did you mean "duration"?'),
        ("duration: 1m", "duration: soon", "j:5: jobs.0: duration = 'soon': a duration such as 90s or 1h30m, or seconds from 0 up"),
        ("duration: 1m", "duration: -3", "j:5: jobs.0: duration = -3: a duration such as 90s or 1h30m, or seconds from 0 up"),
        ("duration: 1m", "duration: 1m\n  pods: 0", "j:6: jobs.0: pods = 0: a whole number from 1 up"),
        ("duration: 1m", "duration: 1m\n  pods: two", "j:6: jobs.0: pods = 'two': expected `int`, got `str`"),
        ("duration: 1m", "duration: 1m\n  minAvailable: 2", "j:6: jobs.0: minAvailable = 2: from 1 to pods = 1"),
        ("duration: 1m", "duration: 1m\n  sigma: -1", "j:6: jobs.0: sigma = -1: a number from 0 to 10"),
        ("duration: 1m", "duration: 1m\n  count: 2\n  arrivals: poisson", "j:7: jobs.0: arrivals = 'poisson': every says"),
        ("jobs:", "queues: [{name: q, order: random}]\njobs:", "j:3: queues.0: order = 'random': one of strict-fifo, fifo, "),
        ("jobs:", "objects: [{kind: Nod}]\njobs:", "j:3: objects.0: kind = 'Nod': one of Node, Queue, "),
        ("duration: 1m", "duration: 1m\n  arrivals: often", "j:6: jobs.0: arrivals = 'often': one of regular, poisson"),
        ("cpu: 500m", "cpu: lots", "j:6: jobs.0.requests: cpu = 'lots': an amount such as 2, 500m or 8Gi"),
        ("  duration: 1m\n", "", 'j:4: jobs: "duration" is missing'),
        ("jobs:", "job:", 'j:3: key "job" does not exist; did you mean "jobs"?'),
        ("jobs:", "jobs: [", "j:4: not YAML: "),
        ("- allocatable: {cpu: 8}", "- allocatable: {cpu: 8}\n  count: 0", "j:3: nodes.0: count = 0: a whole number from 1 up"),
    ],
)  # fmt: skip
def test_an_error_names_line_and_value_and_what_is_right(
    before: str, after: str, said: str
) -> None:
    with pytest.raises(InputError) as error:
        jobfile.read(WHOLE.replace(before, after), "j")
    assert str(error.value).startswith(said)


def test_a_cluster_as_kubectl_prints_it() -> None:
    text = """\
apiVersion: v1
kind: List
items:
- {kind: Node, metadata: {name: a}, status: {allocatable: {cpu: "4"}}}
- {kind: Pod, metadata: {name: b}}
---
kind: Queue
metadata: {name: research}
"""
    workload = clusterfile.read(text, "c.yaml")
    assert [one["kind"] for one in workload.cluster] == ["Node", "Queue"]
    assert workload.notes == ["c.yaml: 1 pods wait for another scheduler: left out"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Queue\nmetadata: {name: a}\n", "c.yaml: there is no Node in it"),
        ("a: 1\n", "c.yaml: object 1 has no kind; Node, Queue, ..."),
        ("a: [\n", "c.yaml:2: not YAML: "),
    ],
)
def test_what_is_no_cluster(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        clusterfile.read(text, "c.yaml")
    assert str(error.value).startswith(said)


def test_the_day_of_the_examples_is_as_large_as_it_says() -> None:
    path = Path(__file__).parents[2] / "examples" / "simulate" / "day.yaml"
    day = jobfile.read(path.read_text(), path.name)
    assert sum(one.pods for one in day.jobs) == 300_000
    assert len({one.queue for one in day.jobs}) == 15
    assert len(of_kind(day.cluster, "Node")) == 200
