"""What a simulation is given: jobs with the time that they take, and the objects of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hekla.api.trees import Tree

NAMESPACE = "simulated"
MICROSECONDS = 1_000_000
"""Times are whole microseconds, which is what timestamps of the API can say."""


class InputError(ValueError):
    """An input cannot be used.  The text names file, line or field, value, and what would be right."""

    @classmethod
    def at(cls, name: str, line: int, problem: str) -> InputError:
        return cls(f"{name}:{line}: {problem}")


@dataclass(slots=True)
class SimulatedJob:
    """One job: pods of one template, and what each of them does once it runs."""

    name: str
    submit: int
    """Microseconds since the beginning."""
    duration: int
    """Microseconds that each pod runs."""
    requests: Mapping[str, str]
    pods: int = 1
    min_available: int = 1
    walltime: int | None = None
    """Microseconds that it says it needs at most; None where it says nothing."""
    queue: str = "default"
    priority_class: str = ""
    template: Mapping[str, Tree] = field(default_factory=dict)
    """Further fields of the pods: `labels`, `annotations` and `spec`."""
    processors: float = 0.0
    """The size that a report names; of all its pods together."""


@dataclass(slots=True)
class Workload:
    """Jobs, and the machine that they were recorded on where the input says it."""

    jobs: list[SimulatedJob]
    cluster: list[Tree] = field(default_factory=list)
    """Nodes, queues and other objects, as the API has them."""
    notes: list[str] = field(default_factory=list)
    """What of the input was left out, for people."""


def microseconds(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


def node(
    name: str, allocatable: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> Tree:
    """A Node of this size."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": dict(allocatable)},
    }


def queue(name: str, order: str = "", spec: Tree | None = None) -> Tree:
    """An open Queue.  `order`: that of its jobs (annotation `hekla.io/job-order`)."""
    return {
        "kind": "Queue",
        "metadata": {"name": name, "annotations": {"hekla.io/job-order": order} if order else {}},
        "spec": {"weight": 1, **(spec or {})},
        "status": {"state": "Open"},
    }


def checked(workload: Workload, name: str) -> Workload:
    """The workload, if it can be simulated at all.  Raises InputError."""
    if not workload.jobs:
        raise InputError(f"{name}: no job is in it")
    seen: set[str] = set()
    for job in workload.jobs:
        if job.name in seen:
            raise InputError(f'{name}: job "{job.name}" stands twice; names are given once')
        seen.add(job.name)
    return workload


def of_kind(objects: Sequence[Tree], kind: str) -> list[Tree]:
    return [one for one in objects if one.get("kind") == kind]
