"""What a cluster has before anybody makes anything: namespaces, priority classes, the roles that clients expect."""

from __future__ import annotations

from hekla.kube.http.server import Peer, Request
from hekla.local.apiserver.call import Call
from hekla.local.apiserver.identity import ADMIN
from hekla.local.apiserver.kind import Json
from hekla.local.apiserver.route import Route
from hekla.local.apiserver.writing import Writer

RBAC = ("rbac.authorization.k8s.io", "v1")
READ, WRITE = ["get", "list", "watch"], ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
WORKLOADS: list[Json] = [
    {"apiGroups": [""], "resources": [
        "pods", "pods/log", "pods/status", "services", "endpoints", "configmaps", "persistentvolumeclaims", "replicationcontrollers",
        "serviceaccounts", "events", "limitranges", "resourcequotas", "namespaces",
    ]},
    {"apiGroups": ["apps"], "resources": ["*"]},
    {"apiGroups": ["batch"], "resources": ["*"]},
    {"apiGroups": ["autoscaling"], "resources": ["*"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets", "poddisruptionbudgets/status"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"]},
]  # fmt: skip
SECRETS: Json = {
    "apiGroups": [""], "resources": ["secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/eviction"],
    "verbs": WRITE,
}  # fmt: skip
ROLES: Json = {"apiGroups": [RBAC[0]], "resources": ["roles", "rolebindings"], "verbs": WRITE}


def rules(verbs: list[str]) -> list[Json]:
    return [{**rule, "verbs": verbs} for rule in WORKLOADS]


def cluster_role(name: str, rules: list[Json], aggregates: str = "", into: str = "") -> Json:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if into:
        labels[f"rbac.authorization.k8s.io/aggregate-to-{into}"] = "true"
    role: Json = {"metadata": {"name": name, "labels": labels}, "rules": rules}
    if aggregates:
        role["aggregationRule"] = {
            "clusterRoleSelectors": [{"matchLabels": {f"rbac.authorization.k8s.io/aggregate-to-{aggregates}": "true"}}]
        }
    return role


def binding(name: str, role: str, *groups: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": RBAC[0], "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": group, "apiGroup": RBAC[0]} for group in groups],
    }


DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"]
OBJECTS: list[tuple[tuple[str, str], str, Json]] = [
    *((("", "v1"), "namespaces", {"metadata": {"name": name}}) for name in ("default", "kube-system", "kube-public", "kube-node-lease")),
    (("", "v1"), "services", {
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
    }),
    (("scheduling.k8s.io", "v1"), "priorityclasses", {
        "metadata": {"name": "system-cluster-critical"}, "value": 2000000000,
        "description": "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    }),
    (("scheduling.k8s.io", "v1"), "priorityclasses", {
        "metadata": {"name": "system-node-critical"}, "value": 2000001000,
        "description": "Used for system critical pods that must not be moved from their current node.",
    }),
    (RBAC, "clusterroles", cluster_role("cluster-admin", [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ])),
    (RBAC, "clusterroles", cluster_role("admin", [], aggregates="admin")),
    (RBAC, "clusterroles", cluster_role("edit", [], aggregates="edit", into="admin")),
    (RBAC, "clusterroles", cluster_role("view", [], aggregates="view", into="edit")),
    (RBAC, "clusterroles", cluster_role("system:aggregate-to-admin", [*rules(WRITE), SECRETS, ROLES], into="admin")),
    (RBAC, "clusterroles", cluster_role("system:aggregate-to-edit", [*rules(WRITE), SECRETS], into="edit")),
    (RBAC, "clusterroles", cluster_role("system:aggregate-to-view", rules(READ), into="view")),
    (RBAC, "clusterroles", cluster_role("system:discovery", [{"nonResourceURLs": DISCOVERY, "verbs": ["get"]}])),
    (RBAC, "clusterroles", cluster_role("system:public-info-viewer", [
        {"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]},
    ])),
    (RBAC, "clusterroles", cluster_role("system:basic-user", [
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ])),
    (RBAC, "clusterroles", cluster_role("system:node", [
        {"apiGroups": [""], "resources": ["nodes", "nodes/status", "pods", "pods/status", "events"], "verbs": WRITE},
        {"apiGroups": [""], "resources": ["configmaps", "secrets", "services", "serviceaccounts", "persistentvolumeclaims"], "verbs": READ},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": WRITE},
    ])),
    (RBAC, "clusterrolebindings", binding("cluster-admin", "cluster-admin", "system:masters")),
    (RBAC, "clusterrolebindings", binding("system:discovery", "system:discovery", "system:authenticated")),
    (RBAC, "clusterrolebindings", binding("system:basic-user", "system:basic-user", "system:authenticated")),
    (RBAC, "clusterrolebindings", binding(
        "system:public-info-viewer", "system:public-info-viewer", "system:authenticated", "system:unauthenticated",
    )),
    (RBAC, "clusterrolebindings", binding("system:node", "system:node", "system:nodes")),
]  # fmt: skip


class Bootstrap:
    """Creates what is missing, through the same way as any other write."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    async def run(self) -> None:
        for (group, version), plural, tree in OBJECTS:
            resource = self.writer.registry.get(group, version, plural)
            namespace = tree["metadata"].get("namespace", "")
            key = f"{namespace}/{tree['metadata']['name']}" if namespace else tree["metadata"]["name"]
            if resource is None or resource.collection.newest(key) is not None:
                continue
            request = Request("POST", "/bootstrap", "", {}, b"", Peer())
            call = Call(request, Route(resource, namespace, "", ""), ADMIN, "create")
            fresh = {key: value for key, value in tree.items() if key != "metadata"}
            # What the server makes itself may have names and values that are refused to others (system- classes).
            await self.writer.add(call, resource, namespace, {"metadata": dict(tree["metadata"]), **fresh}, validate=False)
