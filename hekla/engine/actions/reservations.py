"""What becomes of Reservations in a cycle: pods of others are evicted where a reservation says so,
and each has the state, the nodes and the reasons that its status should tell.

The scheduler writes the status, no controller: it alone knows by walltimes who will still run when a
window opens, and which nodes it keeps.  Decision 0372.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hekla.api.text.times import stamp
from hekla.api.trees import Json, Tree
from hekla.engine.model.decisions import Event, ReservationStatus
from hekla.engine.model.evictions.notices import RESERVED_FOR
from hekla.engine.model.tasks import PREEMPTABLE, Status, Task
from hekla.engine.model.time.reservations import (
    ENDED,
    FAILED,
    KIND,
    NodeReservation,
    Reservations,
)
from hekla.engine.model.time.walltimes import SOON

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

EVICTS = "reservation"
"""The reason of evictions, as an action's name is elsewhere."""
PENDING, DRAINING, ACTIVE = "Pending", "Draining", "Active"
MOST_TOLD = 10
"""Pods that a status names."""


class Staying(NamedTuple):
    """A pod of others that is, or may still be, there when the window is open."""

    task: Task
    until: float


def serve_reservations(session: Session) -> None:
    """At the end of a cycle, when it is known what it has bound."""
    reservations = session.state.reservations
    for one in reservations.in_order():
        staying = _staying(reservations, one, session.now)
        if one.evicts:
            staying = _evict(session, one, staying)
        _tell(session, one, _status(session, one, staying))
    for name, (uid, problem, sent) in reservations.unreadable.items():
        status = ReservationStatus(name, uid, FAILED, "Unreadable", problem)
        if not _says(sent, status):
            reservations.unreadable[name] = uid, problem, _tree(status)
            _decide(session, status)


def _staying(reservations: Reservations, one: NodeReservation, now: float) -> list[Staying]:
    if one.current is None:
        return []
    start = max(one.current.start, now)
    found = [
        Staying(task, until)
        for task in reservations.others_on(one)
        if (until := reservations.end_of(task, now)) > one.current.start + SOON
        or one.current.start <= now
    ]
    found.sort(key=lambda each: (-max(each.until, start), each.task.key))
    return found


def _evict(session: Session, one: NodeReservation, staying: list[Staying]) -> list[Staying]:
    """Evict those who are in the way of a window, so that their notices end when it opens.  Gives
    those who are still there."""
    assert one.current is not None or not staying
    statement = session.statement()
    left = []
    for each in staying:
        task = each.task
        assert one.current is not None
        if task.status not in PREEMPTABLE:
            left.append(each)
            continue
        notice = session.votes.eviction_notice(task) if task.status is Status.RUNNING else 0.0
        due = one.current.start - notice
        if due > session.now + SOON:
            session.state.reservations.edge = min(session.state.reservations.edge, due)
            left.append(each)
        else:
            purpose = f"its node is reserved for {one.name}"
            statement.evict(task, EVICTS, purpose, RESERVED_FOR + one.name)
    statement.commit()
    return left


def _status(session: Session, one: NodeReservation, staying: list[Staying]) -> ReservationStatus:
    names, now = session.state.nodes.names, session.now
    state, reason, message = _words(session, one, staying)
    occupants = [
        {
            "pod": each.task.key,
            "node": names[each.task.row],
            **({} if math.isinf(each.until) else {"until": stamp(max(each.until, now))}),
        }
        for each in staying[:MOST_TOLD]
    ]
    window = one.current
    return ReservationStatus(
        one.name,
        one.uid,
        state,
        reason,
        message,
        stamp(window.start) if window is not None else str(one.sent.get("start", "")),
        stamp(window.end) if window is not None else str(one.sent.get("end", "")),
        sorted(names[row] for row in one.rows.tolist()),
        occupants,
        one.past,
    )


def _words(session: Session, one: NodeReservation, staying: list[Staying]) -> tuple[str, str, str]:
    """State, reason and message."""
    window = one.current
    if window is None:
        return ENDED, "WindowsPassed", f"its last window has closed; there were {one.past}"
    opened = one.is_open(session.now)
    if one.problem is not None:
        return one.problem.state, one.problem.reason, one.problem.message
    count = len(one.rows)
    nodes = f"{count} node{'' if count == 1 else 's'}"
    if not staying:
        if opened:
            return ACTIVE, "Open", f"{nodes} reserved until {stamp(window.end)}"
        return PENDING, "FreeByThen", f"{nodes}, free of others' pods when it opens"
    many = len(staying)
    pods = f"{many} pod{'' if many == 1 else 's'} of others"
    endless = sum(1 for each in staying if math.isinf(each.until))
    known = [each.until for each in staying if not math.isinf(each.until)]
    until = f"the last ends at {stamp(max(known))}" if known and not endless else ""
    if endless:
        until = f"{endless} of them without a walltime, {'so' if many == endless else 'and so'} with no known end"
    leaves = "evicted then" if one.evicts else "waited for"
    if opened:
        still = f"{pods} still run{'s' if many == 1 else ''} there"
        return ACTIVE, "Occupied", f"{nodes} reserved until {stamp(window.end)}; {still}: {until}"
    return DRAINING, "RunsIntoIt", f"{pods} may still run when it opens: {until}; {leaves}"


def _tell(session: Session, one: NodeReservation, status: ReservationStatus) -> None:
    if _says(one.sent, status):
        return
    told = one.sent.get("state"), one.sent.get("reason")
    one.sent = _tree(status)
    _decide(session, status, told != (status.state, status.reason))


def _decide(session: Session, status: ReservationStatus, news: bool = True) -> None:
    if session.decisions.reservations is msgspec.UNSET:
        session.decisions.reservations = []
    session.decisions.reservations.append(status)
    if news:
        bad = status.state not in (PENDING, DRAINING, ACTIVE, ENDED) or status.reason == "Occupied"
        session.decisions.events.append(
            Event(
                KIND,
                status.name,
                status.uid,
                "Warning" if bad else "Normal",
                status.state if status.reason != "Occupied" else status.reason,
                status.message,
            )
        )


def _tree(status: ReservationStatus) -> Json:
    """As the API server will have it."""
    return {
        field: getattr(status, field)
        for field in ("state", "reason", "message", "start", "end", "nodes", "occupants", "past")
    }


def _says(sent: Tree, status: ReservationStatus) -> bool:
    """Whether the status that the API server has says this already."""
    return all(
        (sent.get(field) or None) == (value or None) for field, value in _tree(status).items()
    )
