"""Learning in virtual time: a log whose users requested nothing is served better once jobs teach."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings

from hekla.engine.world import policy
from hekla.simulator import swf
from hekla.simulator.simulation import Run, Simulation, simulate
from hekla.simulator.workload import MICROSECONDS, Workload
from tests.simulator.test_simulation import times
from tests.simulator.test_timed_backfill import LOGS, PROCESSORS, log


def rules(walltimes: str, **more: Any) -> Any:
    return policy(
        plugins=["gang", "predicates"],
        actions="allocate, backfill",
        configurations=[
            {"name": "backfill", "arguments": {"mode": "easy", "walltimes": walltimes, **more}}
        ],
    )


def log_of_users(seed: int, jobs: int = 400) -> Workload:
    """Eight users with five programs each, on 64 processors that are busy for seven tenths of
    the time: runs of one program differ by a quarter, those of two by much."""
    chance = random.Random(seed)
    programs = [
        (user, 10 * user + number, chance.choice([1, 2, 4, 8, 16, 32, 64]), chance.lognormvariate(7, 1.3))
        for user in range(1, 9)
        for number in range(5)
    ]  # fmt: skip
    work = sum(processors * length for _, _, processors, length in programs) / len(programs)
    lines, now = ["; MaxProcs: 64"], 0.0
    for number in range(jobs):
        now += chance.expovariate(64 * 0.7 / work)
        user, program, processors, length = chance.choice(programs)
        took = max(round(length * chance.lognormvariate(0, 0.25)), 1)
        lines.append(
            f"{number} {now:.0f} -1 {took} -1 -1 -1 {processors} {5 * took} -1 1 {user} 1 {program} 1 1 -1 -1"
        )
    return swf.read(lines, "users.swf", estimates="none")


def waits(run: Run, least: int = 1) -> float:
    """Seconds that jobs of at least so many processors waited, on average."""
    found = [
        one.started - one.job.submit
        for one in run.jobs
        if one.started is not None and one.job.processors >= least
    ]
    return sum(found) / len(found) / MICROSECONDS


def test_jobs_wait_less_and_large_ones_much_less() -> None:
    """Not of every log: a job that is taken to end sooner than it does holds others up."""
    without = learned = large_without = large_learned = 0.0
    for seed in (1, 2, 3):
        workload = log_of_users(seed)
        first, second = simulate(workload, [rules("stated"), rules("learned")])
        without, learned = without + waits(first), learned + waits(second)
        large_without += waits(first, 32)
        large_learned += waits(second, 32)
    assert learned < 0.8 * without
    assert large_learned < 0.75 * large_without


@settings(deadline=None, max_examples=20)
@given(LOGS)
def test_every_run_is_seen_once_with_its_length_and_the_same_each_time(
    of: list[tuple[int, int, int, int]],
) -> None:
    workload = swf.read([f"; MaxProcs: {PROCESSORS}", *log(of)], "a")
    longest = max(job.duration or 0 for job in workload.jobs) / MICROSECONDS
    policy = rules("learned", leastRuns=1)
    runs = []
    for _ in range(2):
        simulation = Simulation(workload, policy)
        runs.append(simulation.run())
        learned = simulation.state.job_table.runs
        assert learned is not None
        simulation.state.count_changes()
        learned.settle(0.0)  # What ended last; no cycle followed that.
        for kept in learned.by_kind.values():
            assert max(one.seconds for one in kept) <= longest
        assert sum(map(len, learned.by_kind.values())) == len(of)
    assert times(runs[0]) == times(runs[1])


@settings(deadline=None, max_examples=20)
@given(LOGS)
def test_a_policy_that_does_not_learn_is_not_touched_by_users_and_names(
    of: list[tuple[int, int, int, int]],
) -> None:
    plain = swf.read([f"; MaxProcs: {PROCESSORS}", *log(of)], "a")
    named = swf.read([f"; MaxProcs: {PROCESSORS}", *log(of)], "a")
    for number, job in enumerate(named.jobs):
        job.user, job.title = f"user-{number % 3}", f"program-{number % 2}"
    ((first,), (second,)) = (simulate(one, [rules("stated")]) for one in (plain, named))
    assert [one.started for one in first.jobs] == [one.started for one in second.jobs]
