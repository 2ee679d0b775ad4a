"""The node: what a machine offers, how it is, and what it keeps away."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.placement import Taint
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import Int32, Int64, NullableTime, ResourceList, Time


class ConfigMapNodeConfigSource(Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    kubelet_config_key: str = ""


class NodeConfigSource(Struct):
    config_map: ConfigMapNodeConfigSource | None = None


class NodeSpec(Struct):
    pod_cidr: str = ""
    external_id: str = ""
    provider_id: str = ""
    unschedulable: bool = False
    taints: list[Taint] = []
    config_source: NodeConfigSource | None = None
    pod_cidrs: list[str] = []


class NodeCondition(Struct):
    type: str = ""
    status: str = ""
    last_heartbeat_time: NullableTime = None
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


class NodeAddress(Struct):
    type: str = ""
    address: str = ""


class DaemonEndpoint(Struct):
    port: Int32 = msgspec.field(name="Port", default=0)


class NodeDaemonEndpoints(Struct):
    kubelet_endpoint: DaemonEndpoint = msgspec.field(default_factory=DaemonEndpoint)


class NodeSwapStatus(Struct):
    capacity: Int32 | None = None


class NodeSystemInfo(Struct):
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""
    swap: NodeSwapStatus | None = None


class ContainerImage(Struct):
    names: list[str] = []
    size_bytes: Int64 = 0


class AttachedVolume(Struct):
    name: str = ""
    device_path: str = ""


class NodeConfigStatus(Struct):
    assigned: NodeConfigSource | None = None
    active: NodeConfigSource | None = None
    last_known_good: NodeConfigSource | None = None
    error: str = ""


class NodeRuntimeHandlerFeatures(Struct):
    recursive_read_only_mounts: bool | None = None
    user_namespaces: bool | None = None


class NodeRuntimeHandler(Struct):
    name: str = ""
    features: NodeRuntimeHandlerFeatures | None = None


class NodeFeatures(Struct):
    supplemental_groups_policy: bool | None = None


class NodeStatus(Struct):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    phase: str = ""
    conditions: list[NodeCondition] = []
    addresses: list[NodeAddress] = []
    daemon_endpoints: NodeDaemonEndpoints = msgspec.field(default_factory=NodeDaemonEndpoints)
    node_info: NodeSystemInfo = msgspec.field(default_factory=NodeSystemInfo)
    images: list[ContainerImage] = []
    volumes_in_use: list[str] = []
    volumes_attached: list[AttachedVolume] = []
    config: NodeConfigStatus | None = None
    runtime_handlers: list[NodeRuntimeHandler] = []
    features: NodeFeatures | None = None
    declared_features: list[str] = []


class Node(Object):
    api_version: str = always("v1")
    kind: str = always("Node")
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


NODE = kind_of(Node, "nodes", namespaced=False)
