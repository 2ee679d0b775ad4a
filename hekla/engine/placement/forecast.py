"""When waiting jobs will start: the schedule that the policy would make if nobody came any more, or
certain jobs at certain moments, and everybody ran as long as he says.

From moment to moment, as those that run leave, the waiting jobs have their turns in the order of the
policy and by its mode of backfill, on arrays: how many pods of each class fit on each node is counted
again for the nodes that changed.  Nodes are taken from the first on, as where no score tells them
apart; filters that depend on load are not foreseen.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.resources import EPSILON, Floats
from hekla.engine.model.time.walltimes import SOON
from hekla.engine.placement.room_counts import MANY

Jobs = NDArray[np.intp]
OVERDUE = 1.0
"""Seconds from now at which what should have ended is taken to end."""
AT_ONCE = 16
"""Jobs that have their turn between two pauses."""
FEW = 1_000
"""Waiting jobs up to which every moment is looked at by itself."""
FINENESS = 512
"""Moments that lie close together, for their distance from now, are looked at together where more
jobs wait: the distance by this number is close."""


class Why(Enum):
    """What a job waits for."""

    ROOM = "room"
    QUOTA = "quota"
    LIMIT = "limit"
    RESERVATION = "reservation"
    ORDER = "order"


class Closure(NamedTuple):
    """Nodes that only some jobs may use for a time."""

    rows: Bools
    """`[nodes]`."""
    start: float
    """Seconds since 1970, as `end`."""
    end: float
    open_to: Bools
    """`[waiting jobs]`."""


class Holding(NamedTuple):
    """What a job holds on nodes until it ends."""

    rows: Rows
    amounts: Floats
    """`[resources, rows]`."""
    job: int
    """Of the waiting jobs; negative for one that ran before: -1 - its place in `Snapshot.running`.
    `NOBODY`: it is the end of a closure, or somebody may start from then on."""
    last: bool = True
    """Whether the job has ended with it."""


class Running(NamedTuple):
    """A job that runs, and when it is known to end."""

    key: str
    end: float
    rows: Rows
    amounts: Floats
    under: int
    """A row of `Snapshot.limits_of`; -1 for one without limits."""
    last: bool = True
    """Whether nothing of the job runs on afterwards."""


Day = Sequence[tuple[float, int]]
"""Who comes when, by moment: the rows of jobs of a snapshot that do not wait yet.  They stand at the end
of the line."""


@dataclass(slots=True)
class Snapshot:
    """What a forecast goes by; nothing of it is changed or shared."""

    now: float
    mode: str
    """Of backfill: "", strict, easy (conservative is forecast as easy)."""
    room: Floats
    """`[resources, nodes]` that is free."""
    running: Sequence[Running]
    asked: Floats
    """`[classes, resources]`."""
    masks: Bools
    """`[classes, nodes]` that pods of the class may be on."""
    shape: Jobs
    """`[jobs]`, in the order of the policy: the class of its pods, as are the next."""
    need: Floats
    """How many pods have to start together."""
    pods: Floats
    """How many there are."""
    walltime: Floats
    """Seconds; infinite where nobody says."""
    queue: Jobs
    under: Jobs
    """A row of `limits_of`."""
    strict: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Of each queue, whether nobody passes in it."""
    left: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """`[limits, resources]` that jobs under a limit may still take."""
    more_jobs: Floats = field(default_factory=lambda: np.zeros(0))
    """`[limits]`: how many jobs more may start under a limit."""
    of_queues: int = 0
    """So many limits are of queues, the others of users, namespaces and accounts."""
    limits_of: Sequence[Jobs] = ()
    """Of jobs of one queue and one party, the limits that they count against."""
    parts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Of jobs with pods of several classes: class and number of those that start together."""
    closures: Sequence[Closure] = ()
    begins: Floats | None = None
    """`[jobs]`: from when on each may start; None where all may now."""
    waiting: int | None = None
    """So many of the jobs wait; the others may come.  None: all."""
    days: Sequence[Day] = ()
    """What may come."""


class Start(NamedTuple):
    """When a job is foreseen to start."""

    at: float
    """Seconds since 1970; infinite where it is not known."""
    after: int
    """Whose end lets it start, as `Holding.job`; `NOBODY` where none does."""


NOBODY = 1 << 60


class Forecast:
    """One schedule forward, until all that wait now have started.  `starts` fills up as `steps` is
    walked; jobs of the `day` that come meanwhile are in it, too."""

    def __init__(self, snapshot: Snapshot, day: Day = ()) -> None:
        self.of = snapshot
        self.waiting = len(snapshot.shape) if snapshot.waiting is None else snapshot.waiting
        self._to_start = self.waiting
        self._coming = deque(day)
        self.now = snapshot.now
        self.room = snapshot.room.copy()
        self.starts: dict[int, Start] = {}
        """Waiting job -> its start."""
        self.first_head = NOBODY
        """Who has the reservation now."""
        self.holdings: list[tuple[float, int, Holding]] = []
        """Who runs, by end."""
        self._number = 0
        for place, one in enumerate(snapshot.running):
            end = one.end if one.end > self.now + SOON else self.now + OVERDUE
            self._hold(end, Holding(one.rows, one.amounts, -1 - place, one.last))
        for closure in snapshot.closures:
            if self.now < closure.end < math.inf:
                self._hold(closure.end, Holding(_NONE, np.zeros((len(self.room), 0)), NOBODY))
        if snapshot.begins is not None:
            for begin in np.unique(snapshot.begins[snapshot.begins > self.now]).tolist():
                self._hold(begin, Holding(_NONE, np.zeros((len(self.room), 0)), NOBODY))
        self.left, self.more_jobs = snapshot.left.copy(), snapshot.more_jobs.copy()
        self.line: Jobs = np.arange(self.waiting)
        asked = snapshot.asked
        self._columns = np.flatnonzero((asked > 0).any(axis=0)).tolist()
        self._divisors = [np.where(asked[:, one] > 0, asked[:, one], 1e-300) for one in self._columns]  # fmt: skip
        self._masks = np.ascontiguousarray(snapshot.masks.T).astype(np.float64)
        self._fit: Floats = np.zeros((self.room.shape[1], len(asked)))
        """`[nodes, classes]` pods that fit."""
        self._totals: Floats = np.zeros(len(asked))
        self._totals_now = self._totals
        """The same once everybody has had his turn now."""
        self._dirty: set[int] = set()
        """Nodes whose room has changed since they were counted."""
        self._head = NOBODY
        self._head_start = math.inf
        self._then: Floats | None = None
        """`[resources, nodes]` that is free when the head starts."""
        self._shared: Rows = _NONE
        self._spare: Floats = self.room
        self._beside: Floats = self._totals
        self._full: set[int] = set()
        """Jobs that a quota has kept waiting, at the moment that is looked at."""
        self._limited: set[int] = set()
        """The same with what their user, namespace or account may have."""
        self._full_now = self._limited_now = frozenset[int]()
        self._first_now: dict[int, int] = {}
        """Queue in which nobody passes -> the first of its jobs that waits once everybody has had his
        turn now."""
        self.limited: set[int] = set()
        """Who was kept waiting so at any moment."""
        self._ended: list[Holding] = []
        self._come: list[int] = []
        """Who has come at the moment that is looked at."""

    def run(self) -> dict[int, Start]:
        """All of it at once."""
        for _ in self.steps():
            pass
        return self.starts

    def steps(self) -> Iterator[float]:
        """One moment after the other; whoever walks may pause between them as long as he likes."""
        every = np.arange(self.room.shape[1])
        for first in range(0, len(every), 64):
            self._count(every[first : first + 64])
            yield self.now
        moment = self.now
        for _ in self._turn(moment):
            yield moment
        self._recount()
        self.first_head, self._totals_now = self._head, self._totals.copy()
        self._full_now, self._limited_now = frozenset(self._full), frozenset(self._limited)
        if self.of.strict.any():
            line = self.line[self.of.strict[self.of.queue[self.line]]]
            for job in line.tolist():
                self._first_now.setdefault(int(self.of.queue[job]), job)
        while self._to_start and (self.holdings or self._coming):
            yield moment
            moment = self._next(moment)
            for _ in self._turn(moment) if self._ended else self._turn_of_new(moment):
                yield moment
        for job in self.line.tolist():
            self._unknown(job)

    def why(self, job: int) -> tuple[Why, int]:
        """What the job waits for now, and the waiting job that holds it up, if one does."""
        of = self.of
        if job in self._limited_now or not self._may_begin(job, self.now):
            return Why.LIMIT, NOBODY
        if job in self._full_now:
            return Why.QUOTA, NOBODY
        lacks = self._totals_now[of.shape[job]] < of.need[job]
        if lacks:
            return Why.ROOM, NOBODY
        first = self._first_now.get(int(of.queue[job]), NOBODY)
        if of.mode == "" and first not in (NOBODY, job):
            return Why.ORDER, first
        if self.first_head in (NOBODY, job):
            return Why.ROOM, NOBODY
        strict = of.mode == "strict" or first != NOBODY
        return (Why.ORDER if strict else Why.RESERVATION), self.first_head

    # ---------------------------------------------------------------------------------------- moments

    def _next(self, moment: float) -> float:
        """Go to the next moment at which somebody ends, and take in who does."""
        holdings, coming = self.holdings, self._coming
        until = holdings[0][0] if holdings else math.inf
        if len(self.line) > FEW:
            until = max(until, moment + (moment - self.now) / FINENESS)
        if coming and coming[0][0] < until:
            until = coming[0][0]
        gone = bisect_left(holdings, (until + SOON,))
        if 0 < gone < len(holdings) and holdings[gone - 1][0] < until:
            until = holdings[gone - 1][0]
        self._come = []
        while coming and coming[0][0] <= until + SOON:
            self._come.append(coming.popleft()[1])
        if self._come:
            self.line = np.append(self.line, self._come)
        self._ended = [one[2] for one in holdings[:gone]]
        del holdings[:gone]
        self._full.clear()
        self._limited.clear()
        for one in self._ended:
            self.room[:, one.rows] += one.amounts
            self._dirty.update(one.rows.tolist())
            self._give_back(one)
        return until

    def _turn(self, moment: float) -> Iterator[None]:
        """Everybody's turn at one moment, with pauses where many start."""
        self._recount()
        if self.of.mode in ("strict", "easy", "conservative"):
            behind = yield from self._serve_until_one_waits(moment)
            if behind is None:
                return
            if self.of.mode != "strict":
                yield from self._pass_by(moment, behind)
        else:
            yield from self._pass_by(moment, 0)

    def _turn_of_new(self, moment: float) -> Iterator[None]:
        """The turn of those who have just come, where nobody has left: whoever waited waits on."""
        first = len(self.line) - len(self._come)
        timed = self.of.mode in ("strict", "easy", "conservative")
        if not timed:
            yield from self._pass_by(moment, first)
        elif self._then is None:
            yield from self._turn(moment)
        elif self.of.mode != "strict":
            yield from self._pass_by(moment, first)

    def _serve_until_one_waits(self, moment: float) -> Generator[None, None, int | None]:
        """Serve jobs in their order until one has to wait for room: the place in the line of the next;
        None where nobody waits so."""
        at = turns = 0
        while at < len(self.line):
            turns += 1
            if turns % AT_ONCE == 0:
                yield
            job = int(self.line[at])
            if not (self._may_begin(job, moment) and self._within_quota(job)):
                at += 1
                continue
            self._recount()
            if self._roomy(job) and self._starts(job, moment, self.room):
                self._leave(at)
                continue
            kept = job == self._head and self._head_start > moment
            if kept or self._reserve(job, moment):
                return at + 1
            self._unknown(job)
            self._leave(at)
        self._head, self._then = NOBODY, None
        return None

    def _pass_by(self, moment: float, first: int) -> Iterator[None]:
        """Serve jobs from this place in the line on, as far as they hold up nobody."""
        of = self.of
        rest = self.line[first:]
        shapes, need = of.shape[rest], of.need[rest]
        easy = self._then is not None
        long = moment + of.walltime[rest] > self._head_start + SOON if easy else None
        closed = self._closed_to(rest, first) if of.strict.any() else None
        early = None if of.begins is None else of.begins[rest] > moment + SOON
        started: list[int] = []
        at = 0
        shared = not easy
        while at < len(rest):
            self._recount()
            chosen = self._totals[shapes[at:]] >= need[at:]
            if closed is not None:
                chosen &= ~closed[at:]
            if early is not None:
                chosen &= ~early[at:]
            if not shared and chosen.any():
                shared = True
                self._share()  # Before any of these starts.
            if long is not None and (chosen & long[at:]).any():
                self._share_again()
                if len(self._shared):
                    chosen &= ~long[at:] | (self._beside[shapes[at:]] >= need[at:])
            for place in np.flatnonzero(chosen).tolist():
                job = int(rest[at + place])
                stays = long is not None and bool(long[at + place])
                room = np.minimum(self.room, self._spare) if stays else self.room
                if self._within_quota(job) and self._starts(job, moment, room):
                    if stays:
                        self._spare[:, self._latest.rows] -= self._latest.amounts
                    at += place + 1
                    started.append(first + at - 1)
                    if len(started) % AT_ONCE == 0:
                        yield
                    break
            else:
                break
            if closed is not None:
                closed = self._closed_to(rest, first, set(started))
        if started:
            self.line = np.delete(self.line, started)

    def _closed_to(self, rest: Jobs, first: int, started: Container[int] = ()) -> Bools:
        """Who waits behind another of a queue in which nobody passes."""
        closed = np.zeros(len(rest), dtype=np.bool_)
        seen = {int(self.of.queue[job]) for job in self.line[:first].tolist()}
        for place, job in enumerate(rest.tolist()):
            queue = int(self.of.queue[job])
            if self.of.strict[queue]:
                closed[place] = queue in seen or self.of.mode != ""
                if first + place not in started:
                    seen.add(queue)
        return closed

    # ------------------------------------------------------------------------------------ reservations

    def _reserve(self, job: int, moment: float) -> bool:
        """The earliest moment at which the job has room; False where none is known."""
        found = self._first_room(job)
        if found is None:
            return False
        self._head, self._head_start, self._then = job, max(found[0], moment), found[1]
        return True

    def _first_room(self, job: int) -> tuple[float, Floats] | None:
        holdings = self.holdings
        if self.of.closures:
            return self._first_room_between(job)
        low, high, step = 0, 0, 4
        while True:
            high = min(high + step, len(holdings))
            after = self._room_after(high)
            if self._fits(job, after(high), math.nan):
                break
            if high == len(holdings):
                return None
            low, step = high, 4 * step
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(job, after(middle), math.nan):
                high = middle
            else:
                low = middle
        start = holdings[high - 1][0]
        count = bisect_left(holdings, (start + SOON,))
        return start, (after if count <= high else self._room_after(count))(count)

    def _first_room_between(self, job: int) -> tuple[float, Floats] | None:
        """The same where nodes are closed for a time: what a job may use depends on when it would
        end, so more room later does not mean that it fits then."""
        after = self._room_after(len(self.holdings))
        for at, (end, _, _) in enumerate(self.holdings, 1):
            if at < len(self.holdings) and self.holdings[at][0] <= end + SOON:
                continue  # Others end with it.
            room = after(at)
            if self._chosen(job, self._parts(job), room, end) is not None:
                return end, room
        return None

    def _room_after(self, most: int) -> Callable[[int], Floats]:
        """Gives `[resources, nodes]` once so many of those that run have ended, up to a number."""
        ended = [one[2] for one in self.holdings[:most]]
        bounds = np.cumsum([0, *(len(one.rows) for one in ended)]).tolist()
        rows = np.concatenate([one.rows for one in ended]) if ended else _NONE
        amounts = np.concatenate([one.amounts for one in ended], axis=1) if ended else self.room
        some = np.flatnonzero(amounts.any(axis=1)).tolist() if ended else []

        def after(count: int) -> Floats:
            room, upto = self.room.copy(), bounds[count]
            for column in some:
                weights = amounts[column, :upto]
                room[column] += np.bincount(rows[:upto], weights, minlength=room.shape[1])
            return room

        return after

    def _share(self) -> None:
        """What the head takes of what is free when it starts, of nodes that are busy now before
        others, and what that leaves to those that stay longer."""
        then = self._then
        assert then is not None
        held = self._taken(self._parts(self._head), then)
        self._spare = then - held

    def _share_again(self) -> None:
        """Count what fits beside the head."""
        nodes = np.flatnonzero((self._spare < self.room - EPSILON).any(axis=0))
        self._shared = nodes
        if len(nodes):
            fresh = self._counts(nodes, np.minimum(self.room[:, nodes], self._spare[:, nodes]))
            self._beside = self._totals + (fresh - self._fit[nodes]).sum(axis=0)

    # ----------------------------------------------------------------------------------------- placing

    def _parts(self, job: int) -> list[tuple[int, int]]:
        return self.of.parts.get(job) or [(int(self.of.shape[job]), int(self.of.need[job]))]

    def _roomy(self, job: int) -> bool:
        """Whether there is room for it in all, by the counts.  One with pods of several classes has to
        be tried."""
        return job in self.of.parts or bool(self._totals[self.of.shape[job]] >= self.of.need[job])

    def _fits(self, job: int, room: Floats, moment: float) -> bool:
        """Whether the job's minimum has room at once."""
        parts = self._parts(job)
        if len(parts) > 1:
            return self._chosen(job, parts, room, moment) is not None
        ((kind, need),) = parts
        return bool(self._fitting(job, kind, room, moment).sum() >= need)

    def _fitting(self, job: int, kind: int, room: Floats, moment: float) -> Floats:
        """`[nodes]` pods of the class that fit (of those nodes that are open to the job for as long
        as it runs)."""
        most: Floats = np.full(room.shape[1], MANY)
        for column in self._columns:
            value = self.of.asked[kind, column]
            if value > 0:
                np.minimum(most, (room[column] + EPSILON) / value, out=most)
        np.floor(np.maximum(most, 0.0, out=most), out=most)
        most *= self._masks[:, kind]
        if self.of.closures and not math.isnan(moment):
            end = moment + self.of.walltime[job]
            for one in self.of.closures:
                if not one.open_to[job] and one.start < end - SOON and moment < one.end - SOON:
                    most[one.rows] = 0.0
        return most

    def _chosen(
        self, job: int, parts: Sequence[tuple[int, int]], room: Floats, moment: float
    ) -> Floats | None:
        """`[resources, nodes]` that the parts take, of the first nodes that have room."""
        held: Floats | None = None
        for kind, count in parts:
            fit = self._fitting(job, kind, room if held is None else room - held, moment)
            if fit.sum() < count:
                return None
            taken = self.of.asked[kind][:, None] * of_the_first(fit, count)
            held = taken if held is None else held + taken
        return held

    def _taken(self, parts: Sequence[tuple[int, int]], then: Floats) -> Floats:
        """The same for the head, of nodes without room now before others."""
        left, present = then, self.room
        for kind, count in parts:
            fit = self._fitting(self._head, kind, left, self._head_start)
            now = self._fitting(self._head, kind, present, self._head_start)
            later = np.maximum(fit - now, 0.0)
            taken = of_the_first(later, count)
            missing = count - int(taken.sum())
            if missing > 0:
                taken = taken + of_the_first(fit - taken, missing)
            asked = self.of.asked[kind][:, None]
            left = left - asked * taken
            present = present - asked * np.minimum(taken, fit - later)
        return then - left

    def _starts(self, job: int, moment: float, room: Floats) -> bool:
        """Start the job, all of it where there is room, if its minimum has any."""
        of = self.of
        held = self._chosen(job, self._parts(job), room, moment)
        if held is None:
            return False
        if of.pods[job] > of.need[job] and job not in of.parts:
            kind = int(of.shape[job])
            more = min(of.pods[job] - of.need[job], self._under_quota(job, held))
            fit = self._fitting(job, kind, room - held, moment)
            held = held + of.asked[kind][:, None] * of_the_first(fit, more)
        rows = np.flatnonzero((held > 0).any(axis=0))
        amounts = held[:, rows]
        self.room[:, rows] -= amounts
        self._dirty.update(rows.tolist())
        self._latest = Holding(rows, amounts, job)
        self._take_quota(self._latest)
        end = moment + of.walltime[job]
        if end < math.inf:
            self._hold(end, self._latest)
        if self._then is not None and end > self._head_start + SOON:
            self._then[:, rows] -= amounts
        self._note(job, moment)
        return True

    def _hold(self, end: float, holding: Holding) -> None:
        self._number += 1
        insort(self.holdings, (end, self._number, holding))

    def _leave(self, at: int) -> None:
        self.line = np.delete(self.line, at)

    def _note(self, job: int, moment: float) -> None:
        """When it starts, and who lets it."""
        after = NOBODY
        if self._ended:
            mine = set(self._latest.rows.tolist())
            limits = set(self._limits(job).tolist()) if job in self.limited else set()
            after = next(
                (
                    one.job
                    for one in self._ended
                    if limits.intersection(self._limits_held(one).tolist())
                    or (not limits and not mine.isdisjoint(one.rows.tolist()))
                ),
                self._ended[0].job,
            )
        self.starts[job] = Start(moment, after)
        self._to_start -= job < self.waiting

    def _unknown(self, job: int) -> None:
        """Nothing that is known to end lets the job start."""
        self.starts[job] = Start(math.inf, NOBODY)
        self._to_start -= job < self.waiting

    # ------------------------------------------------------------------------------------------ quotas

    def _may_begin(self, job: int, moment: float) -> bool:
        begins = self.of.begins
        return begins is None or bool(begins[job] <= moment + SOON)

    def _within_quota(self, job: int) -> bool:
        """Whether the job's queue, those above it and its user may take its minimum."""
        limits = self._limits(job)
        if not len(limits):
            return True
        asked = sum(self.of.asked[kind] * count for kind, count in self._parts(job))
        short = (self.left[limits] < asked - EPSILON).any(axis=1) | (self.more_jobs[limits] < 1)
        if not short.any():
            return True
        if (limits[short] < self.of.of_queues).any():
            self._full.add(job)
        else:
            self._limited.add(job)
            self.limited.add(job)
        return False

    def _under_quota(self, job: int, held: Floats) -> float:
        """How many more pods the queue and the user may take."""
        limits = self._limits(job)
        if not len(limits):
            return MANY
        asked = self.of.asked[self.of.shape[job]]
        some = asked > 0
        left = self.left[limits] - held.sum(axis=1)
        return float(max(np.floor((left[:, some] + EPSILON) / asked[some]).min(), 0.0))

    def _limits(self, job: int) -> Jobs:
        return self.of.limits_of[int(self.of.under[job])]

    def _limits_held(self, one: Holding) -> Jobs:
        """The limits that it counts against."""
        if one.job == NOBODY:
            return _NONE
        if one.job >= 0:
            return self._limits(one.job)
        under = self.of.running[-1 - one.job].under
        return _NONE if under < 0 else self.of.limits_of[under]

    def _take_quota(self, one: Holding) -> None:
        limits = self._limits(one.job)
        if len(limits):
            self.left[limits] -= one.amounts.sum(axis=1)
            self.more_jobs[limits] -= 1

    def _give_back(self, one: Holding) -> None:
        limits = self._limits_held(one)
        if len(limits):
            self.left[limits] += one.amounts.sum(axis=1)
            self.more_jobs[limits] += one.last

    # ------------------------------------------------------------------------------------------ counts

    def _recount(self) -> None:
        if self._dirty:
            nodes = np.array(sorted(self._dirty))
            self._dirty.clear()
            self._count(nodes)

    def _count(self, nodes: Rows) -> None:
        """Count again how many pods of each class fit on these nodes."""
        fresh = self._counts(nodes, self.room[:, nodes])
        self._totals += (fresh - self._fit[nodes]).sum(axis=0)
        self._fit[nodes] = fresh

    def _counts(self, nodes: Rows, room: Floats) -> Floats:
        """`[nodes, classes]` for `[resources, nodes]` of room."""
        most: Floats = np.full((len(nodes), len(self._totals)), MANY)
        free = np.maximum(room, 0.0) + EPSILON
        for column, divisor in zip(self._columns, self._divisors):
            np.minimum(most, free[column][:, None] / divisor, out=most)
        np.floor(most, out=most)
        most *= self._masks[nodes]
        return most


def of_the_first(most: Floats, count: float) -> Floats:
    """`[nodes]`: so many in all, from the first nodes on, of each at most as many as it has."""
    before = np.cumsum(most) - most
    return np.clip(count - before, 0.0, most)


_NONE: Rows = np.zeros(0, dtype=np.intp)
