"""Jobs that no action looks at, because the queue or the PodGroup that they name does not exist:
they are told so."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from hekla.api.names import WAITING
from hekla.engine.model.decisions import Event, PodCondition, PodGroupStatus
from hekla.engine.model.explanations import Explanation
from hekla.engine.model.tasks import Job, Status

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

GRACE = 5.0
"""Seconds that a pod waits for its PodGroup without a word: who makes both need not make the group
first."""
NOT_PLACED = ("", "Pending", "Inqueue")


def report_orphaned_jobs(session: Session) -> None:
    """Tell each once; a change of it, of its pods or of its queue brings it back."""
    orphaned = session.state.job_table.orphaned
    for job in list(orphaned.values()):
        waiting = job.counts.statuses[Status.PENDING].values()
        if job.has_group:
            _tell_group(session, job)
        elif min((task.creation for task in waiting), default=session.now) + GRACE > session.now:
            continue
        text = _why(session, job)
        session.decisions.explanations[job.key] = Explanation(
            job.key, job.queue, "queue", max(job.min_available, 1), 0, 0, [], "", text
        )
        # None that an autoscaler takes for a lack of nodes.
        reason = "QueueNotFound" if job.has_group else "PodGroupNotFound"
        for task in waiting:
            known = task.condition
            if not task.gated and (known is None or known[:2] != (reason, text)):
                task.condition = (reason, text, "")
                session.decisions.conditions.append(
                    PodCondition(task.key, task.uid, reason, text, "")
                )
                session.decisions.events.append(
                    Event("Pod", task.key, task.uid, "Warning", "FailedScheduling", text)
                )
        del orphaned[job.key]


def _why(session: Session, job: Job) -> str:
    rejected = session.state.rejected
    if not job.has_group and (reason := rejected.get(("PodGroup", job.key))):
        return (
            f"PodGroup {job.name} is left out: {reason}. The pod is looked at once that is mended."
        )
    if job.has_group and (reason := rejected.get(("Queue", job.queue))):
        return f"{job.title} names queue {job.queue}, which is left out: {reason}. It is looked at once that is mended."
    if not job.has_group:
        return f"PodGroup {job.name} does not exist in namespace {job.namespace}. The pod is looked at once it does."
    near = difflib.get_close_matches(job.queue, session.state.queues, n=1, cutoff=0.6)
    guess = f'; did you mean "{near[0]}"?' if near else "."
    return f"{job.title} names queue {job.queue}, which does not exist{guess} It is looked at once there is such a queue."


def _tell_group(session: Session, job: Job) -> None:
    if job.phase not in NOT_PLACED:
        return  # it runs, whatever became of its queue
    text = _why(session, job)
    made = {
        "type": WAITING,
        "status": "True",
        "transitionID": session.uid,
        "reason": "Queue",
        "message": text,
    }
    known = next((one for one in job.conditions if one.get("type") == WAITING), None)
    if known is not None and known.get("message") == text:
        return
    job.conditions = [*(one for one in job.conditions if one is not known), made]
    conditions = [dict(one) for one in job.conditions]
    session.decisions.pod_groups.append(
        PodGroupStatus(job.key, job.pg_uid, job.phase or "Pending", 0, 0, 0, conditions)
    )
    session.event(job, "Warning", WAITING, text)
