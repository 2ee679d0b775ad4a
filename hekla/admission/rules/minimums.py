"""Minimums that admission has filled in follow the replicas; those that somebody wrote stay
(decision 0188).

A filled-in minimum looks like a written one, so an annotation of the job says which were filled in.
It counts for as long as the minimum is what would be filled in: one that was changed since is
somebody's own.  A job of before the annotation, or of another admission, is taken at the word of
the manifest that `kubectl apply` keeps with it; one without either has written minimums.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.admission.review import Patch, Review, Tree, annotations_of, metadata_of, spec_of
from hekla.api.names import FILLED_MINIMUMS

THE_JOB = "*"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def filled_minimum(task: Tree) -> int:
    """The default minimum of a task."""
    partition = task.get("partitionPolicy") or {}
    least = partition.get("minPartitions") or 0
    return int(
        least * (partition.get("partitionSize") or 0) if least > 0 else task.get("replicas") or 0
    )


def unmarked(job: Tree) -> bool:
    """Whether a new job's metadata says nothing about which of its minimums are defaults."""
    annotations = annotations_of(job)
    return FILLED_MINIMUMS not in annotations and APPLIED not in annotations


def least_of(task: Tree) -> int:
    minimum = task.get("minAvailable")
    return int(task.get("replicas") or 0) if minimum is None else int(minimum)


class Minimums:
    """The minimums of one request: which were defaults before, and which are now."""

    def __init__(self, review: Review) -> None:
        self.object, self.old = review.object, review.old
        stored = self.old or self.object
        """A job that is made from another's manifest brings the word of that with it."""
        self.before = _stored_marks(stored)
        self.tasks: dict[str, Tree] = {
            task.get("name") or "": task for task in spec_of(stored).get("tasks") or []
        }
        self.stored = spec_of(stored)
        self.filled: list[str] = []

    def follow(self, task: dict[str, Any], given: Tree) -> dict[str, Any]:
        """The task with a minimum that follows its replicas, if the minimum was a default before."""
        name = task["name"]
        if given.get("minAvailable") is None:
            self.filled.append(name)
            return task
        known = self.tasks.get(name)
        if (
            known is None
            or name not in self.before
            or known.get("minAvailable") != filled_minimum(known)
        ):
            return task
        if task["minAvailable"] == known["minAvailable"]:
            self.filled.append(name)
            return {**task, "minAvailable": filled_minimum(task)}
        return task

    def follows_tasks(self, spec: Tree) -> bool:
        """Whether the job's own minimum was a default and is unchanged."""
        was = self.stored.get("minAvailable")
        if THE_JOB not in self.before or not was or was != spec.get("minAvailable"):
            return False
        return bool(was == sum(map(least_of, self.stored.get("tasks") or [])))

    def note(self) -> Patch:
        """The annotation to write, if it is not there yet."""
        text = ",".join(sorted(self.filled))
        annotations = annotations_of(self.object)
        if text == annotations.get(FILLED_MINIMUMS, ""):
            return []
        path = "/metadata/annotations/" + FILLED_MINIMUMS.replace("/", "~1")
        if annotations:
            return [{"op": "add", "path": path, "value": text}]
        if not metadata_of(self.object):
            return []  # nothing that a server would send
        return [{"op": "add", "path": "/metadata/annotations", "value": {FILLED_MINIMUMS: text}}]


def _stored_marks(job: Tree) -> frozenset[str]:
    annotations = annotations_of(job)
    if FILLED_MINIMUMS in annotations:
        return frozenset(annotations[FILLED_MINIMUMS].split(","))
    return _unsaid(annotations.get(APPLIED, ""))


def _unsaid(manifest: str) -> frozenset[str]:
    """The minimums that an applied manifest does not set."""
    if not manifest:
        return frozenset()
    try:
        spec = spec_of(msgspec.json.decode(manifest, type=dict[str, Any]))
        tasks = spec.get("tasks") or []
        unsaid = {
            task.get("name") or f"default{index}"
            for index, task in enumerate(tasks)
            if task.get("minAvailable") is None
        }
    except (msgspec.DecodeError, AttributeError, RecursionError):
        return frozenset()
    return frozenset(unsaid | ({THE_JOB} if not spec.get("minAvailable") else set()))
