"""The earliest moment at which a job has room, by the walltimes of those that run, and what is left
to others beside it.

Which nodes the job would take is chosen for good, so a reservation may keep more than it must and
never less.  Labels, taints and whatever else only node objects decide are minded; filters that depend
on load are not foreseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.resources import EPSILON, Floats, Request
from hekla.engine.model.time.reservations import Reservations
from hekla.engine.model.time.walltimes import SOON
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.releases import Releases
from hekla.engine.placement.room_counts import MANY

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Job, Task


class Part(NamedTuple):
    """Tasks of one class that have to start together with the rest of their job."""

    request: Request
    mask: Bools
    """`[nodes]` that they may be on."""
    tasks: int
    first: Task
    """One of them."""


@dataclass(slots=True)
class BackfillReservation:
    """Room that is kept for a job from a moment on."""

    job: Job
    start: float
    """Seconds since 1970."""
    spare: Floats
    """`[resources, nodes]`: what is free at that moment beside the job; others may have it for as
    long as they like."""

    def shared(self, room: Floats) -> Rows:
        """Nodes of whose present room some is kept."""
        return np.flatnonzero((self.spare < room - EPSILON).any(axis=0))

    def take(self, request: Request, row: int) -> None:
        """Somebody who stays beyond the moment has come to this node."""
        for column, value in request:
            self.spare[column, row] -= value


def parts_of(session: Session, job: Job, tasks: Sequence[Task]) -> list[Part]:
    """Those of the tasks that the job needs to start, by class, the largest request first."""
    lacking = max(job.min_available - job.counts.ready, 1)
    counts: dict[int, tuple[Task, int]] = {}
    for task in tasks[:lacking]:
        found = counts.get(id(task.pods))
        counts[id(task.pods)] = (task, 1) if found is None else (found[0], found[1] + 1)
    filters, scope = placer_of(session).filters, session.node_scope
    parts = []
    for task, count in counts.values():
        mask = filters.static_mask(session, task)
        if session.shard_mode == "hard" and scope is not None:
            mask = mask & scope
        parts.append(Part(task.request, mask, count, task))
    parts.sort(key=lambda part: -max(part.request.values, default=0.0))
    return parts


def unreserved(
    parts: Sequence[Part], reserved: Reservations | None, at: float | None = None
) -> Sequence[Part]:
    """The parts without the nodes that are reserved for others if they begin at a moment (None:
    now)."""
    if reserved is None:
        return parts
    refused = [reserved.refused(part.first, at) for part in parts]
    return [
        part if mask is None else part._replace(mask=part.mask & ~mask)
        for part, mask in zip(parts, refused)
    ]


def fits(parts: Sequence[Part], room: Floats) -> bool:
    """Whether the parts have room beside each other, each taking the nodes in their order."""
    if len(parts) == 1:
        return bool(fitting(parts[0], room).sum() >= parts[0].tasks)
    return taken(parts, room, room) is not None


def fitting(part: Part, room: Floats) -> Floats:
    """`[nodes]`: how many of the part's tasks each has room for."""
    most: Floats = np.where(part.mask, MANY, 0.0)
    for column, value in part.request:
        if value > 0:
            np.minimum(most, (room[column] + EPSILON) / value, out=most)
    return np.floor(np.maximum(most, 0.0))


def taken(parts: Sequence[Part], room: Floats, now: Floats) -> Floats | None:
    """`[resources, nodes]`: what the parts take of the room, of nodes that are busy now before
    others; None where it does not hold them."""
    if len(parts) == 1:
        (part,) = parts
        then = fitting(part, room)
        chosen = _chosen(part, then, np.maximum(then - fitting(part, now), 0.0))
        held = np.zeros_like(room)
        for column, value in part.request:
            held[column] = chosen * value
        return held if chosen.sum() >= part.tasks else None
    left, present = room.copy(), now.copy()
    for part in parts:
        then = fitting(part, left)
        later = np.maximum(then - fitting(part, present), 0.0)
        chosen = _chosen(part, then, later)
        if chosen.sum() < part.tasks:
            return None
        for column, value in part.request:
            left[column] -= chosen * value
            present[column] -= np.minimum(chosen, then - later) * value
    return room - left


def _chosen(part: Part, then: Floats, later: Floats) -> Floats:
    """`[nodes]`: how many of the part's tasks each gets, `then` at most, `later` of them where there
    is no room now."""
    chosen = _first(later, part.tasks)
    missing = part.tasks - int(chosen.sum())
    return chosen + _first(then - chosen, missing) if missing > 0 else chosen


def _first(most: Floats, count: int) -> Floats:
    """`[nodes]`: so many in all, from the first nodes on, of each at most as many as it has."""
    before = np.cumsum(most) - most
    return np.clip(count - before, 0.0, most)


def reserve(
    session: Session, job: Job, parts: Sequence[Part], releases: Releases, room: Floats
) -> BackfillReservation | None:
    """The earliest room for a job; None where all that is known to end does not make it.

    `room`: `[resources, nodes]` that is free now.
    """
    reserved = placer_of(session).filters.reserved
    if reserved is not None:
        return _reserve_between(session.now, job, parts, releases, room, reserved)
    course = releases.course(session.now, room) if len(parts) == 1 else None
    if course is not None:
        return _reserve_on(job, parts, *course, room)
    moments = releases.moments(session.now)
    if not len(moments) or not fits(parts, releases.left_by(moments[-1] + SOON, room)):
        return None
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(parts, releases.left_by(moments[middle] + SOON, room)):
            high = middle
        else:
            low = middle + 1
    then = releases.left_by(moments[low] + SOON, room)
    held = taken(parts, then, room)
    return None if held is None else BackfillReservation(job, float(moments[low]), then - held)


def _reserve_between(
    now: float,
    job: Job,
    parts: Sequence[Part],
    releases: Releases,
    room: Floats,
    reserved: Reservations,
) -> BackfillReservation | None:
    """The same where windows open and close: the nodes that the job may use at a moment depend on
    when it would end, so more room later does not mean that it fits then."""
    leaving = releases.moments(now)
    turning = reserved.moments(max(float(leaving[-1]) if len(leaving) else now, reserved.edge))
    for moment in np.union1d(leaving, [now, *turning]).tolist():
        then = releases.left_by(moment + SOON, room)
        allowed = unreserved(parts, reserved, moment)
        held = taken(allowed, then, room) if fits(allowed, then) else None
        if held is not None:
            return BackfillReservation(job, moment, then - held)
    return None


def _reserve_on(
    job: Job, parts: Sequence[Part], moments: Floats, course: Floats, room: Floats
) -> BackfillReservation | None:
    """The same for tasks of one class, with all moments written down."""
    (part,) = parts
    most: Floats = np.full((len(moments), course.shape[2]), MANY)
    for column, value in part.request:
        if value > 0:
            np.minimum(most, (course[:, column] + EPSILON) / value, out=most)
    whole = (np.floor(np.maximum(most, 0.0)) * part.mask).sum(axis=1)
    first = int(np.argmax(whole >= part.tasks)) if len(whole) else 0
    if not len(whole) or whole[first] < part.tasks:
        return None
    held = taken(parts, course[first], room)
    return (
        None
        if held is None
        else BackfillReservation(job, float(moments[first]), course[first] - held)
    )
