"""The core group in one place: everything that lives under /api/v1."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import Kind
from hekla.api.kubernetes.claims import (
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    CSIPersistentVolumeSource,
    LocalVolumeSource,
    ModifyVolumeStatus,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimCondition,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from hekla.api.kubernetes.container import (
    AppArmorProfile,
    Capabilities,
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    Container,
    ContainerPort,
    ContainerResizePolicy,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    EphemeralContainer,
    ExecAction,
    FileKeySelector,
    GRPCAction,
    HTTPGetAction,
    HTTPHeader,
    Lifecycle,
    LifecycleHandler,
    Probe,
    ResourceRequirements,
    SeccompProfile,
    SecretEnvSource,
    SecretKeySelector,
    SecurityContext,
    SELinuxOptions,
    SleepAction,
    TCPSocketAction,
    VolumeDevice,
    VolumeMount,
    WindowsSecurityContextOptions,
)
from hekla.api.kubernetes.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ContainerUser,
    ImageVolumeStatus,
    LinuxContainerUser,
    ResourceHealth,
    ResourceStatus,
    VolumeMountStatus,
    VolumeStatus,
)
from hekla.api.kubernetes.nodes import (
    NODE,
    AttachedVolume,
    ConfigMapNodeConfigSource,
    ContainerImage,
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeCondition,
    NodeConfigSource,
    NodeConfigStatus,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures,
    NodeSpec,
    NodeStatus,
    NodeSwapStatus,
    NodeSystemInfo,
)
from hekla.api.kubernetes.placement import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from hekla.api.kubernetes.pod import (
    POD,
    ContainerExtendedResourceRequest,
    HostAlias,
    HostIP,
    NodeAllocatableResourceClaimStatus,
    Pod,
    PodCondition,
    PodDNSConfig,
    PodDNSConfigOption,
    PodExtendedResourceClaimStatus,
    PodIP,
    PodOS,
    PodReadinessGate,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSecurityContext,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    Sysctl,
)
from hekla.api.kubernetes.references import (
    LocalObjectReference,
    ObjectFieldSelector,
    ObjectReference,
    ResourceFieldSelector,
    SecretReference,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from hekla.api.kubernetes.services import (
    ENDPOINTS,
    SERVICE,
    ClientIPConfig,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    LoadBalancerIngress,
    LoadBalancerStatus,
    PortStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
)
from hekla.api.kubernetes.volumes import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    CSIVolumeSource,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    HostPathVolumeSource,
    ImageVolumeSource,
    KeyToPath,
    NFSVolumeSource,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimTemplate,
    PersistentVolumeClaimVolumeSource,
    ProjectedVolumeSource,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
    VolumeResourceRequirements,
)
from hekla.api.meta import AtomicStruct, Object, Struct, always
from hekla.api.schema import Int32, Int64, NullableTime, PodTemplate, ResourceList, Time

__all__ = [
    "CONFIG_MAP",
    "ENDPOINTS",
    "EVENT",
    "LIMIT_RANGE",
    "NAMESPACE",
    "NODE",
    "PERSISTENT_VOLUME",
    "PERSISTENT_VOLUME_CLAIM",
    "POD",
    "REPLICATION_CONTROLLER",
    "RESOURCE_QUOTA",
    "SECRET",
    "SERVICE",
    "SERVICE_ACCOUNT",
    "Affinity",
    "AppArmorProfile",
    "AttachedVolume",
    "Binding",
    "CSIPersistentVolumeSource",
    "CSIVolumeSource",
    "Capabilities",
    "ClientIPConfig",
    "ConfigMap",
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapNodeConfigSource",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "Container",
    "ContainerExtendedResourceRequest",
    "ContainerImage",
    "ContainerPort",
    "ContainerResizePolicy",
    "ContainerRestartRule",
    "ContainerRestartRuleOnExitCodes",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "ContainerUser",
    "DaemonEndpoint",
    "DownwardAPIProjection",
    "DownwardAPIVolumeFile",
    "DownwardAPIVolumeSource",
    "EmptyDirVolumeSource",
    "EndpointAddress",
    "EndpointPort",
    "EndpointSubset",
    "Endpoints",
    "EnvFromSource",
    "EnvVar",
    "EnvVarSource",
    "EphemeralContainer",
    "EphemeralVolumeSource",
    "Event",
    "EventSeries",
    "EventSource",
    "ExecAction",
    "FileKeySelector",
    "GRPCAction",
    "HTTPGetAction",
    "HTTPHeader",
    "HostAlias",
    "HostIP",
    "HostPathVolumeSource",
    "ImageVolumeSource",
    "ImageVolumeStatus",
    "KeyToPath",
    "Lifecycle",
    "LifecycleHandler",
    "LimitRange",
    "LimitRangeItem",
    "LimitRangeSpec",
    "LinuxContainerUser",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "LocalVolumeSource",
    "ModifyVolumeStatus",
    "NFSVolumeSource",
    "Namespace",
    "NamespaceCondition",
    "NamespaceSpec",
    "NamespaceStatus",
    "Node",
    "NodeAddress",
    "NodeAffinity",
    "NodeAllocatableResourceClaimStatus",
    "NodeCondition",
    "NodeConfigSource",
    "NodeConfigStatus",
    "NodeDaemonEndpoints",
    "NodeFeatures",
    "NodeRuntimeHandler",
    "NodeRuntimeHandlerFeatures",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "NodeSwapStatus",
    "NodeSystemInfo",
    "ObjectFieldSelector",
    "ObjectReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimCondition",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimStatus",
    "PersistentVolumeClaimTemplate",
    "PersistentVolumeClaimVolumeSource",
    "PersistentVolumeSpec",
    "PersistentVolumeStatus",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodAntiAffinity",
    "PodCondition",
    "PodDNSConfig",
    "PodDNSConfigOption",
    "PodExtendedResourceClaimStatus",
    "PodIP",
    "PodOS",
    "PodReadinessGate",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSchedulingGate",
    "PodSchedulingGroup",
    "PodSecurityContext",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "PortStatus",
    "PreferredSchedulingTerm",
    "Probe",
    "ProjectedVolumeSource",
    "ReplicationController",
    "ReplicationControllerCondition",
    "ReplicationControllerSpec",
    "ReplicationControllerStatus",
    "ResourceFieldSelector",
    "ResourceHealth",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceQuotaStatus",
    "ResourceRequirements",
    "ResourceStatus",
    "SELinuxOptions",
    "ScopeSelector",
    "ScopedResourceSelectorRequirement",
    "SeccompProfile",
    "Secret",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "SecretReference",
    "SecretVolumeSource",
    "SecurityContext",
    "Service",
    "ServiceAccount",
    "ServiceAccountTokenProjection",
    "ServicePort",
    "ServiceSpec",
    "ServiceStatus",
    "SessionAffinityConfig",
    "SleepAction",
    "Sysctl",
    "TCPSocketAction",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "TypedLocalObjectReference",
    "TypedObjectReference",
    "Volume",
    "VolumeDevice",
    "VolumeMount",
    "VolumeMountStatus",
    "VolumeNodeAffinity",
    "VolumeProjection",
    "VolumeResourceRequirements",
    "VolumeStatus",
    "WeightedPodAffinityTerm",
    "WindowsSecurityContextOptions",
]


class NamespaceSpec(Struct):
    finalizers: list[str] = []


class NamespaceCondition(Struct):
    type: str = ""
    status: str = ""
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


class NamespaceStatus(Struct):
    phase: str = ""
    conditions: list[NamespaceCondition] = []


class Namespace(Object):
    api_version: str = always("v1")
    kind: str = always("Namespace")
    spec: NamespaceSpec = msgspec.field(default_factory=NamespaceSpec)
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class ConfigMap(Object):
    api_version: str = always("v1")
    kind: str = always("ConfigMap")
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool | None = None


class Secret(Object):
    api_version: str = always("v1")
    kind: str = always("Secret")
    data: dict[str, str] = {}
    type: str = ""
    string_data: dict[str, str] = {}
    immutable: bool | None = None


class ServiceAccount(Object):
    api_version: str = always("v1")
    kind: str = always("ServiceAccount")
    secrets: list[ObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
    automount_service_account_token: bool | None = None


class EventSource(Struct):
    component: str = ""
    host: str = ""


class EventSeries(Struct):
    count: Int32 = 0
    last_observed_time: NullableTime = None


class Event(Object):
    api_version: str = always("v1")
    kind: str = always("Event")
    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    source: EventSource = msgspec.field(default_factory=EventSource)
    first_timestamp: NullableTime = None
    last_timestamp: NullableTime = None
    count: Int32 = 0
    type: str = ""
    event_time: NullableTime = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class ScopedResourceSelectorRequirement(Struct):
    scope_name: str = ""
    operator: str = ""
    values: list[str] = []


class ScopeSelector(AtomicStruct):
    match_expressions: list[ScopedResourceSelectorRequirement] = []


class ResourceQuotaSpec(Struct):
    hard: ResourceList = {}
    scopes: list[str] = []
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Struct):
    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(Object):
    api_version: str = always("v1")
    kind: str = always("ResourceQuota")
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)


class LimitRangeItem(Struct):
    type: str = ""
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class LimitRangeSpec(Struct):
    limits: list[LimitRangeItem] = []


class LimitRange(Object):
    api_version: str = always("v1")
    kind: str = always("LimitRange")
    spec: LimitRangeSpec = msgspec.field(default_factory=LimitRangeSpec)


class Binding(Object):
    api_version: str = always("v1")
    kind: str = always("Binding")
    target: ObjectReference = msgspec.field(default_factory=ObjectReference)


class ReplicationControllerSpec(Struct):
    replicas: Int32 | None = None
    selector: dict[str, str] = {}
    template: PodTemplate = {}
    min_ready_seconds: Int32 = 0


class ReplicationControllerCondition(Struct):
    type: str = ""
    status: str = ""
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


class ReplicationControllerStatus(Struct):
    replicas: Int32 = always(0)
    fully_labeled_replicas: Int32 = 0
    observed_generation: Int64 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    conditions: list[ReplicationControllerCondition] = []


class ReplicationController(Object):
    api_version: str = always("v1")
    kind: str = always("ReplicationController")
    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)
    status: ReplicationControllerStatus = msgspec.field(default_factory=ReplicationControllerStatus)


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False, type=Namespace)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", namespaced=True, type=ConfigMap)
SECRET = Kind("", "v1", "Secret", "secrets", namespaced=True, type=Secret)
SERVICE_ACCOUNT = Kind(
    "", "v1", "ServiceAccount", "serviceaccounts", namespaced=True, type=ServiceAccount
)
EVENT = Kind("", "v1", "Event", "events", namespaced=True, type=Event)
RESOURCE_QUOTA = Kind(
    "", "v1", "ResourceQuota", "resourcequotas", namespaced=True, type=ResourceQuota
)
LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges", namespaced=True, type=LimitRange)
REPLICATION_CONTROLLER = Kind(
    "",
    "v1",
    "ReplicationController",
    "replicationcontrollers",
    namespaced=True,
    type=ReplicationController,
)
