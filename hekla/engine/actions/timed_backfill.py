"""Turns with an eye on the clock: the first job that waits has a reservation, and others pass it
only if they do not hold it up.

`allocate` serves the jobs in their order until one has no room (`start`); `backfill` serves those
behind it (`pass_by`).  Who is in what order, which queue may take what, and which nodes are chosen is
asked of the policy's plugins as ever.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.actions.allocate import Turns
from hekla.engine.actions.learning import tell_learned
from hekla.engine.actions.waiting_jobs import WaitingJobs
from hekla.engine.actions.waiting_shapes import Slots, first_task
from hekla.engine.explain.explanation import called
from hekla.engine.framework.heap import OrderKey
from hekla.engine.framework.joborder import STRICT
from hekla.engine.framework.policy import Choice
from hekla.engine.model.arrays import Bools
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.walltimes import SOON, job_walltime
from hekla.engine.placement.availability_profile import AvailabilityProfile, Span
from hekla.engine.placement.backfill_reservation import (
    BackfillReservation,
    Part,
    fits,
    fitting,
    parts_of,
    reserve,
    unreserved,
)
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.releases import coarse

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class QueueTurns:
    """One queue's jobs in their order: some slots of the line, and jobs that are apart from it."""

    def __init__(
        self, line: WaitingJobs, slots: Slots, apart: Iterable[tuple[OrderKey, Job]]
    ) -> None:
        self.line = line
        self.slots: list[int] = slots.tolist()
        self.at = 0
        """How many of the slots have had their turn."""
        self._apart = [(key, number, job) for number, (key, job) in enumerate(apart)]
        self._pushed = len(self._apart)
        heapq.heapify(self._apart)

    def __bool__(self) -> bool:
        return self.at < len(self.slots) or bool(self._apart)

    def push(self, key: OrderKey, job: Job) -> None:
        """The job wants another turn."""
        heapq.heappush(self._apart, (key, self._pushed, job))
        self._pushed += 1

    def pop(self) -> tuple[Job, int | None]:
        """The next job, and its slot if it stands in the line."""
        if self.at < len(self.slots):
            slot = self.slots[self.at]
            job = self.line.jobs[slot]
            if not self._apart or not self._apart[0][0] < self.line.places[job.key][2]:
                self.at += 1
                return job, slot
        return heapq.heappop(self._apart)[2], None


class TimedBackfill:
    """The turns of one cycle."""

    def __init__(self, session: Session, mode: str) -> None:
        self.session = session
        self.mode = mode
        self.turns = Turns(session)
        self.reserved = placer_of(session).filters.reserved
        self.line = session.hooks.part(WaitingJobs)
        self.awake = self.line.update(session)
        session.awake = self.awake
        self.apart: dict[str, dict[str, Job]] = {}
        """Of each queue, its jobs that want a turn and do not stand in the line, or no more."""
        self.passed: dict[str, int] = {}
        """Queue -> how many of its line have had their turn."""
        self.served: set[str] = set()
        self.heard: set[str] = set()
        """Jobs that this cycle has told what they lack, or started."""
        self.head: Job | None = None
        """The first job that waits for room."""
        self.kept: BackfillReservation | None = None
        self.kept_at = -1
        """Version of the nodes that the reservation was made from."""
        self._counted_at = -1
        """Version of the nodes of which the room was counted last."""
        self._parts_of: dict[str, list[Part]] = {}

    # ------------------------------------------------------------------------------------- allocate

    def start(self) -> None:
        """Serve jobs in their order until one has to wait."""
        session, line = self.session, self.line
        if line.quiet and not session.state.nominated:
            return
        for job in line.apart.values():
            if self.turns.takes_in(job):
                self.apart.setdefault(job.queue, {})[job.key] = job
        self._serve_nominated()
        if self.mode == "conservative":
            return
        turns_of = {
            name: waiting.slots for name, waiting in line.queues.items() if len(waiting.slots)
        }
        turns = self._turns({**dict.fromkeys(self.apart, _NO_SLOTS), **turns_of})
        for queue in self._by_turn(turns):
            own = turns[queue.name]
            job, slot = own.pop()
            self.passed[queue.name] = own.at
            apart = self.apart.setdefault(queue.name, {})
            apart.pop(job.key, None)
            if slot is None or self._possible(slot):
                if self._serve(queue, job):
                    own.push(session.order.job_key(job), job)
                    apart[job.key] = job
                if session.votes.job_ready(job):
                    continue
            else:
                task = first_task(job)
                allowed = session.votes.allocatable_count(queue, task, 1)
                job.short_of_quota = None if allowed else task
            self.served.add(job.key)
            if not self._waits_for_room(job):
                continue
            if self.mode == "strict" or self._reserves(job):
                self._tell_head(queue, job)
                self.kept_at = session.state.nodes.version
                return
            self._tell(queue, job)  # Nothing makes room for it.

    def _serve_nominated(self) -> None:
        """Victims left for these jobs: the room is theirs before anybody's turn comes."""
        session = self.session
        for key in session.state.nominated:
            job = session.job(key)
            if job is not None and not session.votes.overused(session.queue_of(job)):
                self._serve(session.queue_of(job), job)

    def _waits_for_room(self, job: Job) -> bool:
        """Whether it is room that the job lacks, not quota, not what a filter says, and not the
        window of the reservation that it names."""
        if job.short_of_quota is not None or job.counts.ready >= max(job.min_available, 1):
            return False
        if self.reserved is not None and self.reserved.waits_for_its_window(job):
            return False
        return not fits(unreserved(self._parts(job), self.reserved), self._room())

    def _reserves(self, job: Job) -> bool:
        """Whether it is known when the job has room; it is kept for it then."""
        releases = self.line.releases
        for other in self.session.touched.values():
            releases.follow(self.session.state, other, self.session.now)
        self.kept = reserve(self.session, job, self._parts(job), releases, self._room())
        return self.kept is not None

    def _tell_head(self, queue: Queue, job: Job) -> None:
        """The job is the first that waits; what it lacks is found out when it becomes that."""
        self.head = job
        if self.line.head != job.key:
            self.line.head = job.key
            self.awake[job.key] = job
        self._tell(queue, job)

    def _tell(self, queue: Queue, job: Job) -> None:
        """Find out what a job that is looked at lacks, on the nodes that there are now."""
        if job.key in self.awake and job.key not in self.heard:
            self._serve(queue, job)

    # ------------------------------------------------------------------------------------- backfill

    def pass_by(self) -> None:
        """Serve those behind the one that waits, as far as they do not hold it up."""
        head, line = self.head, self.line
        if self.mode == "conservative":
            if not line.quiet:
                self._keep_all()
            return
        if head is None:
            return
        if self.mode == "strict":
            self._tell_those_behind(head)
            return
        if self.session.state.nodes.version != self.kept_at and not self._reserves(head):
            return
        self._room()
        slots_of: dict[str, Slots] = dict.fromkeys(self.apart, _NO_SLOTS)
        for name, waiting in line.queues.items():
            slots = waiting.slots[self.passed.get(name, 0) :]
            chosen = self._may_pass(slots)
            if len(self.awake) > len(line.apart):
                # Who has just come is told what it lacks, though it has no room.
                chosen |= np.array([line.jobs[slot].key in self.awake for slot in slots.tolist()], dtype=np.bool_)  # fmt: skip
            if self.reserved is not None and self.reserved.named:
                jobs = (line.jobs[slot] for slot in slots.tolist())
                chosen |= np.array([self._in_its_window(job) for job in jobs], dtype=np.bool_)
            slots_of[name] = slots[chosen]
        own_order = self.session.order.own.of
        turns = self._turns(
            {name: one for name, one in slots_of.items() if own_order.get(name) != STRICT}
        )
        for queue in self._by_turn(turns):
            own = turns[queue.name]
            job, slot = own.pop()
            if slot is not None and job.key not in self.awake and not self._possible(slot):
                continue
            if job is not head and job.key not in self.served and self._passes(queue, job):
                own.push(self.session.order.job_key(job), job)

    def _tell_those_behind(self, head: Job) -> None:
        """Who has just come had no turn, and is told why."""
        for job in self.awake.values():
            if job is not head and job.key not in self.served and job.key in self.line.places:
                job.clear_fit_errors()
                first = called(self.session, head.key, job.namespace)
                job.fit_message = f"{first} waits before it, and nobody passes"

    def _may_pass(self, slots: Slots) -> Bools:
        """Which of these may pass as things stand; while others pass, fewer and fewer."""
        kept, line = self.kept, self.line
        assert kept is not None
        short = line.walltime[slots] + self.session.now <= kept.start + SOON
        room = line.counts.room
        shared = kept.shared(room)
        beside = (
            line.counts.within(shared, np.minimum(room, kept.spare)[:, shared])
            if len(shared)
            else None
        )
        return line.possible(slots) & (short | line.possible(slots, beside))

    def _keep_all(self) -> None:
        """Serve jobs in their order: each starts as soon as it holds up none that has been given a
        time, or is given one."""
        session, line = self.session, self.line
        for job in session.touched.values():
            line.releases.follow(session.state, job, session.now)
        profile = AvailabilityProfile(session.now, line.releases, self._room())
        known, line.spans = line.spans, {}
        if self.reserved is not None:
            profile.split_at(self.reserved.moments(math.inf))
            if self.reserved.version != line.reserved_version:
                line.reserved_version, known = self.reserved.version, {}
        for key, span in known.items():
            if (
                key in line.places
                and span.held.shape == profile.room[0].shape
                and profile.holds(span)
            ):
                line.spans[key] = span
                profile.hold(span)
        depth = int(session.argument("backfill", "depth", DEPTH))
        slots_of = {name: waiting.slots for name, waiting in line.queues.items()}
        turns = self._turns({**dict.fromkeys(self.apart, _NO_SLOTS), **slots_of})
        for queue in self._by_turn(turns):
            own = turns[queue.name]
            job, slot = own.pop()
            if job.key in line.spans:
                profile.free(line.spans.pop(job.key))
            elif (
                slot is not None
                and len(line.spans) >= depth
                and job.key not in self.awake
                and not self._possible(slot)
            ):
                continue
            if self._timed(queue, job, profile, slot is not None and len(line.spans) < depth):
                own.push(session.order.job_key(job), job)

    def _timed(
        self, queue: Queue, job: Job, profile: AvailabilityProfile, may_have_a_time: bool
    ) -> bool:
        """Serve a job now if the profile has room for all its time, else give it one; True where
        it wants another turn."""
        session, nodes = self.session, self.session.state.nodes
        task = next(iter(job.pending()), None)
        if task is None:
            return False
        length = job_walltime(job, queue)
        parts = self._parts(job)
        free = self._room() if self._in_its_window(job) else profile.through(length)
        allowed = unreserved(parts, self.reserved)
        if not fits(allowed, free):
            if fits(allowed, self._room()):
                job.clear_fit_errors()
                job.fit_message = "it might hold up others that wait before it"
            elif job.key in self.awake:
                self._serve(queue, job)  # It has no room; this is to hear of what it lacks.
            if may_have_a_time and session.votes.allocatable_count(queue, task, 1):
                span = profile.earliest(parts, length, self.reserved)
                if span is not None and span.start > session.now:
                    self.line.spans[job.key] = span
                    profile.hold(span)
            return False
        before = len(session.decisions.binds)
        # Not `profile.room[0] - free`: what is given to others from this very moment on is not free
        # in the profile any more, but it is on the nodes.
        with nodes.withheld(np.maximum(self._room() - free, 0.0)):
            again = self._serve(queue, job, np.ones(len(nodes), dtype=np.bool_))
        held = np.zeros_like(free)
        for bind in session.decisions.binds[before:]:
            bound = session.state.tasks[bind.pod]
            for column, value in bound.request:
                held[column, bound.row] += value
        if held.any():
            profile.hold(Span(session.now, coarse(session.now + length, length), held))
        return again

    def _in_its_window(self, job: Job) -> bool:
        """Whether the job runs on nodes that are reserved for it now: it holds up nobody there."""
        reserved = self.reserved
        return (
            reserved is not None
            and job.key in reserved.named
            and not reserved.waits_for_its_window(job)
        )

    def _possible(self, slot: int) -> bool:
        """Whether the nodes may still have room, after those that have passed before."""
        self._room()
        return bool(self.line.counts.totals[self.line.shape[slot]] >= self.line.need[slot])

    def _passes(self, queue: Queue, job: Job) -> bool:
        """Serve a job if that does not hold up the one that waits; True where it wants another
        turn."""
        session, kept, nodes = self.session, self.kept, self.session.state.nodes
        assert kept is not None
        short = session.now + job_walltime(job, queue) <= kept.start + SOON
        short = short or self._in_its_window(job)
        only: Bools | None = None
        withheld: Floats | None = None
        if not short:
            room = self._room()
            shared = kept.shared(room)
            if len(shared):
                beside = np.minimum(room, kept.spare)
                parts = unreserved(self._parts(job), self.reserved)
                if not fits(parts, beside):
                    if fits(parts, room):
                        first = called(session, kept.job.key, job.namespace)
                        job.clear_fit_errors()
                        job.fit_message = f"it might hold up {first}, which waits before it"
                        return False
                elif len(parts) == 1 and parts[0].tasks == 1:
                    only = fitting(parts[0], beside) >= 1
                else:
                    only, withheld = np.ones(len(nodes), dtype=np.bool_), room - beside
        before = len(session.decisions.binds)
        with nullcontext() if withheld is None else nodes.withheld(withheld):
            again = self._serve(queue, job, only)
        bound = session.decisions.binds[before:]
        for bind in bound if not short else ():
            task = session.state.tasks[bind.pod]
            kept.take(task.request, task.row)
        return again

    def close(self) -> None:
        tell_learned(self.session, self.awake.values())
        self.line.settle(self.session)

    # ------------------------------------------------------------------------------------- for both

    def _turns(self, slots_of: Mapping[str, Slots]) -> dict[str, QueueTurns]:
        key = self.session.order.job_key
        return {
            name: QueueTurns(
                self.line,
                slots,
                ((key(job), job) for job in self.apart.get(name, _NO_JOBS).values()),
            )
            for name, slots in slots_of.items()
            if name in self.session.state.queues
        }

    def _by_turn(self, turns: Mapping[str, QueueTurns]) -> Iterator[Queue]:
        """The queue whose turn it is, again and again, until none has a job that may be served."""
        session = self.session
        queues = session.order.queues_by_turn(turns)
        queue = queues.pop() if queues else None
        while queue is not None:
            if not turns[queue.name] or session.votes.overused(queue):
                queue = queues.pop() if queues else None
                continue
            yield queue
            queue = queues.push_pop(queue)

    def _serve(self, queue: Queue, job: Job, only: Bools | None = None) -> bool:
        """One turn of the long way; True where the job wants another."""
        session = self.session
        self.heard.add(job.key)
        if job.key in self.line.places:
            job.clear_fit_errors()
        try:
            return self.turns.serve(queue, job, False, only)
        except Exception as error:  # the others are still served
            session.broke_off(f"the placement of {job.key}", error)
            return False

    def _room(self) -> Floats:
        """`[resources, nodes]`: what is free now, or about to be; counted by shape too."""
        nodes, counts = self.session.state.nodes, self.line.counts
        if nodes.version != self._counted_at:
            counts.refresh(self.session)
            self._counted_at = nodes.version
        return counts.room

    def _parts(self, job: Job) -> list[Part]:
        """What the job has to place to start."""
        if job.key in self.line.places:
            found = self._parts_of.get(job.key)
            if found is None:
                task = first_task(job)
                tasks = [task] * max(job.min_available, 1)
                found = self._parts_of[job.key] = parts_of(self.session, job, tasks)
            return found
        return parts_of(self.session, job, self.session.order.sorted_tasks(job.pending()))


_NO_JOBS: Mapping[str, Job] = {}
_NO_SLOTS: Slots = np.zeros(0, dtype=np.intp)

DEPTH = 100
"""How many waiting jobs are given a time."""
MODES = Choice("", ("", "strict", "easy", "conservative"))
"""What `backfill` may be told of time: nothing, as upstream; nobody passes; nobody holds up the
first that waits; nobody holds up anybody before it."""


def mode_of(session: Session) -> str:
    """The mode of the policy's backfill; empty where it minds no time."""
    return str(session.argument("backfill", "mode", "")) if session.has_action("backfill") else ""
