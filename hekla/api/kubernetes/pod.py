"""The pod: what a person wants to run, and what became of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.container import (
    AppArmorProfile,
    Container,
    EphemeralContainer,
    ResourceRequirements,
    SeccompProfile,
    SELinuxOptions,
    WindowsSecurityContextOptions,
)
from hekla.api.kubernetes.container_status import ContainerStatus
from hekla.api.kubernetes.placement import Affinity, Toleration, TopologySpreadConstraint
from hekla.api.kubernetes.references import LocalObjectReference
from hekla.api.kubernetes.volumes import Volume
from hekla.api.meta import Object, Struct, TemplateMeta, always
from hekla.api.schema import (
    Atomic,
    Int32,
    Int64,
    NamedList,
    NullableTime,
    Required,
    ResourceList,
    Rule,
    Time,
)


class Sysctl(Struct):
    name: Required[str] = ""
    value: Required[str] = ""


class PodSecurityContext(Struct):
    se_linux_options: SELinuxOptions | None = None
    run_as_user: Int64 | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: Atomic[list[Int64]] = []
    fs_group: Int64 | None = None
    run_as_group: Int64 | None = None
    sysctls: Atomic[list[Sysctl]] = []
    windows_options: WindowsSecurityContextOptions | None = None
    fs_group_change_policy: str = ""
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    supplemental_groups_policy: str = ""
    se_linux_change_policy: str = ""


class HostAlias(Struct):
    ip: Required[str] = ""
    hostnames: Atomic[list[str]] = []


class PodDNSConfigOption(Struct):
    name: str = ""
    value: str = ""


class PodDNSConfig(Struct):
    nameservers: Atomic[list[str]] = []
    searches: Atomic[list[str]] = []
    options: Atomic[list[PodDNSConfigOption]] = []


class PodReadinessGate(Struct):
    condition_type: Required[str] = ""


class PodOS(Struct):
    name: Required[str] = ""


class PodSchedulingGate(Struct):
    name: Required[str] = ""


class PodResourceClaim(Struct):
    name: Required[str] = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSchedulingGroup(Struct):
    pod_group_name: str = ""


class PodSpec(Struct):
    volumes: NamedList[Volume] = []
    containers: Required[NamedList[Container]] = []
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    dns_policy: str = ""
    node_selector: Annotated[dict[str, str], Rule(map_type="atomic")] = {}
    service_account_name: str = ""
    service_account: str = ""
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    security_context: PodSecurityContext | None = None
    image_pull_secrets: NamedList[LocalObjectReference] = []
    hostname: str = ""
    subdomain: str = ""
    affinity: Affinity | None = None
    scheduler_name: str = ""
    init_containers: NamedList[Container] = []
    automount_service_account_token: bool | None = None
    tolerations: Atomic[list[Toleration]] = []
    host_aliases: Annotated[list[HostAlias], Rule(list_type="map", list_keys=("ip",))] = []
    priority_class_name: str = ""
    priority: Int32 | None = None
    dns_config: PodDNSConfig | None = None
    share_process_namespace: bool | None = None
    readiness_gates: Atomic[list[PodReadinessGate]] = []
    runtime_class_name: str = ""
    enable_service_links: bool | None = None
    preemption_policy: str = ""
    overhead: ResourceList = {}
    topology_spread_constraints: Annotated[
        list[TopologySpreadConstraint],
        Rule(list_type="map", list_keys=("topologyKey", "whenUnsatisfiable")),
    ] = []
    ephemeral_containers: NamedList[EphemeralContainer] = []
    set_hostname_as_fqdn: bool | None = None
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: NamedList[PodSchedulingGate] = []
    resource_claims: NamedList[PodResourceClaim] = []
    resources: ResourceRequirements | None = None
    hostname_override: str = ""
    scheduling_group: PodSchedulingGroup | None = None


class PodCondition(Struct):
    type: str = ""
    status: str = ""
    last_probe_time: NullableTime = None
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""
    observed_generation: Int64 = 0


class PodIP(Struct):
    ip: str = ""


class PodResourceClaimStatus(Struct):
    name: str = ""
    resource_claim_name: str = ""


class HostIP(Struct):
    ip: str = ""


class ContainerExtendedResourceRequest(Struct):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Struct):
    request_mappings: list[ContainerExtendedResourceRequest] = []
    resource_claim_name: str = ""


class NodeAllocatableResourceClaimStatus(Struct):
    resource_claim_name: str = ""
    containers: list[str] = []
    resources: ResourceList = {}


class PodStatus(Struct):
    phase: str = ""
    conditions: list[PodCondition] = []
    message: str = ""
    reason: str = ""
    host_ip: str = ""
    pod_ip: str = ""
    start_time: Time = ""
    container_statuses: list[ContainerStatus] = []
    qos_class: str = ""
    init_container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    pod_ips: list[PodIP] = []
    ephemeral_container_statuses: list[ContainerStatus] = []
    resize: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    host_ips: list[HostIP] = []
    observed_generation: Int64 = 0
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None
    node_allocatable_resource_claim_statuses: list[NodeAllocatableResourceClaimStatus] = []


class Pod(Object):
    api_version: str = always("v1")
    kind: str = always("Pod")
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodTemplateSpec(Struct):
    """The pods that a workload makes.  Workloads keep theirs as raw trees; this is its shape, for
    those who look inside."""

    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


POD = kind_of(Pod, "pods")
