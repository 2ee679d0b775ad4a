"""Defaults of the core kinds other than pods (local-cluster 5.3 to 5.6)."""

from __future__ import annotations

from hekla.api.names import NAMESPACE_NAME
from hekla.api.trees import Json
from hekla.local.apiserver.objects.defaults.workloads import fill


def _namespace(tree: Json) -> None:
    name = tree.get("metadata", {}).get("name")
    if name:
        labels = tree["metadata"].setdefault("labels", {})
        labels[NAMESPACE_NAME] = name
    status = tree.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Active"


_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
"""Fields of a node's nodeInfo that are always shown, even if empty."""


def _node(tree: Json) -> None:
    tree.setdefault("spec", {})
    status = tree.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    if "daemonEndpoints" not in status:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 0}}
    info = status.setdefault("nodeInfo", {})
    for name in _NODE_INFO:
        if name not in info:
            info[name] = ""


def _secret(tree: Json) -> None:
    if not tree.get("type"):
        tree["type"] = "Opaque"


def _service(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    for name, value in (("type", "ClusterIP"), ("sessionAffinity", "None")):
        if not spec.get(name):
            spec[name] = value
    if spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        fill(config, timeoutSeconds=10800)
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if spec["type"] != "ExternalName":
        fill(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer") or (
        spec["type"] == "ClusterIP" and spec.get("externalIPs")
    ):
        if not spec.get("externalTrafficPolicy"):
            spec["externalTrafficPolicy"] = "Cluster"
        if spec["type"] == "LoadBalancer":
            fill(spec, allocateLoadBalancerNodePorts=True)
    balancer = tree.setdefault("status", {}).setdefault("loadBalancer", {})
    for entry in balancer.get("ingress") or () if spec["type"] == "LoadBalancer" else ():
        if entry.get("ip"):
            fill(entry, ipMode="VIP")


def _endpoints(tree: Json) -> None:
    for subset in tree.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def _persistent_volume(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    fill(spec, volumeMode="Filesystem")
    path = spec.get("hostPath")
    if path is not None:
        fill(path, type="")
    status = tree.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def _persistent_volume_claim(tree: Json) -> None:
    fill(tree.setdefault("spec", {}), volumeMode="Filesystem")
    status = tree.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def _limit_range(tree: Json) -> None:
    """In container items, default comes from max, defaultRequest from default, and then from min."""
    spec = tree.setdefault("spec", {})
    for item in spec.get("limits") or ():
        if item.get("type") != "Container":
            continue
        default = {**item.get("max", {}), **item.get("default", {})}
        request = {**item.get("min", {}), **default, **item.get("defaultRequest", {})}
        if default:
            item["default"] = default
        if request:
            item["defaultRequest"] = request


def _resource_quota(tree: Json) -> None:
    tree.setdefault("spec", {})
    tree.setdefault("status", {})


DEFAULTS = {
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("", "Endpoints"): _endpoints,
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _persistent_volume_claim,
    ("", "LimitRange"): _limit_range,
    ("", "ResourceQuota"): _resource_quota,
}
