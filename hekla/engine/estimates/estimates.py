"""Start estimates: of each waiting job when it starts, after whom, and what it waits for until then."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hekla.engine.actions.waiting_jobs import WaitingJobs
from hekla.engine.estimates.snapshot import Reading
from hekla.engine.explain.amounts import describe
from hekla.engine.explain.explanation import called
from hekla.engine.framework.joborder import waits
from hekla.engine.model.resources import EPSILON, PODS
from hekla.engine.model.tasks import Job
from hekla.engine.placement.forecast import NOBODY, Forecast, Snapshot, Start, Why
from hekla.engine.placement.room_counts import MANY

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


MANY_AT_ONCE = 1024
"""Estimates that are written down between two pauses."""
ALIKE = 60.0
"""Seconds by which two starts may differ and be the same to whoever waits."""


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
        self._starts_in_windows()
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

    def _starts_in_windows(self) -> None:
        state = self.session.state
        for key in state.reservations.named:
            job = state.active.get(key)
            if job is None or not waits(job):
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
        job = self._reading.jobs[row]
        if found.why is Why.LIMIT:
            refused = self.session.votes.refused_for_now(job)
            return "others before it take what is left" if refused is None else refused.message
        if found.why is Why.QUOTA:
            return self._quota(job, row)
        if found.why is Why.RESERVATION and found.behind:
            return f"it might hold up {self._name(found.behind, job)}, which waits before it"
        if found.why is Why.ORDER and found.behind:
            return f"{self._name(found.behind, job)} waits before it, and nobody passes"
        room = self._room(row)
        if found.known:
            return room
        return f"{room}, and nothing that is known to end makes room for it (what has no walltime counts as endless)"

    def _name(self, key: str, job: Job) -> str:
        return called(self.session, key, job.namespace)

    def _room(self, row: int) -> str:
        """Of which resource too few nodes have enough now."""
        snapshot = self._snapshot
        parts = snapshot.parts.get(row) or [(int(snapshot.shape[row]), int(snapshot.need[row]))]
        for kind, need in parts:
            if said := self._room_of(kind, need):
                return said
        pods = " and ".join(self._pods(kind, need) for kind, need in parts)
        if snapshot.closures:
            return f"it needs {pods} at once, and nodes that have room now are reserved before it would end"
        return f"it needs {pods} at once, and not all of them have room beside each other"

    def _pods(self, kind: int, need: int) -> str:
        """So many pods of a class, in words."""
        space, asked = self.session.state.nodes.space, self._snapshot.asked[kind]
        request = {
            name: float(asked[column])
            for column, name in enumerate(space.names[: len(asked)])
            if asked[column] > 0 and name != PODS
        }
        return f"{need} {'pod' if need == 1 else 'pods'} of {describe(request)}"

    def _room_of(self, kind: int, need: int) -> str:
        """The same of one class; empty where so many pods of it have room."""
        snapshot = self._snapshot
        asked, mask = snapshot.asked[kind], snapshot.masks[kind]
        space = self.session.state.nodes.space
        pods = self._pods(kind, need)
        if not mask.any():
            return f"no node may have its {pods}"
        fits = np.where(mask, MANY, 0.0)
        short = []
        for column in np.flatnonzero(asked > 0).tolist():
            alone = np.floor((np.maximum(snapshot.room[column], 0.0) + EPSILON) / asked[column])
            fits = np.minimum(fits, alone)
            if (alone * mask).sum() < need:
                short.append(space.names[column])
        count = int(fits.sum())
        if count >= need:
            return ""
        lacking = " and ".join(short) or "room in one place"
        usable = int(mask.sum())
        where = "" if mask.all() else f" on {_nodes(usable)} that it may use"
        return f"it needs {pods} at once and {lacking} is short{where}: {count} {'fits' if count == 1 else 'fit'} now"

    def _quota(self, job: Job, row: int) -> str:
        """Which ceiling is in the way."""
        snapshot = self._snapshot
        parts = snapshot.parts.get(row) or [(int(snapshot.shape[row]), int(snapshot.need[row]))]
        asked = sum(snapshot.asked[kind] * count for kind, count in parts)
        space, queue = self.session.state.nodes.space, self.session.state.queues.get(job.queue)
        for one in self.session.votes.quota_ceilings(queue) if queue is not None else ():
            for name in one.most:
                column = space.index.get(name)
                if name == PODS or column is None or column >= len(snapshot.asked[0]):
                    continue
                more, held = float(asked[column]), one.held.get(name, 0.0)
                if more > 0 and held + more > one.most[name]:
                    had, most, wanted = (describe({name: n}) for n in (held, one.most[name], more))
                    return f"queue {one.owner} holds {had} of its capability {most}, and the job needs {wanted}"
        return f"queue {job.queue} may not take so much until then"


def likeliest(starts: Sequence[Start]) -> Start:
    """The start of which most of these are no more than `ALIKE` away, of such the first."""
    return max(
        starts,
        key=lambda one: sum(
            one.at == other.at or abs(one.at - other.at) <= ALIKE for other in starts
        ),
    )


def _nodes(count: int) -> str:
    return "the node" if count == 1 else f"the {count} nodes"
