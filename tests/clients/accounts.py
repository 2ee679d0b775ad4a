"""Service accounts with rights of their own, as programs in a cluster have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.api import Api
from tests.cluster.conftest import Namespace

RBAC, GROUP = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"


def rule(group: str, resources: list[str], *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def make(api: Api, ns: Namespace, name: str, rules: list[dict[str, Any]], place: Path) -> Path:
    """A service account with these rights in the whole cluster: a kubeconfig, with `token` and
    `ca.crt` beside it."""
    whole = f"{ns.name}-{name}"
    api.create(ns.path("serviceaccounts"), {"metadata": {"name": name}})
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": whole}, "rules": rules})
    bind(api, ns, name, "clusterroles", whole)
    return kubeconfig(api, ns, name, place)


def kubeconfig(api: Api, ns: Namespace, name: str, place: Path) -> Path:
    """A kubeconfig of a service account that is there, with `token` and `ca.crt` beside it."""
    made = api.create(ns.path("serviceaccounts", name, "token"), {"spec": {}})
    (place / "token").write_text(made["status"]["token"])
    root = api.get(ns.path("configmaps", "kube-root-ca.crt")).tree
    (place / "ca.crt").write_text(root["data"]["ca.crt"])
    server = f"https://{api.address.hostname}:{api.address.port}"
    (place / "kubeconfig").write_text(
        f"""
apiVersion: v1
kind: Config
current-context: own
contexts: [{{name: own, context: {{cluster: own, user: own}}}}]
clusters: [{{name: own, cluster: {{server: "{server}", certificate-authority: "{place / "ca.crt"}"}}}}]
users: [{{name: own, user: {{tokenFile: "{place / "token"}"}}}}]
"""
    )
    return place / "kubeconfig"


def bind(api: Api, ns: Namespace, name: str, kind: str, role: str) -> None:
    """Give an account a role: of the cluster, or one of the namespace kube-system (`roles`)."""
    body = {
        "metadata": {"name": f"{ns.name}-{name}-{role.replace(':', '-')}"},
        "roleRef": {
            "apiGroup": GROUP,
            "kind": "ClusterRole" if kind == "clusterroles" else "Role",
            "name": role,
        },
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": ns.name}],
    }
    where = (
        "clusterrolebindings" if kind == "clusterroles" else "namespaces/kube-system/rolebindings"
    )
    api.create(f"{RBAC}/{where}", body)
