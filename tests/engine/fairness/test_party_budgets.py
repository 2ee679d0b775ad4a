"""Budgets of party-limits: what is charged, who waits for the renewal, and what he is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.queues.spending import Spending
from hekla.engine.plugins.fairness.budgets import restored, written
from hekla.engine.world import World, policy
from tests.engine.fairness.test_party_limits import held, mine, running, world

HOUR, MIDNIGHT = 3600.0, 1_036_800.0
"""The world begins at a quarter to two in the afternoon of 12 January 1970."""
GPU = "nvidia.com/gpu"


def budgeted(hours: str = "8h", actions: str = "enqueue, allocate, backfill", **more: Any) -> World:
    limits = {"budget": {"resources": {GPU: hours}, "renew": "@daily"}, **more}
    here = world(actions, **limits)
    here.tells_starts = True
    return here


def spending(here: World) -> Spending:
    found = here.state.job_table.spending
    assert found is not None
    return found


def used(here: World, party: str = "anna") -> float:
    """Hours of a GPU."""
    return spending(here).used.get(party, {}).get(GPU, 0.0) / 1000 / HOUR


def passes(here: World, seconds: float) -> None:
    here.now += seconds
    here.run()
    here.settle()


def lasting(walltime: str) -> dict[str, Any]:
    return {"marks": {"hekla.io/walltime": walltime}}


def test_who_has_used_his_budget_waits_for_its_renewal() -> None:
    here = budgeted()
    mine(here, "first", gpu=4)
    passes(here, 0)
    passes(here, 2 * HOUR)
    assert used(here) == 8
    mine(here, "next", gpu=1)
    mine(here, "none", cpu=1)
    mine(here, "other", user="ben", gpu=1)
    passes(here, 0)
    assert running(here, "first", "next", "none", "other") == ["first", "none", "other"]
    assert here.why("next").startswith(
        "next cannot start: user anna has used 8 of 8 nvidia.com/gpu hours; "
        "the budget is renewed at 1970-01-13T00:00:00Z."
    )
    assert here.state.edge == MIDNIGHT
    passes(here, MIDNIGHT - 1 - here.now)
    assert not running(here, "next")
    passes(here, 1)
    assert running(here, "first", "next") == ["first", "next"], "what runs was left alone"
    passes(here, HOUR)
    assert used(here) == 5, "of the new day alone"


def test_a_walltime_has_to_fit_in_what_is_left() -> None:
    here = budgeted()
    mine(here, "runs", gpu=1, **lasting("3h"))
    passes(here, 0)
    passes(here, HOUR)
    mine(here, "long", gpu=2, **lasting("3h"))
    mine(here, "short", gpu=2, **lasting("90m"))
    mine(here, "huge", gpu=1, **lasting("9h"))
    passes(here, 0)
    assert running(here, "runs", "long", "short", "huge") == ["runs", "short"]
    passes(here, 0)
    assert here.why("long").startswith(
        "long cannot start: user anna has used 1 of 8 nvidia.com/gpu hours, what runs may use 5 more "
        "by its walltime, and the job may use 6 by its own; the budget is renewed at"
    )
    assert "the job may use 9 by its own, more than the whole budget." in here.why("huge")
    here.end("runs")
    here.end("short")
    passes(here, 0)
    assert running(here, "long") == ["long"], "who ends early gives back what was promised"


def test_a_pod_that_outlasts_its_walltime_is_charged_on() -> None:
    here = budgeted()
    mine(here, "runs", gpu=1, **lasting("1h"))
    passes(here, 0)
    passes(here, 3 * HOUR)
    assert used(here) == 3
    mine(here, "fits", gpu=5, **lasting("1h"))
    passes(here, 0)
    assert running(here, "fits") == ["fits"]


def test_walltimes_do_not_count_where_the_policy_says_so() -> None:
    here = budgeted(countWalltimes=False)
    mine(here, "long", gpu=2, **lasting("9h"))
    passes(here, 0)
    assert running(here, "long") == ["long"]


def test_two_jobs_of_one_cycle_do_not_share_the_rest() -> None:
    here = budgeted()
    for name in ("a", "b"):
        mine(here, name, pods=2, gpu=1, **lasting("3h"))
    passes(here, 0)
    passes(here, 0)
    assert running(here, "a", "b") == ["a"]


def test_a_gang_that_the_rest_is_too_small_for_starts_no_pod() -> None:
    here = budgeted()
    mine(here, "gang", pods=3, gpu=1, **lasting("3h"))
    mine(here, "loose", pods=3, min_available=1, gpu=1, **lasting("3h"))
    passes(here, 0)
    assert not running(here, "gang")
    assert len(held(here.state.jobs["default/loose"])) == 2, "as many as the rest is enough for"


def test_a_running_gang_gets_a_lost_pod_back() -> None:
    here = budgeted()
    mine(here, "gang", pods=4, gpu=1)
    passes(here, 0)
    passes(here, 2 * HOUR)
    here.state.remove_pod("default/gang-task-0")
    here.pod("gang-task-0", job="gang", cpu=1, gpu=1)
    passes(here, 0)
    assert len(held(here.state.jobs["default/gang"])) == 4
    here.pod("gang-task-9", job="gang", cpu=1, gpu=1)
    passes(here, 0)
    assert len(held(here.state.jobs["default/gang"])) == 4, "more than its minimum it gets not"


def test_named_users_have_other_budgets_and_the_same_renewal() -> None:
    here = budgeted(of={"ben": {"budget": {"resources": {GPU: 1}}}, "cleo": {"running": 1}})
    for user in ("anna", "ben", "cleo"):
        mine(here, f"of-{user}", user=user, gpu=1)
    passes(here, 0)
    passes(here, 4 * HOUR)
    for user in ("anna", "ben"):
        mine(here, f"next-{user}", user=user, gpu=1)
    passes(here, 0)
    assert running(here, "next-anna", "next-ben") == ["next-anna"]
    assert "used 4 of 1 nvidia.com/gpu hours; the budget is renewed at 1970-01-13" in here.why(
        "next-ben"
    )
    assert used(here, "cleo") == 4


def test_an_account_pays_for_what_is_below_it() -> None:
    budget = {
        "resources": {GPU: "2h", "cpu": "100h"},
        "renew": "0 0 1 * *",
        "timeZone": "Asia/Tokyo",
    }
    here = world(by="account", of={"vision": {"budget": budget}})
    for user in ("anna", "ben"):
        mine(here, f"of-{user}", user=user, gpu=1, marks={"hekla.io/account": "vision/lab"})
    mine(here, "audio", user="dora", gpu=1, marks={"hekla.io/account": "audio"})
    passes(here, 0)
    passes(here, HOUR)
    mine(here, "next", user="cleo", gpu=1, marks={"hekla.io/account": "vision"})
    mine(here, "audio-next", user="dora", gpu=1, marks={"hekla.io/account": "audio"})
    passes(here, 0)
    assert running(here, "next", "audio-next") == ["audio-next"]
    said = "account vision has used 2 of 2 nvidia.com/gpu hours; the budget is renewed at 1970-01-31T15:00:00Z"
    assert said in here.why("next"), "the month begins at three in the afternoon of Greenwich"
    assert set(spending(here).used) == {"vision"}, "nobody else's is written down"


def test_a_budget_without_a_renewal_is_a_grant() -> None:
    here = world(budget={"resources": {GPU: "1h"}})
    mine(here, "runs", gpu=1)
    passes(here, 0)
    passes(here, HOUR)
    mine(here, "next", gpu=1)
    passes(here, 400 * 24 * HOUR)
    assert "the budget is never renewed" in here.why("next")
    assert here.state.edge == math.inf


def test_a_policy_without_budgets_counts_nothing() -> None:
    here = world(running=1)
    mine(here, "runs", gpu=1)
    passes(here, 0)
    passes(here, HOUR)
    passes(here, 0)
    assert here.state.job_table.spending is None
    assert here.state.settled is not None, "and rests"


def test_a_scheduler_that_starts_again_goes_on() -> None:
    here = budgeted()
    mine(here, "runs", gpu=2, on=["n0"])
    passes(here, 0)
    passes(here, HOUR)
    saved = {**written(spending(here)), "metadata": {"name": "usage"}}
    later = budgeted()
    later.state.upsert_other("BudgetUsage", saved)
    mine(later, "runs", gpu=2, on=["n0"])
    passes(later, 2 * HOUR)
    assert used(later) == 4, "what ran on without a scheduler counts"
    yesterday = budgeted()
    yesterday.state.upsert_other("BudgetUsage", saved)
    passes(yesterday, 24 * HOUR)
    assert used(yesterday) == 0, "a renewal that nobody saw has been one"


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"lastCycle": "soon", "by": "user", "used": {"anna": {GPU: 1.0}}},
        {"lastCycle": "1970-01-12T00:00:00Z", "by": "account", "used": {"anna": {GPU: 1.0}}},
        {
            "lastCycle": "1970-01-12T00:00:00Z",
            "by": "user",
            "used": {"anna": [1], "ben": {GPU: "x"}},
        },
    ],
)
def test_what_was_written_otherwise_is_left_out(tree: dict[str, Any]) -> None:
    assert restored("user", [tree]).used == {}


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"resources": {GPU: "1000"}}, f"budget.resources.{GPU} = '1000': hours of the resource from 0 up, such as 1000h"),
        ({"resources": {GPU: "-1h"}}, f"budget.resources.{GPU} = '-1h': hours of the resource"),
        ({"resources": {"cpu": "manyh"}}, "budget.resources.cpu = 'manyh'"),
        ({"resources": {"count/pods": "1h"}}, "budget.resources.count/pods = '1h': no resource"),
        ({"renew": "0 0 1 *"}, "budget.renew = '0 0 1 *': expected exactly 5 fields"),
        ({"renew": "@every 3h"}, "budget.renew = '@every 3h': a budget is renewed by the clock"),
        ({"renew": "0 0 31 2 *"}, "budget.renew = '0 0 31 2 *': a budget is renewed by the clock"),
        ({"renew": "@daily", "timeZone": "Mars"}, "budget.timeZone = 'Mars': unknown time zone"),
        ({"timeZone": "UTC"}, "budget.timeZone = 'UTC': it is that of renew, which is missing"),
        ({"hours": 1}, "hours"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(budget: dict[str, Any], said: str) -> None:
    for limits in ({"budget": budget}, {"of": {"anna": {"budget": budget}}}):
        with pytest.raises(PolicyError) as error:
            world(**limits)
        assert said in str(error.value)


def test_how_often_it_is_written_has_bounds() -> None:
    with pytest.raises(PolicyError, match="a whole number from 1 up"):
        world(usage={"seconds": 0})


STEPS = st.lists(
    st.tuples(
        st.integers(1, 40_000),
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 3), st.integers(1, 20_000)),
            max_size=2,
        ),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip
"""Seconds until the next moment, and the jobs that come at it: user, pods, GPUs of each, seconds."""


@settings(deadline=None, max_examples=40)
@given(STEPS, st.integers(4, 40), st.booleans(), st.sampled_from(["", "easy", "conservative"]))
def test_what_is_charged_is_what_was_held_and_no_day_has_more_than_its_budget(
    steps: list[tuple[int, list[tuple[str, int, int, int]]]], hours: int, known: bool, mode: str
) -> None:
    """Jobs end as their walltimes say; without walltimes the sums are still right."""
    limits = {"budget": {"resources": {GPU: f"{hours}h"}, "renew": "@daily"}}
    here = World(
        policy(
            plugins=["gang", "predicates", {"name": "party-limits", "arguments": limits}],
            actions="enqueue, allocate, backfill",
            configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
        )
    )
    here.tells_starts = True
    here.nodes("n0", "n1", cpu=32, gpu=8)
    lengths: dict[str, tuple[str, int, int]] = {}
    began: dict[str, float] = {}
    ended: dict[str, float] = {}

    def moment() -> None:
        for name, (_, _, seconds) in lengths.items():
            if name in began and name not in ended and began[name] + seconds <= here.now:
                here.end(name)
                ended[name] = here.now
        for _ in range(3):
            here.run()
            here.settle()
        for name in lengths:
            if name not in began and running(here, name):
                began[name] = here.now
        day = here.now // (24 * HOUR) * 24 * HOUR
        for user in "ab":
            charged = sum(
                cards * (min(ended.get(name, here.now), here.now) - max(began[name], day))
                for name, (whose, cards, _) in lengths.items()
                if whose == user and name in began and ended.get(name, here.now) > day
            )
            assert used(here, user) * HOUR == pytest.approx(charged)
            assert not known or used(here, user) <= hours + 1e-6

    for wait, coming in steps:
        until = here.now + wait
        while True:
            ends = [began[name] + lengths[name][2] for name in began if name not in ended]
            here.now = min([until, *ends])
            moment()
            if here.now == until:
                break
        for user, pods, cards, seconds in coming:
            name = f"{user}-{len(lengths)}"
            lengths[name] = user, pods * cards, seconds
            marks = {"hekla.io/walltime": f"{seconds}s"} if known else {}
            mine(here, name, user=user, pods=pods, gpu=cards, marks=marks)
        moment()
