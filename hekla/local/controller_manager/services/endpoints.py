"""Endpoints and EndpointSlices of services with a selector.  Reference: local-cluster 10.8.

Both are a pure function of the service and its pods; the controller writes the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from hekla.api.kubernetes.core import ENDPOINTS, SERVICE
from hekla.api.kubernetes.discovery import ENDPOINT_SLICE
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, Forbidden, NotFound
from hekla.local.controller_manager import ownership
from hekla.local.controller_manager.garbage import Owned
from hekla.local.controller_manager.nodes.nodes import Node
from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.services.slices import (
    HEADLESS,
    MANAGED_BY,
    SERVICE_NAME,
    Group,
    plan,
)

MANAGER = "endpointslice-controller.k8s.io"
MOST_ADDRESSES = 1000
"""Addresses in one Endpoints object; further ones are in the slices only."""
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
SELECTED = "selected"
"""The index of services by a label that pods behind them must have, so that a pod's change is
matched against one or two of a thousand services."""
LONGEST_WAIT = 1.0
"""Seconds that a change of a pod may wait for others of the same service: 1 ms for each further
pod."""


def chosen(service: Json, pods: Iterable[Pod]) -> list[Pod]:
    """The pods behind a service that have an address, in the order of their names."""
    selector = service["spec"].get("selector") or {}
    return sorted(
        (
            pod
            for pod in pods
            if pod.status.pod_ip
            and not pod.finished
            and all(pod.metadata.labels.get(key) == value for key, value in selector.items())
        ),
        key=lambda pod: pod.metadata.name,
    )


def target_port(port: Json, pod: Pod) -> int | None:
    """The number behind a service port on a pod; None when the pod has no port of that name."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    sidecars = (
        container for container in pod.spec.init_containers if container.restart_policy == "Always"
    )
    named = (
        p
        for container in (*pod.spec.containers, *sidecars)
        for p in container.ports
        if p.name == target and p.protocol == port.get("protocol", "TCP")
    )
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
            subset["ports"] = [
                named({"port": number, "protocol": protocol}, name)
                for name, number, protocol in ports
            ]
        result.append(subset)
    return result


def named(port: Json, name: str) -> Json:
    return {"name": name, **port} if name else port


def endpoints(service: Json, pods: list[Pod]) -> Json:
    """The Endpoints object that a service should have."""
    meta = service["metadata"]
    labels = dict(
        meta.get("labels", {}), **{"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    )
    if service["spec"].get("clusterIP") == "None":
        labels[HEADLESS] = ""
    tree: Json = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "labels": labels},
    }
    if len(pods) > MOST_ADDRESSES:
        tree["metadata"]["annotations"] = {OVER_CAPACITY: "truncated"}
        pods = sorted(pods, key=lambda pod: not counts_as_ready(service, pod))[:MOST_ADDRESSES]
    found = subsets(service, pods)
    if found:
        tree["subsets"] = found
    return tree


def groups_of(
    service: Json, pods: list[Pod], zone: Callable[[str], str] = lambda node: ""
) -> list[Group]:
    """The endpoints of a service, grouped by their ports."""
    protocols = {
        port.get("name", ""): port["appProtocol"]
        for port in service["spec"].get("ports", ())
        if port.get("appProtocol")
    }
    found: dict[tuple[tuple[str, int, str], ...], Group] = {}
    for pod in pods:
        ports = ports_of(service, pod)
        group = found.get(ports)
        if group is None:
            entries: list[Json] = [
                {"name": name, "port": number, "protocol": protocol}
                for name, number, protocol in ports
            ]
            for entry in entries:
                if entry["name"] in protocols:
                    entry["appProtocol"] = protocols[entry["name"]]
            group = found[ports] = Group("IPv4", entries, {})
        group.endpoints[pod.metadata.uid] = endpoint(service, pod, zone(pod.spec.node_name))
    return list(found.values())


def slice_body(service: Json) -> Json:
    """What all slices of a service have in common."""
    meta = service["metadata"]
    labels = {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: MANAGER}
    labels.pop(HEADLESS, None)
    if service["spec"].get("clusterIP") == "None":
        labels[HEADLESS] = ""
    return {
        "metadata": {
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [ownership.reference(SERVICE, service)],
        }
    }


def endpoint(service: Json, pod: Pod, zone: str = "") -> Json:
    """An entry of a slice."""
    tree: Json = {
        "addresses": [pod.status.pod_ip],
        "conditions": {
            "ready": counts_as_ready(service, pod),
            "serving": pod.ready,
            "terminating": pod.deleting,
        },
        "targetRef": reference(pod),
    }
    if pod.spec.node_name:
        tree["nodeName"] = pod.spec.node_name
    if hostname(service, pod):
        tree["hostname"] = hostname(service, pod)
    if zone:
        tree["zone"] = zone
    return tree


def differs(wanted: Json, there: Json, *fields: str) -> bool:
    """Whether a stored object differs from what is wanted in these fields or in its labels."""
    if any(
        there.get(field) != wanted.get(field) and (there.get(field) or wanted.get(field))
        for field in fields
    ):
        return True
    return bool(wanted["metadata"]["labels"] != there["metadata"].get("labels", {}))


class Slices:
    """The slices of one manager on the API server."""

    def __init__(self, client: Client, manager: str) -> None:
        self.client = client
        self.manager = manager

    async def there(self, namespace: str, name: str) -> list[Json]:
        labels = f"{SERVICE_NAME}={name},{MANAGED_BY}={self.manager}"
        items = (await self.client.list(ENDPOINT_SLICE.untyped, namespace, labels=labels)).items
        return [piece for piece in items if piece["metadata"].get("deletionTimestamp") is None]

    async def write(self, namespace: str, name: str, body: Json, groups: list[Group]) -> None:
        """Brings the slices of one service to these groups."""
        changes = plan(body, await self.there(namespace, name), groups)
        for piece in changes.create:
            await self.client.create(ENDPOINT_SLICE.untyped, piece, namespace)
        for piece in changes.update:
            await self.client.update(ENDPOINT_SLICE.untyped, piece)
        for piece in changes.delete:
            await self.drop(piece)

    async def remove(self, namespace: str, name: str) -> None:
        for piece in await self.there(namespace, name):
            await self.drop(piece)

    async def drop(self, piece: Json) -> None:
        with suppress(NotFound):
            await self.client.delete(
                ENDPOINT_SLICE, piece["metadata"]["name"], piece["metadata"]["namespace"]
            )


class EndpointsController(Controller):
    """Keeps Endpoints and EndpointSlices true to services and pods."""

    name = "endpoints"

    def __init__(
        self,
        client: Client,
        services: Cache[Json],
        pods: Cache[Pod],
        nodes: Cache[Node],
        written: Cache[Json],
        pieces: Cache[Owned],
    ) -> None:
        """`written` are the Endpoints and `pieces` the slices that are there."""
        super().__init__(services, pods, nodes, written, pieces)
        self.client = client
        self.services = services
        self.pods = pods
        self.nodes = nodes
        self.written = written
        self.slices = Slices(client, MANAGER)
        self.enqueue(services)
        pods.on_change(self.queue_services)
        written.on_change(self.endpoints_changed)
        pieces.on_change(self.slice_changed)

    def endpoints_changed(self, old: Json | None, new: Json | None) -> None:
        """Queue the service of deleted Endpoints, so that they are written again."""
        if new is None and old is not None:
            self.queue.add(f"{old['metadata']['namespace']}/{old['metadata']['name']}")

    def slice_changed(self, old: Owned | None, new: Owned | None) -> None:
        if new is None and old is not None:
            for owner in old.metadata.owner_references:
                if owner.kind == "Service":
                    self.queue.add(f"{old.metadata.namespace}/{owner.name}")

    def zone(self, node: str) -> str:
        found = self.nodes.get(node)
        return found.zone if found is not None else ""

    async def reconcile(self, key: str) -> float | None:
        """Write the Endpoints and slices of one service where they differ; delete those of a
        service that is gone."""
        namespace, name = key.split("/")
        service = self.services.get(key)
        if service is None:
            if key in self.written:
                await self.remove_endpoints(namespace, name)
            return None
        if (
            not service["spec"].get("selector")
            or service["metadata"].get("deletionTimestamp") is not None
        ):
            return None
        if service["spec"].get("type") == "ExternalName":
            await self.slices.remove(namespace, name)
            return None
        pods = chosen(service, self.pods.by("namespace", namespace))
        try:
            await self.write_endpoints(endpoints(service, pods), key)
            await self.slices.write(
                namespace, name, slice_body(service), groups_of(service, pods, self.zone)
            )
        except Forbidden:
            return None  # the namespace is on its way out
        return None

    async def write_endpoints(self, wanted: Json, key: str) -> None:
        """Writes the Endpoints where they differ from what was seen last; a cache that was late
        costs a Conflict and another look."""
        there = self.written.get(key)
        namespace = wanted["metadata"]["namespace"]
        if there is None:
            try:
                await self.client.create(ENDPOINTS.untyped, wanted, namespace)
                return
            except AlreadyExists:
                there = await self.client.get(
                    ENDPOINTS.untyped, wanted["metadata"]["name"], namespace
                )
        if differs(wanted, there, "subsets"):
            before = {
                k: v
                for k, v in (there["metadata"].get("annotations") or {}).items()
                if k != OVER_CAPACITY
            }
            annotations = {**before, **wanted["metadata"].get("annotations", {})}
            wanted["metadata"] = {
                **there["metadata"],
                **wanted["metadata"],
                "annotations": annotations,
            }
            await self.client.update(ENDPOINTS.untyped, wanted)

    async def remove_endpoints(self, namespace: str, name: str) -> None:
        """Endpoints have no owner reference on the wire, so they are removed by name; slices are
        the collector's."""
        with suppress(NotFound):
            await self.client.delete(ENDPOINTS, name, namespace)

    def queue_services(self, old: Pod | None, new: Pod | None) -> None:
        """Queues the services whose endpoints a change of a pod touches.

        Many pods of one service start together: waiting a little, longer for larger services, makes
        one write of many.
        """
        if not self.services.values(SELECTED) or (
            old is not None and new is not None and seen(old) == seen(new)
        ):
            return
        for pod in (old, new):
            if pod is None or not pod.status.pod_ip:
                continue
            namespace, labels = pod.metadata.namespace, pod.metadata.labels
            for name, value in labels.items():
                for service in self.services.by(SELECTED, place(namespace, name, value)):
                    if service["spec"]["selector"].items() <= labels.items():
                        crowd = self.pods.count("namespace", namespace)
                        self.queue.add_after(
                            f"{namespace}/{service['metadata']['name']}",
                            min(LONGEST_WAIT, crowd / 1000),
                        )


def selected(service: Json) -> tuple[str, ...]:
    """The index function of SELECTED.  Of several labels one that few pods have: not the namespace
    again, a long value."""
    selector = service["spec"].get("selector")
    if not selector:
        return ()
    namespace = service["metadata"]["namespace"]
    name, value = max(selector.items(), key=lambda item: (item[1] != namespace, len(item[1]), item))
    return (place(namespace, name, value),)


def place(namespace: str, label: str, value: str) -> str:
    return f"{namespace}/{label}={value}"


def seen(pod: Pod) -> tuple[Any, ...]:
    """What of a pod its endpoints depend on."""
    return (
        pod.metadata.labels,
        pod.status.pod_ip,
        pod.ready,
        pod.finished,
        pod.deleting,
        pod.spec.node_name,
    )
