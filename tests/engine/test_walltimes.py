"""Walltimes: who says them, and who is asked first."""

from __future__ import annotations

import math

import pytest

from hekla.api.text.walltimes import read_walltime
from hekla.engine.model.time.walltimes import job_walltime, problem_of
from hekla.engine.world import World, policy

WALLTIME, DEFAULT = "hekla.io/walltime", "hekla.io/default-walltime"


def world() -> World:
    return World(policy(plugins=["gang"]))


def walltime(made: World, job: str = "a") -> float:
    found = made.state.jobs[f"default/{job}"]
    return job_walltime(found, made.state.queues[found.queue])


@pytest.mark.parametrize(("text", "length"), [("1h30m", 5400), ("90", 90), ("1.5s", 1.5)])
def test_how_it_is_written(text: str, length: float) -> None:
    assert read_walltime(text) == length
    assert problem_of({WALLTIME: text}) == ""


@pytest.mark.parametrize("text", ["", "soon", "-5m", "0", "0s", "1.5", "10 m", "²"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        read_walltime(text)
    said = f'{WALLTIME}: "{text}" is no walltime; a duration such as 1h30m, or whole seconds'
    assert problem_of({WALLTIME: text}) == said


def test_nobody_says_anything() -> None:
    made = world()
    made.job("a", cpu=1)
    assert walltime(made) == math.inf


def test_the_group_says_it() -> None:
    made = world()
    made.job("a", cpu=1, annotations={WALLTIME: "2h"})
    assert walltime(made) == 7200


def test_the_template_says_it_and_the_longest_pod_counts() -> None:
    made = world()
    made.job("a", pods=0, min_available=2)
    made.pod("a-0", job="a", annotations={WALLTIME: "1h"})
    made.pod("a-1", job="a", annotations={WALLTIME: "3h"})
    assert walltime(made) == 3 * 3600


def test_a_deadline_ends_a_pod_before_what_it_says() -> None:
    made = world()
    made.job("a", annotations={WALLTIME: "2h"}, spec={"activeDeadlineSeconds": 600})
    made.job("b", spec={"activeDeadlineSeconds": 600})
    assert (walltime(made), walltime(made, "b")) == (600, 600)


def test_a_queue_has_one_for_those_who_say_nothing() -> None:
    made = world()
    made.state.upsert_queue(
        {
            "metadata": {"name": "default", "annotations": {DEFAULT: "30m"}},
            "spec": {"weight": 1},
            "status": {"state": "Open"},
        }
    )
    made.job("a")
    made.job("b", annotations={WALLTIME: "2h"})
    assert (walltime(made), walltime(made, "b")) == (1800, 7200)


def test_it_changes_with_the_group() -> None:
    made = world()
    made.job("a", annotations={WALLTIME: "2h"})
    made.groups["default/a"]["metadata"]["annotations"][WALLTIME] = "1h"
    made.state.upsert_pod_group(made.groups["default/a"])
    assert walltime(made) == 3600
