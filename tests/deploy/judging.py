"""What the account of the standalone hypernode controller may and may not do, asked on any cluster."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Api
from tests.deploy.chart import NAMESPACE

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:integration-hypernode-controller"
QUESTIONS = [
    (True, "list", "", "nodes", "", ""),
    (True, "watch", "", "nodes", "", ""),
    (True, "create", "topology.volcano.sh", "hypernodes", "", ""),
    (True, "delete", "topology.volcano.sh", "hypernodes", "", ""),
    (True, "update", "topology.volcano.sh", "hypernodes", "status", ""),
    (True, "watch", "", "configmaps", "", NAMESPACE),
    (True, "get", "", "secrets", "", NAMESPACE),
    (True, "create", "coordination.k8s.io", "leases", "", NAMESPACE),
    (True, "update", "coordination.k8s.io", "leases", "", NAMESPACE),
    (False, "get", "", "secrets", "", "default"),
    (False, "get", "", "secrets", "", "kube-system"),
    (False, "list", "", "secrets", "", NAMESPACE),
    (False, "list", "", "pods", "", ""),
    (False, "list", "", "pods", "", NAMESPACE),
    (False, "create", "", "pods", "", NAMESPACE),
    (False, "patch", "", "nodes", "", ""),
    (False, "watch", "", "configmaps", "", "default"),
    (False, "create", "coordination.k8s.io", "leases", "", "kube-system"),
    (False, "list", "batch.volcano.sh", "jobs", "", "default"),
    (False, "escalate", "rbac.authorization.k8s.io", "clusterroles", "", ""),
]


def judge(api: Api) -> None:
    """Asked twice: by whoever may ask about others, and by the account about itself."""
    self_ = api.as_user(ACCOUNT, "system:authenticated")
    for may, verb, group, resource, subresource, namespace in QUESTIONS:
        about = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
        }
        asked = {"resourceAttributes": {key: value for key, value in about.items() if value}}
        of_it: dict[str, Any] = {"spec": {**asked, "user": ACCOUNT}}
        for door, kind, body in (
            (api, "subjectaccessreviews", of_it),
            (self_, "selfsubjectaccessreviews", {"spec": asked}),
        ):
            answer = door.create(f"/apis/authorization.k8s.io/v1/{kind}", body)
            assert answer["status"]["allowed"] is may, (kind, about, answer["status"])
