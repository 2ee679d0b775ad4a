"""Where the scripts work, and the small bodies that many of them send."""

from __future__ import annotations

from tests.cluster.api import Tree

PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
NS = "/api/v1/namespaces/{{ns}}"
MAPS = f"{NS}/configmaps"
PODS = f"{NS}/pods"


def config(name: str, /, **more: object) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"a": "1"},
        **more,
    }


def pod(name: str, /, **spec: object) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec},
    }
