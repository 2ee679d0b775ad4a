"""The objects that stories are told about, as short as they can be."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Tree


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {"a": "1"},
    }


def container(*command: str, name: str = "c", **more: Any) -> Tree:
    return {
        "name": name,
        "image": "busybox",
        **({"command": list(command)} if command else {}),
        **more,
    }


def pod(name: str, *command: str, labels: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A pod of one container, bound nowhere and wanting no scheduler unless `spec` says otherwise."""
    metadata = {"name": name, "labels": labels or {"app": name}}
    containers = [container(*(command or ("sleep", "600")))]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "nobody", "containers": containers, **spec},
    }


def run(name: str, node: str, *command: str, **spec: Any) -> Tree:
    """A pod that runs on this node, once and with little patience."""
    return pod(
        name,
        *command,
        **{"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 2, **spec},
    )


def shell(name: str, node: str, script: str, **spec: Any) -> Tree:
    return run(name, node, "sh", "-c", script, **spec)


def deployment(name: str, replicas: int, *command: str, **pod_spec: Any) -> Tree:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container(*(command or ("sleep", "600")))],
            "terminationGracePeriodSeconds": 0,
            **pod_spec,
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def lease(name: str, holder: str = "one") -> Tree:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.123456Z",
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": spec,
    }


def condition(tree: Tree, kind: str) -> Tree:
    """The object's condition of this type; empty when it has none."""
    found = [c for c in tree.get("status", {}).get("conditions") or [] if c["type"] == kind]
    return dict(found[0]) if found else {}


FAKE = {
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
    "nodeSelector": {"type": "kwok"},
}
"""What sends a pod to fake nodes."""
