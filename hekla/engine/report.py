"""The end of a cycle: what PodGroups, pods and queues should say now, where it differs from what
they say.

Reference: scheduler-core 2.17 to 2.19.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hekla.api.names import IGNORED, QUEUE_LIMITED, WAITING
from hekla.api.trees import Json
from hekla.engine.explain.explanation import explain
from hekla.engine.explain.orphaned_jobs import report_orphaned_jobs
from hekla.engine.explain.queuelimits import QueueLimit
from hekla.engine.explain.unanswered import Unanswered, report_unanswered
from hekla.engine.explain.upstream_texts import job_text, scheduling_reason
from hekla.engine.framework.joborder import report_unknown_orders
from hekla.engine.model.conditions import UNSCHEDULABLE, drop_condition, set_condition
from hekla.engine.model.decisions import Event, Pipelined, PodCondition, PodGroupStatus, QueueStatus
from hekla.engine.model.explanations import Explanation
from hekla.engine.model.queues import devicequota
from hekla.engine.model.queues.devicequota import Claimed
from hekla.engine.model.queues.queues import ROOT, Queue
from hekla.engine.model.resources import Amounts, add, empty, present, quantities
from hekla.engine.model.tasks import Job, SentStatus, Status, Task

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


WORDS_PERIOD = 10.0
"""Seconds between two writes of a PodGroup of which only the numbers in its explanation changed."""
COUNT_PERIOD = 1.0
"""Seconds between two writes of a PodGroup of which only the counts changed."""
_WAITING = ("Unknown", "Pending", "Inqueue")


def report(session: Session) -> None:
    """Fill the session's decisions with statuses, conditions, events and explanations."""
    state = session.state
    jobs = session.changed_jobs(resting=True)
    state.unreported.clear()
    for job in jobs:
        if session.rests(job):
            state.unreported[job.key] = job
        elif session.in_session(job):
            _report_job(session, job)
    if state.job_table.orphaned:
        report_orphaned_jobs(session)


def phase_of(job: Job, session_uid: str) -> str:
    """The phase that a PodGroup has after a cycle.  Reference: scheduler-core 2.18."""
    statuses = job.counts.statuses
    running = len(statuses[Status.RUNNING])
    if running and any(
        one.get("type") == UNSCHEDULABLE
        and one.get("status") == "True"
        and one.get("transitionID") == session_uid
        for one in job.conditions
    ):
        return "Unknown"
    ended = len(statuses[Status.FAILED]) + len(statuses[Status.SUCCEEDED])
    scheduled = running + len(statuses[Status.BOUND]) + ended
    leaving = statuses[Status.RELEASING]
    if leaving:
        scheduled += sum(1 for task in leaving.values() if task.row >= 0)
    if scheduled >= job.min_available:
        return "Completed" if scheduled == ended else "Running"
    return "Inqueue" if job.phase == "Inqueue" else "Pending"


def _report_job(session: Session, job: Job) -> None:
    statuses = job.counts.statuses
    explained: Explanation | None = None
    # No pods yet, so gang has said nothing; the group must still say why it waits.
    if not job.tasks and job.is_pending:
        explained = explain(session, job)
        set_condition(job, session.uid, UNSCHEDULABLE, "NotEnoughResources", explained.text)
    before, job.phase = job.phase, phase_of(job, session.uid)
    if job.phase not in _WAITING and job.is_ready():
        drop_condition(job, UNSCHEDULABLE)
    if job.phase != before:
        session.state.job_table.dirty[job.key] = (
            job  # What is promised to a job depends on its phase.
        )
    text: str | None = None
    wrote = False
    allocated = statuses[Status.ALLOCATED]
    pending = statuses[Status.PENDING]
    promised = statuses[Status.PIPELINED]
    waiting = (
        [*allocated.values(), *pending.values(), *promised.values()]
        if allocated or pending or promised
        else []
    )
    podless = not job.tasks and job.min_available > 0 and job.phase in _WAITING
    if explained is None or job.phase != before:
        explained = explain(session, job) if waiting or job.is_pending or podless else None
    if explained is not None:
        session.decisions.explanations[job.key] = explained
    _tell_ignored(session, job)
    if not job.shadow:
        if explained is not None and (job.phase in _WAITING or pending):
            reason = explained.constraint.capitalize()
            set_condition(job, session.uid, WAITING, reason, explained.text)
        else:
            drop_condition(job, WAITING)
        sent = (
            job.phase,
            len(statuses[Status.RUNNING]),
            len(statuses[Status.SUCCEEDED]),
            len(statuses[Status.FAILED]),
            tuple(
                [
                    (
                        one.get("type", ""),
                        one.get("status", ""),
                        one.get("reason", ""),
                        one.get("message", ""),
                    )
                    for one in job.conditions
                ]
            ),
        )
        if sent != job.status_sent:
            patience = _patience(sent, job.status_sent)
            wrote = session.now - job.status_time >= patience
            if not wrote:
                session.state.unreported[job.key] = job  # Comes again when it is due.
                job.rests_until = job.status_time + patience
        if wrote:
            job.status_sent, job.status_time = sent, session.now
            conditions: list[Json] = [dict(one) for one in job.conditions]
            session.decisions.pod_groups.append(
                PodGroupStatus(job.key, job.pg_uid, *sent[:4], conditions)
            )
            if explained is not None and (job.phase in _WAITING or pending):
                session.event(job, "Warning", WAITING, explained.text)
    if job.phase in _WAITING and (waiting or not job.tasks):
        text = job_text(job)
        message = f"{len(pending)}/{len(job.tasks)} tasks in gang unschedulable: {text}"
        if message != job.last_event and not job.shadow:
            job.last_event = message
            session.event(job, "Warning", UNSCHEDULABLE, message)
    elif wrote and job.phase not in _WAITING:
        job.last_event = ""
        if len(job.tasks) > 1:  # The event of a single pod says the same.
            session.event(job, "Normal", "Scheduled", "pod group is ready")
    for task in promised.values():
        node = session.state.nodes.names[task.row]
        session.decisions.pipelined.append(Pipelined(task.key, task.uid, node, job.key))
    if waiting:
        _report_tasks(session, job, waiting, text)
    elif (
        explained is not None
        and not job.is_pending
        and (job.key in session.order.own.behind or job.key in session.no_victim)
    ):
        # Words of this cycle alone, about a job that has nothing to decide in the next.
        session.state.unreported[job.key] = job
        job.rests_until = -math.inf


def _tell_ignored(session: Session, job: Job) -> None:
    """What the job asks for and the policy does not answer, as a condition of its PodGroup and,
    once, an event."""
    text = session.hooks.part(Unanswered).of_job(job)
    if not text and job.shadow:
        return
    known = next((one for one in job.conditions if one.get("type") == IGNORED), None)
    if text == ("" if known is None else known.get("message", "")):
        return
    if not text:
        drop_condition(job, IGNORED)
        return
    set_condition(job, session.uid, IGNORED, "NoPlugin", text)
    if not job.shadow:
        session.event(job, "Warning", IGNORED, text)
        return
    for task in job.tasks.values():
        session.decisions.events.append(Event("Pod", task.key, task.uid, "Warning", IGNORED, text))


def _patience(now: SentStatus, before: SentStatus | None) -> float:
    """Seconds that must have passed since the last write: none, unless only counts or the
    explanation's words differ."""
    if before is None or now[0] != before[0]:
        return -math.inf
    if now[4] == before[4]:
        return COUNT_PERIOD
    same = [(one[:3], "" if one[0] == WAITING else one[3]) for one in now[4]] == [
        (one[:3], "" if one[0] == WAITING else one[3]) for one in before[4]
    ]
    return WORDS_PERIOD if same else -math.inf


def _report_tasks(session: Session, job: Job, tasks: list[Task], text: str | None) -> None:
    nodes = session.state.nodes
    if text is None:
        text = job_text(job)
    limit = QueueLimit(session, job)
    for task in tasks:
        if task.gated:
            continue
        reason, message, nominated = scheduling_reason(task, nodes, text)
        if reason == UNSCHEDULABLE and (limited := limit.keeps_out(task)):
            reason, message = QUEUE_LIMITED, limited
        message = message or text or "all nodes are unavailable"
        known = task.condition
        if known is not None and known[:2] == (reason, message) and nominated in ("", known[2]):
            continue
        task.condition = (reason, message, nominated or (known[2] if known is not None else ""))
        session.decisions.conditions.append(
            PodCondition(task.key, task.uid, reason, message, nominated)
        )
        session.decisions.events.append(
            Event("Pod", task.key, task.uid, "Warning", "FailedScheduling", message)
        )


def report_queues(session: Session) -> None:
    """What each queue holds, once the cycle's changes are counted."""
    queues = session.state.queues
    report_unknown_orders(session)
    report_unanswered(session)
    if not queues:
        return
    claims = devicequota.held_by_queue(session.state)
    if ROOT in queues:
        own = _with_descendants(queues)
        claims = _claims_with_descendants(queues, claims)
    else:
        own = {
            name: queue.allocated
            for name, queue in queues.items()
            if queue.reported != queue.version or claims or queue.claimed
        }
    for name, allocated in own.items():
        queue = queues[name]
        written = _written(queue, present(allocated))
        queue.reported, queue.claimed = queue.version, name in claims
        if name in claims:
            written = written | devicequota.written(devicequota.total(claims[name]))
        if _same(written, queue.status_sent):
            continue
        gone = [key for key in queue.status_sent or () if key not in written]
        queue.status_sent = written
        session.decisions.queues.append(QueueStatus(name, written, gone))


def _written(queue: Queue, held: Amounts) -> dict[str, str]:
    """What is held as the API has it; made anew where it is not what it was."""
    if queue.written is None or queue.written[0] != held:
        queue.written = held, quantities(held)
    return queue.written[1]


def _with_descendants(queues: dict[str, Queue]) -> dict[str, Amounts]:
    total = {name: empty() for name in queues}
    for name, queue in queues.items():
        for above in _upwards(queues, name):
            add(total[above], queue.allocated)
    return total


def _claims_with_descendants(
    queues: dict[str, Queue], claims: dict[str, dict[str, Claimed]]
) -> dict[str, dict[str, Claimed]]:
    total: dict[str, dict[str, Claimed]] = {}
    for name, own in claims.items():
        for above in _upwards(queues, name):
            total.setdefault(above, {}).update(own)
    return total


def _upwards(queues: dict[str, Queue], name: str) -> Iterator[str]:
    """A queue and all above it; a circle of parents is gone round once."""
    seen: set[str] = set()
    while name in queues and name not in seen:
        seen.add(name)
        yield name
        name = "" if name == ROOT else queues[name].parent or ROOT


def _same(written: dict[str, str], sent: dict[str, str] | None) -> bool:
    if sent is None:
        return all(value == "0" for value in written.values())
    return written == sent or (not sent and all(value == "0" for value in written.values()))
