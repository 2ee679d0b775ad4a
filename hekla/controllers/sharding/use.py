"""How full nodes are, kept as pods come and go (reference: controllers 11.4)."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from hekla.api import names
from hekla.api.kinds import read_as
from hekla.api.kubernetes import core
from hekla.api.meta import Struct
from hekla.api.text import quantity
from hekla.controllers.records import Identity, NodeMeta
from hekla.controllers.sharding.policies import NodeUse

Requests = dict[str, "str | int | float"]


class NodeStatus(Struct):
    capacity: Requests = {}


class Node(Struct):
    """A node, with the fields that shards need."""

    metadata: NodeMeta = msgspec.field(default_factory=NodeMeta)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Resources(Struct):
    requests: Requests = {}


class Container(Struct):
    resources: Resources = msgspec.field(default_factory=Resources)


class PodSpec(Struct):
    node_name: str = ""
    containers: list[Container] = []


class PodMarks(msgspec.Struct, omit_defaults=True, frozen=True):
    mirror: str | None = msgspec.field(name=names.MIRROR_POD, default=None)


class PodMeta(Identity):
    annotations: PodMarks = PodMarks()


class PodStatus(Struct):
    phase: str = ""


class Pod(Struct):
    """A pod, with the fields that count against its node."""

    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def counts(self) -> bool:
        """Whether it counts: bound, not ended, and no mirror pod of the node itself."""
        ended = self.status.phase in ("Succeeded", "Failed")
        return bool(self.spec.node_name) and not ended and self.metadata.annotations.mirror is None


NODE = read_as(core.NODE, Node)
POD = read_as(core.POD, Pod)


class Use:
    """Requests by node: (millicores, bytes in thousandths), added and taken away with each change
    of a pod."""

    def __init__(self) -> None:
        self._asked: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        for pod, sign in ((old, -1), (new, 1)):
            if pod is not None and pod.counts:
                cpu, memory = requests_of(pod)
                total = self._asked[pod.spec.node_name]
                total[0] += sign * cpu
                total[1] += sign * memory

    def of(self, node: Node) -> NodeUse:
        """Shares of the node's capacity, at most 1; 0 where it has none."""
        cpu, memory = self._asked.get(node.metadata.name, (0, 0))
        capacity = node.status.capacity
        return NodeUse(
            node.metadata.name,
            _share(cpu, capacity.get("cpu")),
            _share(memory, capacity.get("memory")),
            node.metadata.labels,
        )


def requests_of(pod: Pod) -> tuple[int, int]:
    """What the main containers ask for, in thousandths of a core and of a byte."""
    cpu = memory = 0
    for container in pod.spec.containers:
        requests = container.resources.requests
        cpu += quantity.milli(requests.get("cpu", 0))
        memory += quantity.milli(requests.get("memory", 0))
    return cpu, memory


def _share(asked: int, capacity: str | int | float | None) -> float:
    there = quantity.milli(capacity) if capacity is not None else 0
    return min(1.0, asked / there) if there > 0 else 0.0
