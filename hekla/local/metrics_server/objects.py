"""The objects that metrics are about, as this server reads them."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import read_as
from hekla.api.kubernetes import core
from hekla.api.meta import Struct

FAKE = "fake"


class NodeMarks(msgspec.Struct, omit_defaults=True, frozen=True):
    kwok: str = msgspec.field(name="kwok.x-k8s.io/node", default="")
    """`fake` for a node that only pretends to run pods."""


class PodMarks(msgspec.Struct, omit_defaults=True, frozen=True):
    """What a pod on a fake node says that each of its containers uses, under KWOK's names."""

    cpu: str = msgspec.field(name="kwok.x-k8s.io/usage-cpu", default="")
    memory: str = msgspec.field(name="kwok.x-k8s.io/usage-memory", default="")


class Identity(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class NodeMetadata(Identity):
    annotations: NodeMarks = NodeMarks()


class PodMetadata(Identity):
    annotations: PodMarks = PodMarks()


class Container(Struct):
    name: str = ""


class PodSpec(Struct):
    node_name: str = ""
    containers: list[Container] = []


class PodStatus(Struct):
    phase: str = ""
    start_time: str | None = None


class Node(Struct):
    api_version: str = ""
    kind: str = ""
    metadata: NodeMetadata = msgspec.field(default_factory=NodeMetadata)

    @property
    def fake(self) -> bool:
        return self.metadata.annotations.kwok == FAKE


class Pod(Struct):
    api_version: str = ""
    kind: str = ""
    metadata: PodMetadata = msgspec.field(default_factory=PodMetadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


NODE = read_as(core.NODE, Node)
POD = read_as(core.POD, Pod)
