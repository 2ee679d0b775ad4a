"""How pods are found: services and, in the old form, their endpoints."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.references import ObjectReference
from hekla.api.meta import Condition, Object, Struct, always
from hekla.api.schema import Int32, IntOrString


class ServicePort(Struct):
    name: str = ""
    protocol: str = ""
    port: Int32 = always(0)
    target_port: IntOrString | None = None
    node_port: Int32 = 0
    app_protocol: str = ""


class ClientIPConfig(Struct):
    timeout_seconds: Int32 | None = None


class SessionAffinityConfig(Struct):
    client_ip: ClientIPConfig | None = None


class ServiceSpec(Struct):
    ports: list[ServicePort] = []
    selector: dict[str, str] = {}
    cluster_ip: str = ""
    type: str = ""
    external_ips: list[str] = []
    session_affinity: str = ""
    load_balancer_ip: str = ""
    load_balancer_source_ranges: list[str] = []
    external_name: str = ""
    external_traffic_policy: str = ""
    health_check_node_port: Int32 = 0
    publish_not_ready_addresses: bool = False
    session_affinity_config: SessionAffinityConfig | None = None
    ip_family_policy: str = ""
    cluster_ips: list[str] = []
    ip_families: list[str] = []
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_class: str = ""
    internal_traffic_policy: str = ""
    traffic_distribution: str = ""


class PortStatus(Struct):
    port: Int32 = 0
    protocol: str = ""
    error: str = ""


class LoadBalancerIngress(Struct):
    ip: str = ""
    hostname: str = ""
    ip_mode: str = ""
    ports: list[PortStatus] = []


class LoadBalancerStatus(Struct):
    ingress: list[LoadBalancerIngress] = []


class ServiceStatus(Struct):
    load_balancer: LoadBalancerStatus = msgspec.field(default_factory=LoadBalancerStatus)
    conditions: list[Condition] = []


class Service(Object):
    api_version: str = always("v1")
    kind: str = always("Service")
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


class EndpointAddress(Struct):
    ip: str = ""
    target_ref: ObjectReference | None = None
    hostname: str = ""
    node_name: str = ""


class EndpointPort(Struct):
    name: str = ""
    port: Int32 = 0
    protocol: str = ""
    app_protocol: str = ""


class EndpointSubset(Struct):
    addresses: list[EndpointAddress] = []
    not_ready_addresses: list[EndpointAddress] = []
    ports: list[EndpointPort] = []


class Endpoints(Object):
    api_version: str = always("v1")
    kind: str = always("Endpoints")
    subsets: list[EndpointSubset] = []


SERVICE = kind_of(Service, "services")
ENDPOINTS = kind_of(Endpoints, "endpoints")
