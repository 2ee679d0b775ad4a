"""Start estimates: of each waiting job when it starts, after whom, and what it waits for until then."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hekla.engine.actions.waiting_jobs import WaitingJobs
from hekla.engine.estimates.snapshot import AT_ONCE, Reading, may_ever_start
from hekla.engine.explain.amounts import amount, describe
from hekla.engine.explain.explanation import called
from hekla.engine.framework.joborder import waits
from hekla.engine.model.arrays import Bools
from hekla.engine.model.resources import EPSILON, PODS, Floats
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.walltimes import SOON
from hekla.engine.placement.forecast import NOBODY, Forecast, Snapshot, Start, Why, of_the_first
from hekla.engine.placement.room_counts import MANY

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


MANY_AT_ONCE = 1024
"""Estimates that are written down between two pauses."""
ALIKE = 60.0
"""Seconds by which two starts may differ and be the same to whoever waits."""


Part = tuple[int, int]
"""A class of pods, and how many of them start together."""


class StartEstimate(NamedTuple):
    """When a job starts, by what is known."""

    at: float
    """Seconds since 1970; infinite where it is not known."""
    latest: bool
    """Whether the policy keeps this time for the job, so that it starts then or sooner as long as
    nobody runs longer than he said and no node is lost."""
    why: Why
    """What it waits for now."""
    after: str
    """The job whose end lets it start; empty where none does."""
    behind: str
    """The job that holds it up; empty where none does."""

    @property
    def known(self) -> bool:
        return self.at < math.inf


class Estimation:
    """The estimates of all waiting jobs, made in steps between which other work may be done.

    `session` is that of the last cycle, whose plugins are asked; `now` is that cycle's moment unless
    it is given.
    """

    def __init__(self, session: Session, now: float | None = None) -> None:
        self.session = session
        self.found: dict[str, StartEstimate] = {}
        """Job -> its estimate."""
        self._reading = Reading(session, session.now if now is None else now)
        self._rows: dict[str, int] = {}
        self._names: dict[str, str] = {}
        """Job -> the reservation that it names, in whose window it starts."""

    def run(self) -> dict[str, StartEstimate]:
        """All of it at once."""
        for _ in self.steps():
            pass
        return self.found

    def steps(self) -> Iterator[None]:
        """Read the state, which has to stay as the cycle left it until `is_read`; the rest goes by a
        copy."""
        yield from self._starts_in_windows()
        yield from self._reading.steps()
        if not self.is_read:
            return
        snapshot = self._snapshot
        # Times that conservative backfill has given are kept, so they are the estimates.
        line = self.session.hooks.part(WaitingJobs) if snapshot.mode == "conservative" else None
        given = {} if line is None else {key: span.start for key, span in line.spans.items()}
        jobs = self._reading.jobs
        forecast = Forecast(snapshot)
        days = [Forecast(snapshot, day) for day in snapshot.days]
        for one in (forecast, *days):
            for _ in one.steps():
                yield
        for number, (row, start) in enumerate(forecast.starts.items()):
            if number % MANY_AT_ONCE == MANY_AT_ONCE - 1:
                yield
            key = jobs[row].key
            self._rows[key] = row
            if days and row != forecast.first_head:
                start = likeliest([*(one.starts[row] for one in days), start])
            # Backfill knows nothing of what its user may have when others of his run.
            kept = None if row in forecast.limited else given.get(key)
            at = start.at if kept is None else kept
            latest = kept is not None or (snapshot.mode == "easy" and row == forecast.first_head)
            why, behind = forecast.why(row)
            self.found[key] = StartEstimate(
                at, latest, why, self._called(start.after), self._called(behind)
            )

    def _starts_in_windows(self) -> Iterator[None]:
        state = self.session.state
        for number, key in enumerate(list(state.reservations.named)):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            job = state.active.get(key)
            if job is None or not waits(job):
                continue
            if not may_ever_start(self.session, job, state.queues.get(job.queue)):
                continue
            if (opens := state.reservations.opens_to(job)) is not None:
                self._names[key] = opens[0]
                self.found[key] = StartEstimate(opens[1], False, Why.RESERVATION, "", "")

    @property
    def is_read(self) -> bool:
        """False at the end too, where the state did not stay as it was: nothing is found then."""
        return self._reading.snapshot is not None

    @property
    def _snapshot(self) -> Snapshot:
        assert self._reading.snapshot is not None
        return self._reading.snapshot

    def _called(self, who: int) -> str:
        if who == NOBODY:
            return ""
        if who >= len(self._reading.jobs):
            return ""  # It has not come yet.
        return self._reading.jobs[who].key if who >= 0 else self._snapshot.running[-1 - who].key

    def because(self, key: str) -> str:
        """In words, what the job waits for now; it begins in small letters and ends
        without a full stop."""
        if key in self._names:
            return f"it runs in the windows of reservation {self._names[key]}, which it names"
        found, row = self.found[key], self._rows[key]
        job, snapshot = self._reading.jobs[row], self._snapshot
        if found.why is Why.LIMIT:
            refused = self.session.votes.refused_for_now(job)
            if refused is None:
                return "others before it take what its user, namespace or account may still have"
            return refused.message
        if found.why is Why.QUOTA:
            return self._quota(job, row)
        reserved = self._reserved(row)
        if found.behind and not reserved:
            first = self._name(found.behind, job)
            if found.why is Why.RESERVATION:
                return f"it might hold up {first}, which waits before it"
            passes = "nobody passes"
            if snapshot.mode != "strict":
                passes = f"jobs of queue {job.queue} pass nobody"
            return f"{first} waits before it, and {passes}"
        return self._room(row, found.at, reserved)

    def _room(self, row: int, at: float, reserved: str) -> str:
        """What keeps the job from room that it would have by its turn, and what room there is."""
        snapshot, parts = self._snapshot, self._parts(row)
        if unfit := [one for one in parts if not snapshot.masks[one[0]].any()]:
            it = "it" if _single(unfit) else "them"
            return f"it needs {self._pods(unfit)}, and no node may take {it}"
        needs = f"it needs {self._pods(parts)}"
        room = next(filter(None, (self._short(*one) for one in parts)), "")
        if not room and not self._has_room(row):
            room = f"{needs}, and not all of them have room beside each other"
        elif not room and not reserved and at <= snapshot.now + SOON:
            return f"{needs}, and there is room"
        elif not room:
            room = f"{needs}, and {reserved or 'others before it take the room that there is'}"
        if at < math.inf:
            return room
        return f"{room}, and nothing that is known to end makes room for it (what has no walltime counts as endless)"

    def _name(self, key: str, job: Job) -> str:
        return called(self.session, key, job.namespace)

    def _parts(self, row: int) -> Sequence[Part]:
        snapshot = self._snapshot
        return snapshot.parts.get(row) or [(int(snapshot.shape[row]), int(snapshot.need[row]))]

    def _pods(self, parts: Sequence[Part]) -> str:
        """So many pods of each class, in words."""
        space = self.session.state.nodes.space
        said = []
        for kind, need in parts:
            asked = self._snapshot.asked[kind]
            request = {
                name: float(asked[column])
                for column, name in enumerate(space.names[: len(asked)])
                if asked[column] > 0 and name != PODS
            }
            said.append(f"{need} {'pod' if need == 1 else 'pods'} of {describe(request)}")
        return " and ".join(said) + ("" if _single(parts) else " at once")

    def _reserved(self, row: int) -> str:
        """For when nodes are reserved where the job would have room otherwise; empty where there are
        none."""
        snapshot = self._snapshot
        until = snapshot.now + snapshot.walltime[row]
        closed, later = np.zeros(snapshot.room.shape[1], dtype=np.bool_), False
        for one in snapshot.closures:
            if not one.open_to[row] and one.start < until - SOON and snapshot.now < one.end - SOON:
                closed |= one.rows
                later = later or one.start > snapshot.now + SOON
        if not closed.any() or not self._has_room(row) or self._has_room(row, ~closed):
            return ""
        return f"nodes that have room now are reserved{' before it would end' if later else ''}"

    def _has_room(self, row: int, nodes: Bools | None = None) -> bool:
        """Whether the job's minimum has room now, on these nodes."""
        snapshot = self._snapshot
        room = snapshot.room
        for kind, need in self._parts(row):
            fits = self._fitting(kind, room)
            if nodes is not None:
                fits = fits * nodes
            if fits.sum() < need:
                return False
            room = room - snapshot.asked[kind][:, None] * of_the_first(fits, need)
        return True

    def _fitting(self, kind: int, room: Floats) -> Floats:
        """`[nodes]` pods of the class."""
        snapshot = self._snapshot
        fits = np.where(snapshot.masks[kind], MANY, 0.0)
        for column in np.flatnonzero(snapshot.asked[kind] > 0).tolist():
            fits = np.minimum(fits, _alone(room[column], snapshot.asked[kind, column]))
        return fits

    def _short(self, kind: int, need: int) -> str:
        """Of which resource too few nodes have enough now; empty where so many pods have room."""
        snapshot = self._snapshot
        asked, mask = snapshot.asked[kind], snapshot.masks[kind]
        count = int(self._fitting(kind, snapshot.room).sum())
        if count >= need:
            return ""
        names = self.session.state.nodes.space.names
        short = [
            names[column]
            for column in np.flatnonzero(asked > 0).tolist()
            if (_alone(snapshot.room[column], asked[column]) * mask).sum() < need
        ]
        lacking = " and ".join(short) or "room in one place"
        where = "" if mask.all() else f" on {_nodes(int(mask.sum()))} that it may use"
        return (
            f"it needs {self._pods([(kind, need)])} and {lacking} {'is' if len(short) < 2 else 'are'} short{where}: "
            f"{count} {'fits' if count == 1 else 'fit'} now"
        )

    def _quota(self, job: Job, row: int) -> str:
        """Which ceiling is in the way."""
        snapshot = self._snapshot
        asked = sum(snapshot.asked[kind] * count for kind, count in self._parts(row))
        space, queue = self.session.state.nodes.space, self.session.state.queues.get(job.queue)
        for one in self.session.votes.quota_ceilings(queue) if queue is not None else ():
            for name in one.most:
                column = space.index.get(name)
                if name == PODS or column is None or column >= len(snapshot.asked[0]):
                    continue
                more, held = float(asked[column]), one.held.get(name, 0.0)
                if more > 0 and held + more > one.most[name] + EPSILON:
                    had, most, wanted = (
                        f"{name}={amount(name, value)}" for value in (held, one.most[name], more)
                    )
                    return f"queue {one.owner} holds {had} of its capability {most}, and the job needs {wanted}"
        return f"others before it take what queue {job.queue} may still have"


def likeliest(starts: Sequence[Start]) -> Start:
    """The start of which most of these are no more than `ALIKE` away, of such the first."""
    return max(
        starts,
        key=lambda one: sum(
            one.at == other.at or abs(one.at - other.at) <= ALIKE for other in starts
        ),
    )


def _single(parts: Sequence[Part]) -> bool:
    return sum(need for _, need in parts) == 1


def _alone(room: Floats, each: float) -> Floats:
    """`[nodes]` pods that so much of one resource is enough for."""
    return np.floor((np.maximum(room, 0.0) + EPSILON) / each)


def _nodes(count: int) -> str:
    return "the node" if count == 1 else f"the {count} nodes"
