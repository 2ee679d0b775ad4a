"""What is kept of fake nodes and of the pods on them, and the bodies of the nodes that are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from hekla.api import names
from hekla.api.kinds import read_as
from hekla.api.kubernetes import core
from hekla.api.meta import Struct
from hekla.api.schema import Int32
from hekla.api.trees import Json
from hekla.kube.objects import unread
from hekla.local.kubelet.nodes import machine
from hekla.local.kubelet.nodes.node import NO_PRESSURE, READY

ANNOTATION = "kwok.x-k8s.io/node"


class Meta(Struct):
    """The metadata that matters for pretending."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    generation: int = 0
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class FakeContainer(Struct):
    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    restart_policy: str = ""


class FakeSpec(Struct):
    node_name: str = ""
    restart_policy: str = ""
    active_deadline_seconds: int | None = None
    containers: list[FakeContainer] = []
    init_containers: list[FakeContainer] | None = None
    readiness_gates: list[core.PodReadinessGate] | None = None


class Running(Struct):
    started_at: str = ""


class FakeState(Struct):
    running: Running | None = None


class FakeContainerStatus(Struct):
    state: FakeState | None = None
    restart_count: Int32 = 0


class FakeStatus(Struct):
    phase: str = ""
    pod_ip: str = ""
    start_time: str = ""
    container_statuses: list[FakeContainerStatus] | None = None


class FakePod(Struct):
    """A pod, reduced to what pretending takes: some hundred bytes where the whole object takes
    thousands."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: FakeSpec = msgspec.field(default_factory=FakeSpec)
    status: FakeStatus = msgspec.field(default_factory=FakeStatus)


class NodeCondition(Struct):
    type: str = ""
    status: str = ""


class FakeNodeStatus(Struct):
    conditions: list[NodeCondition] = []
    allocatable: dict[str, Any] | None = None


class FakeNode(Struct):
    metadata: Meta = msgspec.field(default_factory=Meta)
    status: FakeNodeStatus = msgspec.field(default_factory=FakeNodeStatus)


POD = read_as(core.POD, FakePod)
WRITTEN = unread(core.POD)
NODE = read_as(core.NODE, FakeNode)


@dataclass(frozen=True, slots=True)
class Size:
    """The nodes that `--fake-nodes` makes."""

    count: int = 0
    name: str = "fake-node"
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    gpus: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    taint: bool = False


def node_body(size: Size, number: int, now: str) -> Json:
    """A whole fake node, Ready from its first moment.  Reference: 9.3."""
    name = f"{size.name}-{number}"
    amounts: Json = {"cpu": size.cpu, "memory": size.memory, "pods": str(size.pods)}
    if size.gpus:
        amounts[names.NVIDIA_GPU] = str(size.gpus)
    labels = {
        names.HOSTNAME: name,
        names.OS: "linux",
        names.ARCH: "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "kubernetes.io/role": "agent",
        "node-role.kubernetes.io/agent": "",
        "type": "kwok",
        **size.labels,
    }
    taints = [{"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}] if size.taint else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {ANNOTATION: "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": amounts, "allocatable": amounts, **node_ready(name, now)},
    }


def node_ready(name: str, now: str) -> Json:
    """Conditions, addresses and the rest of a node that is well."""
    healthy = (
        READY,
        *NO_PRESSURE,
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    )
    return {
        "phase": "Running",
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status, reason, message in healthy
        ],
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "",
            "osImage": "",
            "containerRuntimeVersion": "",
            "kubeletVersion": f"kwok-{machine.KUBELET_VERSION}",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
