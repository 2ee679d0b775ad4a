"""Which run of a schedule is due, and when the next one is, for the controllers of both kinds of
CronJobs.  Pure functions.

Reference: controllers 8.4, local-cluster 10.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hekla.api.text.schedule import Schedule

DELTA = 0.1
"""Seconds that are added to the wait for a scheduled time, so that it has come for certain."""
MANY = 100


class Missed(Enum):
    """How many runs were missed between the last one and now."""

    NONE = "none"
    FEW = "few"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest run that is due, if one is; `earliest` is where the search began."""

    earliest: float
    run: float | None
    missed: Missed


def most_recent(earliest: float, schedule: Schedule, now: float) -> Recent:
    """The newest time of the schedule after `earliest`, up to now.  Raises ValueError for a
    schedule that stands still."""
    first = schedule.next(earliest)
    second = schedule.next(first) if first is not None else None
    if first is None or second is None or second - first < 1:
        raise ValueError("time difference between two schedules is less than 1 second")
    if now < first:
        return Recent(earliest, None, Missed.NONE)
    if now < second:
        return Recent(earliest, first, Missed.NONE)
    between = int(second - first + 0.5)
    count = int(now - first) // between + 1
    run: float | None = None
    at = schedule.next(first + (count - 2) * between)
    while at is not None and at <= now:
        run, at = at, schedule.next(at)
    return Recent(earliest, run, Missed.MANY if count > MANY else Missed.FEW)


def until_next(earliest: float, schedule: Schedule, now: float) -> float | None:
    """Seconds until the next run; None if there is none."""
    try:
        recent = most_recent(earliest, schedule, now)
    except ValueError:
        base = now
    else:
        base = (
            recent.run
            if recent.run is not None
            else recent.earliest
            if recent.missed is Missed.NONE
            else now
        )
    following = schedule.next(base)
    return None if following is None else following + DELTA - now
