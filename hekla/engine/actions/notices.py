"""What becomes of pods that were told when they will be evicted: a cycle begins with those that may
stay after all, and ends with those whose time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.api.text.times import stamp
from hekla.engine.model.decisions import Evict
from hekla.engine.model.evictions.notices import RESERVED_FOR, Notice
from hekla.engine.model.tasks import NOWHERE, PREEMPTABLE, Status, Task
from hekla.engine.model.time.durations import instant

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.state import State


def review_notices(session: Session) -> None:
    """Before the plugins look: adopt what another scheduler process has told pods, and let those
    stay whose room nobody waits for any more."""
    state = session.state
    notices = state.eviction_notices
    known = bool(session.hooks("eviction_notice"))
    for key, (uid, when, claimant) in list(notices.read.items()):
        if key not in notices.given and known:
            _adopt(state, key, uid, when, claimant)
    for key, notice in list(notices.given.items()):
        task = state.tasks.get(key)
        if (
            task is None
            or task.uid != notice.uid
            or task.status is not Status.RELEASING
            or task.terminating
        ):
            notices.given.pop(key)
        elif not known or not _awaited(state, notice):
            notices.take_back(key, stamp(notice.at))
            state.keep(task)
            state.version += 1
            session.tell(task, notice._replace(at=0))


def evict_on_notice(session: Session) -> None:
    """At the end, when it is known who still waits for room: evict those whose time has come."""
    state = session.state
    given = state.eviction_notices.given
    for key in [key for key, notice in given.items() if notice.at <= session.now]:
        notice, task = given[key], state.tasks.get(key)
        if task is None or not _awaited(state, notice):
            continue  # The next cycle lets it stay.
        del given[key]
        state.eviction_notices.read.pop(key, None)
        state.eviction_notices.taken_back[key] = notice.uid, stamp(notice.at)
        session.decisions.evictions.append(
            Evict(
                key,
                task.uid,
                state.nodes.names[task.row],
                task.job.key if task.job is not None else "",
                notice.reason,
                notice.purpose,
                session.votes.eviction_grace(task),
            )
        )


def _adopt(state: State, key: str, uid: str, when: str, claimant: str) -> None:
    task, at = state.tasks.get(key), instant(when)
    if task is None or task.uid != uid or task.status not in PREEMPTABLE or not at:
        return
    assert task.row != NOWHERE
    claiming = state.jobs.get(claimant)
    across = claiming is not None and task.job is not None and claiming.queue != task.job.queue
    reason = "reclaim" if across else "preempt"
    if claimant.startswith(RESERVED_FOR):
        reason = "reservation"
    state.eviction_notices.given[key] = Notice(uid, int(at), reason, "", claimant, ())
    state.nodes.change(task, task.row, task.status, Status.RELEASING)
    state.pods.set_status(task, Status.RELEASING)
    state.version += 1


def _awaited(state: State, notice: Notice) -> bool:
    """Whether somebody still waits for the room, or it is still reserved."""
    if not notice.claimant:
        return True
    if notice.claimant.startswith(RESERVED_FOR):
        return state.reservations.evicts(notice.claimant.removeprefix(RESERVED_FOR))
    if notice.pods:
        return any(
            _waits(task) for key in notice.pods if (task := state.tasks.get(key)) is not None
        )
    job = state.jobs.get(notice.claimant)
    return job is not None and any(_waits(task) for task in job.tasks.values())


def _waits(task: Task) -> bool:
    return task.status in (Status.PENDING, Status.PIPELINED)
