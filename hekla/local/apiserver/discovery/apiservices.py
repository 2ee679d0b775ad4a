"""APIService objects: one `Local` entry for each served group and version.

They follow the registry: the first version of a definition adds an entry, deleting the last one
removes it (local-cluster 1.7, 5.9).
"""

from __future__ import annotations

import asyncio
import logging

from hekla.api.trees import Json
from hekla.kube.http.server import Peer, Request
from hekla.local.apiserver.discovery.definitions import SERVER, Definitions
from hekla.local.apiserver.objects.new_objects import now
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Event
from hekla.local.apiserver.write.delete_options import DeleteOptions
from hekla.local.apiserver.write.deletion import Deleter

log = logging.getLogger("hekla.apiserver")

AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"


class ApiServices:
    """Keeps the APIService objects in step with the registry."""

    def __init__(self, registry: Registry, definitions: Definitions, deleter: Deleter) -> None:
        self.registry = registry
        self.definitions = definitions
        self.deleter = deleter
        self._resource = registry.get("apiregistration.k8s.io", "v1", "apiservices")
        self._task: asyncio.Task[None] | None = None
        self._seen = -1

    async def start(self) -> None:
        """Create the entries of what is served now, and follow the definitions."""
        self.definitions.resource.collection.listeners.add(self.on_definitions)
        await self._follow()

    def stop(self) -> None:
        """Stop following."""
        self.definitions.resource.collection.listeners.discard(self.on_definitions)
        if self._task is not None:
            self._task.cancel()

    def on_definitions(self, events: list[Event]) -> None:
        """A definition has changed, and perhaps the registry with it."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        while self._seen != self.registry.generation:
            self._seen = self.registry.generation
            try:
                await self._reconcile()
            except Refusal as refusal:
                log.warning("the list of API services: %s", refusal)

    async def _reconcile(self) -> None:
        resource = self._resource
        if resource is None:
            return
        wanted = {
            f"{version}.{group}": (group, version, position)
            for position, (group, versions) in enumerate(self.registry.versions().items())
            for version in versions
        }
        there = {row.name for row in resource.collection.accepted() if AUTOMANAGED in row.labels}
        for name in sorted(wanted.keys() - there):
            group, version, position = wanted[name]
            if resource.collection.newest(name) is None:
                built_in = group in self.registry.built_in
                call = Call(
                    Request("POST", "/apiservices", "", {}, b"", Peer()),
                    Route(resource, "", "", ""),
                    SERVER,
                    "create",
                )
                writer = self.definitions.writer
                await writer.add(
                    call, resource, "", entry(name, group, version, built_in, position)
                )
        for name in sorted(there - wanted.keys()):
            call = Call(
                Request("DELETE", "/apiservices", "", {}, b"", Peer()),
                Route(resource, "", name, ""),
                SERVER,
                "delete",
            )
            await self.deleter.remove(call, resource, name, DeleteOptions())


def entry(name: str, group: str, version: str, built_in: bool, position: int) -> Json:
    """The APIService of a group and version. `position` orders the built-in groups."""
    return {
        "metadata": {"name": name, "labels": {AUTOMANAGED: "onstart" if built_in else "true"}},
        "spec": {
            **({"group": group} if group else {}),
            "version": version,
            "groupPriorityMinimum": max(18000 - 50 * position, 10000) if built_in else 1000,
            "versionPriority": 15 if built_in else 100,
        },
        "status": {
            "conditions": [
                {
                    "type": "Available",
                    "status": "True",
                    "lastTransitionTime": now(),
                    "reason": "Local",
                    "message": "Local APIServices are always available",
                }
            ]
        },
    }
