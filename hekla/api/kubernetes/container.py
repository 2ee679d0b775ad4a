"""A container as it is wanted, whether main, init or ephemeral: image, command, environment,
probes, hooks, rights."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hekla.api.kubernetes.references import ObjectFieldSelector, ResourceFieldSelector
from hekla.api.meta import AtomicStruct, Struct
from hekla.api.schema import (
    Atomic,
    Int32,
    Int64,
    IntOrString,
    NamedList,
    Required,
    ResourceList,
    Rule,
)


class ContainerPort(Struct):
    name: str = ""
    host_port: Int32 = 0
    container_port: Required[Int32] = 0
    protocol: Annotated[str, Rule(default="TCP")] = ""
    host_ip: str = ""


class ConfigMapKeySelector(AtomicStruct):
    name: Annotated[str, Rule(default="")] = ""
    key: Required[str] = ""
    optional: bool | None = None


class SecretKeySelector(AtomicStruct):
    name: Annotated[str, Rule(default="")] = ""
    key: Required[str] = ""
    optional: bool | None = None


class FileKeySelector(AtomicStruct):
    volume_name: Required[str] = ""
    path: Required[str] = ""
    key: Required[str] = ""
    optional: bool | None = None


class EnvVarSource(Struct):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(Struct):
    name: Required[str] = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class ResourceClaim(Struct):
    name: Required[str] = ""
    request: str = ""


class ResourceRequirements(Struct):
    limits: ResourceList = {}
    requests: ResourceList = {}
    claims: NamedList[ResourceClaim] = []


class VolumeMount(Struct):
    name: Required[str] = ""
    read_only: bool = False
    mount_path: Required[str] = ""
    sub_path: str = ""
    mount_propagation: str = ""
    sub_path_expr: str = ""
    recursive_read_only: str = ""


class ExecAction(Struct):
    command: Atomic[list[str]] = []


class HTTPHeader(Struct):
    name: Required[str] = ""
    value: Required[str] = ""


class HTTPGetAction(Struct):
    path: str = ""
    port: Required[IntOrString | None] = None
    host: str = ""
    scheme: str = ""
    http_headers: Atomic[list[HTTPHeader]] = []


class TCPSocketAction(Struct):
    port: Required[IntOrString | None] = None
    host: str = ""


class GRPCAction(Struct):
    port: Required[Int32] = 0
    service: Annotated[str, Rule(default="")] = ""


class Probe(Struct):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: Int32 = 0
    timeout_seconds: Int32 = 0
    period_seconds: Int32 = 0
    success_threshold: Int32 = 0
    failure_threshold: Int32 = 0
    termination_grace_period_seconds: Int64 | None = None


class SleepAction(Struct):
    seconds: Required[Int64] = 0


class LifecycleHandler(Struct):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Struct):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str = ""


class Capabilities(Struct):
    add: Atomic[list[str]] = []
    drop: Atomic[list[str]] = []


class SELinuxOptions(Struct):
    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class SeccompProfile(Struct):
    type: Required[str] = ""
    localhost_profile: str = ""


class AppArmorProfile(Struct):
    type: Required[str] = ""
    localhost_profile: str = ""


class WindowsSecurityContextOptions(Struct):
    gmsa_credential_spec_name: str = ""
    gmsa_credential_spec: str = ""
    run_as_user_name: str = ""
    host_process: bool | None = None


class SecurityContext(Struct):
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    run_as_user: Int64 | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    run_as_group: Int64 | None = None
    proc_mount: str = ""
    windows_options: WindowsSecurityContextOptions | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None


class ConfigMapEnvSource(Struct):
    name: Annotated[str, Rule(default="")] = ""
    optional: bool | None = None


class SecretEnvSource(Struct):
    name: Annotated[str, Rule(default="")] = ""
    optional: bool | None = None


class EnvFromSource(Struct):
    prefix: str = ""
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None


class VolumeDevice(Struct):
    name: Required[str] = ""
    device_path: Required[str] = ""


class ContainerResizePolicy(Struct):
    resource_name: Required[str] = ""
    restart_policy: Required[str] = ""


class ContainerRestartRuleOnExitCodes(Struct):
    operator: Required[str] = ""
    values: Annotated[list[Int32], Rule(list_type="set")] = []


class ContainerRestartRule(Struct):
    action: Required[str] = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class Container(Struct):
    name: Required[str] = ""
    image: str = ""
    command: Atomic[list[str]] = []
    args: Atomic[list[str]] = []
    working_dir: str = ""
    ports: Annotated[
        list[ContainerPort], Rule(list_type="map", list_keys=("containerPort", "protocol"))
    ] = []
    env: NamedList[EnvVar] = []
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    volume_mounts: Annotated[
        list[VolumeMount], Rule(list_type="map", list_keys=("mountPath",))
    ] = []
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    env_from: Atomic[list[EnvFromSource]] = []
    termination_message_policy: str = ""
    volume_devices: Annotated[
        list[VolumeDevice], Rule(list_type="map", list_keys=("devicePath",))
    ] = []
    startup_probe: Probe | None = None
    resize_policy: Atomic[list[ContainerResizePolicy]] = []
    restart_policy: str = ""
    restart_policy_rules: Atomic[list[ContainerRestartRule]] = []


class EphemeralContainer(Container):
    target_container_name: str = ""
