"""What nodes and pods were measured to use, as far as it is fresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hekla.descheduler.tables import CPU, MEMORY, Node
from hekla.monitoring.cluster_metrics import Sample

PLAUSIBLE = 1.25
"""Share of a machine that a measurement may be: clocks and windows are not exact."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Samples of nodes by name and of pods by key.  Who is not there is unknown, not idle."""

    nodes: Mapping[str, Sample] = field(default_factory=dict)
    pods: Mapping[str, Sample] = field(default_factory=dict)
    stale: int = 0
    """Nodes whose sample was too old."""
    problem: str = ""
    """Why there is nothing, for people."""


def believed(
    samples: Mapping[str, Sample], nodes: Mapping[str, Node]
) -> tuple[dict[str, Sample], list[str]]:
    """The samples that can be true, and of the others what they say: nothing below zero, and not much
    more than the machine has."""
    kept, odd = {}, []
    for name, one in samples.items():
        node = nodes.get(name)
        if node is None:
            continue
        has = node.capacity or node.allocatable
        used = {CPU: one.cpu, MEMORY: one.memory}
        wrong = [
            f"{resource} {amount:.0f} of {has.get(resource, 0.0):.0f}"
            for resource, amount in used.items()
            if not 0 <= amount <= PLAUSIBLE * has.get(resource, 0.0)
        ]
        if wrong:
            odd.append(f"node {name} cannot use {' and '.join(wrong)}")
        else:
            kept[name] = one
    return kept, odd


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
