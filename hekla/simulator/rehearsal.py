"""What would have become of each job of a recorded day under another policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from hekla.engine.tape import CYCLE, Frame
from hekla.simulator.report import aligned
from hekla.simulator.run import JobRun, Run
from hekla.simulator.workload import MICROSECONDS

SOONER, LATER, NEVER, NOW_STARTS, SAME = "sooner", "later", "never", "starts", "same"
COLUMNS = ("job", "queue", "start", "would start", "", "evicted", "would be evicted")


class Rehearsed(NamedTuple):
    """One job under the recorded policy and under the other.  Seconds since the recording's
    beginning; None: it did not start."""

    job: str
    queue: str
    start: float | None
    would_start: float | None
    verdict: str
    """`sooner`, `later`, `never` (it started, and would not have), `starts` (the other way round)
    or `same`."""
    evictions: int
    would_be_evicted: int

    @property
    def differs(self) -> bool:
        return self.verdict != SAME or self.evictions != self.would_be_evicted


def rehearsed(recorded: Run, other: Run) -> list[Rehearsed]:
    """All jobs, in the order in which they came."""
    by_key = {one.job.key: one for one in other.jobs}
    return [_of(one, by_key[one.job.key]) for one in recorded.jobs]


def _of(one: JobRun, other: JobRun) -> Rehearsed:
    return Rehearsed(
        one.job.key,
        one.job.queue,
        _seconds(one.started),
        _seconds(other.started),
        _verdict(one.started, other.started),
        one.evictions,
        other.evictions,
    )


def _verdict(was: int | None, would: int | None) -> str:
    if was == would:
        return SAME
    if would is None:
        return NEVER
    if was is None:
        return NOW_STARTS
    return SOONER if would < was else LATER


def _seconds(moment: int | None) -> float | None:
    return None if moment is None else moment / MICROSECONDS


def table(jobs: Sequence[Rehearsed], most: int) -> list[str]:
    """The jobs with which something else would have become, `most` of them."""
    changed = [one for one in jobs if one.differs]
    if not changed:
        return ["Every job would have started when it did."]
    rows: list[Sequence[str]] = [COLUMNS]
    for one in changed[:most]:
        verdict = "" if one.verdict == SAME else one.verdict
        starts = ("-" if at is None else f"{at:,.0f}" for at in (one.start, one.would_start))
        evicted = (str(one.evictions), str(one.would_be_evicted))
        rows.append((one.job, one.queue, *starts, verdict, *evicted))
    lines = aligned(rows)
    if len(changed) > most:
        lines.append(f"and {len(changed) - most:,} jobs more; -o json has all")
    return lines


def departure(frames: Iterable[Frame], recorded: Run) -> str:
    """Where the simulation under the recorded policy binds otherwise than the recording; empty where
    it never does."""
    simulated = [(act.pod, act.node) for act in recorded.acts if act.what == "bind"]
    number = cycle = 0
    for word, *given in frames:
        if word != CYCLE:
            continue
        cycle += 1
        for bind in msgspec.msgpack.decode(given[1])["binds"]:
            told = (bind["pod"], bind["node"])
            if number >= len(simulated) or simulated[number] != told:
                instead = "nothing" if number >= len(simulated) else " to ".join(simulated[number])
                return f"in cycle {cycle} the recording binds {told[0]} to {told[1]}, its simulation {instead}"
            number += 1
    return ""
