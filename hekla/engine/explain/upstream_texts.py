"""Conditions of pods and jobs that wait, as upstream words them.  Reference: scheduler-core 4.6."""

from __future__ import annotations

from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.tasks import Job, Status, Task, is_allocated


def scheduling_reason(task: Task, nodes: NodeTable, job_text: str) -> tuple[str, str, str]:
    """Reason, message and nominated node for the condition of a pod that was not bound."""
    status, row, evicted_for = task.last or (task.status, task.row, task.evicted_for)
    if status is Status.ALLOCATED:
        node = nodes.names[row]
        return (
            "Schedulable",
            f"Pod {task.key} can possibly be assigned to {node}, once minAvailable is satisfied",
            "",
        )
    if status is Status.PIPELINED:
        node = nodes.names[row]
        message = f"Pod {task.key} can possibly be assigned to {node}, once resource is released and minAvailable is satisfied"
        return "Unschedulable", message, node if evicted_for else ""
    if status is Status.PENDING:
        errors = task.job.fit_errors.get(task.key) if task.job is not None else None
        return "Unschedulable", errors.text if errors is not None else job_text, ""
    return status.value, job_text, ""


def would_be(task: Task) -> Status:
    """The status that a task has, or had in the statement that was last discarded."""
    return task.last[0] if task.last is not None else task.status


def job_text(job: Job) -> str:
    """Why a job waits, as upstream words it."""
    entries = [
        f"{len(tasks)} {status.value}" for status, tasks in job.counts.statuses.items() if tasks
    ]
    entries.append(f"{job.min_available} minAvailable")
    text = "pod group is ready" if job.is_ready() else "pod group is not ready"
    text += ", " + ", ".join(sorted(entries))
    pending = job.counts.statuses[Status.PENDING]
    if pending:
        reasons: dict[str, int] = {}
        for task in pending.values():
            status = would_be(task)
            name = "Schedulable" if status is Status.ALLOCATED else "Unschedulable"
            if status not in (Status.ALLOCATED, Status.PIPELINED, Status.PENDING):
                name = status.value
            reasons[name] = reasons.get(name, 0) + 1
        text += "; Pending: " + ", ".join(
            sorted(f"{count} {name}" for name, count in reasons.items())
        )
    if job.fit_message:
        return text + f". Origin reason is: {job.fit_message}"
    for key in sorted(job.fit_errors):
        task_of = job.tasks.get(key)
        if task_of is not None:
            return text + f". Origin reason is {task_of.name}: {job.fit_errors[key].text}"
    return text


def last_allocated(job: Job) -> int:
    """How many pending tasks a discarded statement had already given a place."""
    return sum(
        1
        for task in job.counts.statuses[Status.PENDING].values()
        if task.last is not None and is_allocated(task.last[0])
    )
