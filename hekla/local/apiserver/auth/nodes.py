"""The node authorizer: what a node may do depends on which objects belong to it (local-cluster
7.2).

A node is the user `system:node:<name>` of the group `system:nodes`. Its rights do not come from a
role: it may read what its pods refer to, and write itself and its pods. Admission
(`noderestriction.py`) checks the content of these writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.local.apiserver.auth.nodegraph import NodeGraph
from hekla.local.apiserver.auth.roles import NODE
from hekla.local.apiserver.auth.user import User
from hekla.local.apiserver.storage.registry import Registry

if TYPE_CHECKING:
    from hekla.local.apiserver.auth.access import Access

LEASES = "kube-node-lease"
READ_VERBS = ("get", "list", "watch")
OWN_VERBS = ("get", "create", "update", "patch", "delete")
"""What a node may do with its lease and its CSINode."""
Verdict = tuple[bool, str]
ALLOWED: Verdict = (True, "")


class NodeAuthorizer:
    """Whether a node may make a request, else why not. A role may allow it nevertheless."""

    def __init__(self, registry: Registry) -> None:
        self.graph = NodeGraph(registry)

    def allows(self, user: User, access: Access) -> Verdict:
        """(whether it is allowed, the reason if it is not)"""
        node = user.node
        if node is None:
            return False, ""
        if not node:
            return False, f'unknown node for user "{user.name}"'
        if access.path:
            return False, ""
        match access.group, access.resource:
            case "", "secrets" | "configmaps":
                return self._read(node, access)
            case "", "persistentvolumeclaims" if access.subresource == "status":
                if access.verb not in ("update", "patch"):
                    return False, "can only get/update/patch this type"
                return self._related(node, access)
            case ("", "persistentvolumeclaims" | "persistentvolumes") | (
                "storage.k8s.io",
                "volumeattachments",
            ):
                return self._get(node, access)
            case "resource.k8s.io", "resourceclaims":
                return self._get(node, access)
            case "", "serviceaccounts":
                return self._account(node, access)
            case "coordination.k8s.io", "leases":
                if access.verb in OWN_VERBS and access.namespace != LEASES:
                    return False, f'can only access leases in the "{LEASES}" system namespace'
                return self._own(node, access, "a node lease", "node lease")
            case "storage.k8s.io", "csinodes":
                if access.subresource:
                    return False, "cannot authorize CSINode subresources"
                return self._own(node, access, "a CSINode", "CSINode")
            case "resource.k8s.io", "resourceslices":
                return self._slice(node, access)
            case "", "nodes":
                return self._node(node, access)
            case "", "pods":
                return self._pod(node, access)
        return any(_covers(rule, access) for rule in NODE), ""

    def _related(self, node: str, access: Access) -> Verdict:
        if not access.name:
            return False, "No Object name found"
        graph, namespace, name = self.graph, access.namespace, access.name
        match access.resource:
            case "secrets":
                related = graph.has_secret(node, namespace, name)
            case "pods":
                related = graph.has_pod(node, namespace, name)
            case "persistentvolumes":
                related = graph.has_volume(node, name)
            case "volumeattachments" | "resourceslices":
                related = graph.stands_for(node, access.group, access.resource, name)
            case _:
                related = graph.names(node, access.resource, namespace, name)
        return (
            ALLOWED
            if related
            else (False, f"no relationship found between node '{node}' and this object")
        )

    def _read(self, node: str, access: Access) -> Verdict:
        if access.verb not in READ_VERBS:
            return False, "can only read resources of this type"
        if access.subresource:
            return False, "cannot read subresource"
        if not access.namespace:
            return False, "can only read namespaced object of this type"
        return self._related(node, access)

    def _get(self, node: str, access: Access) -> Verdict:
        if access.verb != "get":
            return False, "can only get individual resources of this type"
        if access.subresource:
            return False, "cannot get subresource"
        return self._related(node, access)

    def _account(self, node: str, access: Access) -> Verdict:
        if access.verb == "get" and not access.subresource:
            return self._read(node, access)
        if access.verb != "create" or not access.name:
            return False, "can only create tokens for individual service accounts"
        if access.subresource != "token":
            return False, "can only create token subresource of serviceaccount"
        return self._related(node, access)

    def _own(self, node: str, access: Access, what: str, short: str) -> Verdict:
        if access.verb not in OWN_VERBS:
            return False, f"can only get, create, update, patch, or delete {what}"
        if access.verb != "create" and access.name != node:  # a create has no name in its path
            return False, f"can only access {short} with the same name as the requesting node"
        return ALLOWED

    def _slice(self, node: str, access: Access) -> Verdict:
        if access.subresource:
            return False, "cannot authorize ResourceSlice subresources"
        match access.verb:
            case "create":
                return ALLOWED
            case "get" | "update" | "patch" | "delete":
                return self._related(node, access)
            case "watch" | "list" | "deletecollection":
                if access.node == node:
                    return ALLOWED
                return (
                    False,
                    "can only list/watch/deletecollection resourceslices with nodeName field selector",
                )
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return False, f"only the following verbs are allowed for a ResourceSlice: {verbs}"

    def _node(self, node: str, access: Access) -> Verdict:
        match access.subresource, access.verb:
            case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
                return ALLOWED
            case "", "get" | "list" | "watch":
                if access.name == node:
                    return ALLOWED
                what = f"'{access.name}'" if access.name else "all nodes"
                return False, f"node '{node}' cannot read {what}, only its own Node object"
        return False, ""

    def _pod(self, node: str, access: Access) -> Verdict:
        match access.subresource, access.verb:
            case "", "get":
                return self._related(node, access)
            case "", "list" | "watch":
                if access.node == node:
                    return ALLOWED
                if access.name:
                    return self._related(node, access)
                return False, "can only list/watch pods with spec.nodeName field selector"
            case (
                ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create")
            ):
                return ALLOWED
        return False, ""


def _covers(rule: dict[str, list[str]], access: Access) -> bool:
    return (
        access.verb in rule["verbs"]
        and access.group in rule["apiGroups"]
        and access.what in rule["resources"]
    )
