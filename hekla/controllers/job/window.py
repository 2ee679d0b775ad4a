"""Which of a job's pods are created now, and which when there is room (decision 0330).

A job of an ordinary size gets every pod that it lacks.  A larger one gets the pods of its minimum,
and of the others so many that at most `WAITING` of them are pending.  No list of all replicas is
made: the cost depends on the pods that exist and those to be created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hekla.api import batch
from hekla.api.sizes import ORDINARY, WAITING
from hekla.controllers.job.counts import PENDING
from hekla.controllers.job.podgroup import taken_by_minimum
from hekla.controllers.records import Pod

Places = dict[str, dict[int, Pod]]
"""Pods by task and index."""


@dataclass(slots=True)
class Missing:
    """The pods to create now, and by task how many have to wait until there is room."""

    create: list[tuple[batch.TaskSpec, int]] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)


def replicas_of(job: batch.Job) -> int:
    return sum(task.replicas for task in job.spec.tasks)


def placed(job: batch.Job, pods: Mapping[str, Pod]) -> tuple[Places, list[Pod]]:
    """The pods that the spec asks for, and those that it does not."""
    tasks = {f"{job.metadata.name}-{task.name}": task for task in job.spec.tasks}
    places: Places = {}
    beyond = []
    for name, pod in pods.items():
        prefix, _, number = name.rpartition("-")
        task, index = tasks.get(prefix), _index(number)
        if task is None or not 0 <= index < task.replicas:
            beyond.append(pod)
        else:
            places.setdefault(task.name, {})[index] = pod
    return places, beyond


def _index(text: str) -> int:
    """The index that a pod's name ends in; -1 for what is none."""
    if not (text.isascii() and text.isdigit()) or (text[0] == "0" and text != "0"):
        return -1
    return int(text)


def missing(job: batch.Job, tasks: Iterable[batch.TaskSpec], places: Places) -> Missing:
    """The pods that these tasks lack.  `places` holds the existing pods of all tasks, those that
    are being deleted included."""
    if replicas_of(job) <= ORDINARY:
        return Missing([(task, index) for task in tasks for index in _free(task, 0, places)])
    minimum = dict(
        zip(
            (task.name for task in job.spec.tasks),
            taken_by_minimum(job.spec.tasks, job.spec.min_available),
            strict=True,
        )
    )
    found = Missing()
    wanting: list[tuple[int, batch.TaskSpec]] = []
    for task in tasks:
        there, least = places.get(task.name, {}), minimum[task.name]
        needed = [(task, index) for index in _free(task, 0, places, end=least)]
        found.create += needed
        lacking = task.replicas - len(there) - len(needed)
        if lacking:
            wanting.append((lacking, task))
    room = WAITING - sum(
        _waits(pod)
        for name, there in places.items()
        for index, pod in there.items()
        if index >= minimum[name]
    )
    # Those that lack least come first, so that what they leave of their share is for the others.
    wanting.sort(key=lambda pair: pair[0])
    for position, (lacking, task) in enumerate(wanting):
        share = min(lacking, -(-max(0, room) // (len(wanting) - position)))
        room -= share
        found.create += [
            (task, index) for index in islice(_free(task, minimum[task.name], places), share)
        ]
        if lacking > share:
            found.held[task.name] = lacking - share
    return found


def _free(
    task: batch.TaskSpec, start: int, places: Places, end: int | None = None
) -> Iterator[int]:
    there = places.get(task.name, {})
    return (
        index for index in range(start, task.replicas if end is None else end) if index not in there
    )


def _waits(pod: Pod) -> bool:
    return pod.status.phase == PENDING and not pod.leaving
