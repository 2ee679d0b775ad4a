"""What becomes of a workload: its jobs, its pods, and what happened to them in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hekla.api.trees import Tree
from hekla.simulator.progress import Progress
from hekla.simulator.workload import GivenPod, Role, SimulatedJob


@dataclass(slots=True)
class JobRun:
    """What became of a job.  Times in microseconds since the beginning."""

    job: SimulatedJob
    started: int | None = None
    """When its minimum first ran."""
    ended: int | None = None
    evictions: int = 0
    running: int = 0
    left: int = 0
    """Pods that have not ended."""
    progress: Progress | None = None
    """Of work that the job does as a whole."""
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    """(Role, node) -> pods that run, of a job with roles or work."""
    to_come: list[Role] = field(default_factory=list)
    """Roles that come once another runs."""

    def running_of(self, role: str) -> int:
        return sum(count for (name, _), count in self.places.items() if name == role)


@dataclass(slots=True)
class PodRun:
    """A pod that there is."""

    run: JobRun
    tree: Tree
    """As it came."""
    duration: int | None
    bound: Tree | None = None
    """As it runs, where it was bound here."""
    role: str = ""
    since: int | None = None
    """Since when it runs in this simulation."""
    node: str = ""
    request: Mapping[str, float] = field(default_factory=dict)
    given: GivenPod | None = None
    """What was said of it, where it came as it was given."""

    @property
    def uid(self) -> str:
        return str(self.tree["metadata"].get("uid", ""))


class Act(NamedTuple):
    """Something that became of a pod."""

    moment: int
    what: str
    """`ran` (it was bound before the beginning), `bind`, `evict`, `end` or `gone` (its owner took it
    away)."""
    run: JobRun
    pod: str
    node: str
    request: Mapping[str, float]
    """What it holds, in the engine's units."""


@dataclass(slots=True)
class Run:
    """What became of a workload under one policy."""

    jobs: list[JobRun]
    until: int = 0
    """The last moment that was looked at."""
    cycles: int = 0
    nodes: int = 0
    """How many there were at the beginning."""
    capacity: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    """Resource -> what was held, times the seconds that it was."""
    problems: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    """What jobs and queues ask for and the policy does not answer, or cannot be read."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Of jobs that have come and not started, why not, by key."""
    acts: list[Act] = field(default_factory=list)
    """In the order in which they came."""
    by_key: dict[str, JobRun] = field(default_factory=dict)
    """PodGroup (namespace/name) -> what became of its job, also of pods that others schedule."""
