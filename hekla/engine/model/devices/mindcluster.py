"""Ascend 310P chips as MindCluster cuts them: whole chips, or one slice of a chip by template.
Reference: plugins-placement 7.5.

A node has as many chips as its cores make; what is on them is read from the annotations of its
pods.  The page names the limits of "virtual groups" of a chip without saying what makes one; here
each slice is a group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from hekla.engine.model.devices import Asker, Fit, Holder, Kind, whole
from hekla.engine.model.nodes import NodeFacts
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.tasks import Status

RESOURCE = "huawei.com/npu-core"
"""The resource, and the annotation that says which cores a pod got."""
TIME = "volcano.sh/predicate-time"
LEVEL, DVPP = "vnpu-level", "vnpu-dvpp"
SERVER = "servertype"
MODEL = "Ascend310P"
CHIP_CPUS = 7
"""AI CPUs of a chip, whose cores the label `servertype` states."""
REFUSAL = "no ascend 310P chip has the cores that are asked for"
BUSY = "another template of vNPU is being set up on the node"
UNKNOWN = "no template of vNPU has so many cores"


@dataclass(frozen=True, slots=True)
class Template:
    """What a slice takes of a chip."""

    name: str
    cores: int
    cpus: int


TEMPLATES = {
    one.name: one
    for one in (
        Template("vir01", 1, 1),
        Template("vir02", 2, 2),
        Template("vir02_1c", 2, 1),
        Template("vir04", 4, 4),
        Template("vir04_3c", 4, 3),
        Template("vir04_3c_ndvpp", 4, 3),
        Template("vir04_4c_dvpp", 4, 4),
    )
}
_SMALLER = {"vir02": "vir02_1c", "vir04": "vir04_3c"}
"""With fewer AI CPUs, where these are short."""


@dataclass(slots=True)
class Chip:
    """One chip: what is left of it."""

    cores: int
    cpus: int
    slices: int = 0
    whole: bool = True
    """Nobody is on it."""

    def takes(self, template: Template) -> bool:
        if self.cores < template.cores or self.cpus < template.cpus:
            return False
        return not (self.slices == 3 and template.cores >= 4) and not (
            self.slices >= 4 and template.cores > 1
        )

    def book(self, template: Template) -> None:
        self.cores -= template.cores
        self.cpus -= template.cpus
        self.slices += 1
        self.whole = False


@dataclass(slots=True)
class Cards:
    """The chips of a node."""

    per_chip: int
    chips: list[Chip]
    setting_up: set[str] = field(default_factory=set)
    """Templates of pods that do not run yet."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a pod goes."""

    chips: tuple[int, ...]
    template: str
    """Empty for whole chips."""
    downgraded: bool = False


class MindCluster:
    """Chooses chips."""

    def __init__(self) -> None:
        self.kind = Kind("mindcluster", (REFUSAL, BUSY, UNKNOWN), (RESOURCE, TIME))

    def asked(self, pods: PodClass) -> bool:
        return asked_of(pods) > 0

    def sight(self, asker: Asker) -> Hashable:
        return asked_of(asker.pods), asker.labels.get(LEVEL), asker.labels.get(DVPP)

    def cards(self, facts: NodeFacts, holders: Iterable[Holder]) -> Cards | None:
        model, _, cores = facts.labels.get(SERVER, "").rpartition("-")
        if model != MODEL or not cores.isdigit() or not int(cores):
            return None
        per_chip, held = int(cores), whole(facts.allocatable, RESOURCE)
        if not held:
            return None
        cards = Cards(per_chip, [Chip(per_chip, CHIP_CPUS) for _ in range(held // per_chip)])
        for holder in holders:
            self._book(cards, holder)
        return cards

    @staticmethod
    def _book(cards: Cards, holder: Holder) -> None:
        chosen = read(holder.annotations.get(RESOURCE, ""))
        if chosen is None or any(number >= len(cards.chips) for number in chosen.chips):
            return
        for number in chosen.chips:
            chip = cards.chips[number]
            if chosen.template:
                chip.book(TEMPLATES[chosen.template])
            else:
                chip.cores, chip.cpus, chip.whole = 0, 0, False
        if chosen.template and holder.status is not Status.RUNNING:
            cards.setting_up.add(chosen.template)

    def fit(self, cards: Cards, asker: Asker, policy: str) -> Fit:
        cores = asked_of(asker.pods)
        if cores % cards.per_chip == 0:
            free = [number for number, chip in enumerate(cards.chips) if chip.whole]
            count = cores // cards.per_chip
            return (
                Fit(assignment=Chosen(tuple(free[:count]), ""))
                if len(free) >= count
                else Fit(REFUSAL)
            )
        wanted = template_for(cores, asker.labels)
        if wanted is None:
            return Fit(UNKNOWN)
        for template, downgraded in ((wanted, False), (_SMALLER.get(wanted, ""), True)):
            if not template or (downgraded and asker.labels.get(DVPP) == "yes"):
                continue
            taking = [
                (chip.cores, number)
                for number, chip in enumerate(cards.chips)
                if chip.takes(TEMPLATES[template])
            ]
            if not taking:
                continue
            if cards.setting_up - {template}:
                return Fit(BUSY)
            return Fit(
                assignment=Chosen((min(taking)[1],), template, downgraded), score=float(downgraded)
            )
        return Fit(REFUSAL)

    def annotations(self, assignment: Chosen, node: str, now: float) -> dict[str, str]:
        chips = ",".join(map(str, assignment.chips))
        return {
            RESOURCE: f"{chips}-{assignment.template}" if assignment.template else chips,
            TIME: str(int(now * 1e9)),
        }


def asked_of(pods: PodClass) -> int:
    return sum(whole(one.limits, RESOURCE) for one in pods.containers)


def template_for(cores: int, labels: Mapping[str, str]) -> str | None:
    """The template that a pod means; None where none has so many cores."""
    high, dvpp = labels.get(LEVEL) == "high", labels.get(DVPP, "null")
    if cores == 1:
        return "vir01"
    if cores == 2:
        return "vir02" if high else "vir02_1c"
    if cores == 4:
        return {"yes": "vir04_4c_dvpp", "no": "vir04_3c_ndvpp"}.get(
            dvpp, "vir04" if high else "vir04_3c"
        )
    return None


def read(text: str) -> Chosen | None:
    """What an annotation says; None where it says nothing that can be read."""
    chips, _, template = text.partition("-")
    numbers = chips.split(",")
    if not all(number.isdigit() for number in numbers) or (template and template not in TEMPLATES):
        return None
    return Chosen(tuple(map(int, numbers)), template)


def preferred(order: Iterable[tuple[int, bool]]) -> dict[int, float]:
    """Points for nodes, given as (row, whether its slice would be a smaller one), fewest idle cores
    first."""
    listed = list(order)
    if not any(downgraded for _, downgraded in listed):
        return {row: 8.0 for row, _ in listed[:1]}
    result: dict[int, float] = {}
    for row, downgraded in listed:
        result[row] = 8.0 if downgraded else 16.0
        if not downgraded:
            break
    return result
