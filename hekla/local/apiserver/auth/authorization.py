"""RBAC: whether the stored roles and bindings allow a request (local-cluster 7.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import TreeCache, remembered
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.nodes import NodeAuthorizer
from hekla.local.apiserver.auth.user import MASTERS, SERVICE_ACCOUNT, User
from hekla.local.apiserver.request.status import Refusal, unsniffed
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Event

RBAC = "rbac.authorization.k8s.io"
OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class Grant(NamedTuple):
    """A binding with the rules of its role."""

    kind: str
    name: str
    namespace: str
    role_kind: str
    role: str
    subjects: list[Json]
    rules: list[Json]


class Authorizer:
    """Decides by the committed roles and bindings. Grants are computed again when one of these
    changes."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.nodes = NodeAuthorizer(registry)
        self._grants: list[Grant] | None = None
        self._trees = TreeCache()
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"):
            resource = registry.get(RBAC, "v1", plural)
            if resource is not None:
                resource.collection.listeners.add(self._changed)

    def _changed(self, events: list[Event]) -> None:
        self._grants = None

    def _all(self, plural: str) -> Iterator[Json]:
        resource = self.registry.get(RBAC, "v1", plural)
        if resource is not None:
            for row in resource.collection.rows.values():
                yield remembered(self._trees, f"{plural} {row.key}", row)

    def cluster_roles(self) -> dict[str, Json]:
        """ClusterRoles by name."""
        return {tree["metadata"]["name"]: tree for tree in self._all("clusterroles")}

    def grants(self) -> list[Grant]:
        """All bindings whose role exists."""
        if self._grants is None:
            cluster_roles = self.cluster_roles()
            roles = {
                (tree["metadata"]["namespace"], tree["metadata"]["name"]): tree
                for tree in self._all("roles")
            }
            grants: list[Grant] = []
            for plural, kind in (
                ("clusterrolebindings", "ClusterRoleBinding"),
                ("rolebindings", "RoleBinding"),
            ):
                for tree in self._all(plural):
                    namespace = tree["metadata"].get("namespace", "")
                    reference = tree.get("roleRef") or {}
                    name = reference.get("name", "")
                    role = (
                        roles.get((namespace, name))
                        if reference.get("kind") == "Role"
                        else cluster_roles.get(name)
                    )
                    if role is None:
                        continue
                    rules = aggregated_rules(role, cluster_roles)
                    grants.append(
                        Grant(
                            kind,
                            tree["metadata"]["name"],
                            namespace,
                            reference.get("kind", ""),
                            name,
                            tree.get("subjects") or [],
                            rules,
                        )
                    )
            self._grants = grants
        return self._grants

    def allows(self, user: User, access: Access) -> tuple[bool, str]:
        """Whether a user may, with the binding that allows it, or the reason of the denial."""
        if MASTERS in user.groups:
            return True, ""
        denial = ""
        if user.node is not None:
            allowed, denial = self.nodes.allows(user, access)
            if allowed:
                return True, ""
        if access.path and (
            access.path in OPEN_PATHS
            or access.path.startswith(("/livez/", "/readyz/", "/healthz/"))
        ):
            return True, ""
        for grant in self.grants():
            if grant.namespace and grant.namespace != access.namespace:
                continue
            subject = next(
                (s for s in grant.subjects if is_subject(user, s, grant.namespace)), None
            )
            if subject is not None and any(rule_allows(rule, access) for rule in grant.rules):
                return True, reason(grant, subject)
        return False, denial

    def check(self, user: User, access: Access) -> None:
        """Raises a 403 with Kubernetes' message."""
        allowed, why = self.allows(user, access)
        if allowed:
            return
        why = why and f": {why}"
        if access.path:
            raise unsniffed(
                Refusal(
                    403,
                    f'forbidden: User "{user.name}" cannot {access.verb} path "{access.path}"{why}',
                    details={},
                )
            )
        shown = f"{access.resource}.{access.group}" if access.group else access.resource
        subject = f'{shown} "{access.name}"' if access.name else shown
        where = (
            f' in the namespace "{access.namespace}"'
            if access.namespace
            else " at the cluster scope"
        )
        details = {"kind": access.resource}
        if access.name:
            details = {"name": access.name, **details}
        if access.group:
            details["group"] = access.group
        wanted = f'{access.verb} resource "{access.what}" in API group "{access.group}"{where}'
        raise unsniffed(
            Refusal(
                403,
                f'{subject} is forbidden: User "{user.name}" cannot {wanted}{why}',
                details=details,
            )
        )

    def rules_of(self, user: User, namespace: str) -> list[Json]:
        """All rules that a user has in a namespace."""
        if MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return [
            rule
            for grant in self.grants()
            if (not grant.namespace or grant.namespace == namespace)
            and any(is_subject(user, s, grant.namespace) for s in grant.subjects)
            for rule in grant.rules
        ]


def aggregated_rules(role: Json, cluster_roles: dict[str, Json]) -> list[Json]:
    """The rules of a role; for an aggregated ClusterRole, those of the roles that its selectors
    match."""
    selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors")
    if not selectors:
        return role.get("rules") or []
    rules: list[Json] = []
    for other in cluster_roles.values():
        labels = other["metadata"].get("labels") or {}
        for selector in selectors:
            wanted = selector.get("matchLabels") or {}
            if (
                wanted
                and all(labels.get(key) == value for key, value in wanted.items())
                and other is not role
            ):
                rules.extend(other.get("rules") or [])
                break
    return rules


def is_subject(user: User, subject: Json, namespace: str) -> bool:
    """Whether a subject of a binding means the user. `namespace` is that of the binding."""
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user.name)
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            within = subject.get("namespace") or namespace
            return bool(within) and user.name == f"{SERVICE_ACCOUNT}{within}:{subject.get('name')}"
    return False


def rule_allows(rule: Json, access: Access) -> bool:
    """Whether a rule covers the access."""
    verbs = rule.get("verbs") or []
    if access.verb not in verbs and "*" not in verbs:
        return False
    if access.path:
        return any(
            url == access.path or (url.endswith("*") and access.path.startswith(url.rstrip("*")))
            for url in rule.get("nonResourceURLs") or []
        )
    groups = rule.get("apiGroups") or []
    if access.group not in groups and "*" not in groups:
        return False
    resources = rule.get("resources") or []
    if (
        access.what not in resources
        and "*" not in resources
        and (not access.subresource or f"*/{access.subresource}" not in resources)
    ):
        return False
    names = rule.get("resourceNames") or []
    return not names or access.name in names


def reason(grant: Grant, subject: Json) -> str:
    """Which binding allowed a request, as Kubernetes writes it into its answer."""
    binding = f"{grant.name}/{grant.namespace}" if grant.namespace else grant.name
    who = f'{subject.get("kind")} "{subject.get("name")}"'
    if subject.get("kind") == "ServiceAccount":
        who = (
            f'ServiceAccount "{subject.get("name")}/{subject.get("namespace") or grant.namespace}"'
        )
    return f'RBAC: allowed by {grant.kind} "{binding}" of {grant.role_kind} "{grant.role}" to {who}'
