"""The names by which the pods of a job find each other: `<hostname>.<subdomain>` (reference:
controllers 3.1)."""

from __future__ import annotations

from hekla.api import batch
from hekla.controllers.job.plugins.plugin import PluginError

MOST_TEXT = 1024 * 1024
"""Bytes of a text that names every pod of a job: a ConfigMap and a Secret hold no more, and no
program starts with such a variable."""


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
    check_length(
        letters(task, len(host(job, task, "")) + 1), task.replicas, "the list of its hosts"
    )
    tail = domain(job, task)
    return [f"{job}-{task.name}-{index}.{tail}" for index in range(task.replicas)]


def letters(task: batch.TaskSpec, fixed: int) -> int:
    """The length of a text that has so many letters and the index, for each replica of a task."""
    digits, width, first = 0, 1, 0
    while first < task.replicas:
        beyond = min(task.replicas, 10**width)
        digits += width * (beyond - first)
        first, width = beyond, width + 1
    return digits + fixed * task.replicas


def check_length(length: int, replicas: int, what: str) -> None:
    """Check that an object can hold a text, before the text is made.  Raises PluginError."""
    if length > MOST_TEXT:
        raise PluginError(
            f"{what} would have {length} bytes for {replicas} pods; an object holds {MOST_TEXT}"
        )


def task_named(job: batch.Job, name: str) -> batch.TaskSpec | None:
    return next((task for task in job.spec.tasks if task.name == name), None)
