"""What it costs a job that its pods are apart: bytes over links between nodes.

Two pods on one node exchange for nothing.  Otherwise the link is that of the lowest HyperNode that
holds both nodes, and its bandwidth is each pod's own: no links are shared.  In a second of work a pod
sends one after the other to all that it exchanges with, and computes when it is done; the slowest
pod holds up all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from hekla.engine.model.hypernodes import ROOT, tree_of
from hekla.engine.model.state import State


@dataclass(frozen=True, slots=True)
class Network:
    """Bandwidths in bytes a second."""

    tiers: Mapping[int, int] = field(default_factory=dict)
    """Tier of the HyperNode that two nodes have in common -> bandwidth; a tier that is not named has
    that of the next higher one."""
    beyond: int = 0
    """Between nodes without a common HyperNode; 0: they exchange for nothing."""

    def bandwidth(self, tier: int | None) -> int:
        """Of nodes with a HyperNode of this tier in common, or none."""
        if tier is not None:
            for one in sorted(self.tiers):
                if one >= tier:
                    return self.tiers[one]
        return self.beyond


def slowdown(
    network: Network,
    state: State,
    traffic: Mapping[tuple[str, str], int],
    places: Mapping[tuple[str, str], int],
) -> Fraction:
    """How many times as long a second of work takes, from 1 up.  `places`: (role, node) -> pods."""
    if not traffic or len({node for _, node in places}) < 2:
        return Fraction(1)
    pairs = dict(traffic) | {(right, left): size for (left, right), size in traffic.items()}
    worst = Fraction(0)
    for role, node in places:
        spent = Fraction(0)
        for (other, where), count in places.items():
            size = pairs.get((role, other), 0)
            if size and where != node:
                width = network.bandwidth(tier_between(state, node, where))
                spent += Fraction(size * count, width) if width else 0
        worst = max(worst, spent)
    return 1 + worst


def tier_between(state: State, left: str, right: str) -> int | None:
    """The tier of the lowest HyperNode that holds both nodes; None where there is none."""
    tree = tree_of(state)
    rows: Sequence[int | None] = [state.nodes.rows.get(one) for one in (left, right)]
    if not tree.real or rows[0] is None or rows[1] is None:
        return None
    leaves = [tree.leaf(row) for row in rows if row is not None]
    common = tree.common(*leaves) if all(leaves) else ""
    return tree.tier_of(common) if common and common != ROOT else None
