"""Why pods do not fit: counts a reason, with the node masks behind them.  Reference: scheduler-core 4.6."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hekla.engine.nodes import Bools
from hekla.engine.resources import Floats
from hekla.engine.tasks import PREEMPTABLE, Job, Status, Task, is_allocated

if TYPE_CHECKING:
    from hekla.engine.nodes import NodeTable

__all__ = ["PREEMPTABLE", "UNSCORED", "FitErrors", "Reason", "job_text", "scheduling_reason"]


UNSCORED = "no node was chosen, because a plugin whose scores are needed could not give them"


@dataclass(slots=True)
class Reason:
    """One reason and the nodes that it holds for."""

    text: str
    count: int
    mask: Bools | None = None
    filter: str = ""
    free: Floats | None = None
    """For a lack of room: what each node had of the resource."""


@dataclass(slots=True)
class FitErrors:
    """Why one task (or all of its class) found no node."""

    nodes: int
    reasons: list[Reason] = field(default_factory=list)
    base: str = ""
    hyper_node: str = ""
    unresolvable: Bools | None = None
    """Nodes where no eviction could help."""

    @property
    def text(self) -> str:
        base = self.base or f"0/{self.nodes} nodes are unavailable"
        if self.reasons:
            counts: dict[str, int] = {}
            for reason in self.reasons:
                counts[reason.text] = counts.get(reason.text, 0) + reason.count
            base += ": " + ", ".join(sorted(f"{count} {text}" for text, count in counts.items())) + "."
        return f"In hyperNode {self.hyper_node}: {base}" if self.hyper_node else base


def scheduling_reason(task: Task, nodes: NodeTable, job_text: str) -> tuple[str, str, str]:
    """Reason, message and nominated node for the condition of a pod that was not bound."""
    status, row, evicted_for = task.last or (task.status, task.row, task.evicted_for)
    if status is Status.ALLOCATED:
        node = nodes.names[row]
        return "Schedulable", f"Pod {task.key} can possibly be assigned to {node}, once minAvailable is satisfied", ""
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
    entries = [f"{len(tasks)} {status.value}" for status, tasks in job.counts.statuses.items() if tasks]
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
        text += "; Pending: " + ", ".join(sorted(f"{count} {name}" for name, count in reasons.items()))
    if job.fit_message:
        return text + f". Origin reason is: {job.fit_message}"
    for key in sorted(job.fit_errors):
        task_of = job.tasks.get(key)
        if task_of is not None:
            return text + f". Origin reason is {task_of.name}: {job.fit_errors[key].text}"
    return text


def last_allocated(job: Job) -> int:
    """How many pending tasks a discarded statement had already given a place."""
    return sum(1 for task in job.counts.statuses[Status.PENDING].values() if task.last is not None and is_allocated(task.last[0]))
