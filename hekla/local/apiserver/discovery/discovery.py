"""Discovery in both forms, legacy and aggregated (local-cluster 1.6)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from hekla.api.trees import Json
from hekla.kube.http.server import Request, Response
from hekla.local.apiserver.aggregation.aggregator import Aggregator
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import encode

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Discovery:
    """Answers requests below /api and /apis. Documents are built once for each generation of the
    registry and of the aggregated APIs."""

    def __init__(self, registry: Registry, aggregator: Aggregator) -> None:
        self.registry = registry
        self.aggregator = aggregator
        self._generation = (-1, -1)
        self._documents: dict[str, tuple[bytes, str]] = {}

    def answer(self, request: Request) -> Response | None:
        """None: not a discovery path, or a group that is not served."""
        generation = self.registry.generation, self.aggregator.generation
        if self._generation != generation:
            self._documents.clear()
            self._generation = generation
        path = request.path.rstrip("/")
        if path in ("/api", "/apis") and wants_aggregated(request.headers.get("accept", "")):
            body, tag = self._document(
                f"aggregated {path}", lambda: self._aggregated(path == "/api")
            )
            headers = {"ETag": f'"{tag}"', "Vary": "Accept", "Cache-Control": "public"}
            if request.headers.get("if-none-match", "").strip('"') == tag:
                return Response(304, headers=headers)
            return Response(200, body, AGGREGATED, headers)
        tree = self._legacy(path)
        if tree is None:
            return None
        body, _ = self._document(f"legacy {path}", lambda: tree)
        return Response(200, body, headers={"Cache-Control": "no-cache, private"})

    def _document(self, name: str, make: Any) -> tuple[bytes, str]:
        known = self._documents.get(name)
        if known is None:
            body = encode(make())
            known = self._documents[name] = (body, hashlib.sha256(body).hexdigest().upper())
        return known

    def _legacy(self, path: str) -> Json | None:
        parts = path.split("/")[1:]
        versions = self._versions()
        match parts:
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                return {
                    "kind": "APIGroupList",
                    "apiVersion": "v1",
                    "groups": [group_tree(g, v) for g, v in versions.items() if g],
                }
            case ["apis", group] if group in versions:
                return {
                    "kind": "APIGroup",
                    "apiVersion": "v1",
                    **group_tree(group, versions[group]),
                }
            case ["api", "v1"]:
                return self._resources("", "v1")
            case ["apis", group, version] if version in versions.get(group, ()):
                return self._resources(group, version)
        return None

    def _resources(self, group: str, version: str) -> Json:
        resources: list[Json] = []
        for resource in sorted(self.registry.of(group, version), key=lambda r: r.kind.plural):
            kind = resource.kind
            entry: Json = {
                "name": kind.plural,
                "singularName": kind.singular or kind.kind.lower(),
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": list(kind.verbs),
            }
            if kind.short_names:
                entry["shortNames"] = list(kind.short_names)
            if kind.categories:
                entry["categories"] = list(kind.categories)
            if "list" in kind.verbs and kind.plural != "componentstatuses":  # which is never stored
                entry["storageVersionHash"] = storage_hash(kind)
            resources.append(entry)
            for name, sub in sorted(kind.subresources.items(), reverse=kind.custom):
                line: Json = {
                    "name": f"{kind.plural}/{name}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                }
                if sub.group:
                    line["group"] = sub.group
                if sub.version:
                    line["version"] = sub.version
                resources.append({**line, "kind": sub.kind or kind.kind, "verbs": list(sub.verbs)})
        return {
            "kind": "APIResourceList",
            **({"apiVersion": "v1"} if group else {}),
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": resources,
        }

    def _aggregated(self, core: bool) -> Json:
        items = []
        for group, versions in self._versions().items():
            if bool(group) == core:
                continue
            items.append(
                {
                    "metadata": {"name": group} if group else {},
                    "versions": [self._aggregated_version(group, one) for one in versions],
                }
            )
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }

    def _aggregated_version(self, group: str, version: str) -> Json:
        backend = self.aggregator.backends.get((group, version))
        if backend is None:
            resources = [aggregated(resource) for resource in self._ordered(group, version)]
        else:
            resources = [one for one in map(aggregated_entry, backend.resources) if one]
        fresh = backend is None or backend.condition.available
        return {
            "version": version,
            "resources": resources,
            "freshness": "Current" if fresh else "Stale",
        }

    def _versions(self) -> dict[str, list[str]]:
        """Groups in the order of discovery, each with its versions; those that other servers answer
        come last, by their priorities."""
        versions = {group: list(known) for group, known in self.registry.versions().items()}
        backends = self.aggregator.backends.values()
        for backend in sorted(backends, key=lambda one: (one.priority, one.name), reverse=True):
            versions.setdefault(backend.group, []).append(backend.version)
        return in_order(versions)

    def _ordered(self, group: str, version: str) -> list[Resource]:
        return sorted(self.registry.of(group, version), key=lambda r: r.kind.plural)


GROUP_ORDER = (
    "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
    "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io",
    "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
)  # fmt: skip
"""The order in which clients look up a name that several groups have; groups of definitions come
last."""


def in_order(versions: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Groups in the order of discovery, each with its versions."""
    known = [group for group in ("", *GROUP_ORDER) if group in versions]
    return {
        group: versions[group]
        for group in [*known, *(group for group in versions if group not in known)]
    }


def wants_aggregated(accept: str) -> bool:
    """Whether a client accepts aggregated discovery."""
    for clause in accept.split(","):
        media, *parameters = [part.strip() for part in clause.split(";")]
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media == "application/json" and not wanted.get("as"):
            return False
        if (
            wanted.get("as") == "APIGroupDiscoveryList"
            and wanted.get("v") == "v2"
            and media == "application/json"
        ):
            return True
    return False


def group_tree(group: str, versions: list[str]) -> Json:
    """The APIGroup of a group."""
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


STORAGE_VERSIONS = {
    "horizontalpodautoscalers": ("autoscaling", "v2"), "events": ("", "v1"),
    "customresourcedefinitions": ("apiextensions.k8s.io", "v1beta1"),
    **dict.fromkeys(("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"), ("admissionregistration.k8s.io", "v1beta1")),
}  # fmt: skip
"""plural -> the group and version in which Kubernetes stores a kind that has several."""


def storage_hash(kind: Kind) -> str:
    """The storageVersionHash: equal for all versions of a kind."""
    if kind.custom:
        group, version = kind.group, kind.stored_version
    else:
        group, version = STORAGE_VERSIONS.get(kind.plural, (kind.group, "v1"))
    return base64.b64encode(
        hashlib.sha256(f"{group}/{version}/{kind.kind}".encode()).digest()[:8]
    ).decode()


def aggregated_entry(listed: Json) -> Json | None:
    """The APIResourceDiscovery of a resource as another server lists it; None for a subresource."""
    name = str(listed.get("name"))
    if "/" in name:
        return None
    kind = {"group": "", "version": "", "kind": listed.get("kind") or ""}
    entry: Json = {
        "resource": name,
        "responseKind": kind,
        "scope": "Namespaced" if listed.get("namespaced") else "Cluster",
        "singularResource": listed.get("singularName") or "",
        "verbs": listed.get("verbs") or [],
    }
    for field in ("shortNames", "categories"):
        if listed.get(field):
            entry[field] = listed[field]
    return entry


def aggregated(resource: Resource) -> Json:
    """The APIResourceDiscovery of a resource."""
    kind = resource.kind
    # Built-in kinds name their group only if it differs from the enclosing one, custom kinds
    # always.
    group, version = (kind.group, kind.version) if kind.custom else ("", "")
    entry: Json = {
        "resource": kind.plural,
        "responseKind": {"group": group, "version": version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular or kind.kind.lower(),
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": {
                    "group": sub.group or group,
                    "version": sub.version or version,
                    "kind": sub.kind or kind.kind,
                },
                "verbs": list(sub.verbs),
            }
            for name, sub in sorted(kind.subresources.items())
        ]
    return entry
