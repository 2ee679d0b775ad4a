"""Makes start estimates between cycles and keeps what users were told of them.

They are made in slices of some milliseconds, so that a cycle that must run runs at once, and not
again before they have rested for twenty times as long as they took.  They stand in an annotation of
the PodGroup: it goes along with status writes that happen anyway, and is written by itself, with an
event, only when the start has moved much.  Each job's first estimate stays in it, so that a scheduler
that restarts still knows how true it came.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from hekla.api.names import START_ESTIMATE
from hekla.api.text.times import instant, stamp
from hekla.engine.cycle import hooks_of, uncollected
from hekla.engine.estimates.estimates import Estimation, StartEstimate
from hekla.engine.framework.joborder import waits
from hekla.engine.framework.policy import Policy
from hekla.engine.framework.session import Session
from hekla.engine.model.decisions import Event
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.arrivals import Arrivals
from hekla.scheduler.metrics import START_ERROR, START_ERROR_BY_WAIT

log = logging.getLogger(__name__)

SLICE = 0.004
"""Seconds of work after which the event loop has its turn."""
GIVE_WAY = 0.001
"""Seconds that it has."""
REST, LONG_REST = 2.0, 20.0
"""Seconds between two renewals at least; and times as long as the last one took."""
MINUTE = 60.0
OF_THE_REST, OF_THE_PAST = 0.1, 0.2
"""Parts of the time until a start, and of the time since it was told, that it has to move by to have
moved much; a minute at least."""
MOST_WRITES = 32
"""Annotations that are written by themselves after one renewal, the soonest starts first."""
TRIES = 3
"""How often the state is read anew because a cycle came in between."""


@dataclass(slots=True)
class Told:
    """What a waiting job's user was told."""

    uid: str
    first: float
    """The first estimate; infinite where it was not known."""
    at: float
    """What was written last; NaN before anything was."""
    when: float
    """When that was."""
    now: StartEstimate
    """The newest estimate."""


class StartEstimates:
    """For one scheduler.  `write` queues a write of a group's annotation; `record` sends an event."""

    def __init__(
        self,
        state: State,
        policy: Callable[[], Policy],
        write: Callable[[str], None],
        record: Callable[[Event], None],
        changed: asyncio.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.state = state
        self.policy = policy
        self.write = write
        self.record = record
        self.changed = changed
        """Set while a cycle is due."""
        self.clock = clock
        table = state.job_table
        table.arrivals = Arrivals(table.queues, clock())
        self.told: dict[str, Told] = {}
        """Waiting job -> what was told of it."""
        self.woken = asyncio.Event()
        self.made: Estimation | None = None
        """The newest estimates."""

    def before_cycle(self) -> None:
        """The policy's plugins are asked after the cycle as well."""
        hooks_of(self.state, self.policy()).keeps_session = True

    def after_cycle(self) -> None:
        """A cycle has looked at the state: estimates may be others now."""
        self.woken.set()

    async def run(self) -> None:
        """Renew them until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self.patience()):
                    await self.woken.wait()
            except TimeoutError:
                pass
            self.woken.clear()
            took = await self.renew()
            await asyncio.sleep(max(REST, LONG_REST * took))

    def patience(self) -> float | None:
        """Seconds after which estimates are stale though nothing has happened: the first of them is
        past, because somebody runs longer than he said.  Who is told nothing new counts no more."""
        found = {} if self.made is None else self.made.found
        soonest = min(
            (one.now.at for key, one in self.told.items() if key in found), default=math.inf
        )
        return None if soonest == math.inf else max(soonest - self.clock(), 0.0) + REST

    async def renew(self) -> float:
        """Make all of them anew; gives the seconds of work."""
        worked = 0.0
        for attempt in range(TRIES):
            session = hooks_of(self.state, self.policy()).session
            if not isinstance(session, Session) or not self.state.active:
                self._forget(frozenset())
                return worked
            made = Estimation(session, self.clock())
            steps = made.steps()
            done = False
            while not done:
                began = time.perf_counter()
                with uncollected():
                    while not done and time.perf_counter() - began < SLICE:
                        done = next(steps, self) is self
                worked += time.perf_counter() - began
                await asyncio.sleep(GIVE_WAY if self.changed.is_set() else 0)
                newest = hooks_of(self.state, self.policy()).session
                if not made.is_read and newest is not session and attempt + 1 < TRIES:
                    break  # A cycle has changed what is being read.
            if done and made.is_read:
                self.made = made
                self._take(made.found)
                break
        return worked

    def _take(self, found: dict[str, StartEstimate]) -> None:
        """Keep the estimates of those that still wait, and have those written that moved much."""
        now = self.clock()
        moved: list[tuple[float, str]] = []
        kept = set()
        for key, estimate in found.items():
            job = self.state.jobs.get(key)
            if job is None or not job.has_group or job.shadow or not waits(job):
                continue
            kept.add(key)
            told = self.told.get(key)
            if told is None or told.uid != job.pg_uid:
                told = self.told[key] = _from_annotation(job, estimate, now)
            told.now = estimate
            if moved_much(told, now):
                moved.append((estimate.at, key))
        self._forget(kept)
        moved.sort()
        for _, key in moved[:MOST_WRITES]:
            self.write(key)

    def _forget(self, kept: set[str] | frozenset[str]) -> None:
        for key in self.told.keys() - kept:
            job = self.state.jobs.get(key)
            if job is None or not waits(job):
                del self.told[key]

    def annotation(self, job: Job) -> str | None:
        """What the PodGroup is to say; None where the job does not wait, or nothing is known of it
        yet: then what it says is left alone."""
        told = self.told.get(job.key)
        if told is None or told.uid != job.pg_uid or self.made is None:
            return None
        if job.key not in self.made.found or not waits(job):
            return None
        return text_of(told, self._title(told.now.after), self.made.because(job.key))

    def _title(self, key: str) -> str:
        """What people call a job, with its namespace."""
        other = self.state.jobs.get(key)
        return key if other is None else f"{other.namespace}/{other.title}"

    def written(self, job: Job) -> None:
        """The PodGroup says now what the newest estimate is."""
        told = self.told.get(job.key)
        if told is None:
            return
        before, told.at, told.when = told.at, told.now.at, self.clock()
        if math.isnan(before) or self.made is None or job.key not in self.made.found:
            return
        if abs(before - told.at) >= MINUTE or math.isinf(before) != math.isinf(told.at):
            words = sentence(told.now, self._title(told.now.after), self.made.because(job.key))
            self.record(Event("PodGroup", job.key, job.pg_uid, "Normal", "StartEstimate", words))

    def started(self, job: Job, now: float) -> None:
        """The job's minimum has its place: how true was its first estimate?"""
        told = self.told.pop(job.key, None)
        first: object = None if told is None else told.first
        if told is None and START_ESTIMATE in job.annotations:
            first = read(job.annotations[START_ESTIMATE]).get("first")
        if isinstance(first, float) and math.isfinite(first):
            error = abs(first - now)
            START_ERROR.observe(error)
            START_ERROR_BY_WAIT.observe(error / max(now - job.creation, 1.0))


def moved_much(told: Told, now: float) -> bool:
    """Whether the start is another than was told: never told, known now and not then, or off by more
    than a minute, a tenth of the time until then and a fifth of the time since it was told."""
    if math.isnan(told.at):
        return True
    if math.isinf(told.at) or math.isinf(told.now.at):
        return told.at != told.now.at
    least = max(MINUTE, OF_THE_REST * (told.now.at - now), OF_THE_PAST * (now - told.when))
    return abs(told.at - told.now.at) > least


def text_of(told: Told, after: str, because: str) -> str:
    """The annotation."""
    one = told.now
    content: dict[str, object] = {}
    if one.known:
        content["start"] = stamp(math.ceil(one.at))
        content["latest"] = one.latest
        if after:
            content["after"] = after
    content["constraint"] = one.why.value
    content["because"] = because
    if math.isfinite(told.first):
        content["first"] = stamp(math.ceil(told.first))
    return json.dumps(content, ensure_ascii=False)


def sentence(one: StartEstimate, after: str, because: str) -> str:
    """For an event; the time is UTC."""
    if not one.known:
        return f"when it starts is not known: {because}"
    when = stamp(math.ceil(one.at))
    ends = f", when {after.rpartition('/')[2]} ends" if after else ""
    return f"starts {'at the latest' if one.latest else 'about'} {when}{ends}; {because}"


def read(text: str) -> dict[str, object]:
    """An annotation back: `start` and `first` as seconds since 1970; empty where it cannot be
    read."""
    try:
        found = json.loads(text)
        return {
            name: instant(value) if name in ("start", "first") else value
            for name, value in found.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}


def _from_annotation(job: Job, estimate: StartEstimate, now: float) -> Told:
    """What an earlier scheduler has told, or nothing yet."""
    said = read(job.annotations.get(START_ESTIMATE, ""))
    first, start = said.get("first"), said.get("start")
    if not said:
        return Told(job.pg_uid, estimate.at, math.nan, now, estimate)
    return Told(
        job.pg_uid,
        first if isinstance(first, float) else math.inf,
        start if isinstance(start, float) else math.inf,
        now,
        estimate,
    )
