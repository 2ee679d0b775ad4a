"""Budgets of party-limits in virtual time: who waits for a renewal starts at it, and was told so."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.policy import Policy
from hekla.engine.world import policy
from hekla.simulator.simulation import Simulation
from hekla.simulator.start_estimates import EstimatedSimulation
from hekla.simulator.workload import SimulatedJob, Workload, node, queue

SECOND, HOUR = 1_000_000, 3600
FIRST = 3 * HOUR + 13 * 60 + 20
"""Seconds from the beginning, a quarter to two on 9 September 2001, to five o'clock."""


def rules(mode: str = "", **limits: Any) -> Policy:
    return policy(
        plugins=["gang", "predicates", {"name": "party-limits", "arguments": limits}],
        actions="enqueue, allocate, backfill",
        configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
    )


def job(
    name: str, hours: float, pods: int = 1, user: str = "anna", known: bool = True
) -> SimulatedJob:
    duration = round(hours * HOUR) * SECOND
    walltime = duration if known else None
    return SimulatedJob(
        name, 0, duration, {"cpu": "1"}, pods, pods, walltime=walltime, user=user, processors=pods
    )


def simulation(jobs: list[SimulatedJob], policy: Policy) -> EstimatedSimulation:
    cluster = [node("n1", {"cpu": "1000", "pods": "1000"}), queue("default", "fifo")]
    return EstimatedSimulation(Workload(jobs, cluster), policy)


def starts(made: Simulation) -> dict[str, float]:
    return {
        one.job.name: math.inf if one.started is None else one.started / SECOND
        for one in made.run().jobs
    }


def test_the_cluster_is_looked_at_again_when_a_budget_is_renewed() -> None:
    """Nothing else happens then: the job that used it up has long ended."""
    limits = rules(budget={"resources": {"cpu": "2h"}, "renew": "0 5 * * *"})
    made = simulation([job("first", 2), job("second", 1)], limits)
    assert starts(made) == {"first": 0, "second": FIRST}
    assert made.first["simulated/second"] == FIRST


def test_who_waits_for_what_was_promised_alone_has_the_renewal_too() -> None:
    """As the cycle that starts the first job ends, nothing has been used."""
    limits = rules(budget={"resources": {"cpu": "7h"}, "renew": "0 5 * * *"})
    made = simulation([job("first", 3.5, pods=2), job("second", 1)], limits)
    assert starts(made) == {"first": 0, "second": FIRST}


def test_a_budget_that_never_is_enough_ends_the_simulation() -> None:
    limits = rules(budget={"resources": {"cpu": "2h"}, "renew": "0 * * * *"})
    made = simulation([job("first", 2), job("huge", 3)], limits)
    assert starts(made) == {"first": 0, "huge": math.inf}
    assert made.first["simulated/huge"] == math.inf


def test_who_is_behind_one_without_a_walltime_is_not_promised_the_same_rest() -> None:
    limits = rules(budget={"resources": {"cpu": "2h"}, "renew": "0 5 * * *"})
    jobs = [job("a", 2), job("b", 1, known=False), job("c", 1)]
    made = simulation(jobs, limits)
    assert starts(made) == {"a": 0, "b": FIRST, "c": FIRST}
    assert made.first == {"simulated/b": FIRST, "simulated/c": FIRST + 24 * HOUR}


def test_other_limits_of_the_user_are_foreseen_too() -> None:
    limits = rules(running=1, budget={"resources": {"cpu": "9h"}, "renew": "0 5 * * *"})
    made = simulation([job("first", 2), job("second", 1)], limits)
    assert starts(made) == {"first": 0, "second": 2 * HOUR}
    assert made.first["simulated/second"] == 2 * HOUR


JOBS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 3), st.sampled_from(["x/a", "x/b", "a"])),
    min_size=1,
    max_size=9,
)
"""Half hours, pods, and account and user."""


@settings(deadline=None, max_examples=60)
@given(JOBS, st.integers(2, 40), st.integers(2, 60), st.sampled_from(["", "easy", "conservative"]))
def test_jobs_start_when_their_budgets_were_foreseen_to_be_enough(
    given: list[tuple[int, int, str]], daily: int, of_account: int, mode: str
) -> None:
    """Room there is for all, and everybody runs as long as he says, also over renewals."""
    limits = rules(
        mode,
        by="account",
        budget={"resources": {"cpu": f"{daily}h"}, "renew": "0 5 * * *"},
        of={"x": {"budget": {"resources": {"cpu": f"{of_account}h"}, "renew": "0 0 * * 1,4"}}},
    )
    jobs = [
        job(f"job-{number}", halves / 2, pods, user=who)
        for number, (halves, pods, who) in enumerate(given)
    ]
    for one in jobs:
        account, _, user = one.user.rpartition("/")
        one.user, one.overlay = user, {"annotations": {"hekla.io/account": account}}
    made = simulation(jobs, limits)
    for name, start in starts(made).items():
        assert made.first.get(f"simulated/{name}", 0.0) == start
