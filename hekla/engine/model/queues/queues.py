"""Queues and what is summed up over their jobs.  Reference: scheduler-core 2.12, plugins-fairness
0.5, 5.1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from hekla.api.trees import Json
from hekla.engine.model.resources import Amounts, add, empty, subtract

ROOT = "root"
OPEN = "Open"


@dataclass(slots=True)
class Contribution:
    """What one job adds to the sums of its queue, as last counted."""

    queue: str
    allocated: Amounts
    request: Amounts
    inqueue: Amounts
    elastic: Amounts
    reserved: Amounts
    """What the overcommit plugin counts as promised to the job."""


@dataclass(slots=True)
class Queue:
    """One Queue object."""

    name: str
    weight: int = 1
    priority: int = 0
    parent: str = ""
    reclaimable: bool = True
    state: str = OPEN
    creation: float = 0.0
    uid: str = ""
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    quota: dict[str, Json] = field(default_factory=dict)
    """The resource lists as written (capability, deserved, guarantee), for plugins that read names
    of their own there."""
    affinity: Json | None = None
    """Groups of nodes, as written."""
    allocated: Amounts = field(default_factory=empty)
    request: Amounts = field(default_factory=empty)
    inqueue: Amounts = field(default_factory=empty)
    elastic: Amounts = field(default_factory=empty)
    jobs: int = 0
    """How many session jobs it owns."""
    version: int = 0
    """Counts up with each change of these sums."""
    status_sent: dict[str, str] | None = None
    reported: int = -1
    """The version of its sums of which its status speaks."""
    claimed: bool = False
    """Whether that spoke of devices, too, which are counted apart."""
    written: tuple[Amounts, dict[str, str]] | None = None
    """What it held when that was last written as the API has it, and the text."""

    def __hash__(self) -> int:
        return hash(self.name)


class Holder(Protocol):
    """A queue, or what a plugin follows of one within a cycle."""

    allocated: Amounts
    inqueue: Amounts
    elastic: Amounts


def held_by_queue(queue: Holder, entering: bool) -> Amounts:
    """What counts against a queue: for a pod what its pods hold, for a job that is to be let in
    also what is promised."""
    held = dict(queue.allocated)
    if entering:
        add(held, queue.inqueue)
        subtract(held, queue.elastic)
    return held
