"""What drivers offer now: ResourceSlices with the taints of DeviceTaintRules put on them, and which
node sees what of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hekla.api.trees import Tree
from hekla.engine.model.claims.pools import (
    Map,
    NodeDevices,
    Pool,
    PoolKey,
    Slice,
    pools_of,
    read_slice,
)
from hekla.engine.model.claims.taintrules import TaintRule, put_on, read_rule
from hekla.engine.model.nodes import NodeTable


class SliceTracker:
    """The slices, and the pools and maps that are made of them when somebody asks."""

    def __init__(self) -> None:
        self.pools: dict[PoolKey, Pool] = {}
        """As `devices_of_nodes` saw them last."""
        self.maps = 0
        """How many maps there have been."""
        self.stamps: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """`[nodes]`: another number whenever what a node can be given changes."""
        self._slices: dict[str, Slice] = {}
        self._rules: dict[str, TaintRule] = {}
        self._stale = False
        self._map: Map | None = None
        self._map_of: tuple[int, int] | None = None
        self._clock = 0

    def slice_changed(self, key: str, tree: Tree | None) -> None:
        """Raises ValueError, TypeError and the like for a slice that cannot be understood, which
        then counts as gone."""
        self._slices.pop(key, None)
        self._stale = True
        if tree is not None:
            self._slices[key] = read_slice(tree)

    def rule_changed(self, key: str, tree: Tree | None) -> None:
        """As `slice_changed`, for a DeviceTaintRule."""
        self._rules.pop(key, None)
        self._stale = True
        if tree is not None:
            self._rules[key] = read_rule(tree)

    def mark(self, pool: PoolKey) -> None:
        """Devices of the pool changed hands: nodes that see it have to be asked again."""
        self._clock += 1
        if self._map is not None and pool in self._map.reach:
            self.stamps[self._map.reach[pool]] = self._clock

    def devices_of_nodes(self, nodes: NodeTable) -> list[NodeDevices]:
        """What each node sees, brought up to date."""
        if self._stale:
            self.pools, self._stale, self._map = pools_of(self._slices.values()), False, None
            put_on(self._rules.values(), self.pools.values())
        wanted = nodes.static_version, len(nodes)
        if self._map is None or self._map_of != wanted:
            self._map, self._map_of = Map(self.pools, nodes), wanted
            self.maps += 1
            self._clock += 1
            self.stamps = np.full(len(nodes), self._clock, dtype=np.int64)
        return self._map.offers
