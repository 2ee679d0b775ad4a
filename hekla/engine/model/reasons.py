"""Why pods do not fit: counts a reason, with the node masks behind them; and how short a queue is.  Reference: scheduler-core
4.6."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hekla.engine.model.arrays import Bools
from hekla.engine.model.resources import Amounts, Floats

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


class Ceiling(NamedTuple):
    """What may be held at most under a queue, or by a user, namespace or account."""

    owner: str
    held: Amounts
    most: Amounts
    """Resources that are not named have no ceiling."""
    jobs: float = math.inf
    """How many more jobs may start."""


class Shortage(msgspec.Struct, frozen=True):
    """One resource of which a ceiling, or a domain of the network, leaves too little."""

    resource: str
    queue: str
    """Whose ceiling; empty for that of the cluster."""
    limit: str
    """Which: capability, deserved, cluster, quota (with its name), domain (with its name)."""
    asked: str
    held: str
    """What counts against the ceiling already."""
    most: str
    left: str
    missing: str
    """What has to become free, or be added to the ceiling."""
    beyond: str = ""
    """By how much the request alone is over the ceiling; empty where it would fit if nothing else
    were there.  What a queue deserves grows when others end: only a gang's whole minimum is compared
    with it.
    """

    def of_minimum(self, own: str) -> str:
        """For a job that is to be let in; `own` is its queue, which needs no name."""
        where = f" in queue {self.queue}" if self.queue not in ("", own) else ""
        return f"its minimum takes {self.resource}={self.asked}, {self.left} is left{where}"

    def of_share(self, own: str) -> str:
        """For a pod that its queue may not take."""
        where = "it" if self.queue == own else f"queue {self.queue}"
        return f"{where} holds {self.resource}={self.held} of {self.limit} {self.most}"
