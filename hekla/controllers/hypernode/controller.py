"""Counts the nodes of hypernodes, and reads which sources discovery is to ask (reference:
controllers 10.2, 10.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from hekla.api import topology
from hekla.api.kinds import read_as
from hekla.api.kubernetes import core
from hekla.api.meta import Struct
from hekla.api.text import yamltext
from hekla.controllers.hypernode.members import node_count
from hekla.controllers.records import NodeMeta
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import NotFound

KEY = "volcano-controller.conf"
PAUSE = 0.05
"""Seconds for which changes of nodes are gathered before the tree is reconciled."""


class Node(Struct):
    """A node, with the fields that its place in the network needs."""

    metadata: NodeMeta = msgspec.field(default_factory=NodeMeta)


NODE = read_as(core.NODE, Node)


def config_map_key(environment: Mapping[str, str]) -> tuple[str, str]:
    """(namespace, name) of the controllers' ConfigMap."""
    release = environment.get("HELM_RELEASE_NAME") or "volcano"
    return environment.get(
        "KUBE_POD_NAMESPACE"
    ) or "volcano-system", f"{release}-controller-configmap"


def discovery_config(config_map: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The enabled sources of discovery.  Raises ValueError when there is a ConfigMap that cannot be
    read."""
    if config_map is None:
        return []
    text = (config_map.get("data") or {}).get(KEY)
    if text is None:
        raise ValueError(f"config key not found in ConfigMap: {KEY}")
    try:
        tree = yamltext.load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"failed to parse config: {error}") from None
    sources = tree.get("networkTopologyDiscovery") if isinstance(tree, dict) else None
    if sources is not None and not isinstance(sources, list):
        raise ValueError("failed to parse config: networkTopologyDiscovery has to be a list")
    return [
        source for source in sources or () if isinstance(source, dict) and source.get("enabled")
    ]


class HyperNodeController(Controller):
    """Keeps `status.nodeCount` true, also when nodes come and go."""

    name = "hyperNode-controller"

    def __init__(
        self, client: Client, hyper_nodes: Cache[topology.HyperNode], nodes: Cache[Node]
    ) -> None:
        super().__init__(hyper_nodes, nodes)
        self._client = client
        self._hyper_nodes = hyper_nodes
        self._nodes = nodes
        self.enqueue(hyper_nodes)
        nodes.on_change(self._node_changed)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        for hyper_node in self._hyper_nodes:
            if any(
                member.selector and not member.selector.exact_match
                for member in hyper_node.spec.members
            ):
                self.queue.add_after(hyper_node.metadata.name, PAUSE)

    async def reconcile(self, key: str) -> float | None:
        hyper_node = self._hyper_nodes.get(key)
        if hyper_node is None or hyper_node.metadata.deletion_timestamp:
            return None
        count = node_count(
            hyper_node.spec.members,
            {node.metadata.name: node.metadata.labels for node in self._nodes},
        )
        if count != hyper_node.status.node_count:
            counted = msgspec.structs.replace(hyper_node.status, node_count=count)
            try:
                # No patch: the account that Volcano's chart makes for this process may update and
                # nothing more.
                await self._client.update_status(
                    topology.HYPER_NODE, msgspec.structs.replace(hyper_node, status=counted)
                )
            except NotFound:
                pass
        return None
