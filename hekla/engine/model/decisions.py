"""What a cycle decided, as data.  Whoever runs the engine carries it out; the engine itself does
nothing to the world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from hekla.api.trees import Json

if TYPE_CHECKING:
    from hekla.engine.model.explanations import Explanation

MOST_JOBS = 1000
"""Jobs that have series of their own in a metric: the newest."""


class Bind(msgspec.Struct, frozen=True):
    """Bind this pod to this node."""

    pod: str
    uid: str
    node: str
    job: str
    annotations: Mapping[str, str] = {}
    volumes: dict[str, str] = {}
    """Unbound claim -> volume to bind it to before; empty: to be provisioned for this node
    (annotation `selected-node`)."""
    claims: Json = {}
    """ResourceClaim -> the allocation that it must have, and be reserved for the pod, before."""
    implied: Json = {}
    """For extended resources that are devices: a claim to be made before, as `spec`, `allocation`
    and `mappings`."""


class Evict(msgspec.Struct, frozen=True):
    """Evict this pod.  `reason` is the action: preempt, reclaim, shuffle, gangpreempt, gangreclaim."""

    pod: str
    uid: str
    node: str
    job: str
    reason: str
    purpose: str = ""
    """For whom: the job that gets the room, its queue and priority.  Empty where nobody in
    particular does."""
    grace: int | msgspec.UnsetType = msgspec.UNSET
    """Seconds between SIGTERM and SIGKILL, where they are not the pod's own."""

    @property
    def text(self) -> str:
        """The reason with its purpose, as people are told it."""
        return f"{self.reason}: {self.purpose}" if self.purpose else self.reason


class EvictionNotice(msgspec.Struct, frozen=True):
    """Tell this pod that it will be evicted, or that it will not be."""

    pod: str
    uid: str
    job: str
    at: int
    """Seconds since 1970; 0 takes the notice back."""
    reason: str
    """The action, as of `Evict`."""
    claimant: str = ""
    """The job that gets the room."""
    purpose: str = ""


class Pipelined(msgspec.Struct, frozen=True):
    """This pod waits for room that is being freed on this node."""

    pod: str
    uid: str
    node: str
    job: str


class Freed(msgspec.Struct, frozen=True):
    """Take from a claim what it was given: its pod (by `uid`) cannot be where that is, and nobody
    else has it."""

    claim: str
    uid: str


class PodGroupStatus(msgspec.Struct, frozen=True):
    """The status that a PodGroup should have now; made only where it differs from what the API
    holds."""

    key: str
    uid: str
    phase: str
    running: int
    succeeded: int
    failed: int
    conditions: list[Json]
    """Complete, in API form, transition times left for the writer."""


class PodCondition(msgspec.Struct, frozen=True):
    """PodScheduled=False on a pod; made only where it differs from what the pod says."""

    pod: str
    uid: str
    reason: str
    message: str
    nominated_node: str


class Event(msgspec.Struct, frozen=True):
    """An event on an object of the batch kinds (PodGroup) or on a pod."""

    kind: str
    key: str
    uid: str
    type: str
    reason: str
    message: str


class QueueStatus(msgspec.Struct, frozen=True):
    """What a queue's jobs hold; made only where it differs."""

    name: str
    allocated: dict[str, str]
    gone: list[str] = []
    """Resources that the API still names and that nobody holds any more."""


class ShardStatus(msgspec.Struct, frozen=True):
    """What a NodeShard's status should say; made only where it says something else."""

    name: str
    uid: str
    in_use: list[str]
    to_add: list[str]
    to_remove: list[str]


class ReservationStatus(msgspec.Struct, frozen=True):
    """What a Reservation's status should say; made only where it says something else."""

    name: str
    uid: str
    state: str
    reason: str
    message: str
    start: str = ""
    """When its window opens or has opened, as RFC 3339; "" without one."""
    end: str = ""
    nodes: list[str] = []
    occupants: list[Json] = []
    """In API form."""
    past: int = 0


class Decisions(msgspec.Struct):
    """All of one cycle, in the order in which it was decided."""

    binds: list[Bind] = []
    evictions: list[Evict] = []
    pipelined: list[Pipelined] = []
    pod_groups: list[PodGroupStatus] = []
    conditions: list[PodCondition] = []
    queues: list[QueueStatus] = []
    shards: list[ShardStatus] = []
    events: list[Event] = []
    freed: list[Freed] = []
    gates: list[str] = []
    """Pods whose queue gate is to be lifted."""
    explanations: dict[str, Explanation] = {}
    """Job key -> why it waits."""
    notices: list[EvictionNotice] | msgspec.UnsetType = msgspec.UNSET
    """Unset where there are none, so that recordings made before there were any stay the same."""
    reservations: list[ReservationStatus] | msgspec.UnsetType = msgspec.UNSET
    """Unset where there are none, as the notices are."""
    metrics: list[tuple[str, tuple[tuple[str, str], ...], float]] = []
    """Gauges and counters that plugins set: name, labels, value."""
    problems: list[str] = []
    """What went wrong inside a plugin, and whose fault it was."""

    @property
    def empty(self) -> bool:
        """Nothing to be carried out."""
        written = self.pod_groups or self.conditions or self.queues or self.gates or self.freed
        return not (self.binds or self.evictions or written)

    def nodes_of(self, job: str) -> set[str]:
        """The nodes that a job's pods were bound to; the job by key or by name alone."""
        return {
            bind.node
            for bind in self.binds
            if bind.job == job or bind.job.rpartition("/")[2] == job
        }

    def bound(self) -> dict[str, str]:
        """Pod key -> node."""
        return {bind.pod: bind.node for bind in self.binds}
