"""When the pods of a task may be created: `dependsOn` (reference: controllers 2.14).

Only creation waits.  A task whose dependencies are not ready is passed over in this reconcile, and
the change of a pod brings the next one; nothing blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from hekla.api import batch
from hekla.controllers.job.counts import RUNNING, SUCCEEDED
from hekla.controllers.job.window import Places
from hekla.controllers.records import Pod


def ready(tasks: Mapping[str, batch.TaskSpec], task: batch.TaskSpec, places: Places) -> bool:
    """Whether the tasks that this one depends on are up: one of them for `any`, else all."""
    if task.depends_on is None or not task.depends_on.name:
        return True
    answers = [_up(tasks.get(name), places) for name in task.depends_on.name]
    if task.depends_on.iteration == "any" and len(answers) > 1:
        return any(answers)
    return all(answers)


def _up(task: batch.TaskSpec | None, places: Places) -> bool:
    if task is None:
        # Admission refuses such a name; in a job that was not checked the task waits, which the
        # job shows by its pending pods.
        return False
    if task.min_available is None:
        return True
    return sum(map(is_up, places.get(task.name, {}).values())) >= task.min_available


def is_up(pod: Pod) -> bool:
    """Whether a pod has succeeded, or runs with every main container ready."""
    if pod.status.phase == SUCCEEDED:
        return True
    statuses = pod.status.container_statuses
    return (
        pod.status.phase == RUNNING and not pod.leaving and all(status.ready for status in statuses)
    )
