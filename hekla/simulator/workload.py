"""What a simulation is given: jobs with the time that they take, and the objects of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hekla.api.trees import Tree
from hekla.simulator.network import Network
from hekla.simulator.work import Work

NAMESPACE = "simulated"
MICROSECONDS = 1_000_000
"""Times are whole microseconds, which is what timestamps of the API can say."""
BEGINNING = 1_000_000_000 * MICROSECONDS
"""The moment 0 of a simulation that names none, since 1970: an ordinary day, so that no time looks
absent."""


class InputError(ValueError):
    """An input cannot be used.  The text names file, line or field, value, and what would be right."""

    @classmethod
    def at(cls, name: str, line: int, problem: str) -> InputError:
        return cls(f"{name}:{line}: {problem}")


@dataclass(slots=True)
class Role:
    """Pods of one template (`volcano.sh/task-spec`)."""

    name: str
    pods: int
    requests: Mapping[str, str]
    template: Mapping[str, Tree] = field(default_factory=dict)
    after: str = ""
    """A role all of whose pods run before these come."""


class Step(NamedTuple):
    """What a scheduler was told of a pod that it had bound or evicted."""

    lag: int
    """Microseconds since that."""
    metadata: Tree
    status: Tree | None
    """None: it is gone."""


@dataclass(slots=True)
class Departure:
    """How a pod left that was evicted."""

    steps: list[Step]
    successor: GivenPod | None = None
    """What its controller made in its place; `moment` is counted from the eviction."""


@dataclass(slots=True)
class GivenPod:
    """A pod as the API has it.  With a node it runs from the beginning on."""

    tree: Tree
    duration: int | None
    """Microseconds that it runs, from its start; None where it never ends by itself."""
    moment: int | None = None
    """When it comes, in microseconds since the beginning; None: with its job."""
    after_admission: bool = False
    """Whether `moment` is counted from when the scheduler admits its job instead."""
    beginning: Sequence[Step] = ()
    """How it came to run once it was bound; without any it runs at once."""
    departure: Departure | None = None
    """None: once it is evicted it is gone, and its job makes it anew at once."""
    nominations: Mapping[str, int | None] = field(default_factory=dict)
    """Node that it was nominated to -> microseconds until the scheduler saw that written; None: it was
    bound before."""


@dataclass(slots=True)
class Call:
    """An object that came, changed or went, by the call of the engine's state."""

    moment: int
    name: str
    given: tuple[Any, ...]


@dataclass(slots=True)
class SimulatedJob:
    """One job: pods of one template, or pods as they were given, and what each does once it runs."""

    name: str
    submit: int
    """Microseconds since the beginning; jobs that were there before have less than 0."""
    duration: int | None
    """Microseconds that each pod runs; None where it never ends by itself."""
    requests: Mapping[str, str]
    pods: int = 1
    min_available: int = 1
    walltime: int | None = None
    """Microseconds that it says it needs at most; None where it says nothing."""
    user: str = ""
    """Whose it is; empty where the input does not say."""
    title: str = ""
    """What its user calls it, where that is not its name."""
    queue: str = "default"
    priority_class: str = ""
    template: Mapping[str, Tree] = field(default_factory=dict)
    """Further fields of the pods: `labels`, `annotations` and `spec`."""
    processors: float = 0.0
    """The size that a report names; of all its pods together."""
    namespace: str = NAMESPACE
    roles: Sequence[Role] = ()
    """Its pods where they are of several templates; `pods` is how many they are together."""
    work: Work | None = None
    """How the work goes on that the job does as a whole in `duration`; None: each pod runs so long."""
    overlay: Mapping[str, Tree] = field(default_factory=dict)
    """Further fields of its PodGroup: `labels`, `annotations` and `spec`."""
    group: Tree | None = None
    """Its PodGroup where the API has it.  None: it is made of what is said here."""
    given: Sequence[GivenPod] = ()
    """Its pods where the API has them, `pods` of them."""
    background: bool = False
    """It takes room, and counts in no figure: pods that others schedule."""

    @property
    def key(self) -> str:
        """Of its PodGroup: namespace/name."""
        return f"{self.namespace}/{self.name}"

    def templates(self) -> Sequence[Role]:
        """The templates of its pods; a nameless one where there are no roles."""
        return self.roles or (Role("", self.pods, self.requests, self.template),)


@dataclass(slots=True)
class Workload:
    """Jobs, and the machine that they were recorded on where the input says it."""

    jobs: list[SimulatedJob]
    cluster: list[Tree] = field(default_factory=list)
    """Nodes, queues and other objects, as the API has them."""
    notes: list[str] = field(default_factory=list)
    """What of the input was left out, for people."""
    beginning: int = BEGINNING
    """The moment 0, in microseconds since 1970."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the engine's `State`, where they are not the scheduler's defaults."""
    network: Network = field(default_factory=Network)
    calls: list[Call] = field(default_factory=list)
    """What happens to the cluster."""
    moments: Sequence[int] = ()
    """When the scheduler that was recorded had a cycle.  There is one at each, and while some are to
    come a cycle that decided something is not followed by another at once."""


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
    if all(job.background for job in workload.jobs):
        raise InputError(f"{name}: no job is in it")
    seen: set[str] = set()
    for job in workload.jobs:
        if job.key in seen:
            raise InputError(f'{name}: job "{job.name}" stands twice; names are given once')
        seen.add(job.key)
    return workload


def of_kind(objects: Sequence[Tree], kind: str) -> list[Tree]:
    return [one for one in objects if one.get("kind") == kind]
