"""Who may do what: roles and their bindings."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import LabelSelector, Object, Struct, always

API_VERSION = "rbac.authorization.k8s.io/v1"


class PolicyRule(Struct):
    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = []


class AggregationRule(Struct):
    cluster_role_selectors: list[LabelSelector] = []


class Subject(Struct):
    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(Struct):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class Role(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("Role")
    rules: list[PolicyRule] = []


class ClusterRole(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("ClusterRole")
    rules: list[PolicyRule] = []
    aggregation_rule: AggregationRule | None = None


class RoleBinding(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("RoleBinding")
    subjects: list[Subject] = []
    role_ref: RoleRef = msgspec.field(default_factory=RoleRef)


class ClusterRoleBinding(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("ClusterRoleBinding")
    subjects: list[Subject] = []
    role_ref: RoleRef = msgspec.field(default_factory=RoleRef)


ROLE = kind_of(Role, "roles")
CLUSTER_ROLE = kind_of(ClusterRole, "clusterroles", namespaced=False)
ROLE_BINDING = kind_of(RoleBinding, "rolebindings")
CLUSTER_ROLE_BINDING = kind_of(ClusterRoleBinding, "clusterrolebindings", namespaced=False)
