"""What one policy did otherwise than another with the same workload, and from which decision on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from hekla.simulator.run import Act, JobRun, Run
from hekla.simulator.workload import MICROSECONDS

DECIDED = ("bind", "evict")
SHOWN = 5
"""Jobs that are named of those that moved most."""


@dataclass(slots=True)
class Decision:
    """A bind or an eviction.  The moment is in seconds."""

    moment: float
    what: str
    job: str
    pod: str
    node: str


@dataclass(slots=True)
class Moved:
    """A job that started at another time.  Seconds since the beginning; None: it never did."""

    job: str
    started: float | None
    instead_of: float | None


@dataclass(slots=True)
class Differences:
    """Of a run from another of the same workload."""

    against: str
    """The other's policy."""
    sooner: int = 0
    later: int = 0
    same: int = 0
    """Jobs by when they started, against the other run; who never did is later than who did."""
    mean_change: float = 0.0
    """Seconds by which jobs that started in both waited longer, in the mean."""
    evictions: int = 0
    """How many more."""
    first: Decision | None = None
    """What it decided and the other did not, at the first moment at which they part; None where the
    other alone decided something then, or where they never part."""
    first_of_other: Decision | None = None
    most: list[Moved] = field(default_factory=list)
    """The jobs that moved most."""


def differences(name: str, other: Run, run: Run) -> Differences:
    """What `run` did otherwise than `other`, whose policy is `name`."""
    found = Differences(name)
    found.first_of_other, found.first = parting(other, run)
    before = {one.job.key: one for one in other.jobs}
    changes: list[float] = []
    moved: list[tuple[float, str, JobRun, JobRun]] = []
    for one in run.jobs:
        was = before[one.job.key]
        here, there = _start(one), _start(was)
        if here == there:
            found.same += 1
        elif here < there:
            found.sooner += 1
        else:
            found.later += 1
        if one.started is not None and was.started is not None:
            changes.append((one.started - was.started) / MICROSECONDS)
        if here != there:
            moved.append((-abs(here - there), one.job.key, one, was))
        found.evictions += one.evictions - was.evictions
    found.mean_change = math.fsum(changes) / len(changes) if changes else math.nan
    found.most = [
        Moved(_name(one), _seconds(one.started), _seconds(was.started))
        for _, _, one, was in sorted(moved, key=lambda each: each[:2])[:SHOWN]
    ]
    return found


def parting(left: Run, right: Run) -> tuple[Decision | None, Decision | None]:
    """The first decisions of each that the other did not make, at the first moment at which there
    are any.  The order within a moment makes no difference."""
    lefts, rights = _moments(left.acts), _moments(right.acts)
    one, two = next(lefts, None), next(rights, None)
    while one is not None or two is not None:
        moment = min(each[0] for each in (one, two) if each is not None)
        here = one[1] if one is not None and one[0] == moment else []
        there = two[1] if two is not None and two[0] == moment else []
        if (only := _only(here, there)) is not None:
            return only
        one = next(lefts, None) if here else one
        two = next(rights, None) if there else two
    return None, None


def sentences(policy: str, of: Differences) -> Iterator[str]:
    """The differences in words."""
    changed = "" if math.isnan(of.mean_change) else f", {of.mean_change:+,.0f} s in the mean"
    evicted = f", {of.evictions:+,} evictions" if of.evictions else ""
    yield (
        f"{policy} against {of.against}: of the jobs {of.sooner:,} start sooner, {of.later:,} later, "
        f"{of.same:,} at the same time{changed}{evicted}."
    )
    first = of.first or of.first_of_other
    if first is None:
        yield "  They decide the same."
        return
    yield (
        f"  They part at {first.moment:,.0f} s: {policy} {_words(of.first)}, "
        f"{of.against} {_words(of.first_of_other)}."
    )
    for one in of.most:
        starts = "never starts" if one.started is None else f"starts at {one.started:,.0f} s"
        instead = "never" if one.instead_of is None else f"at {one.instead_of:,.0f} s"
        yield f"  {one.job} {starts} instead of {instead}."


def _words(of: Decision | None) -> str:
    if of is None:
        return "leaves things as they are"
    return f"{'binds' if of.what == 'bind' else 'evicts'} {of.pod} {'to' if of.what == 'bind' else 'from'} {of.node}"


def _moments(acts: Sequence[Act]) -> Iterator[tuple[int, list[Act]]]:
    decided = (one for one in acts if one.what in DECIDED)
    for moment, group in groupby(decided, key=lambda one: one.moment):
        yield moment, list(group)


def _only(left: list[Act], right: list[Act]) -> tuple[Decision | None, Decision | None] | None:
    """The first on each side that is not on the other; None where there are none."""
    here, there = ({(one.what, one.pod, one.node) for one in acts} for acts in (left, right))
    if here == there:
        return None
    firsts = [
        next((one for one in acts if (one.what, one.pod, one.node) not in known), None)
        for acts, known in ((left, there), (right, here))
    ]
    return _decision(firsts[0]), _decision(firsts[1])


def _decision(act: Act | None) -> Decision | None:
    if act is None:
        return None
    pod = act.pod.partition("/")[2]
    return Decision(act.moment / MICROSECONDS, act.what, _name(act.run), pod, act.node)


def _name(run: JobRun) -> str:
    return run.job.name


def _start(run: JobRun) -> float:
    """For comparison: who never started did so after all others."""
    return float("inf") if run.started is None else run.started


def _seconds(moment: int | None) -> float | None:
    return None if moment is None else moment / MICROSECONDS
