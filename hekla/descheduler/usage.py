"""What nodes and pods were measured to use, as far as it is fresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hekla.monitoring.cluster_metrics import Sample


@dataclass(frozen=True, slots=True)
class Usage:
    """Samples of nodes by name and of pods by key.  Who is not there is unknown, not idle."""

    nodes: Mapping[str, Sample] = field(default_factory=dict)
    pods: Mapping[str, Sample] = field(default_factory=dict)
    stale: int = 0
    """Nodes whose sample was too old."""
    problem: str = ""
    """Why there is nothing, for people."""


def fresh(
    nodes: Mapping[str, Sample], pods: Mapping[str, Sample], now: float, longest: float
) -> Usage:
    """The samples that are at most `longest` seconds old."""
    kept = {name: one for name, one in nodes.items() if now - one.at <= longest}
    stale = len(nodes) - len(kept)
    problem = ""
    if not kept:
        newest = max((one.at for one in nodes.values()), default=0.0)
        problem = (
            f"the newest measurement of a node is {now - newest:.0f} s old, older than {longest:.0f} s"
            if nodes
            else "no node is measured"
        )
    return Usage(
        kept, {name: one for name, one in pods.items() if now - one.at <= longest}, stale, problem
    )
