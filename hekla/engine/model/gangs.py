"""What a gang needs of its pods."""

from __future__ import annotations

from hekla.engine.model.tasks import Job, Task


def breaks_gang(task: Task, job: Job) -> bool:
    """Whether the job needs this pod, as it stands, to have its minimum: of all pods, of the pod's
    role, or of sub-groups."""
    if job.counts.ready <= job.min_available:
        return True
    least = job.role_minimums.get(task.role, 0)
    if job.min_available >= job.role_total and least and job.role_count(task.role) <= least:
        return True
    part = task.subjob
    wanted = job.min_sub_jobs.get(part.group, 0) if part is not None else 0
    if part is None or not wanted or not part.is_ready() or part.counts.ready > part.min_available:
        return False
    ready = sum(1 for one in job.sub_jobs.values() if one.group == part.group and one.is_ready())
    return ready <= wanted
