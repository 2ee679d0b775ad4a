"""Who may do what: roles and their bindings."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import Kind
from hekla.api.meta import LabelSelector, Object, Struct, always

GROUP = "rbac.authorization.k8s.io"


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
    api_version: str = always(f"{GROUP}/v1")
    kind: str = always("Role")
    rules: list[PolicyRule] = []


class ClusterRole(Object):
    api_version: str = always(f"{GROUP}/v1")
    kind: str = always("ClusterRole")
    rules: list[PolicyRule] = []
    aggregation_rule: AggregationRule | None = None


class RoleBinding(Object):
    api_version: str = always(f"{GROUP}/v1")
    kind: str = always("RoleBinding")
    subjects: list[Subject] = []
    role_ref: RoleRef = msgspec.field(default_factory=RoleRef)


class ClusterRoleBinding(Object):
    api_version: str = always(f"{GROUP}/v1")
    kind: str = always("ClusterRoleBinding")
    subjects: list[Subject] = []
    role_ref: RoleRef = msgspec.field(default_factory=RoleRef)


ROLE = Kind(GROUP, "v1", "Role", "roles", namespaced=True, type=Role)
CLUSTER_ROLE = Kind(GROUP, "v1", "ClusterRole", "clusterroles", namespaced=False, type=ClusterRole)
ROLE_BINDING = Kind(GROUP, "v1", "RoleBinding", "rolebindings", namespaced=True, type=RoleBinding)
CLUSTER_ROLE_BINDING = Kind(
    GROUP,
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
    namespaced=False,
    type=ClusterRoleBinding,
)
