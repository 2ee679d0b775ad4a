"""The sharding controller: one NodeShard for each scheduler, with the nodes that it should use
(reference: controllers 11).

One reconcile computes all shards together, so that no node is ever in two, and writes those that
differ enough.  It runs every period, after a change of the configuration or of a shard, and after
events of nodes and pods that change a node's load much.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hekla.api import shard
from hekla.api.kubernetes import core
from hekla.controllers.sharding.config import KEY, ShardingConfig, of_flags, read
from hekla.controllers.sharding.policies import NodeUse, assign
from hekla.controllers.sharding.use import NODE, POD, Node, Pod, Use
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, NotFound

log = logging.getLogger(__name__)

ALL = "*"
PAUSE = 0.2
"""Seconds for which events are gathered before a reconcile."""
FAR = 0.5
"""A node whose share of CPU or memory has changed by more than this since the last reconcile causes
one at once."""


class ShardingController(Controller):
    """Assigns nodes to schedulers.  `flags`, `period` and `node_events` hold while there is no
    ConfigMap."""

    name = "sharding-controller"
    workers = 1

    def __init__(
        self,
        client: Client,
        *,
        flags: Sequence[str] = (),
        period: float = 60.0,
        node_events: bool = True,
        config_map: str = "",
        namespace: str = "",
    ) -> None:
        self._client = client
        self._shards = Cache(client, shard.NODE_SHARD)
        self._nodes: Cache[Node] = Cache(client, NODE)
        self._pods: Cache[Pod] = Cache(client, POD)
        super().__init__(self._shards, self._nodes, self._pods)
        self._defaults = (period, node_events)
        self.config = of_flags(flags, period, node_events)
        self._use = Use()
        self._assigned: dict[str, NodeUse] = {}
        """Each node as it was when it was last assigned."""
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)
        self._shards.on_change(self._shard_changed)
        if config_map:
            watched = Cache(
                client,
                core.CONFIG_MAP.untyped,
                namespace=namespace,
                fields=f"metadata.name={config_map}",
            )
            self.caches.append(watched)
            watched.on_change(self._config_changed)

    async def start(self) -> None:
        self.queue.add(ALL)

    # -- what the watches say ----------------------------------------------------------------------

    def _config_changed(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if new is not None:  # a ConfigMap that goes leaves the last configuration in force
            self.configure((new.get("data") or {}).get(KEY))

    def configure(self, text: str | None) -> None:
        """Take over a document; one that is not valid changes nothing and is reported."""
        try:
            if not text:
                raise ValueError(f"the ConfigMap has no {KEY}")
            self.config = read(text, *self._defaults)
        except ValueError as error:
            log.error("the configuration of shards is not taken over: %s", error)
            return
        self._assigned = {}
        self.queue.add(ALL)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._use.changed(old, new)
        if self.config.node_events:
            for pod in (old, new):
                if (
                    pod is not None
                    and pod.spec.node_name
                    and self._moved(self._nodes.get(pod.spec.node_name))
                ):
                    self.queue.add_after(ALL, PAUSE)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if not self.config.node_events:
            return
        if (
            new is None
            or old is None
            or old.metadata.labels != new.metadata.labels
            or self._moved(new)
        ):
            self.queue.add_after(ALL, PAUSE)

    def _moved(self, node: Node | None) -> bool:
        if node is None:
            return False
        now, before = self._use.of(node), self._assigned.get(node.metadata.name)
        if before is None:
            return True
        pairs = ((now.cpu, before.cpu), (now.memory, before.memory))
        return any(abs((one or 0.0) - (other or 0.0)) > FAR for one, other in pairs)

    def _shard_changed(self, old: shard.NodeShard | None, new: shard.NodeShard | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self.queue.add_after(ALL, PAUSE)

    # -- one look ----------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        config: ShardingConfig = self.config
        nodes = [self._use.of(node) for node in self._nodes]
        self._assigned = {node.name: node for node in nodes}
        wanted = assign(config.chains(), nodes)
        for name, chosen in wanted.items():
            await self._apply(name, chosen)
        for extra in [
            each.metadata.name for each in self._shards if each.metadata.name not in wanted
        ]:
            try:
                await self._client.delete(shard.NODE_SHARD, extra)
            except NotFound:
                pass
        return config.period

    async def _apply(self, name: str, chosen: list[str]) -> None:
        current = self._shards.get(name)
        if current is None:
            try:
                await self._client.create(
                    shard.NODE_SHARD.untyped,
                    {"metadata": {"name": name}, "spec": {"nodesDesired": chosen}},
                )
            except AlreadyExists:
                pass  # the watch is late; what differs is seen when it comes
        elif differs(current.spec.nodes_desired, chosen):
            await self._client.patch(shard.NODE_SHARD, name, {"spec": {"nodesDesired": chosen}})


def differs(current: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a shard is worth writing: another number of nodes, or a tenth of them (at least one)
    new."""
    if len(current) != len(wanted):
        return True
    return len(set(wanted) - set(current)) >= max(1, len(wanted) // 10)
