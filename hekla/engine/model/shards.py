"""Shards: which nodes this scheduler may use when several share a cluster.

Each scheduler has a NodeShard.  Its spec names the nodes that it is meant to have, its status those
that it uses; a node that another shard still uses is waited for.  Reference: scheduler-core 7.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hekla.api.trees import Tree
from hekla.engine.model.decisions import ShardStatus

if TYPE_CHECKING:
    from hekla.engine.model.arrays import Bools
    from hekla.engine.model.state import State

KIND = "NodeShard"
NONE, HARD, SOFT = "none", "hard", "soft"
MODES = (NONE, HARD, SOFT)


class Shard:
    """This scheduler's part of the nodes, kept when its NodeShard goes: nobody said which nodes
    would be another's."""

    def __init__(self, mode: str = NONE, name: str = "volcano") -> None:
        self.mode = mode
        self.name = name
        self.nodes: frozenset[str] = frozenset()
        self.trouble = ""
        """Why it is not known which nodes are meant."""

    def look(self, state: State) -> ShardStatus | None:
        """Works out the nodes anew; gives what the NodeShard's status should say, where it says
        something else."""
        if self.mode == NONE:
            return None
        shards = state.others.get(KIND, {})
        own = shards.get(self.name)
        if own is None:
            self.trouble = f"NodeShard {self.name} does not exist; the nodes in use are still the {len(self.nodes)} of before"
            return None
        self.trouble = ""
        desired = _names(own, "spec", "nodesDesired")
        taken: set[str] = set()
        for name, other in shards.items():
            if name != self.name:
                taken.update(_names(other, "status", "nodesInUse"))
        self.nodes = frozenset(desired) - taken
        wanted = [
            sorted(self.nodes),
            sorted(set(desired) - self.nodes),
            sorted(self.nodes - set(desired)),
        ]
        if wanted == [
            sorted(set(_names(own, "status", key)))
            for key in ("nodesInUse", "nodesToAdd", "nodesToRemove")
        ]:
            return None
        return ShardStatus(self.name, str((own.get("metadata") or {}).get("uid", "")), *wanted)

    def mask(self, names: Iterable[str | None]) -> Bools | None:
        """`[nodes]`: those of the shard; None where shards mean nothing."""
        if self.mode == NONE:
            return None
        return np.array([name in self.nodes for name in names], dtype=np.bool_)


def _names(shard: Tree, part: str, key: str) -> list[str]:
    listed = (shard.get(part) or {}).get(key) or ()
    return [str(name) for name in listed]
