"""HAMi's virtual GPUs: shares of memory and cores of NVIDIA cards, or MIG instances.  Reference:
plugins-placement 7.4, 7.6."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hekla.api.trees import Tree
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.devices import (
    BINPACK,
    SPREAD,
    Asker,
    Fit,
    Holder,
    Kind,
    card_score,
    mig,
    whole,
)
from hekla.engine.model.devices.cardtable import CardTable
from hekla.engine.model.nodes import NodeFacts
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.resources import Floats

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
REGISTER = "volcano.sh/node-vgpu-register"
MODE, GROUP_POLICY = "volcano.sh/vgpu-mode", "volcano.sh/vgpu-podgroup-policy"
USE_TYPE, NO_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
USE_UUID, NO_UUID = "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"
IDS = "volcano.sh/vgpu-ids-new"
NODE = "volcano.sh/vgpu-node"
TIME = "volcano.sh/vgpu-time"
TO_ALLOCATE = "volcano.sh/devices-to-allocate"
PHASE, BIND_TIME = "volcano.sh/bind-phase", "volcano.sh/bind-time"
REFUSAL = "hami-vgpuDeviceSharing error"
_ALL_CORES = 100


@dataclass(frozen=True, slots=True)
class Settings:
    """What the device configuration says about NVIDIA cards."""

    percentage: str = ""
    """Name of the resource for memory in percent; empty where it is not in use."""
    factor: int = 1
    geometries: tuple[tuple[tuple[str, ...], tuple[mig.Group, ...]], ...] = ()


@dataclass(slots=True)
class Use:
    """What one pod holds of a card."""

    memory: int
    cores: int
    group: str
    rules: frozenset[int]


@dataclass(slots=True)
class Card:
    """One GPU; memory in MiB, cores in percent."""

    uuid: str
    shares: int
    memory: int
    type: str
    used: int = 0
    used_memory: int = 0
    used_cores: int = 0
    users: dict[str, Use] = field(default_factory=dict)
    geometry: mig.Geometry | None = None

    def copy(self) -> Card:
        geometry = self.geometry.copy() if self.geometry is not None else None
        return Card(
            self.uuid,
            self.shares,
            self.memory,
            self.type,
            self.used,
            self.used_memory,
            self.used_cores,
            dict(self.users),
            geometry,
        )

    def book(
        self,
        holder: str,
        identity: str,
        memory: int,
        cores: int,
        factor: int,
        group: str,
        rules: frozenset[int],
    ) -> None:
        """Put a pod on the card; one that is there already is not counted again."""
        if holder in self.users:
            return
        place = mig.place_of(identity)
        if self.geometry is not None and place is not None:
            memory = self.geometry.book(*place) // max(factor, 1)
        self.users[holder] = Use(memory, cores, group, rules)
        self.used += 1
        self.used_memory += memory
        self.used_cores += cores

    def leave(self, holder: str, identity: str) -> bool:
        """Take a pod off the card; false where it is not on it."""
        use = self.users.pop(holder, None)
        if use is None:
            return False
        place = mig.place_of(identity)
        if self.geometry is not None and place is not None:
            self.geometry.free(*place)
        self.used -= 1
        self.used_memory -= use.memory
        self.used_cores -= use.cores
        return True

    def has_group(self, group: str) -> bool:
        """Whether another pod of the group really uses the card."""
        return any(use.group == group and (use.memory or use.cores) for use in self.users.values())


@dataclass(slots=True)
class Cards:
    """All cards of a node."""

    mode: str
    cards: list[Card]


@dataclass(frozen=True, slots=True)
class Need:
    """What one container asks for."""

    number: int
    memory: int
    percent: int
    cores: int

    def memory_on(self, card: Card) -> int:
        return self.memory if self.memory else card.memory * self.percent // 100


@dataclass(frozen=True, slots=True)
class Record:
    """One card of one container, as annotations have it."""

    identity: str
    type: str
    memory: int
    cores: int


class VirtualGpu:
    """Chooses shares of cards."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.kind = Kind("hamivgpu", (REFUSAL,), (NODE, TIME, IDS, TO_ALLOCATE, PHASE, BIND_TIME))

    # -------------------------------------------------------------------------------- what is asked

    def asked(self, pods: PodClass) -> bool:
        return any(
            whole(one.limits, NUMBER) > 0 or whole(one.limits, MEMORY) > 0
            for one in pods.containers
        )

    def needs(self, pods: PodClass) -> list[Need]:
        """One a container that asks for cards; init containers are not looked at."""
        result = []
        for one in pods.containers:
            number = whole(one.limits, NUMBER) or (1 if whole(one.limits, MEMORY) else 0)
            if not number:
                continue
            memory = whole(one.limits, MEMORY) or whole(one.requests, MEMORY)
            name = self.settings.percentage
            percent = (whole(one.limits, name) or whole(one.requests, name)) if name else 0
            if percent:
                memory = 0
            elif not memory:
                percent = 100
            result.append(
                Need(
                    number, memory, percent, whole(one.limits, CORES) or whole(one.requests, CORES)
                )
            )
        return result

    def sight(self, asker: Asker) -> Hashable:
        notes = asker.pods.annotations
        lists = tuple(notes.get(name) for name in (MODE, USE_TYPE, NO_TYPE, USE_UUID, NO_UUID))
        return tuple(self.needs(asker.pods)), lists, asker.group, asker.rules

    def ask_all(
        self, table: CardTable, rows: Rows, asker: Asker, policy: str
    ) -> tuple[Bools, Floats] | None:
        """`[rows]` twice, as `fit` says it for each of these nodes; None for pods that have to be
        looked at node by node."""
        notes = asker.pods.annotations
        needs = self.needs(asker.pods)
        if (
            len(needs) != 1
            or asker.group
            or asker.rules
            or notes.get(USE_UUID)
            or notes.get(NO_UUID)
        ):
            return None
        types = np.array(
            ["NVIDIA" in one and type_allowed(notes, one) for one in table.type_codes],
            dtype=np.bool_,
        )
        return table.ask(rows, needs[0], types, notes.get(MODE, ""), policy)

    # -------------------------------------------------------------------------------- what is there

    def cards(self, facts: NodeFacts, holders: Iterable[Holder]) -> Cards | None:
        if not all(facts.allocatable.get(name, 0.0) > 0 for name in (NUMBER, CORES, MEMORY)):
            return None
        read = registered(facts.annotations.get(REGISTER, ""))
        if read is None:
            return None
        for card in read.cards if read.mode == "mig" else ():
            groups = next(
                (
                    made
                    for models, made in self.settings.geometries
                    if any(one in card.type for one in models)
                ),
                None,
            )
            card.geometry = mig.Geometry(groups) if groups else None
        for holder in holders:
            for number, container in enumerate(decoded(holder.annotations.get(IDS, ""))):
                for record in container:
                    for card in [
                        one for one in read.cards if one.uuid and one.uuid in record.identity
                    ][:1]:
                        # A card may serve several containers of a pod, as it was handed out; each
                        # takes its share.
                        user = f"{holder.key}#{number}" if holder.key in card.users else holder.key
                        card.book(
                            user,
                            record.identity,
                            record.memory,
                            record.cores,
                            self.settings.factor,
                            holder.group,
                            holder.rules,
                        )
        return read

    # ------------------------------------------------------------------------------- who fits where

    def fit(self, cards: Cards, asker: Asker, policy: str) -> Fit:
        wanted = asker.pods.annotations.get(MODE, "")
        if wanted and wanted != cards.mode:
            return Fit(REFUSAL)
        trial = [card.copy() for card in cards.cards]
        full = {
            card.uuid
            for card in trial
            if cards.mode == "hami-core"
            and any(use.rules & asker.rules for use in card.users.values())
        }
        containers: list[list[Record]] = []
        score = 0.0
        for number, need in enumerate(self.needs(asker.pods)):
            chosen: list[Record] = []
            if need.number > len(trial):
                return Fit(REFUSAL)
            for card in _in_trial_order(trial, policy, asker.order):
                if len(chosen) == need.number:
                    break
                identity = None if card.uuid in full else self._place(card, need, asker)
                if identity is None:
                    continue
                memory = need.memory_on(card)
                card.book(
                    f"{number}", identity, memory, need.cores, self.settings.factor, "", frozenset()
                )
                chosen.append(
                    Record(identity, card.type, card.users[f"{number}"].memory, need.cores)
                )
                score += card_score(card, policy)  # with the pod on it
            if len(chosen) < need.number:
                return Fit(REFUSAL)
            containers.append(chosen)
        return Fit(score=score, assignment=containers)

    def _place(self, card: Card, need: Need, asker: Asker) -> str | None:
        """The name of the share that the container would get; None where the card will not do."""
        notes = asker.pods.annotations
        if not uuid_allowed(notes, card.uuid) or card.shares <= card.used:
            return None
        if notes.get(GROUP_POLICY) == SPREAD and asker.group and card.has_group(asker.group):
            return None
        memory = need.memory_on(card)
        if card.memory - card.used_memory < memory or card.used_cores + need.cores > _ALL_CORES:
            return None
        if need.cores == _ALL_CORES and card.used:
            return None
        if not need.cores and card.used_cores == _ALL_CORES:
            return None
        if "NVIDIA" not in card.type or not type_allowed(notes, card.type):
            return None
        if card.geometry is None:
            return card.uuid
        found = card.geometry.find(memory * max(self.settings.factor, 1))
        return f"{card.uuid}[{found[0].name}-{found[1]}]" if found is not None else None

    def annotations(self, assignment: list[list[Record]], node: str, now: float) -> dict[str, str]:
        text = encoded(assignment)
        seconds = str(int(now))
        return {
            NODE: node,
            TIME: seconds,
            IDS: text,
            TO_ALLOCATE: text,
            PHASE: "allocating",
            BIND_TIME: seconds,
        }


def _in_trial_order(cards: list[Card], policy: str, order: tuple[int, ...]) -> list[Card]:
    if order:
        return [cards[number] for number in order]
    if policy == BINPACK:
        return sorted(cards, key=lambda card: -card.used_memory)
    if policy == SPREAD:
        return sorted(cards, key=lambda card: card.used)
    return cards[::-1]


def uuid_allowed(annotations: Mapping[str, str], uuid: str) -> bool:
    """By the lists of cards to use and not to use; empty lists say nothing."""
    use, avoid = (_trimmed(annotations.get(name, "")) for name in (USE_UUID, NO_UUID))
    if not use and not avoid:
        return True
    return bool(uuid) and uuid not in avoid and (not use or uuid in use)


def type_allowed(annotations: Mapping[str, str], card_type: str) -> bool:
    """By the lists of card types; where there is a list to use, the other one is not asked."""
    kind = card_type.lower()
    if USE_TYPE in annotations:
        return any(one.lower() in kind for one in annotations[USE_TYPE].split(","))
    return NO_TYPE not in annotations or not any(
        one.lower() in kind for one in annotations[NO_TYPE].split(",")
    )


def _trimmed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def registered(text: str) -> Cards | None:
    """The cards of a node as its device plugin announces them; None where one record cannot be
    read."""
    if ":" not in text:
        return None
    cards, mode = [], "hami-core"
    for record in text.split(":"):
        if "," not in record:
            continue
        parts = record.split(",")
        if len(parts) < 6:
            return None
        try:
            cards.append(Card(parts[0], int(parts[1]), int(parts[2]), parts[3]))
        except ValueError:
            return None
        mode = parts[5] or "hami-core"
    return Cards(mode, cards)


def decoded(text: str) -> list[list[Record]]:
    """Cards a container; records that make no sense are left out."""
    return [
        [one for one in map(_record, container.split(":")) if one is not None]
        for container in text.split(";")
        if container
    ]


def _record(text: str) -> Record | None:
    parts = text.split(",")
    if len(parts) < 4:
        return None
    try:
        memory, cores = int(parts[2]), int(parts[3])
    except ValueError:
        return None
    return None if memory < 0 or cores < 0 else Record(parts[0], parts[1], memory, cores)


def encoded(containers: list[list[Record]]) -> str:
    return ";".join(
        "".join(f"{one.identity},{one.type},{one.memory},{one.cores}:" for one in container)
        for container in containers
    )


def settings_of(tree: Tree) -> Settings:
    """The part `nvidia` of the device configuration."""
    own = tree.get("nvidia") or {}
    return Settings(
        percentage=str(own.get("resourceMemoryPercentageName") or ""),
        factor=int(own.get("gpuMemoryFactor") or 1),
        geometries=tuple(
            mig.geometries(own.get("knownMigGeometries") or tree.get("knownMigGeometries"))
        ),
    )
