"""What of a node may be lent to offline pods: what its pods leave idle of what is allocatable.

Offered as extended resources, whose amounts are a mean in which newer samples weigh more.
Reference: agent 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hekla.agent.watermarks import Kind
from hekla.api import names
from hekla.api.text import quantity
from hekla.api.text.quantity import Format, Quantity

KEPT = 10
"""Samples of which the mean is taken."""
EVERY = 6
"""Rounds after which an offer is written although it has changed little."""
CHANGE = 0.1
"""Part of what the node says by which an offer must differ to be written at once."""
NO_POLICY = ("", "none")
"""Policies of the kubelet's CPU manager under which no pod has processors of its own."""

Offer = Mapping[Kind, int]
"""Millicores and bytes that are offered."""


def idle(allocatable: int, usage: int, ratio: int) -> int:
    """What is offered of a kind: `ratio` percent of what is idle."""
    return max(allocatable - usage, 0) * ratio // 100


def weighted_mean(samples: Iterable[int]) -> int:
    """The oldest sample comes first and weighs 1, each newer one twice as much; 0 without any."""
    total = weights = 0
    for power, sample in enumerate(samples):
        total += sample << power
        weights += 1 << power
    return total // weights if weights else 0


def types(annotation: str, configured: str) -> frozenset[Kind]:
    """What is lent: as the node's annotation says, else as is configured.  Unknown names count for
    nothing."""
    names = {name.strip() for name in (annotation or configured).split(",")}
    return frozenset(kind for kind in Kind if kind in names)


class Samples:
    """The last samples of each kind.  A kind that could not be measured keeps what it had."""

    def __init__(self) -> None:
        self._samples: dict[Kind, deque[int]] = {kind: deque(maxlen=KEPT) for kind in Kind}

    def add(self, kind: Kind, offered: int) -> None:
        self._samples[kind].append(offered)

    def clear(self) -> None:
        for samples in self._samples.values():
            samples.clear()

    def offer(self, selected: Iterable[Kind]) -> Offer | None:
        """None before anything was measured."""
        if not any(self._samples.values()):
            return None
        chosen = frozenset(selected)
        return {
            kind: weighted_mean(samples) if kind in chosen else 0
            for kind, samples in self._samples.items()
        }


class Pace:
    """When an offer is written: every so many rounds, and at once where it differs much from what the
    node says."""

    def __init__(self) -> None:
        self._rounds = 0

    def due(self, offer: Offer, stated: Offer) -> bool:
        self._rounds += 1
        return self._rounds % EVERY == 0 or any(
            differs(offered, stated.get(kind, 0)) for kind, offered in offer.items()
        )


def differs(offered: int, stated: int) -> bool:
    if not stated:
        return offered != 0
    return abs(offered - stated) / stated > CHANGE


@dataclass(frozen=True, slots=True)
class Names:
    """The extended resources in which is lent."""

    cpu: str = names.BATCH_CPU
    memory: str = names.BATCH_MEMORY

    def of(self, kind: Kind) -> str:
        return self.cpu if kind is Kind.CPU else self.memory


def stated_by(capacity: Mapping[str, Any], resources: Names) -> dict[Kind, int]:
    """What a node's capacity says of the extended resources; what is no amount is 0."""
    found = {}
    for kind in Kind:
        try:
            found[kind] = quantity.whole(capacity.get(resources.of(kind)) or 0)
        except quantity.QuantityError:
            found[kind] = 0
    return found


def written(offer: Offer, resources: Names) -> dict[str, str]:
    """Amounts as a node's status holds them: counts of cpu in plain decimals, bytes in binary."""
    return {
        resources.cpu: str(offer[Kind.CPU]),
        resources.memory: str(Quantity.of_whole(offer[Kind.MEMORY], Format.BINARY)),
    }


def status_patch(
    status: Mapping[str, Mapping[str, Any]], amounts: Mapping[str, str | None]
) -> dict[str, Any] | None:
    """A merge patch of a node that sets these resources, None removes one.  None: nothing differs."""
    change = {
        part: {
            name: amount
            for name, amount in amounts.items()
            if not _same((status.get(part) or {}).get(name), amount)
        }
        for part in ("capacity", "allocatable")
    }
    change = {part: of for part, of in change.items() if of}
    return {"status": change} if change else None


def _same(stated: Any, amount: str | None) -> bool:
    if stated is None or amount is None:
        return stated is None and amount is None
    try:
        return quantity.whole(stated) == quantity.whole(amount)
    except quantity.QuantityError:
        return False
