"""The names by which the pods of a job find each other: `<hostname>.<subdomain>` (reference: controllers 3.1)."""

from __future__ import annotations

from hekla.api import batch


def pod_spec(task: batch.TaskSpec) -> dict[str, object]:
    """The pod spec of a task's template as the user wrote it."""
    spec = task.template.get("spec")
    return spec if isinstance(spec, dict) else {}


def hostname(job: str, task: batch.TaskSpec, index: int | str) -> str:
    return str(pod_spec(task).get("hostname") or f"{job}-{task.name}-{index}")


def domain(job: str, task: batch.TaskSpec) -> str:
    return str(pod_spec(task).get("subdomain") or job)


def host(job: str, task: batch.TaskSpec, index: int | str) -> str:
    return f"{hostname(job, task, index)}.{domain(job, task)}"


def hosts(job: str, task: batch.TaskSpec) -> list[str]:
    """One host a replica; a template that fixes the hostname has only one."""
    if pod_spec(task).get("hostname"):
        return [host(job, task, 0)] if task.replicas else []
    tail = domain(job, task)
    return [f"{job}-{task.name}-{index}.{tail}" for index in range(task.replicas)]


def task_named(job: batch.Job, name: str) -> batch.TaskSpec | None:
    return next((task for task in job.spec.tasks if task.name == name), None)
