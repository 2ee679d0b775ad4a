"""The cluster as the descheduler sees it: small rows of nodes and pods, kept up to date by changes.

A pod is read once, when it changes; what cycles ask most (the pods of a node, what they request, the
members of a gang) is kept as sums, so that a cycle costs what it looks at and not what there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hekla.api.kubernetes.placement import NodeSelector, Toleration
from hekla.api.selectors import LabelSelector

CPU, MEMORY, PODS = "cpu", "memory", "pods"

Amounts = dict[str, float]
"""Millicores of cpu, bytes of memory, whole units of all else."""


class Taint(NamedTuple):
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


class Owner(NamedTuple):
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod may run: shared by all pods that say the same."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    """What node affinity requires."""
    tolerations: tuple[Toleration, ...] = ()
    text: bytes = b""
    """What tells two placements apart."""

    def __hash__(self) -> int:
        return hash((self.node_selector, self.text))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Placement)
            and self.text == other.text
            and self.node_selector == other.node_selector
        )


class AntiAffinity(NamedTuple):
    """One required term of a pod's anti-affinity."""

    selector: LabelSelector
    namespaces: frozenset[str]
    topology_key: str


class Spread(NamedTuple):
    """One topology spread constraint."""

    max_skew: int
    topology_key: str
    selector: LabelSelector
    hard: bool


class Wishes(NamedTuple):
    """What a pod, a PodGroup or a PriorityClass says with the annotations of calm eviction.  Seconds; None where
    it says nothing that can be understood."""

    min_runtime: float | None = None
    grace: int | None = None
    semi_preemptible: bool | None = None
    """Whether only what is above its gang's minimum is evicted."""


SILENT = Wishes()


@dataclass(slots=True)
class Node:
    """A node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Mapping[str, float] = field(default_factory=dict)
    capacity: Mapping[str, float] = field(default_factory=dict)

    @property
    def base(self) -> Mapping[str, float]:
        """What percentages refer to.  Reference: descheduler 7."""
        return self.allocatable or self.capacity


@dataclass(slots=True)
class Pod:
    """A pod that is bound to a node."""

    name: str
    namespace: str = "default"
    uid: str = ""
    node: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    phase: str = "Running"
    terminating: bool = False
    ending: float = 0.0
    """When it has to be gone, if it is terminating."""
    priority: int | None = None
    qos: str = "BestEffort"
    requests: Mapping[str, float] = field(default_factory=dict)
    placement: Placement = Placement()
    images: tuple[str, ...] = ()
    created: float = 0.0
    """Seconds since the epoch, like all times here."""
    started: float = 0.0
    restarts: int = 0
    init_restarts: int = 0
    reasons: tuple[str, ...] = ()
    """Of its status, and why its containers wait or have ended."""
    init_reasons: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    """Why its main containers wait."""
    local_storage: bool = False
    claims: bool = False
    """It uses a PersistentVolumeClaim."""
    mirror: bool = False
    static: bool = False
    marked: bool = False
    """It has the annotation that asks for eviction whatever else holds."""
    preemptable: bool | None = None
    cooldown: float = 0.0
    group: str = ""
    """Name of its PodGroup."""
    anti_affinity: tuple[AntiAffinity, ...] = ()
    spreads: tuple[Spread, ...] = ()
    priority_class: str = ""
    wishes: Wishes = SILENT
    deletion_cost: int | None = None
    """What its annotation says that tells controllers which pod to delete first."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def group_key(self) -> str:
        return f"{self.namespace}/{self.group}" if self.group else ""

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def counts(self) -> bool:
        """Whether it takes room on its node and is alive as a member of its gang."""
        return not self.ended

    def age(self, now: float) -> float:
        return now - self.created


class Tables:
    """All nodes, all bound pods and the minimum of each PodGroup."""

    def __init__(self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.on_node: dict[str, dict[str, Pod]] = {}
        self.requested: dict[str, Amounts] = {}
        """What the pods of a node request, and their number as `pods`; ended pods do not count."""
        self.members: dict[str, dict[str, Pod]] = {}
        """The pods of each PodGroup."""
        self.minimum: dict[str, int] = {}
        """`minMember` of each PodGroup."""
        self.priorities: dict[str, int] = {}
        """The value of each PriorityClass."""
        self.wishes_of_groups: dict[str, Wishes] = {}
        self.wishes_of_classes: dict[str, Wishes] = {}
        for node in nodes:
            self.put_node(node)
        for pod in pods:
            self.put_pod(pod)

    def put_node(self, node: Node) -> None:
        self.nodes[node.name] = node

    def drop_node(self, name: str) -> None:
        self.nodes.pop(name, None)

    def put_pod(self, pod: Pod) -> None:
        """Take in a pod's new state; one without a node does not count here."""
        self.drop_pod(pod.key)
        if not pod.node:
            return
        self.pods[pod.key] = pod
        self.on_node.setdefault(pod.node, {})[pod.key] = pod
        if pod.group:
            self.members.setdefault(pod.group_key, {})[pod.key] = pod
        if pod.counts:
            self._count(pod, 1)

    def wishes(self, pod: Pod) -> Wishes:
        """What the pod says, or else its PodGroup."""
        own, group = pod.wishes, self.wishes_of_groups.get(pod.group_key)
        if group is None:
            return own
        return Wishes(
            group.min_runtime if own.min_runtime is None else own.min_runtime,
            group.grace if own.grace is None else own.grace,
            group.semi_preemptible if own.semi_preemptible is None else own.semi_preemptible,
        )

    def drop_pod(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        if pod.counts:
            self._count(pod, -1)
        for table, name in ((self.on_node, pod.node), (self.members, pod.group_key)):
            row = table.get(name)
            if row is not None:
                row.pop(key, None)
                if not row:
                    del table[name]
        if pod.node not in self.on_node:
            self.requested.pop(pod.node, None)  # what sums lose by rounding ends here

    def _count(self, pod: Pod, times: int) -> None:
        sums = self.requested.setdefault(pod.node, {})
        for name, amount in pod.requests.items():
            sums[name] = sums.get(name, 0.0) + times * amount
        sums[PODS] = sums.get(PODS, 0.0) + times


def percent_of(share: float, whole: float) -> int:
    """Whole percent, rounded down; of nothing, 0.  Reference: descheduler 16.1 A."""
    return math.floor(100.0 * share / whole) if whole > 0 else 0
