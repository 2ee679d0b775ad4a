"""How large a job may be: a number of replicas is one word, and 2147483647 is as easily written as
2 (decision 0330).

The bounds are the cluster's own (`--max-job-pods`, `--max-job-tasks`).  A job that is stored
already keeps its size, so that whoever lowers a bound stops nobody's work; it may shrink, and not
grow.
"""

from __future__ import annotations

from hekla.admission.review import Review, Tree, spec_of


def replicas_of(spec: Tree) -> int:
    return sum(task.get("replicas") or 0 for task in spec.get("tasks") or [])


def problem(review: Review) -> str:
    """What is too large, with the field, its value and the bound; "" if nothing is."""
    spec, old, settings = spec_of(review.object), spec_of(review.old), review.settings
    tasks, pods = len(spec.get("tasks") or []), replicas_of(spec)
    if settings.max_job_tasks and tasks > max(settings.max_job_tasks, len(old.get("tasks") or [])):
        return _text("spec.tasks:", tasks, f"{settings.max_job_tasks} tasks", "max-job-tasks")
    if settings.max_job_pods and pods > max(settings.max_job_pods, replicas_of(old)):
        where = "spec.tasks[*].replicas: the sum" if tasks > 1 else "spec.tasks[0].replicas:"
        return _text(where, pods, f"{settings.max_job_pods} pods", "max-job-pods")
    return ""


def _text(where: str, value: int, bound: str, flag: str) -> str:
    return (
        f" {where} {value} is more than the {bound} that a job of this cluster may have (--{flag});"
    )
