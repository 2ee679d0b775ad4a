"""Pods and nodes as the agent reads them, and what their QoS levels mean (reference: agent 1).

Only the fields that some part of the agent asks for are decoded, so that a node's pods cost little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hekla.api import names
from hekla.api.kinds import read_as
from hekla.api.kubernetes import core
from hekla.api.kubernetes.nodes import NodeCondition
from hekla.api.kubernetes.placement import Taint
from hekla.api.meta import Struct
from hekla.api.text import quantity

LEVELS = {"LC": 2, "HLS": 2, "LS": 1, "BE": -1}
OFFLINE, ONLINE = -1, 0
HIGHEST_OF_BATCH = 1
"""Pods above this level may not use batch resources."""
TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
BEST_EFFORT, BURSTABLE, GUARANTEED = "BestEffort", "Burstable", "Guaranteed"
FINISHED = frozenset({"Succeeded", "Failed"})


class Metadata(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Resources(Struct):
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}


class Container(Struct):
    name: str = ""
    restart_policy: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)


class PodSpec(Struct):
    """With everything that counts in what a pod requests."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: dict[str, Any] = {}
    resources: Resources = msgspec.field(default_factory=Resources)
    priority: int | None = None
    host_network: bool = False


class PodCondition(Struct):
    type: str = ""
    status: str = ""


class ContainerStatus(Struct):
    name: str = ""
    container_id: str = ""


class PodStatus(Struct):
    phase: str = ""
    qos_class: str = ""
    pod_ip: str = ""
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []


class Pod(Struct):
    api_version: str = "v1"
    kind: str = "Pod"
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(Struct):
    taints: list[Taint] = []


class NodeStatus(Struct):
    capacity: dict[str, Any] = {}
    allocatable: dict[str, Any] = {}
    conditions: list[NodeCondition] = []


class Node(Struct):
    api_version: str = "v1"
    kind: str = "Node"
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


POD = read_as(core.POD, Pod)
NODE = read_as(core.NODE, Node)


def is_true(text: str | None) -> bool:
    """Whether a label or annotation says true; everything else is false."""
    return text in TRUE


def qos_level(pod: Pod) -> int:
    """2 latency critical, 1 latency sensitive, 0 default, -1 offline."""
    return LEVELS.get(pod.metadata.annotations.get(names.QOS_LEVEL, ""), ONLINE)


def normalised_level(pod: Pod) -> int:
    """The two levels that memory and network know."""
    return OFFLINE if is_offline(pod) else ONLINE


def is_offline(pod: Pod) -> bool:
    return qos_level(pod) < 0


def has_own_bandwidth(pod: Pod) -> bool:
    """Whether the CNI's bandwidth plugin limits it already."""
    annotations = pod.metadata.annotations
    return names.INGRESS_BANDWIDTH in annotations or names.EGRESS_BANDWIDTH in annotations


def may_use_batch(pod: Pod) -> bool:
    return qos_level(pod) <= HIGHEST_OF_BATCH


def is_active(pod: Pod) -> bool:
    """Neither ending nor ended."""
    return not pod.metadata.deletion_timestamp and pod.status.phase not in FINISHED


def is_ready(pod: Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def container_id(pod: Pod, container: str) -> tuple[str, str]:
    """(runtime, id) of a container; both empty while it is not known.  An id that would lead out of
    the pod's directory is none."""
    for one in pod.status.container_statuses:
        if one.name == container:
            runtime, separator, identity = one.container_id.rpartition("://")
            if not separator:
                runtime = ""
            if "/" not in identity and identity not in (".", ".."):
                return runtime, identity
    return "", ""


def milli_cpu(resources: Mapping[str, Any]) -> int:
    """Native cpu of a resource list in millicores; 0 where it is absent."""
    return quantity.milli(resources.get(names.CPU, 0))


def memory(resources: Mapping[str, Any]) -> int:
    """Native memory of a resource list in bytes; 0 where it is absent."""
    return quantity.whole(resources.get(names.MEMORY, 0))


def count(resources: Mapping[str, Any], resource: str) -> int | None:
    """An extended resource of a list; None where it is absent."""
    value = resources.get(resource)
    return None if value is None else quantity.whole(value)
