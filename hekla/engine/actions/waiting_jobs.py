"""The jobs that wait, in their order, kept from cycle to cycle.

Thousands may wait for room that is not there.  A cycle looks only at those that changed, and at
those for which the nodes may have room now; the order, the shape and the walltime of the others are
arrays.  Only jobs whose pods are plain and alike are kept so; the others are looked at in every cycle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hekla.api.names import DEFAULT_WALLTIME, WALLTIME
from hekla.engine.actions.waiting_shapes import Slots, WaitingShapes, waits_plainly
from hekla.engine.framework.heap import OrderKey
from hekla.engine.framework.hooks import Hooks
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.walltimes import job_walltime, problem_of
from hekla.engine.placement.availability_profile import Span
from hekla.engine.placement.releases import Releases

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class WaitingInQueue:
    """The waiting jobs of one queue: their keys, ascending, and their slots."""

    __slots__ = ("keys", "slots")

    def __init__(self) -> None:
        self.keys: list[OrderKey] = []
        self.slots: Slots = np.zeros(0, dtype=np.intp)


class WaitingJobs(WaitingShapes):
    """What is kept for one policy on one state."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self.steady = hooks.waiting_jobs_keep_their_place
        self.restless = hooks.read_clock or not self.steady
        """Whether a plugin may say something else though nothing has happened."""
        self.releases = Releases()
        self.queues: dict[str, WaitingInQueue] = {}
        self.walltime: Floats = np.zeros(64)
        """By slot."""
        self.places: dict[str, tuple[int, str, OrderKey]] = {}
        """Job -> its slot, queue and key."""
        self.apart: dict[str, Job] = {}
        """Jobs that have something to decide and are no plain waiting ones."""
        self.spans: dict[str, Span] = {}
        """The times that jobs were given in the last cycle."""
        self.reserved_version = -1
        """Of the reservations that the times were given by."""
        self.head = ""
        """The job that had the reservation in the last cycle."""
        self.quiet = False
        """Whether nothing has come since the last cycle that could let anybody start: what it bound
        itself has come back."""
        self._seen: tuple[object, ...] = ()
        self._outside: tuple[object, ...] = ()
        self._stirred = True

    def update(self, session: Session) -> dict[str, Job]:
        """Follow what has changed.  Gives the jobs to look at whatever room there is: those that
        changed, and those that are apart."""
        state = session.state
        table = state.job_table
        queues = {
            name: (session.order.own.of.get(name, ""), queue.annotations.get(DEFAULT_WALLTIME))
            for name, queue in state.queues.items()
        }
        seen = (
            id(state.nodes.rows),
            queues,
            state.nodes.static_version,
            state.reservations.version,
        )
        changed = {**(table.changed or {}), **session.touched}
        if table.changed is None:
            changed = {**changed, **state.jobs}
        outside = state.others_version, [id(queue) for queue in state.queues.values()]
        self._stirred = (
            seen != self._seen or outside != self._outside or self.restless or bool(self.apart)
        )
        self._outside = outside
        if seen != self._seen:
            self._follow(session, {**changed, **state.jobs})
        else:
            self._follow(session, changed)
            if not self.steady:
                self._sort_again(session)
        table.changed, self._seen = {}, seen
        self.forget_shapes(session, [place[0] for place in self.places.values()])
        gained = self.counts.refresh(session)
        self.quiet = not (self._stirred or gained)
        awake = {key: job for key, job in changed.items() if state.active.get(key) is job}
        awake.update(self.apart)
        return awake

    def settle(self, session: Session) -> None:
        """Follow what the cycle itself has changed: nobody need look at that again."""
        table = session.state.job_table
        if table.changed:
            self._follow(session, table.changed)
            table.changed = {}

    def _follow(self, session: Session, changed: Mapping[str, Job]) -> None:
        state = session.state
        left = [key for key in changed if key in self.places]
        if left:
            self._stirred = True
            self._remove(left)
        entering: dict[str, list[tuple[OrderKey, Job]]] = {}
        for key, job in changed.items():
            self.apart.pop(key, None)
            self._stirred |= self.releases.follow(state, job, session.now)
            if state.active.get(key) is job:
                self._stirred = True
                self._look(session, job, entering)
        for name, jobs in entering.items():
            self._enter(session, name, jobs)

    def _sort_again(self, session: Session) -> None:
        """Keys of jobs that did not change may be others, by what a plugin says."""
        entering: dict[str, list[tuple[OrderKey, Job]]] = {}
        for slot, name, _ in self.places.values():
            job = self.jobs[slot]
            entering.setdefault(name, []).append((session.order.job_key(job), job))
        self._remove(list(self.places))
        for name, jobs in entering.items():
            self._enter(session, name, jobs)

    def _look(
        self, session: Session, job: Job, entering: dict[str, list[tuple[OrderKey, Job]]]
    ) -> None:
        state = session.state
        if WALLTIME in job.annotations:
            session.warn_once("PodGroup", job.key, "UnknownWalltime", problem_of(job.annotations))
        if job.is_pending and not session.has_action("enqueue"):
            session.let_in(job)
        if (
            job.is_pending
            or not waits_plainly(job)
            or session.votes.job_valid(job) is not None
            or (state.back_off.waits and state.back_off.left(job.key, session.now) > 0)
        ):
            self.apart[job.key] = job
        else:
            entering.setdefault(job.queue, []).append((session.order.job_key(job), job))

    def _enter(self, session: Session, name: str, jobs: list[tuple[OrderKey, Job]]) -> None:
        line = self.queues.setdefault(name, WaitingInQueue())
        queue = session.state.queues[name]
        jobs.sort(key=lambda one: one[0])
        at = []
        slots = []
        for key, job in jobs:
            slot = self.put(session, job, max(job.min_available, 1))
            self.walltime[slot] = job_walltime(job, queue)
            self.places[job.key] = slot, name, key
            at.append(bisect_left(line.keys, key))
            slots.append(slot)
        line.slots = np.insert(line.slots, at, slots)
        if len(jobs) > 8:
            line.keys = sorted([*line.keys, *(key for key, _ in jobs)])
        else:
            for number, (key, _) in enumerate(jobs):
                line.keys.insert(at[number] + number, key)

    def _remove(self, keys: list[str]) -> None:
        by_queue: dict[str, list[int]] = {}
        for key in keys:
            slot, name, order = self.places.pop(key)
            self.free.append(slot)
            by_queue.setdefault(name, []).append(bisect_left(self.queues[name].keys, order))
        for name, places in by_queue.items():
            line = self.queues[name]
            line.slots = np.delete(line.slots, places)
            if len(places) > 8:
                gone = set(places)
                line.keys = [key for at, key in enumerate(line.keys) if at not in gone]
            else:
                for at in sorted(places, reverse=True):
                    del line.keys[at]

    def _grow(self) -> None:
        super()._grow()
        self.walltime = np.concatenate([self.walltime, np.zeros_like(self.walltime)])
