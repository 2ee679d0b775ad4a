"""How long jobs say that they run: a limit that reservations count on, never a promise of ours.

A PodGroup, or the pods' template, names it by the annotation `hekla.io/walltime`; a pod's
`activeDeadlineSeconds` is a limit too.  What was learned from jobs like it (`Job.learned`) counts
where it is less, or where nothing is said; and a queue has a limit for jobs of which nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hekla.api.names import DEFAULT_WALLTIME, WALLTIME
from hekla.api.text.walltimes import FORM, read_walltime
from hekla.api.trees import Tree
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.tasks import Job, Task

ENDLESS = math.inf
SOON = 1e-6
"""Seconds by which two moments may differ and be the same."""


def stated_walltime(annotations: Mapping[str, str], name: str = WALLTIME) -> float | None:
    """What the annotation says; None where it says nothing that can be understood."""
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return read_walltime(text)
    except ValueError:
        return None


def problem_of(annotations: Mapping[str, str], name: str = WALLTIME) -> str:
    """What is wrong with the annotation, in words for whoever wrote it; empty where nothing is."""
    text = annotations.get(name)
    if text is None or stated_walltime(annotations, name) is not None:
        return ""
    return f'{name}: "{text}" is no walltime; {FORM}'


def pod_walltime(annotations: Mapping[str, str], spec: Tree) -> float | None:
    """The limit that a pod has by itself: what it says, or when it is ended, whatever is sooner."""
    stated = stated_walltime(annotations) if annotations else None
    deadline = spec.get("activeDeadlineSeconds")
    if not isinstance(deadline, int) or deadline <= 0:
        return stated
    return float(deadline) if stated is None else min(stated, float(deadline))


def walltime_of(task: Task, job: Job, queue: Queue | None) -> float:
    """Seconds that a task runs at most; `ENDLESS` where nobody says or knows."""
    if job.walltime is not None or task.walltime is not None or job.learned is not None:
        learned = None if job.learned is None else job.learned.seconds
        return min(one for one in (job.walltime, task.walltime, learned) if one is not None)
    default = None if queue is None else stated_walltime(queue.annotations, DEFAULT_WALLTIME)
    return ENDLESS if default is None else default


def job_walltime(job: Job, queue: Queue | None) -> float:
    """Seconds from its start until the last of its tasks has ended; `ENDLESS` where nobody says or
    knows."""
    lengths = [walltime_of(task, job, queue) for task in job.tasks.values()]
    return max(lengths) if lengths else ENDLESS
