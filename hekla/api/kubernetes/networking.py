"""Which pods may talk to which."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import LabelSelector, Object, Struct, always
from hekla.api.schema import Int32, IntOrString


class NetworkPolicyPort(Struct):
    protocol: str = ""
    port: IntOrString | None = None
    end_port: Int32 | None = None


class IPBlock(Struct):
    cidr: str = ""
    except_: list[str] = []


class NetworkPolicyPeer(Struct):
    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IPBlock | None = None


class NetworkPolicyIngressRule(Struct):
    ports: list[NetworkPolicyPort] = []
    from_: list[NetworkPolicyPeer] = []


class NetworkPolicyEgressRule(Struct):
    ports: list[NetworkPolicyPort] = []
    to: list[NetworkPolicyPeer] = []


class NetworkPolicySpec(Struct):
    pod_selector: LabelSelector | None = None
    ingress: list[NetworkPolicyIngressRule] = []
    egress: list[NetworkPolicyEgressRule] = []
    policy_types: list[str] = []


class NetworkPolicy(Object):
    api_version: str = always("networking.k8s.io/v1")
    kind: str = always("NetworkPolicy")
    spec: NetworkPolicySpec = msgspec.field(default_factory=NetworkPolicySpec)


NETWORK_POLICY = kind_of(NetworkPolicy, "networkpolicies")
