"""Which jobs came lately.  Estimates take it that a day brings what one of the last days brought.

Whoever estimates has the jobs that come noted.  Nothing is drawn: the same state gives the same days.
They count where jobs run as long as they say.  Where most end before, starts are foreseen too late
already, and jobs to come would only put them off further.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import NamedTuple

from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.tasks import HOLDS, Job, Task
from hekla.engine.model.time.walltimes import job_walltime

DAY = 86_400.0
"""Seconds after which what came may come again: people work by the day."""
DAYS = 2
"""So many past days are taken for the next, each by itself."""
MOST_KEPT = 20_000
MOST_RUNS = 1_000
"""Of so many jobs that have ended last it is known how long they ran."""
TRUE = 0.9
"""The part of what these said that they have to have run, all together."""
MOST_TO_COME = 200
"""Jobs of one day that are foreseen, with the same day again and again."""
_ENDLESS = 0.0, math.inf
"""Of any job without a walltime: when it began is not asked."""


class Arrival(NamedTuple):
    """A job that has come."""

    moment: float
    """Seconds since 1970."""
    queue: str
    parts: tuple[tuple[Task, int], ...]
    """A task of each class of its pods, and how many of those start together."""
    pods: int
    walltime: float


class Arrivals:
    """The jobs that have come since a moment."""

    def __init__(self, queues: Mapping[str, Queue], since: float) -> None:
        self.queues = queues
        self.since = since
        self.known: deque[Arrival] = deque(maxlen=MOST_KEPT)
        self.runs: deque[tuple[float, float]] = deque(maxlen=MOST_RUNS)
        """Of jobs that have ended: the seconds that they ran, and their walltimes."""
        self.now = since
        self._began: dict[str, tuple[float, float]] = {}
        """Of jobs that run: when the cycle was in which they began, and their walltimes."""
        self._ended: list[tuple[float, float]] = []
        """The same of jobs that have ended since the last cycle."""
        self._seen: set[str] = set()
        """Jobs that came since, are there and noted."""
        self._samples: dict[int, Task] = {}
        """By class: a task that stands for all of it, so that no more jobs are kept than there are
        classes."""

    def open(self, now: float) -> None:
        """A cycle begins."""
        self.now = now
        for began, said in self._ended:
            if said < math.inf:
                self.runs.append((min(now - began, said), said))
        self._ended.clear()

    def look(self, job: Job, there: bool) -> None:
        """A job came, changed or left."""
        held = job.counts.of(*HOLDS) if there else 0
        if job.key in self._began:
            if not held:
                self._ended.append(self._began.pop(job.key))
        elif held and held >= job.min_available:
            walltime = job_walltime(job, self.queues.get(job.queue))
            self._began[job.key] = (self.now, walltime) if walltime < math.inf else _ENDLESS
        if not there:
            self._seen.discard(job.key)
            return
        if job.key in self._seen or not job.tasks or len(job.tasks) < job.min_available:
            return
        if job.creation < self.since:
            return
        self._seen.add(job.key)
        self._forget(job.creation)
        tasks = [task for task in job.tasks.values() if not task.best_effort]
        if not tasks:
            return
        parts: dict[int, int] = {}
        for task in tasks[: max(job.min_available, 1)]:
            parts[id(task.pods)] = parts.get(id(task.pods), 0) + 1
            self._samples.setdefault(id(task.pods), task)
        self.known.append(
            Arrival(
                job.creation,
                job.queue,
                tuple((self._samples[kind], number) for kind, number in parts.items()),
                len(tasks),
                job_walltime(job, self.queues.get(job.queue)),
            )
        )

    def _forget(self, now: float) -> None:
        """What came longer ago than anybody asks."""
        if not self.known or self.known[0].moment > now - DAYS * DAY:
            return
        while self.known and self.known[0].moment <= now - DAYS * DAY:
            self.known.popleft()
        self._samples = {id(task.pods): task for one in self.known for task, _ in one.parts}

    def days(self, now: float) -> Iterator[list[tuple[float, Arrival]]]:
        """What is to come if it is like yesterday, like the day before, and so on: by moment.  Days
        of which not all is known are left out, and all where walltimes are not true."""
        self._forget(now)
        said = sum(one for _, one in self.runs)
        if not said or sum(one for one, _ in self.runs) < TRUE * said:
            return
        for back in range(1, DAYS + 1):
            begin = now - back * DAY
            if begin < self.since or len(self.known) == MOST_KEPT:
                return
            day = sorted(
                (one for one in self.known if begin < one.moment <= begin + DAY),
                key=lambda one: one.moment,
            )
            again = ((one.moment + (back + times) * DAY, one) for times in count() for one in day)
            yield list(islice(again, MOST_TO_COME)) if day else []
