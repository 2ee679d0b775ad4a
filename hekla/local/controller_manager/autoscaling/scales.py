"""The scale subresource of whatever kind an autoscaler names."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from hekla.api.kinds import Kind
from hekla.api.trees import Json
from hekla.kube.client import Client


class UnknownKind(Exception):
    """The target's kind is not served.  The text says which."""


class Scale(NamedTuple):
    """A scale, and where it was read."""

    path: str
    tree: Json

    @property
    def wanted(self) -> int:
        return int((self.tree.get("spec") or {}).get("replicas") or 0)

    @property
    def current(self) -> int:
        return int((self.tree.get("status") or {}).get("replicas") or 0)

    @property
    def selector(self) -> str:
        return str((self.tree.get("status") or {}).get("selector") or "")


class Scales:
    """Reads and writes them.  `plurals` gives the plural of a kind (apiVersion, kind), "" if
    unknown."""

    def __init__(self, client: Client, plurals: Callable[[str, str], str]) -> None:
        self._client = client
        self._plurals = plurals

    async def get(self, namespace: str, target: Json) -> Scale:
        """Raises UnknownKind, and ApiError for a kind without a scale as for a target that is not
        there."""
        version, kind = target.get("apiVersion") or "", target["kind"]
        plural = self._plurals(version, kind)
        group, _, number = version.rpartition("/")
        if not plural:
            raise UnknownKind(f'no matches for kind "{kind}" in group "{group}"')
        kinds: Kind[Json] = Kind(group, number, kind, plural, True, dict)
        path = kinds.path(namespace, target["name"], "scale")
        answer = await self._client.request("GET", path)
        return Scale(path, msgspec.json.decode(answer.body))

    async def set(self, scale: Scale, replicas: int) -> None:
        """Raises ApiError, a conflict too."""
        tree = {**scale.tree, "spec": {**(scale.tree.get("spec") or {}), "replicas": replicas}}
        await self._client.request("PUT", scale.path, body=tree)
