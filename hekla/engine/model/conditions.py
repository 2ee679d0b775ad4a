"""Conditions of PodGroups, as they stand on a job."""

from __future__ import annotations

from hekla.engine.model.tasks import Job

UNSCHEDULABLE = "Unschedulable"


def set_condition(job: Job, session_uid: str, kind: str, reason: str, message: str) -> None:
    """Write a PodGroup condition, in place of the first of its type."""
    made = {
        "type": kind,
        "status": "True",
        "transitionID": session_uid,
        "reason": reason,
        "message": message,
    }
    for at, one in enumerate(job.conditions):
        if one.get("type") == kind:
            job.conditions[at] = made
            return
    job.conditions.append(made)


def drop_condition(job: Job, kind: str) -> None:
    """Take a PodGroup condition away, where it is there: what it said is true no longer."""
    if any(one.get("type") == kind for one in job.conditions):
        job.conditions = [one for one in job.conditions if one.get("type") != kind]
