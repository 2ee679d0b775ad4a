"""Walltimes that are learned: from which jobs, how many, and who is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.text.times import stamp
from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.time.runs import FADE, SAVED, quantile, runs_of, tree_of, without_number
from hekla.engine.model.time.walltimes import job_walltime
from hekla.engine.world import World, policy


def world(**arguments: Any) -> World:
    stated = {"mode": "easy", "walltimes": "learned", "leastRuns": 2, **arguments}
    configurations = [{"name": "backfill", "arguments": stated}]
    made = World(
        policy(["gang", "predicates"], actions="allocate, backfill", configurations=configurations)
    )
    made.nodes("n1", cpu=4)
    made.tells_starts = True
    return made


def run_one(made: World, name: str, seconds: float, **job: Any) -> None:
    """A job that starts, runs for so long, ends and is deleted."""
    made.job(name, cpu=1, **job)
    made.run()
    made.settle()
    made.now += seconds
    end(made, name)
    made.run()


def end(made: World, name: str) -> None:
    """Its pods say that they have done their work, and when."""
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": stamp(made.now)}
    for tree in made.pods.values():
        if tree["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name:
            tree["status"]["conditions"] = [ready]
    made.end(name)


def walltime(made: World, job: str) -> float:
    found = made.state.jobs[f"default/{job}"]
    return job_walltime(found, made.state.queues[found.queue])


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("train-17", "train-*"),
        ("train-3-004", "train-*"),
        ("train17", "train*"),
        ("train-x7k2p", "train-*"),
        ("train-7d9c4f1e", "train-*"),
        ("train-550e8400-e29b-41d4-a716-446655440000", "train-*"),
        ("train", "train"),
        ("train-final", "train-final"),
        ("17", "*"),
    ],
)
def test_which_names_are_alike(name: str, alike: str) -> None:
    assert without_number(name) == alike


def test_a_job_is_expected_to_take_what_others_like_it_took() -> None:
    made = world()
    for number, seconds in enumerate((100, 300, 200)):
        run_one(made, f"train-{number}", seconds)
    made.job("train-3", cpu=1)
    made.run()
    assert walltime(made, "train-3") == 300


def test_too_few_runs_say_nothing() -> None:
    made = world()
    run_one(made, "train-0", 100)
    made.job("train-1", cpu=1)
    made.run()
    assert walltime(made, "train-1") == math.inf


@pytest.mark.parametrize(
    "other",
    [
        {"name": "tune-1"},
        {"name": "train-1", "annotations": {"hekla.io/user": "bob"}},
        {"name": "train-1", "min_available": 2, "pods": 2},
    ],
    ids=["another name", "another user", "another shape"],
)
def test_jobs_that_are_not_like_those_say_nothing(other: dict[str, Any]) -> None:
    made = world(leastRuns=1)
    run_one(made, "train-0", 100)
    made.job(cpu=1, **other)
    made.run()
    assert walltime(made, other["name"]) == math.inf


def test_what_the_job_says_is_never_exceeded_and_the_queues_default_is_for_the_unknown() -> None:
    made = world()
    for number in range(2):
        run_one(made, f"train-{number}", 100)
    made.job("train-2", cpu=1, annotations={"hekla.io/walltime": "60s"})
    made.job("train-3", cpu=1, annotations={"hekla.io/walltime": "1h"})
    made.run()
    assert (walltime(made, "train-2"), walltime(made, "train-3")) == (60, 100)


@pytest.mark.parametrize(
    "ends", [{}, {"hekla.io/walltime": "10h"}], ids=["nothing makes room", "the first that waits"]
)
def test_a_job_that_waits_learns_from_one_that_ends_now_and_its_owner_is_told(
    ends: dict[str, str],
) -> None:
    """What it lacks is found out anew then, on the nodes that have come."""
    made = world(leastRuns=1)
    made.job("rest", cpu=4, on=["n1"], annotations=ends)
    made.job("train-1", cpu=1)
    made.run()
    assert walltime(made, "train-1") == math.inf
    made.nodes("n2", cpu=1)
    made.job("train-0", cpu=1, on=["n2"])
    made.pods["default/train-0-task-0"]["status"]["startTime"] = stamp(made.now)
    made.state.upsert_pod(made.pods["default/train-0-task-0"])
    made.run()
    made.now += 2520
    end(made, "train-0")
    made.nodes("n2", cpu=1, unschedulable=True)
    told = made.run().events
    assert walltime(made, "train-1") == 2520
    assert ". 2 nodes: " in made.why("train-1")
    (event,) = [one for one in told if one.reason == "LearnedWalltime"]
    assert (event.kind, event.key) == ("PodGroup", "default/train-1")
    assert event.message == "walltime 42m, learned from one run of train-*"
    made.now += 1
    made.job("other", cpu=1)
    assert not [one for one in made.run().events if one.reason == "LearnedWalltime"]


def test_a_pod_that_failed_or_was_deleted_teaches_nothing() -> None:
    made = world(leastRuns=1)
    made.job("train-0", pods=1, cpu=1)
    made.run()
    made.settle()
    made.now += 10
    made.end("train-0", phase="Failed")
    made.run()
    made.job("train-1", cpu=1)
    made.run()
    made.settle()
    made.now += 10
    made.state.remove_pod("default/train-1-task-0")
    made.run()
    made.job("train-2", cpu=1)
    made.run()
    assert walltime(made, "train-2") == math.inf


def test_a_job_is_over_when_its_last_pod_is_and_the_longest_counts() -> None:
    made = world(leastRuns=1)
    made.job("train-0", pods=2, cpu=1)
    made.run()
    made.settle()
    first = made.pods["default/train-0-task-0"]
    made.now += 50
    first["status"]["phase"] = "Succeeded"
    made.state.upsert_pod(first)
    made.run()
    made.job("train-1", pods=2, cpu=1)
    made.run()
    assert walltime(made, "train-1") == math.inf
    made.now += 50
    made.state.remove_pod("default/train-0-task-1")  # As workers are whose master has ended.
    made.run()
    assert walltime(made, "train-1") == 50


def test_what_was_seen_before_is_handed_in_and_survives_another_policy() -> None:
    before = world(leastRuns=1)
    run_one(before, "train-0", 100)
    runs = before.state.job_table.runs
    assert runs is not None
    made = world(leastRuns=1)
    made.state.upsert_other(SAVED, tree_of(runs.unsaved))
    made.job("train-9", cpu=1)
    made.run()
    assert walltime(made, "train-9") == 100
    learning, made.policy = made.policy, policy(["gang"], actions="allocate, backfill")
    made.run()
    assert walltime(made, "train-9") == math.inf
    made.policy = learning
    made.run()
    assert walltime(made, "train-9") == 100


def test_what_was_written_down_may_be_nonsense() -> None:
    rows: list[Any] = [1, None, ["a"], ["u", "a", "b", "c", "soon", 1], ["u", "a", "b", "c", -1, 1]]
    assert runs_of({"runs": rows}) == []
    (kept,) = runs_of({"runs": [*rows, ["u", "a", "b", "c", 5, 1]]})
    assert kept.seconds == 5


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ("walltimes", "guessed", "walltimes = 'guessed' does not exist"),
        ("quantile", 0, "quantile = 0: a whole number from 1 to 100"),
        ("quantile", "95", "quantile = '95': a whole number from 1 to 100"),
        ("leastRuns", 0, "leastRuns = 0: a whole number from 1 to 64"),
        ("walltime", "learned", 'did you mean "walltimes"?'),
    ],
)
def test_a_policy_that_cannot_be_meant(argument: str, value: Any, why: str) -> None:
    with pytest.raises(PolicyError) as refused:
        world(**{argument: value})
    assert why in str(refused.value)


LENGTHS = st.lists(st.floats(1, 1e6), min_size=1, max_size=64)


@given(LENGTHS, st.integers(1, 100))
def test_a_quantile_covers_its_part_of_the_runs_and_no_shorter_one_does(
    lengths: list[float], percent: int
) -> None:
    found = quantile(lengths, percent / 100)
    weights = [FADE ** (len(lengths) - 1 - at) for at in range(len(lengths))]
    total = math.fsum(weights)

    def covered(by: float, too: bool) -> float:
        return math.fsum(
            weight
            for length, weight in zip(lengths, weights)
            if length < by or (too and length == by)
        )

    assert found in lengths
    assert covered(found, True) >= total * percent / 100 * (1 - 1e-9)
    assert covered(found, False) <= total * percent / 100 * (1 + 1e-9)
