"""PodGroups, which are scheduled together, and queues, which share the cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from hekla.api.kinds import Column, kind_of
from hekla.api.meta import LabelSelector, Object, Struct, always
from hekla.api.schema import Atomic, Count, Int32, ResourceList, Rule, Subdomain, Time

API_VERSION = "scheduling.volcano.sh/v1beta1"


class NetworkTopologyMode(StrEnum):
    HARD = "hard"
    SOFT = "soft"


class PodGroupPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    INQUEUE = "Inqueue"
    COMPLETED = "Completed"


class QueueState(StrEnum):
    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


class DequeueStrategy(StrEnum):
    FIFO = "fifo"
    TRAVERSE = "traverse"


class NetworkTopology(Struct):
    """How far apart in the network the pods of one group may land.  The two limits exclude each
    other."""

    mode: Annotated[str, Rule(default="hard", enum=tuple(NetworkTopologyMode))] = ""
    highest_tier_allowed: Annotated[int | None, Rule(minimum=0)] = None
    highest_tier_name: Annotated[str, Rule(max_length=253)] = ""


class SubGroupPolicy(Struct):
    """How the pods of a group form smaller gangs: pods with equal values of `match_label_keys`
    belong together."""

    name: Annotated[str, Rule(max_length=253)] = ""
    network_topology: NetworkTopology | None = None
    sub_group_size: Annotated[int | None, Rule(format="int32", default=1, minimum=1)] = None
    min_sub_groups: Annotated[int | None, Rule(format="int32", default=0, minimum=0)] = None
    label_selector: LabelSelector | None = None
    match_label_keys: Atomic[list[str]] = []


class PodGroupSpec(Struct):
    min_member: Count = 0
    min_task_member: dict[str, Int32] = {}
    queue: Annotated[Subdomain, Rule(default="default")] = ""
    priority_class_name: Annotated[str, Rule(max_length=253)] = ""
    min_resources: ResourceList = {}
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[SubGroupPolicy] = []


class PodGroupCondition(Struct):
    type: str = ""
    status: str = ""
    transition_id: str = ""
    """The scheduling session that wrote the condition."""
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


class PodGroupStatus(Struct):
    phase: Annotated[str, Rule(enum=tuple(PodGroupPhase))] = ""
    conditions: list[PodGroupCondition] = []
    running: Count = 0
    succeeded: Count = 0
    failed: Count = 0


class PodGroup(Object):
    """Pods that start together or not at all.  It has no status subresource: its status is written
    with the object."""

    api_version: str = always(API_VERSION)
    kind: str = always("PodGroup")
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class Cluster(Struct):
    """A cluster to which a queue may forward."""

    name: str = ""
    weight: Int32 = 0
    capacity: ResourceList = {}


class Guarantee(Struct):
    resource: ResourceList = {}


class NodeGroupTerms(Struct):
    required_during_scheduling_ignored_during_execution: list[str] = []
    preferred_during_scheduling_ignored_during_execution: list[str] = []


class QueueAffinity(Struct):
    """The node groups that a queue's pods require, prefer, avoid and never use."""

    node_group_affinity: NodeGroupTerms | None = None
    node_group_anti_affinity: NodeGroupTerms | None = None


class QueueSpec(Struct):
    weight: Annotated[int, Rule(format="int32", default=1, minimum=1, maximum=65535)] = 0
    capability: ResourceList = {}
    reclaimable: bool | None = None
    extend_clusters: list[Cluster] = []
    guarantee: Guarantee = msgspec.field(default_factory=Guarantee)
    affinity: QueueAffinity | None = None
    type: Annotated[str, Rule(max_length=253)] = ""
    parent: Subdomain = ""
    deserved: ResourceList = {}
    priority: Count = 0
    dequeue_strategy: Annotated[str, Rule(default="traverse", enum=tuple(DequeueStrategy))] = ""


class Reservation(Struct):
    nodes: list[str] = []
    resource: ResourceList = {}


class QueueStatus(Struct):
    state: Annotated[str, Rule(enum=tuple(QueueState))] = ""
    unknown: Count = 0
    pending: Count = 0
    running: Count = 0
    inqueue: Count = 0
    completed: Count = 0
    reservation: Reservation | None = None
    allocated: ResourceList = {}


class Queue(Object):
    """A share of the cluster."""

    api_version: str = always(API_VERSION)
    kind: str = always("Queue")
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


POD_GROUP = kind_of(
    PodGroup,
    "podgroups",
    short_names=("pg", "podgroup-v1beta1"),
    columns=(
        Column("STATUS", "string", ".status.phase"),
        Column("minMember", "integer", ".spec.minMember"),
        Column("RUNNINGS", "integer", ".status.running"),
        Column("AGE", "date", ".metadata.creationTimestamp"),
        Column("QUEUE", "string", ".spec.queue", priority=1),
    ),
)
QUEUE = kind_of(
    Queue,
    "queues",
    namespaced=False,
    short_names=("q", "queue-v1beta1"),
    columns=(Column("PARENT", "string", ".spec.parent"),),
    status=True,
)
