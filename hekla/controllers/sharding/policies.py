"""How a scheduler's nodes are chosen: filters, scores and selectors in a chain (reference:
controllers 11.3).

A policy is a class that reads its arguments once, refuses bad ones with a message to a person, and
implements the hooks that it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

WARMUP_LABEL = "node.volcano.sh/warmup"


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node as policies see it; utilisations are from 0 to 1, None where nothing is known."""

    name: str
    cpu: float | None = None
    memory: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class Policy:
    """The hooks of a policy; each subclass fills those that it serves."""

    scores = False

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Raises ValueError for arguments that cannot be meant."""

    def accepts(self, node: NodeUse) -> bool:
        return True

    def score(self, node: NodeUse) -> float:
        return 0.0

    def select(self, nodes: list[NodeUse]) -> list[NodeUse]:
        return nodes


class AllocationRate(Policy):
    """Nodes whose CPU is taken to a share within bounds, the fullest first."""

    scores = True

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._low = number(arguments, "minCPUUtil")
        self._high = number(arguments, "maxCPUUtil")
        for name, value in (("minCPUUtil", self._low), ("maxCPUUtil", self._high)):
            if not 0 <= value <= 1:
                raise ValueError(f"allocation-rate: {name} has to be from 0 to 1, not {value:g}")
        if self._low > self._high:
            raise ValueError(
                f"allocation-rate: minCPUUtil {self._low:g} is above maxCPUUtil {self._high:g}"
            )

    def accepts(self, node: NodeUse) -> bool:
        if node.cpu is None or node.cpu < 0:
            return False
        # Whole percents, so that ranges such as [0, 0.49] and [0.5, 1] leave no gap.
        return self._low <= math.floor(node.cpu * 100 + 0.5) / 100 <= self._high

    def score(self, node: NodeUse) -> float:
        if node.cpu is None:
            return 0.0
        if self._high == self._low:
            return 1.0
        return min(1.0, max(0.0, (node.cpu - self._low) / (self._high - self._low)))


class Warmup(Policy):
    """Nodes that are marked as warm before the others."""

    scores = True

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._label = str(arguments.get("warmupLabel", WARMUP_LABEL))
        self._value = str(arguments.get("warmupLabelValue", "true"))
        if not self._label:
            raise ValueError("warmup: warmupLabel is empty")

    def score(self, node: NodeUse) -> float:
        return 1.0 if node.labels.get(self._label) == self._value else 0.0


class NodeLimit(Policy):
    """At most so many nodes, the first in the order; 0 sets no bound.  Too few nodes cannot be
    changed here."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.least, self.most = (
            int(number(arguments, "minNodes")),
            int(number(arguments, "maxNodes")),
        )
        if self.least < 0:
            raise ValueError(f"node-limit: minNodes has to be 0 or more, not {self.least}")
        if 0 < self.most < self.least:
            raise ValueError(f"node-limit: maxNodes {self.most} is below minNodes {self.least}")

    def select(self, nodes: list[NodeUse]) -> list[NodeUse]:
        return nodes[: self.most] if self.most > 0 else nodes


POLICIES: dict[str, type[Policy]] = {
    "allocation-rate": AllocationRate,
    "warmup": Warmup,
    "node-limit": NodeLimit,
}


def policy_named(name: str) -> Callable[[Mapping[str, Any]], Policy]:
    """Raises ValueError for a name that no policy has, with the nearest that one has."""
    found = POLICIES.get(name)
    if found is None:
        near = get_close_matches(name, POLICIES, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(POLICIES))}"
        raise ValueError(f"unknown policy {name!r}; {hint}")
    return found


def number(arguments: Mapping[str, Any], name: str) -> float:
    """A number among arguments, 0 for an absent one.  Raises ValueError."""
    value = arguments.get(name, 0)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} has to be a number, not {value!r}") from None


@dataclass(frozen=True, slots=True)
class Chain:
    """The policies of one scheduler, each with its weight."""

    links: Sequence[tuple[Policy, float]]

    def choose(self, nodes: Sequence[NodeUse]) -> list[NodeUse]:
        """The nodes that pass every filter, best first (ties as they came), cut by the selectors in
        their order."""
        found = [node for node in nodes if all(policy.accepts(node) for policy, _ in self.links)]
        scorers = [(policy, weight) for policy, weight in self.links if policy.scores]
        if scorers:
            found.sort(
                key=lambda node: -sum(weight * policy.score(node) for policy, weight in scorers)
            )
        for policy, _ in self.links:
            found = policy.select(found)
        return found


def assign(chains: Mapping[str, Chain], nodes: Sequence[NodeUse]) -> dict[str, list[str]]:
    """Scheduler -> its nodes, in order of preference.  A scheduler sees what the ones before it
    have left."""
    left = sorted(nodes, key=lambda node: node.name)
    shards: dict[str, list[str]] = {}
    for scheduler, chain in chains.items():
        chosen = [node.name for node in chain.choose(left)]
        shards[scheduler] = chosen
        taken = set(chosen)
        left = [node for node in left if node.name not in taken]
    return shards
