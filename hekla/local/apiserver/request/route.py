"""From a request's path to what it is about."""

from __future__ import annotations

from typing import NamedTuple

from hekla.local.apiserver.storage.registry import Registry, Resource

NAMESPACE_SUBRESOURCES = ("status", "finalize")


class Route:
    """The target of a request on a resource."""

    __slots__ = ("kind", "name", "namespace", "resource", "rest", "subresource", "watch")

    def __init__(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str,
        rest: str = "",
        watch: bool = False,
    ) -> None:
        self.resource = resource
        self.kind = resource.kind
        self.namespace = namespace
        self.name = name
        self.subresource = subresource
        self.rest = rest
        """What follows the subresource (proxy paths)."""
        self.watch = watch
        """The old form of a watch: /api/v1/watch/..."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Unserved(NamedTuple):
    """A path below a group that is built in, or a group and version that are defined, which names
    no resource there."""

    group: str
    version: str


def route(registry: Registry, path: str) -> Route | Unserved | None:
    """None: no such group, version or path at all (discovery paths included)."""
    parts = path.rstrip("/").split("/")
    if len(parts) > 3 and parts[1] == "api":
        group, version, rest = "", parts[2], parts[3:]
    elif len(parts) > 4 and parts[1] == "apis":
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (group == "" and rest[2] in NAMESPACE_SUBRESOURCES and len(rest) == 3)
    ):
        namespace, rest = rest[1], rest[2:]
    resource = registry.get(group, version, rest[0])
    if resource is None or (namespace and not resource.kind.namespaced):
        if group in registry.built_in or any(
            group == g and version == v for g, v, _ in registry.resources
        ):
            return Unserved(group, version)
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    return Route(resource, namespace, name, subresource, "/".join(rest[3:]), watch)
