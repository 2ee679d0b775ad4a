"""When the pods of a task may be created: `dependsOn` (reference: controllers 2.14).

Only creation waits.  A task whose dependencies are not ready is passed over in this look at the job, and the change of a pod
brings the next look; nothing blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from hekla.api import batch, names
from hekla.controllers.records import Pod

from .counts import RUNNING, SUCCEEDED
from .plugins.hosts import task_named


def ready(job: batch.Job, task: batch.TaskSpec, pods: Mapping[str, Pod]) -> bool:
    """Whether the tasks that this one waits for are up: one of them for `any`, else all."""
    if task.depends_on is None or not task.depends_on.name:
        return True
    answers = [_up(job, task_named(job, name), pods) for name in task.depends_on.name]
    if task.depends_on.iteration == "any" and len(answers) > 1:
        return any(answers)
    return all(answers)


def _up(job: batch.Job, task: batch.TaskSpec | None, pods: Mapping[str, Pod]) -> bool:
    if task is None:
        return False  # admission refuses such a name; whoever came round it waits, and the job says so by its pending pods
    if task.min_available is None:
        return True
    expected = (names.pod_name(job.metadata.name, task.name, index) for index in range(task.replicas))
    return sum(is_up(pods[name]) for name in expected if name in pods) >= task.min_available


def is_up(pod: Pod) -> bool:
    """Ended well, or running with every main container ready."""
    if pod.status.phase == SUCCEEDED:
        return True
    statuses = pod.status.container_statuses
    return pod.status.phase == RUNNING and not pod.leaving and all(status.ready for status in statuses)
