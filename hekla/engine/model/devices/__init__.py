"""Cards inside nodes: what a kind of device must be able to say, so that `deviceshare` can place
pods on cards.

A node's cards are never stored.  They are worked out from what the node's object says and from what
the annotations of its pods say, and kept until either changes; so nothing has to be undone when a
placement is.  Reference: plugins-placement 7.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hekla.engine.model.nodes import NodeFacts
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import Status

BINPACK, SPREAD = "binpack", "spread"
Cards = Any
"""A node's cards as its kind of device has them: each kind reads what it made itself."""
Assignment = Any
"""Which of them a pod was given, in the same way."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The pod that asks, as far as cards care."""

    pods: PodClass
    annotations: Mapping[str, str]
    group: str = ""
    """`namespace/name` of its group."""
    rules: frozenset[int] = frozenset()
    """Numbers of the exclusivity rules that it falls under."""
    labels: Mapping[str, str] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    """Cards by their number, in the order in which they are tried; empty for the policy's own."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that is on the node already."""

    key: str
    pods: PodClass
    annotations: Mapping[str, str]
    group: str = ""
    rules: frozenset[int] = frozenset()
    status: Status = Status.RUNNING


@dataclass(slots=True)
class Fit:
    """Whether a pod finds its cards on a node."""

    refusal: str = ""
    """Why not; empty where it does."""
    score: float = 0.0
    assignment: Assignment = None
    """What `annotations` writes down."""


@dataclass(slots=True)
class Kind:
    """Names that a kind writes on pods, and the reasons that it may give."""

    name: str
    refusals: tuple[str, ...]
    written: tuple[str, ...] = field(default=())


class Device(Protocol):
    """One kind of device."""

    kind: Kind

    def asked(self, pods: PodClass) -> bool:
        """Whether pods of this class want any."""

    def cards(self, facts: NodeFacts, holders: Iterable[Holder]) -> Cards:
        """The node's cards with what is on them; None where the node has none of this kind."""

    def fit(self, cards: Cards, asker: Asker, policy: str) -> Fit:
        """Choose cards.  Does not change `cards`."""

    def sight(self, asker: Asker) -> Hashable:
        """All that this kind sees of a pod: pods of one sight get the same answers."""

    def annotations(self, assignment: Assignment, node: str, now: float) -> dict[str, str]:
        """What the pod has to carry to its node."""


class Shared(Protocol):
    """A card of which pods hold shares."""

    memory: int
    used: int
    used_memory: int


def card_score(card: Shared, policy: str) -> float:
    """How much the policy likes this card, as it is now."""
    if policy == BINPACK:
        return 100.0 * card.used_memory / card.memory if card.memory else 0.0
    return 100.0 if policy == SPREAD and not card.used else 0.0


def whole(of: Amounts, name: str) -> int:
    """An amount of a device resource in whole units."""
    return int(of.get(name, 0.0) // 1000)
