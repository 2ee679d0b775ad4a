"""A rolling update never leaves its limits and always ends, whatever the sizes and however pods
become available."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.controller_manager.workloads.rollout import (
    Limits,
    Size,
    limits,
    new_size,
    old_sizes,
    same_template,
    share,
    template_hash,
)


def test_percentages_round_up_for_surge_and_down_for_unavailable():
    assert limits({"replicas": 10}) == Limits(3, 2)
    assert limits({"replicas": 1}) == Limits(1, 0)


def test_both_nothing_would_never_end_so_one_may_be_unavailable():
    spec = {"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}}

    assert limits(spec) == Limits(0, 1)


@pytest.mark.parametrize(
    ("value", "up", "expected"),
    [("25%", True, 3), ("25%", False, 2), (4, True, 4), ("100%", False, 10)],
)
def test_share(value, up, expected):
    assert share(value, 10, up=up) == expected


@given(
    wanted=st.integers(0, 30),
    old=st.lists(st.integers(0, 30), max_size=3),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_a_rollout_stays_within_its_limits_and_ends(wanted, old, surge, unavailable, seed):
    limit = Limits(surge, unavailable or (0 if surge else 1))
    luck = random.Random(seed)
    new = Size(0, 0)
    sets = [Size(size, size) for size in old]
    started_with = sum(old)
    for _ in range(500):
        new = Size(new_size(wanted, new, sets, limit), new.available)
        total = new.replicas + sum(size.replicas for size in sets)
        assert total <= max(wanted + limit.surge, started_with, wanted)
        sets = [
            Size(keep, min(keep, size.available))
            for keep, size in zip(old_sizes(wanted, new, sets, limit), sets)
        ]
        if started_with >= wanted:
            assert (
                new.available + sum(size.available for size in sets) >= wanted - limit.unavailable
            )
        new = Size(new.replicas, luck.randint(new.available, new.replicas))
        if new == Size(wanted, wanted) and not any(size.replicas for size in sets):
            return
    raise AssertionError(f"still at {new} and {sets} after 500 steps")


def test_the_hash_label_makes_no_other_template():
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}
    labelled = {
        "metadata": {"labels": {"app": "web", "pod-template-hash": "x"}, "creationTimestamp": None},
        "spec": {"containers": []},
    }

    assert same_template(template, labelled)
    assert not same_template(template, {**template, "spec": {"containers": [{"name": "other"}]}})


def test_a_collision_gives_another_hash():
    assert template_hash({"spec": {}}, 0) == template_hash({"spec": {}}, 0)
    assert template_hash({"spec": {}}, 0) != template_hash({"spec": {}}, 1)
