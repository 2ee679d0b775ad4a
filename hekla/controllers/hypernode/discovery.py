"""Brings the hypernodes to what the sources of discovery find: one key for each source, and one for
their configuration (reference: controllers 10.3, 10.4).

A source gives the whole tree that it sees; hypernodes that are labelled with its name and are not
in the tree are deleted.  A source that cannot be asked changes nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from hekla.api import names, topology
from hekla.api.kubernetes import core
from hekla.api.text.durations import seconds
from hekla.controllers.hypernode import labels, ufm
from hekla.controllers.hypernode.controller import (
    NODE,
    PAUSE,
    Node,
    config_map_key,
    discovery_config,
)
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, NotFound

__all__ = ["NODE", "DiscoveryController"]

log = logging.getLogger(__name__)

CONFIGURATION = "*"
"""The key of the configuration; the others are names of sources."""
INTERVAL = 3600.0
Tree = dict[str, Any]


class DiscoveryController(Controller):
    """Creates the hypernodes that the enabled sources find, and deletes those that they no longer
    find."""

    name = "hyperNode-discovery"
    workers = 2

    def __init__(
        self, client: Client, hyper_nodes: Cache[topology.HyperNode], nodes: Cache[Node]
    ) -> None:
        namespace, name = config_map_key(os.environ)
        self._config = Cache(
            client, core.CONFIG_MAP.untyped, namespace=namespace, fields=f"metadata.name={name}"
        )
        super().__init__(hyper_nodes, nodes, self._config)
        self._client = client
        self._namespace = namespace
        self._hyper_nodes = hyper_nodes
        self._nodes = nodes
        self._sources: dict[str, Tree] = {}
        self._ask: dict[str, Callable[[Tree], Awaitable[float | None]]] = {
            labels.SOURCE: self._by_labels,
            ufm.SOURCE: self._by_ufm,
        }
        self._config.on_change(lambda old, new: self.queue.add(CONFIGURATION))
        nodes.on_change(self._node_changed)
        hyper_nodes.on_change(self._hyper_node_changed)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if labels.SOURCE in self._sources and (
            old is None or new is None or old.metadata.labels != new.metadata.labels
        ):
            self.queue.add_after(labels.SOURCE, PAUSE)

    def _hyper_node_changed(
        self, old: topology.HyperNode | None, new: topology.HyperNode | None
    ) -> None:
        if new is None and labels.SOURCE in self._sources:
            self.queue.add_after(labels.SOURCE, PAUSE)

    async def reconcile(self, key: str) -> float | None:
        if key == CONFIGURATION:
            self._configure()
            return None
        source = self._sources.get(key)
        return await self._ask[key](source) if source is not None else None

    def _configure(self) -> None:
        """Restart the enabled sources, in their order.  A disabled source is no longer asked, and
        its hypernodes stay.  Raises ValueError for an unknown source: those before it run, those
        after it do not."""
        found = self._config.all()
        wanted = discovery_config(found[0] if found else None)
        enabled = {str(source.get("source")) for source in wanted}
        self._sources = {name: source for name, source in self._sources.items() if name in enabled}
        for source in wanted:
            name = str(source.get("source"))
            if name not in self._ask:
                raise ValueError(
                    f"unsupported source of network topology: {name}; known: {', '.join(sorted(self._ask))}"
                )
            self._sources[name] = source
            self.queue.forget(name)
            self.queue.add(name)

    async def _by_labels(self, source: Tree) -> float | None:
        nodes = {node.metadata.name: node.metadata.labels for node in self._nodes}
        existing = self._found_by(labels.SOURCE)
        wanted = labels.discover(labels.tiers_of(source.get("config") or {}), nodes, existing)
        await self._bring_about(wanted, existing)
        return None

    async def _by_ufm(self, source: Tree) -> float | None:
        config = ufm.settings(source)
        user, password = await self._credentials(config)
        try:
            ports = await ufm.fetch(config, user, password)
        except ufm.Unanswered as error:
            log.warning("hypernodes of source %s stay as they are: %s", ufm.SOURCE, error)
        else:
            await self._bring_about(ufm.discover(ports), self._found_by(ufm.SOURCE))
        return interval_of(source)

    async def _credentials(self, config: ufm.Settings) -> tuple[str, str]:
        """The credentials, read at every discovery, so that a changed password counts at the next
        one.  Raises ValueError."""
        namespace = config.secret_namespace or self._namespace
        try:
            secret = await self._client.get(core.SECRET.untyped, config.secret, namespace)
        except NotFound:
            raise ValueError(
                f"the secret {namespace}/{config.secret} of source {ufm.SOURCE} does not exist"
            ) from None
        return ufm.credentials(secret)

    def _found_by(self, source: str) -> list[topology.HyperNode]:
        return [
            node
            for node in self._hyper_nodes
            if node.metadata.labels.get(names.NETWORK_TOPOLOGY_SOURCE) == source
        ]

    async def _bring_about(
        self, wanted: Mapping[str, Tree], existing: list[topology.HyperNode]
    ) -> None:
        known = {node.metadata.name: node for node in existing}
        for name, body in wanted.items():
            current = known.get(name)
            if current is None:
                try:
                    await self._client.create(topology.HYPER_NODE, body)
                except AlreadyExists:
                    pass
            elif not _same(current, body):
                await self._client.update(topology.HYPER_NODE, _changed(current, body))
        for name in known.keys() - wanted.keys():
            try:
                await self._client.delete(topology.HYPER_NODE, name)
            except NotFound:
                pass


def interval_of(source: Mapping[str, Any]) -> float:
    """Seconds between two discoveries of a source; an hour when the configured value is not
    sensible.  Raises ValueError for a text that is no duration."""
    text = str(source.get("interval") or "0")
    wanted = seconds(text)
    return wanted if wanted > 0 else INTERVAL


def _changed(current: topology.HyperNode, body: Mapping[str, Any]) -> topology.HyperNode:
    """The object with what was found; its other fields stay."""
    meta = msgspec.structs.replace(
        current.metadata, labels={**current.metadata.labels, **body["metadata"]["labels"]}
    )
    return msgspec.structs.replace(
        current, metadata=meta, spec=msgspec.convert(body["spec"], topology.HyperNodeSpec)
    )


def _same(current: topology.HyperNode, body: Mapping[str, Any]) -> bool:
    return (
        bool(msgspec.to_builtins(current.spec) == body["spec"])
        and current.metadata.labels.items() >= body["metadata"]["labels"].items()
    )
