"""The figures of a run: waits, slowdowns, utilisation, by policy and by queue."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hekla.engine.resources import PODS
from hekla.simulator.differences import Differences
from hekla.simulator.run import JobRun, Run
from hekla.simulator.workload import MICROSECONDS

SHORTEST = 10.0
"""Seconds: a job that runs for less counts as running so long when its slowdown is bounded."""


@dataclass(slots=True)
class Figures:
    """What a report says of jobs that belong together.  Times in seconds; NaN where no job counts."""

    jobs: int
    started: int
    ended: int
    evictions: int
    mean_wait: float
    median_wait: float
    p90_wait: float
    longest_wait: float
    slowdown: float
    """Mean of the bounded slowdown: how many times as long as it ran a job took."""


@dataclass(slots=True)
class Accuracy:
    """How far the first estimates of jobs' starts were off.  Seconds; NaN where no job counts."""

    jobs: int
    """Jobs that started."""
    waited: int
    """Those of them that did not start as they came, and so had an estimate."""
    unknown: int
    """Those of which it was not known when they would start; they count as infinitely far off."""
    median_error: float
    """Of those that waited, as are the next two."""
    p90_error: float
    median_relative: float
    """Of the error by the wait."""
    within_minute: float
    """The part of all jobs that started within a minute of the estimate; who starts as it comes
    does."""
    waited_within_minute: float
    """The same of those that waited."""


@dataclass(slots=True)
class Outcome:
    """The figures of one policy."""

    policy: str
    all: Figures
    queues: dict[str, Figures]
    makespan: float
    """Seconds from the first arrival to the last end (or to where the simulation was stopped)."""
    utilisation: dict[str, float]
    """Resource -> the part of it that was held, of the cluster over that time."""
    cycles: int
    problems: list[str]
    waiting: dict[str, str]
    """Of jobs that have come and not started, why not."""
    estimates: Accuracy | None = None
    """Where starts were estimated."""
    differences: Differences | None = None
    """From the first of several policies."""


def outcome(policy: str, run: Run) -> Outcome:
    """The figures of a run."""
    by_queue: dict[str, list[JobRun]] = {}
    for one in run.jobs:
        by_queue.setdefault(one.job.queue, []).append(one)
    first = max(min((one.job.submit for one in run.jobs), default=0), 0)
    makespan = max(run.until - first, 0) / MICROSECONDS
    return Outcome(
        policy,
        figures(run.jobs),
        {name: figures(jobs) for name, jobs in sorted(by_queue.items())},
        makespan,
        {
            name: run.used.get(name, 0.0) / (amount * makespan) if makespan else 0.0
            for name, amount in run.capacity.items()
            if run.used.get(name) and name != PODS
        },
        run.cycles,
        list(dict.fromkeys(run.problems)),
        run.waiting,
    )


def figures(runs: Sequence[JobRun]) -> Figures:
    """Of those that started; the rest is counted only."""
    waits = sorted(wait_of(one) for one in runs if one.started is not None)
    return Figures(
        jobs=len(runs),
        started=len(waits),
        ended=sum(1 for one in runs if one.ended is not None),
        evictions=sum(one.evictions for one in runs),
        mean_wait=mean(waits),
        median_wait=quantile(waits, 0.5),
        p90_wait=quantile(waits, 0.9),
        longest_wait=waits[-1] if waits else math.nan,
        slowdown=mean([slowdown_of(one) for one in runs if one.ended is not None]),
    )


def wait_of(run: JobRun) -> float:
    """Seconds from its arrival until its minimum ran."""
    assert run.started is not None
    return (run.started - run.job.submit) / MICROSECONDS


def slowdown_of(run: JobRun) -> float:
    """Bounded by `SHORTEST`, and at least 1."""
    assert run.ended is not None
    taken = (run.ended - run.job.submit) / MICROSECONDS
    ran = run.job.duration
    if ran is None or run.job.given:
        ran = run.ended - (run.job.submit if run.started is None else run.started)
    return max(1.0, taken / max(ran / MICROSECONDS, SHORTEST))


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else math.nan


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value that so large a part of the sorted values does not exceed."""
    return ordered[max(math.ceil(part * len(ordered)), 1) - 1] if ordered else math.nan
