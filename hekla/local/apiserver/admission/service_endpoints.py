"""Where a Service that the API server itself calls can be reached: webhooks and aggregated APIs name
Services, and both go to the first ready endpoint."""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.local.apiserver.storage.registry import Registry


class NoEndpoint(Exception):
    """A Service that cannot be called; `reason` is that of an APIService's condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def endpoint_of(registry: Registry, namespace: str, name: str, port: int) -> tuple[str, int]:
    """Host and port of a Service's first ready endpoint.  Raises NoEndpoint."""
    row = registry["services"].collection.newest(f"{namespace}/{name}")
    if row is None:
        raise NoEndpoint("ServiceNotFound", f'service "{name}" not found')
    spec: Json = row.tree().get("spec") or {}
    ports: list[Json] = spec.get("ports") or []
    served = next((entry for entry in ports if entry.get("port") == port), None)
    if served is None:
        raise NoEndpoint("ServicePortError", f'no service port {port} found for service "{name}"')
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName")), port
    endpoints = registry["endpoints"].collection.newest(f"{namespace}/{name}")
    subsets: list[Json] = (endpoints.tree().get("subsets") or []) if endpoints is not None else []
    for subset in subsets:
        for address in subset.get("addresses") or []:
            number = endpoint_port(subset.get("ports") or [], served)
            if number:
                return str(address.get("ip")), number
    raise NoEndpoint("MissingEndpoints", f'no endpoints available for service "{name}"')


def endpoint_port(ports: list[Json], served: Json) -> int:
    """The number under which endpoints serve a Service's port; 0 for none."""
    name = served.get("name") or ""
    for entry in ports:
        if (entry.get("name") or "") == name:
            return int(entry.get("port") or 0)
    return int(ports[0].get("port") or 0) if len(ports) == 1 else 0
