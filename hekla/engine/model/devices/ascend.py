"""Ascend cards as HAMi shares them: one kind a `commonWord` of the device configuration.
Reference: plugins-placement 7.5."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from hekla.api.trees import Tree
from hekla.engine.model.devices import Asker, Fit, Holder, Kind, card_score, whole
from hekla.engine.model.nodes import NodeFacts
from hekla.engine.model.podclass import PodClass

MODE, CORE_MODE = "huawei.com/vnpu-mode", "hami-core"
SUPPORTS = "hami-vnpu-core"
NODE, TIME = "hami.io/vgpu-node", "hami.io/vgpu-time"
BIND_TIME, PHASE, PREDICATE_TIME = "hami.io/bind-time", "hami.io/bind-phase", "predicate-time"
REFUSAL = "no ascend device available"
PARTIAL = "vNPU does not support partial memory allocation when requesting multiple devices"
"""A mistake of the pod, not a lack of room."""
_ALL_CORES = 100


@dataclass(frozen=True, slots=True)
class Template:
    """A slice that a card can be cut into; memory in MiB."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Settings:
    """One entry of `vnpus`."""

    word: str
    resource: str
    memory_resource: str
    allocatable: int
    capacity: int
    templates: tuple[Template, ...] = ()
    core_mode: bool = False

    @property
    def core_resource(self) -> str:
        return f"{self.resource}-core"


@dataclass(slots=True)
class Card:
    """One NPU; memory in MiB."""

    id: str
    type: str
    count: int
    memory: int
    cores: int
    network: int | None = None
    used: int = 0
    used_memory: int = 0
    used_cores: int = 0


@dataclass(slots=True)
class Cards:
    """All NPUs of one kind on a node."""

    cards: list[Card]
    core_mode: bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """A share of one card."""

    card: Card
    memory: int
    cores: int
    template: str


class Ascend:
    """Chooses shares of one kind of NPU."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        word = settings.word
        self.to_allocate = f"hami.io/{word}-devices-to-allocate"
        self.allocated = f"hami.io/{word}-devices-allocated"
        self.detail = f"huawei.com/{word}"
        written = (
            self.to_allocate,
            self.allocated,
            self.detail,
            PREDICATE_TIME,
            NODE,
            TIME,
            BIND_TIME,
            PHASE,
        )
        self.kind = Kind(word, (REFUSAL, PARTIAL), written)

    def asked(self, pods: PodClass) -> bool:
        own = self.settings
        return any(
            whole(one.limits, own.resource) > 0 or whole(one.limits, own.memory_resource) > 0
            for one in pods.containers
        )

    def cards(self, facts: NodeFacts, holders: Iterable[Holder]) -> Cards | None:
        if facts.allocatable.get(self.settings.resource, 0.0) <= 0:
            return None
        try:
            listed = json.loads(
                facts.annotations.get(f"hami.io/node-register-{self.settings.word}", "")
            )
            made = [_card(one, self.settings.word) for one in listed]
        except (ValueError, TypeError, AttributeError):
            return None
        if not made:
            return None
        by_id = {card.id: card for card in made}
        for holder in holders:
            for identity in self._book(holder, by_id):
                by_id[identity].used += 1
        stated = facts.annotations.get(SUPPORTS)
        return Cards(made, self.settings.core_mode if stated is None else stated == "true")

    def _book(self, holder: Holder, cards: Mapping[str, Card]) -> set[str]:
        """Add up what a pod holds; the cards that it holds anything of."""
        text = holder.annotations.get(self.allocated, "")
        records = [one.lstrip(";") for one in text.split(":") if one.strip(";")]
        if any(len(one.split(",")) < 4 for one in records):
            return set()
        touched: set[str] = set()
        for one in records:
            identity, _, memory, cores = one.split(",")[:4]
            if identity in cards:
                touched.add(identity)
                cards[identity].used_memory += _number(memory)
                cards[identity].used_cores += _number(cores)
        return touched

    def fit(self, cards: Cards, asker: Asker, policy: str) -> Fit:
        own = self.settings
        in_core_mode = asker.pods.annotations.get(MODE) == CORE_MODE
        if in_core_mode and not cards.core_mode:
            return Fit(REFUSAL)
        taken: set[str] = set()
        containers: list[list[Chosen]] = []
        score = 0.0
        for one in asker.pods.containers:
            number = whole(one.limits, own.resource) or (
                1 if whole(one.limits, own.memory_resource) else 0
            )
            if not number:
                continue
            asked = whole(one.limits, own.memory_resource) or whole(
                one.requests, own.memory_resource
            )
            cores = whole(one.limits, own.core_resource) or whole(one.requests, own.core_resource)
            template = ""
            if asked and not in_core_mode:
                asked, template = trimmed(own, asked)
                if number > 1 and asked != own.allocatable:
                    return Fit(PARTIAL)
            fitting = [
                card
                for card in sorted(cards.cards, key=lambda card: -card_score(card, policy))
                if card.id not in taken
                and fits(card, asked if asked or template else card.memory, cores, in_core_mode)
            ]
            chosen = self._by_network(fitting)[:number]
            if len(chosen) < number:
                return Fit(REFUSAL)
            taken.update(card.id for card in chosen)
            containers.append(
                [Chosen(card, asked or card.memory, cores, template) for card in chosen]
            )
            score += card_score(chosen[0], policy) + self._togetherness(chosen)
        return Fit(score=score, assignment=containers)

    def sight(self, asker: Asker) -> Hashable:
        own = self.settings
        names = own.resource, own.memory_resource, own.core_resource
        asked = tuple(
            tuple((whole(one.limits, name), whole(one.requests, name)) for name in names)
            for one in asker.pods.containers
        )
        return asked, asker.pods.annotations.get(MODE)

    def _by_network(self, cards: list[Card]) -> list[Card]:
        """Cards of one network first, where all of them name theirs: those of the network that has
        most."""
        if not self._networked(cards):
            return cards
        sizes = Counter(card.network for card in cards)
        return sorted(cards, key=lambda card: (-sizes[card.network], card.network))

    def _togetherness(self, chosen: list[Card]) -> float:
        if not self._networked(chosen):
            return 0.0
        return 10.0 * max(Counter(card.network for card in chosen).values()) / len(chosen)

    def _networked(self, cards: list[Card]) -> bool:
        return (
            bool(cards)
            and self.settings.word.startswith("Ascend910")
            and all(card.network is not None for card in cards)
        )

    def annotations(self, assignment: list[list[Chosen]], node: str, now: float) -> dict[str, str]:
        text = "".join(
            "".join(
                f"{one.card.id},{self.settings.word},{one.memory},{one.cores}:" for one in container
            )
            + ";"
            for container in assignment
        )
        detail = [
            {"UUID": one.card.id, "temp": one.template}
            if one.template
            else {"UUID": one.card.id, "memory": one.memory, "core": one.cores}
            for container in assignment
            for one in container
        ]
        seconds = str(int(now))
        return {
            self.to_allocate: text,
            self.allocated: text,
            self.detail: json.dumps(detail, separators=(",", ":")),
            PREDICATE_TIME: seconds,
            NODE: node,
            TIME: seconds,
            BIND_TIME: seconds,
            PHASE: "allocating",
        }


def trimmed(settings: Settings, memory: int) -> tuple[int, str]:
    """A memory request as the cards can be cut: memory and name of the template, which a whole card
    has none of."""
    for template in sorted(settings.templates, key=lambda one: one.memory):
        if memory <= template.memory:
            return template.memory, template.name
    return (settings.allocatable, "") if memory <= settings.capacity else (0, "")


def fits(card: Card, memory: int, cores: int, in_core_mode: bool = False) -> bool:
    """Whether a share of this size is left on the card."""
    total = _ALL_CORES if in_core_mode else card.cores
    if (
        card.count <= card.used
        or card.memory - card.used_memory < memory
        or total - card.used_cores < cores
    ):
        return False
    if total == _ALL_CORES and cores == _ALL_CORES and card.used:
        return False
    return not (total and card.used_cores == total and not cores)


def _card(tree: Tree, word: str) -> Card:
    info = tree.get("custominfo") or {}
    network = info.get("NetworkID", info.get("networkId"))
    return Card(
        str(tree.get("id", "")),
        str(tree.get("type") or word),
        int(tree.get("count", 0)),
        int(tree.get("devmem", 0)),
        int(tree.get("devcore", 0)),
        None if network is None else int(network),
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0


def settings_of(tree: Tree) -> list[Settings]:
    """The part `vnpus` of the device configuration."""
    return [
        Settings(
            str(one.get("commonWord", "")),
            str(one.get("resourceName", "")),
            str(one.get("resourceMemoryName", "")),
            int(one.get("memoryAllocatable", 0)),
            int(one.get("memoryCapacity", 0)),
            tuple(
                Template(str(cut.get("name", "")), int(cut.get("memory", 0)))
                for cut in one.get("templates") or ()
            ),
            bool(one.get("hamiVnpuCore")),
        )
        for one in tree.get("vnpus") or ()
        if one.get("commonWord")
    ]
