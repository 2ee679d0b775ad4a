"""GPUs shared by memory, or handed out whole.  Reference: plugins-placement 7.3."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from hekla.engine.model.devices import Asker, Fit, Holder, Kind, whole
from hekla.engine.model.nodes import NodeFacts
from hekla.engine.model.podclass import PodClass

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
INDEX, TIME = "volcano.sh/gpu-index", "volcano.sh/predicate-time"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
NO_MEMORY, NO_NUMBER = "GpuShare no enough gpu memory", "GpuNumber no enough gpu number"


@dataclass(slots=True)
class Card:
    """One GPU."""

    memory: int
    used: int = 0
    holders: set[str] = field(default_factory=set)

    @property
    def idle(self) -> int:
        return max(self.memory - self.used, 0)


Cards = dict[int, Card]


def asked_of(pods: PodClass, name: str) -> int:
    """What a pod needs of one resource: its containers together, or its largest init container."""
    together = sum(whole(one.limits, name) for one in pods.containers)
    return max([together, *(whole(one.limits, name) for one in pods.init_containers)])


class GpuShare:
    """`by_number`: whole cards; else parts of a card's memory."""

    def __init__(self, by_number: bool) -> None:
        self.by_number = by_number
        self.kind = Kind("GpuShare", (NO_NUMBER if by_number else NO_MEMORY,), (INDEX, TIME))

    def asked(self, pods: PodClass) -> bool:
        return asked_of(pods, NUMBER if self.by_number else MEMORY) > 0

    def cards(self, facts: NodeFacts, holders: Iterable[Holder]) -> Cards | None:
        count = whole(facts.capacity, NUMBER) or whole(facts.allocatable, NUMBER)
        memory = whole(facts.capacity, MEMORY) or whole(facts.allocatable, MEMORY)
        if not count:
            return None
        ill = {one.strip() for one in facts.annotations.get(UNHEALTHY, "").split(",")}
        cards = {index: Card(memory // count) for index in range(count) if str(index) not in ill}
        for holder in holders:
            used = asked_of(holder.pods, MEMORY)
            for index in indexes(holder.annotations.get(INDEX)):
                if index in cards:
                    cards[index].holders.add(holder.key)
                    cards[index].used += used
        return cards

    def fit(self, cards: Cards, asker: Asker, policy: str) -> Fit:
        if self.by_number:
            count = asked_of(asker.pods, NUMBER)
            free = [index for index, card in cards.items() if not card.holders]
            return Fit(assignment=free[:count]) if len(free) >= count else Fit(NO_NUMBER)
        need = asked_of(asker.pods, MEMORY)
        for index, card in cards.items():
            if card.idle >= need:
                return Fit(assignment=[index])
        return Fit(NO_MEMORY)

    def sight(self, asker: Asker) -> Hashable:
        return asked_of(asker.pods, NUMBER), asked_of(asker.pods, MEMORY)

    def annotations(self, assignment: list[int], node: str, now: float) -> dict[str, str]:
        return {TIME: str(int(now * 1e9)), INDEX: ",".join(map(str, assignment))}


def indexes(text: str | None) -> list[int]:
    """Cards as an annotation names them; none at all where any part of it is no number."""
    try:
        return [int(one) for one in text.split(",")] if text else []
    except ValueError:
        return []
