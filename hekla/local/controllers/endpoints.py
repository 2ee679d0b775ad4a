"""Endpoints and EndpointSlices of services with a selector.  Reference: local-cluster 10.8.

Both are a pure function of the service and its pods; the controller writes the difference.  One slice of up to 1,000
addresses stands for a service: a local cluster has no clients that gain from more, smaller slices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from hekla.api.core import ENDPOINTS
from hekla.api.discovery import ENDPOINT_SLICE
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, NotFound
from hekla.local.controllers.pods import Json, Pod

MANAGER = "endpointslice-controller.k8s.io"
LARGEST_SLICE = 1000
LONGEST_WAIT = 1.0
"""Seconds that a change of a pod may wait for others of the same service."""


def chosen(service: Json, pods: Iterable[Pod]) -> list[Pod]:
    """The pods behind a service that have an address, in the order of their names."""
    selector = service["spec"].get("selector") or {}
    return sorted(
        (
            pod for pod in pods
            if pod.status.pod_ip and not pod.finished
            and all(pod.metadata.labels.get(key) == value for key, value in selector.items())
        ),
        key=lambda pod: pod.metadata.name,
    )


def target_port(port: Json, pod: Pod) -> int | None:
    """The number behind a service port on a pod; None when the pod has no port of that name."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    named = (p for container in pod.spec.containers for p in container.ports if p.name == target)
    return next((p.container_port for p in named), None)


def ports_of(service: Json, pod: Pod) -> tuple[tuple[str, int, str], ...]:
    """(name, number, protocol) of the service's ports on this pod."""
    found = []
    for port in service["spec"].get("ports", ()):
        number = target_port(port, pod)
        if number is not None:
            found.append((port.get("name", ""), number, port.get("protocol", "TCP")))
    return tuple(found)


def counts_as_ready(service: Json, pod: Pod) -> bool:
    return bool(service["spec"].get("publishNotReadyAddresses")) or (pod.ready and not pod.deleting)


def reference(pod: Pod) -> Json:
    meta = pod.metadata
    return {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


def hostname(service: Json, pod: Pod) -> str:
    """The name that the pod has below this service; empty when its subdomain is another."""
    return pod.spec.hostname if pod.spec.subdomain == service["metadata"]["name"] else ""


def subsets(service: Json, pods: list[Pod]) -> list[Json]:
    """The subsets of the Endpoints object: addresses grouped by what their ports are."""
    grouped: dict[tuple[tuple[str, int, str], ...], tuple[list[Json], list[Json]]] = {}
    for pod in pods:
        ready, waiting = grouped.setdefault(ports_of(service, pod), ([], []))
        address: Json = {"ip": pod.status.pod_ip, "targetRef": reference(pod)}
        if pod.spec.node_name:
            address["nodeName"] = pod.spec.node_name
        if hostname(service, pod):
            address["hostname"] = hostname(service, pod)
        (ready if counts_as_ready(service, pod) else waiting).append(address)
    result = []
    for ports, (ready, waiting) in sorted(grouped.items()):
        subset: Json = {}
        if ready:
            subset["addresses"] = ready
        if waiting:
            subset["notReadyAddresses"] = waiting
        if ports:
            subset["ports"] = [named({"port": number, "protocol": protocol}, name) for name, number, protocol in ports]
        result.append(subset)
    return result


def named(port: Json, name: str) -> Json:
    return {"name": name, **port} if name else port


def endpoints(service: Json, pods: list[Pod]) -> Json:
    """The Endpoints object that a service should have."""
    meta = service["metadata"]
    labels = dict(meta.get("labels", {}), **{"endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    if service["spec"].get("clusterIP") == "None":
        labels["service.kubernetes.io/headless"] = ""
    tree: Json = {
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "labels": labels},
    }
    found = subsets(service, pods)
    if found:
        tree["subsets"] = found
    return tree


def slice_of(service: Json, pods: list[Pod]) -> Json:
    """The EndpointSlice that a service should have."""
    meta = service["metadata"]
    labels = dict(meta.get("labels", {}))
    labels |= {"kubernetes.io/service-name": meta["name"], "endpointslice.kubernetes.io/managed-by": MANAGER}
    if service["spec"].get("clusterIP") == "None":
        labels["service.kubernetes.io/headless"] = ""
    suffix = hashlib.sha256(meta["uid"].encode()).hexdigest()[:5]
    pods = pods[:LARGEST_SLICE]
    ports = ports_of(service, pods[0]) if pods else ()
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": f"{meta['name']}-{suffix}", "namespace": meta["namespace"], "labels": labels,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": meta["name"], "uid": meta["uid"],
                "controller": True, "blockOwnerDeletion": True,
            }],
        },
        "endpoints": [endpoint(service, pod) for pod in pods],
        "ports": [{"name": name, "port": number, "protocol": protocol} for name, number, protocol in ports],
    }


def endpoint(service: Json, pod: Pod) -> Json:
    tree: Json = {
        "addresses": [pod.status.pod_ip],
        "conditions": {"ready": counts_as_ready(service, pod), "serving": pod.ready, "terminating": pod.deleting},
        "targetRef": reference(pod),
    }
    if pod.spec.node_name:
        tree["nodeName"] = pod.spec.node_name
    if hostname(service, pod):
        tree["hostname"] = hostname(service, pod)
    return tree


def differs(wanted: Json, there: Json, *fields: str) -> bool:
    """Whether a stored object lacks something that is wanted in these fields or in its labels."""
    if any(there.get(field) != wanted.get(field) and (there.get(field) or wanted.get(field)) for field in fields):
        return True
    return bool(wanted["metadata"]["labels"] != there["metadata"].get("labels", {}))


class EndpointsController(Controller):
    """Keeps Endpoints and EndpointSlices true to services and pods."""

    name = "endpoints"

    def __init__(self, client: Client, services: Cache[Json], pods: Cache[Pod]) -> None:
        super().__init__(services, pods)
        self.client = client
        self.services = services
        self.pods = pods
        self.enqueue(services)
        pods.on_change(self.queue_services)

    async def reconcile(self, key: str) -> float | None:
        """Writes what differs for one service; what a deleted service leaves behind goes with it."""
        namespace, name = key.split("/")
        service = self.services.get(key)
        if service is None:
            await self.remove_endpoints(namespace, name)
            return None
        if not service["spec"].get("selector"):
            return None
        pods = chosen(service, self.pods.by("namespace", namespace))
        wanted = endpoints(service, pods)
        await self.write(ENDPOINTS.untyped, wanted, namespace, "subsets")
        wanted = slice_of(service, pods)
        await self.write(ENDPOINT_SLICE.untyped, wanted, namespace, "endpoints", "ports")
        return None

    async def write(self, kind: Any, wanted: Json, namespace: str, *fields: str) -> None:
        name = wanted["metadata"]["name"]
        try:
            there = await self.client.get(kind, name, namespace)
        except NotFound:
            try:
                await self.client.create(kind, wanted, namespace)
                return
            except AlreadyExists:
                there = await self.client.get(kind, name, namespace)
        if differs(wanted, there, *fields):
            wanted["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
            await self.client.update(kind, wanted)

    async def remove_endpoints(self, namespace: str, name: str) -> None:
        """Endpoints have no owner reference on the wire, so they are removed by name; slices are the collector's."""
        try:
            await self.client.delete(ENDPOINTS, name, namespace)
        except NotFound:
            pass

    def queue_services(self, old: Pod | None, new: Pod | None) -> None:
        """Queues the services whose endpoints a change of a pod touches.

        Many pods of one service start together: waiting a little, longer for larger services, makes one write of many.
        """
        if old is not None and new is not None and seen(old) == seen(new):
            return
        for pod in (old, new):
            if pod is None or not pod.status.pod_ip:
                continue
            namespace, labels = pod.metadata.namespace, pod.metadata.labels
            for service in self.services.by("namespace", namespace):
                selector = service["spec"].get("selector")
                if selector and selector.items() <= labels.items():
                    crowd = len(self.pods.by("namespace", namespace))
                    self.queue.add_after(f"{namespace}/{service['metadata']['name']}", min(LONGEST_WAIT, crowd / 1000))


def seen(pod: Pod) -> tuple[Any, ...]:
    """What endpoints show of a pod."""
    return (pod.metadata.labels, pod.status.pod_ip, pod.ready, pod.finished, pod.deleting, pod.spec.node_name)
