"""Which nodes are under-used, over-used or neither.  Reference: descheduler 7.

Amounts in a node's own units are compared with limits of its own, so that nodes of any size are classed
by one rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hekla.descheduler.tables import CPU, MEMORY, PODS, Amounts, Node

NATIVE = (CPU, MEMORY, PODS)
EPSILON = 1e-9


class Class(StrEnum):
    UNDER = "under"
    APPROPRIATE = "appropriate"
    OVER = "over"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Load:
    """A node, what it uses, and its limits."""

    node: Node
    usage: Amounts
    low: Amounts
    high: Amounts

    def exceeded(self) -> list[str]:
        """The resources above their high limit: cpu and memory first, then by name."""
        over = [name for name, limit in self.high.items() if self.usage.get(name, 0.0) > limit]
        return sorted(
            over,
            key=lambda name: (
                name not in NATIVE,
                NATIVE.index(name) if name in NATIVE else 0,
                name,
            ),
        )

    def is_low(self) -> bool:
        return all(self.usage.get(name, 0.0) <= limit for name, limit in self.low.items())

    def classed(self) -> Class:
        if self.is_low() and not self.node.unschedulable:
            return Class.UNDER
        return Class.OVER if self.exceeded() else Class.APPROPRIATE

    def percent(self, name: str) -> float:
        base = self.node.base.get(name, 0.0)
        return 100.0 * self.usage.get(name, 0.0) / base if base > 0 else 0.0

    def overshoot(self) -> float:
        """The largest share of its high limit that a resource uses."""
        shares = (
            self.usage.get(name, 0.0) / limit if limit > 0 else math.inf
            for name, limit in self.high.items()
            if limit > 0 or self.usage.get(name, 0.0) > 0
        )
        return max(shares, default=0.0)


def completed(
    low: Mapping[str, float], high: Mapping[str, float], deviation: bool = False
) -> tuple[Amounts, Amounts]:
    """The thresholds of all native resources: who is not named never decides.  Reference:
    descheduler 5.2."""
    rest = dict.fromkeys(NATIVE, 0.0 if deviation else 100.0)
    return {**rest, **low}, {**rest, **high}


def loads(
    nodes: Iterable[tuple[Node, Amounts]],
    low: Mapping[str, float],
    high: Mapping[str, float],
    deviation: bool = False,
) -> list[Load]:
    """Each node with its limits: percent of what it has, or distances in percent from the mean usage."""
    measured = list(nodes)
    means = {name: _mean(measured, name) for name in low} if deviation else {}
    return [
        Load(
            node,
            usage,
            {name: _limit(node, name, low[name], deviation, means, -1) for name in low},
            {name: _limit(node, name, high[name], deviation, means, 1) for name in high},
        )
        for node, usage in measured
    ]


def _mean(measured: Sequence[tuple[Node, Amounts]], name: str) -> float:
    shares = [
        100.0 * usage.get(name, 0.0) / node.base[name]
        for node, usage in measured
        if node.base.get(name, 0.0) > 0
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _limit(
    node: Node, name: str, percent: float, deviation: bool, means: Mapping[str, float], sign: int
) -> float:
    base = node.base.get(name, 0.0)
    if deviation:
        if percent == 0:
            return base
        percent = min(max(means[name] + sign * percent, 0.0), 100.0)
    return float(math.floor(percent * base / 100.0 + EPSILON))


def nothing_to_do(under: int, over: int, nodes: int, number_of_nodes: int) -> str:
    """Why no pod is moved; "" if some may be.  Reference: descheduler 7, in its order."""
    if not under:
        return (
            "No node is underutilized, nothing to do here, you might tune your thresholds further"
        )
    if under <= number_of_nodes:
        return (
            "Number of nodes underutilized is less or equal than NumberOfNodes, nothing to do here "
            f"({under} and {number_of_nodes})"
        )
    if under == nodes:
        return "All nodes are underutilized, nothing to do here"
    if not over:
        return "All nodes are under target utilization, nothing to do here"
    return ""
