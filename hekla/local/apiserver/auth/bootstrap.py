"""The objects of a new cluster: namespaces, priority classes, flow schemas, and the roles that
clients expect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hekla.api.trees import Json
from hekla.kube.http.server import Peer, Request
from hekla.local.apiserver.admission.addresses import RANGE
from hekla.local.apiserver.auth import roles
from hekla.local.apiserver.auth.user import ADMIN
from hekla.local.apiserver.objects.new_objects import now
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.write.writing import Writer, tree_copy

RBAC = ("rbac.authorization.k8s.io", "v1")
FLOWS = ("flowcontrol.apiserver.k8s.io", "v1")
EXTENSION_SERVERS = "extension-apiserver-authentication"
"""The ConfigMap that tells servers of aggregated APIs whom to trust."""


def flow(name: str, level: str, precedence: int, *groups: str) -> Json:
    """A flow schema for the requests of some groups."""
    subjects = [{"kind": "Group", "group": {"name": group}} for group in groups]
    return {
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "rules": [
                {
                    "subjects": subjects,
                    "resourceRules": [
                        {
                            "verbs": ["*"],
                            "apiGroups": ["*"],
                            "resources": ["*"],
                            "clusterScope": True,
                            "namespaces": ["*"],
                        }
                    ],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }
            ],
        },
    }


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
    (("networking.k8s.io", "v1"), "servicecidrs", {
        "metadata": {"name": "kubernetes", "finalizers": ["networking.k8s.io/service-cidr-finalizer"]}, "spec": {"cidrs": [str(RANGE)]},
    }),
    *((("", "v1"), "componentstatuses", {
        "metadata": {"name": name}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
    }) for name in ("controller-manager", "scheduler", "etcd-0")),
    (FLOWS, "prioritylevelconfigurations", {"metadata": {"name": "exempt"}, "spec": {"type": "Exempt"}}),
    (FLOWS, "prioritylevelconfigurations", {"metadata": {"name": "catch-all"}, "spec": {
        "type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}},
    }}),
    (FLOWS, "flowschemas", flow("exempt", "exempt", 1, "system:masters")),
    (FLOWS, "flowschemas", flow("catch-all", "catch-all", 10000, "system:unauthenticated", "system:authenticated")),
    *((RBAC, "clusterroles", role) for role in roles.CLUSTER_ROLES),
    *((RBAC, "clusterrolebindings", binding) for binding in roles.CLUSTER_ROLE_BINDINGS),
    (RBAC, "roles", {
        "metadata": {"name": EXTENSION_SERVERS + "-reader", "namespace": "kube-system"},
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [EXTENSION_SERVERS], "verbs": ["get", "list", "watch"],
        }],
    }),
]  # fmt: skip


class Bootstrap:
    """Creates missing objects in the same way as any other write."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    async def run(self) -> None:
        """Create all missing objects."""
        # Concurrently, so that the writes share a few disk commits.
        for first in (True, False):
            made = (self._make(*entry) for entry in OBJECTS if (entry[1] == "namespaces") is first)
            await asyncio.gather(*made)
        await self._ready_addresses()
        await self._unbind_nodes()

    async def _make(self, group_version: tuple[str, str], plural: str, tree: Json) -> None:
        resource = self.writer.registry.get(*group_version, plural)
        namespace = tree["metadata"].get("namespace", "")
        key = f"{namespace}/{tree['metadata']['name']}" if namespace else tree["metadata"]["name"]
        if resource is None or resource.collection.newest(key) is not None:
            return
        request = Request("POST", "/bootstrap", "", {"user-agent": "kube-apiserver"}, b"", Peer())
        call = Call(request, Route(resource, namespace, "", ""), ADMIN, "create")
        # The server's own objects may have names and values that are reserved (system- classes).
        await self.writer.add(call, resource, namespace, tree_copy(tree))

    async def advertise(self, address: str, port: int) -> None:
        """Write the endpoints of the Service `kubernetes`, as Endpoints and as EndpointSlice. The
        port may change with each start."""
        ports = [{"name": "https", "port": port, "protocol": "TCP"}]
        labels = {"kubernetes.io/service-name": "kubernetes"}
        for group_version, plural, body in (
            (
                ("", "v1"),
                "endpoints",
                {"subsets": [{"addresses": [{"ip": address}], "ports": ports}]},
            ),
            (
                ("discovery.k8s.io", "v1"),
                "endpointslices",
                {
                    "addressType": "IPv6" if ":" in address else "IPv4",
                    "ports": ports,
                    "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
                },
            ),
        ):
            marks = (
                labels
                if plural == "endpointslices"
                else {"endpointslice.kubernetes.io/skip-mirror": "true"}
            )
            await self._make(
                group_version,
                plural,
                {
                    "metadata": {"name": "kubernetes", "namespace": "default", "labels": marks},
                    **body,
                },
            )
            await self._replace(group_version, plural, "default", "kubernetes", body)

    async def tell_extension_servers(self, authority: str, front_proxy: str) -> None:
        """Write by which certificates servers of aggregated APIs know this one and its users, where
        Kubernetes' libraries look for it."""
        data = {"client-ca-file": authority}
        if front_proxy:
            data |= {
                "requestheader-client-ca-file": front_proxy,
                "requestheader-allowed-names": '["front-proxy-client"]',
                "requestheader-username-headers": '["X-Remote-User"]',
                "requestheader-uid-headers": '["X-Remote-Uid"]',
                "requestheader-group-headers": '["X-Remote-Group"]',
                "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            }
        namespace, name = "kube-system", EXTENSION_SERVERS
        kind, body = ("", "v1"), {"data": data}
        await self._make(
            kind, "configmaps", {"metadata": {"name": name, "namespace": namespace}, **body}
        )
        await self._replace(kind, "configmaps", namespace, name, body)

    async def _replace(
        self, group_version: tuple[str, str], plural: str, namespace: str, name: str, body: Json
    ) -> None:
        """Bring these fields of an object up to date, if it is there."""
        key = f"{namespace}/{name}"
        resource = self.writer.registry.get(*group_version, plural)
        row = resource.collection.newest(key) if resource is not None else None
        if (
            resource is None
            or row is None
            or all(row.tree().get(field) == value for field, value in body.items())
        ):
            return
        request = Request("PUT", "/bootstrap", "", {"user-agent": "kube-apiserver"}, b"", Peer())
        call = Call(request, Route(resource, namespace, name, ""), ADMIN, "update")
        await self.writer.change(call, resource, key, replacing(body), retry=True, admit=False)

    async def _unbind_nodes(self) -> None:
        """Remove the binding of all nodes that earlier versions created, unless somebody switched
        off its automatic update."""
        resource = self.writer.registry.get(*RBAC, "clusterrolebindings")
        row = resource.collection.newest("system:node") if resource is not None else None
        if resource is None or row is None:
            return
        tree = row.tree()
        updated = (
            tree["metadata"].get("annotations") or {}
        ).items() >= roles.AUTOUPDATE_ANNOTATIONS.items()
        if not updated or tree.get("subjects") != [roles.subject("group system:nodes")]:
            return
        call = call_for(resource, "system:node")
        await self.writer.change(
            call, resource, "system:node", replacing({"subjects": []}), retry=True, admit=False
        )

    async def _ready_addresses(self) -> None:
        """Mark the ServiceCIDR as ready."""
        resource = self.writer.registry.get("networking.k8s.io", "v1", "servicecidrs")
        if resource is None:
            return

        def ready(tree: Json) -> Json:
            if not (tree.get("status") or {}).get("conditions"):
                condition = {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": now(),
                    "reason": "",
                    "message": "Kubernetes Service CIDR is ready",
                }
                tree["status"] = {"conditions": [condition]}
            return tree

        call = call_for(resource, "kubernetes")
        await self.writer.change(
            call, resource, "kubernetes", ready, retry=True, subresource="server", admit=False
        )


def call_for(resource: Resource, name: str) -> Call:
    """The server's own request to update an object."""
    request = Request("PUT", "/bootstrap", "", {}, b"", Peer())
    return Call(request, Route(resource, "", name, ""), ADMIN, "update")


def replacing(body: Json) -> Callable[[Json], Json]:
    """A change that replaces these fields of an object."""
    return lambda tree: {**tree, **body}
