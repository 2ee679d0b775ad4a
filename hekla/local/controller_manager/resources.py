"""The kinds that the API server serves right now, custom ones included, as discovery lists them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from hekla.api.kinds import Kind
from hekla.kube.client import Client
from hekla.kube.errors import ApiError

T = TypeVar("T")


class Resource(NamedTuple):
    """One served resource: its coordinates and what can be done with it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def typed(self, type_: type[T]) -> Kind[T]:
        """The kind as the client wants it, its objects decoded into `type_`."""
        return Kind(self.group, self.version, self.kind, self.plural, self.namespaced, type_)


async def served(client: Client) -> list[Resource]:
    """All resources of the preferred version of every group.  A group that does not answer is left
    out this time."""
    versions = ["v1"]
    groups = msgspec.json.decode((await client.request("GET", "/apis")).body)
    versions += [group["preferredVersion"]["groupVersion"] for group in groups["groups"]]
    found: list[Resource] = []
    for version in versions:
        path = "/api/v1" if version == "v1" else f"/apis/{version}"
        try:
            listed = msgspec.json.decode((await client.request("GET", path)).body)
        except ApiError:
            continue
        found += [
            resource(version, entry) for entry in listed["resources"] if "/" not in entry["name"]
        ]
    return found


def resource(version: str, entry: dict[str, Any]) -> Resource:
    """One entry of a discovery document."""
    group, _, short = version.rpartition("/")
    return Resource(
        group, short, entry["kind"], entry["name"], entry["namespaced"], frozenset(entry["verbs"])
    )
