"""Why pods do not fit: counts a reason, with the node masks behind them.  Reference: scheduler-core
4.6."""

from __future__ import annotations

from dataclasses import dataclass, field

from hekla.engine.model.arrays import Bools
from hekla.engine.model.resources import Floats

__all__ = ["UNSCORED", "FitErrors", "Reason"]


UNSCORED = "no node was chosen, because a plugin whose scores are needed could not give them"


@dataclass(slots=True)
class Reason:
    """One reason and the nodes that it holds for."""

    text: str
    count: int
    mask: Bools | None = None
    filter: str = ""
    free: Floats | None = None
    """For a lack of room: what each node had of the resource."""


@dataclass(slots=True)
class FitErrors:
    """Why one task (or all of its class) found no node."""

    nodes: int
    reasons: list[Reason] = field(default_factory=list)
    base: str = ""
    hyper_node: str = ""
    unresolvable: Bools | None = None
    """Nodes where no eviction could help."""

    @property
    def text(self) -> str:
        base = self.base or f"0/{self.nodes} nodes are unavailable"
        if self.reasons:
            counts: dict[str, int] = {}
            for reason in self.reasons:
                counts[reason.text] = counts.get(reason.text, 0) + reason.count
            base += (
                ": " + ", ".join(sorted(f"{count} {text}" for text, count in counts.items())) + "."
            )
        return f"In hyperNode {self.hyper_node}: {base}" if self.hyper_node else base
