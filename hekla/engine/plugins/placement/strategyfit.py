"""resource-strategy-fit: each resource packed or spread as the policy says, scarce ones kept for
who needs them.

Reference: plugins-placement 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
import numpy as np

from hekla.engine.framework.plugin import (
    MAX_SCORE,
    Arguments,
    Code,
    Depends,
    Filter,
    Mask,
    Plugin,
    Score,
)
from hekla.engine.model.annotations import TYPE_ANNOTATION, WEIGHT_ANNOTATION
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import CPU, MEMORY, Floats

if TYPE_CHECKING:
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task

MOST: Literal["MostAllocated"] = "MostAllocated"
LEAST: Literal["LeastAllocated"] = "LeastAllocated"
_DEFAULT_WEIGHT = 10


class Strategy(msgspec.Struct, frozen=True):
    """How one resource is used up."""

    type: str = LEAST
    weight: int = 1


class Scarce(msgspec.Struct, frozen=True, rename="camel"):
    """Resources that pods which do not need them should keep away from."""

    enable: bool = False
    resources: str = ""
    weight: int = 0
    resource_weight: dict[str, int] = {}


class Proportional(msgspec.Struct, frozen=True, rename="camel"):
    """Cpu and memory that stay beside every idle device."""

    enable: bool = False
    resources: str = ""
    resource_proportion: dict[str, float] = {}


class StrategyFitArguments(Arguments, frozen=True):
    by_structure: ClassVar[frozenset[str]] = frozenset(
        {"weight", "resources", "sra", "proportional"}
    )
    weight: int = msgspec.field(default=_DEFAULT_WEIGHT, name="resourceStrategyFitWeight")
    resources: dict[str, Strategy] = {}
    sra: Scarce = Scarce()
    proportional: Proportional = Proportional()


class ResourceStrategyFit(Plugin):
    """Fit by strategy, avoidance of scarce resources, and proportions kept free."""

    name = "resource-strategy-fit"
    Arguments = StrategyFitArguments
    arguments: StrategyFitArguments

    def __init__(self, arguments: StrategyFitArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.weight = arguments.weight if arguments.weight >= 0 else _DEFAULT_WEIGHT
        stated = {name: _sound(one) for name, one in arguments.resources.items() if _usable(name)}
        self.exact = {name: one for name, one in stated.items() if not name.endswith("*")}
        self.families = sorted(
            ((name[:-1], one) for name, one in stated.items() if name.endswith("*")),
            key=lambda one: -len(one[0]),
        )
        if not arguments.resources:
            self.exact = {CPU: Strategy(), MEMORY: Strategy()}
        self.scarce = {
            name: max(arguments.sra.resource_weight.get(name, 1), 1)
            if arguments.sra.resource_weight.get(name, 1) < 0
            else arguments.sra.resource_weight.get(name, 1)
            for name in _listed(arguments.sra.resources)
        }

    def _strategy(self, name: str) -> Strategy | None:
        found = self.exact.get(name)
        if found is not None:
            return found
        return next((one for prefix, one in self.families if name.startswith(prefix)), None)

    # --------------------------------------------------------------------------------------- scores

    def scores(self) -> Iterable[Score]:
        if self.weight > 0:
            yield Score("fit", MAX_SCORE * self.weight, Depends.NODE_ROW, self._fit, batch=False)
        sra: Scarce = self.arguments.sra
        if sra.enable and sra.weight > 0:
            yield Score("sra", MAX_SCORE * sra.weight, Depends.STATIC, self._avoid, batch=False)

    def _strategies(self, pods: PodClass) -> dict[str, Strategy] | None:
        """Of each resource that the pod asks for; None where its annotations cannot be read."""
        kind = pods.annotations.get(TYPE_ANNOTATION)
        if kind is None:
            found = {name: self._strategy(name) for name in pods.requested}
            return {name: one for name, one in found.items() if one is not None}
        try:
            weights = msgspec.json.decode(
                pods.annotations.get(WEIGHT_ANNOTATION, ""), type=dict[str, int]
            )
        except msgspec.DecodeError:
            return None
        return {name: Strategy(kind, weights[name]) for name in pods.requested if name in weights}

    def _fit(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        strategies = self._strategies(pods)
        if not strategies:
            return None
        total: Floats = np.zeros(len(nodes))
        over = np.zeros(len(nodes), dtype=np.bool_)
        weights = 0
        for name, strategy in strategies.items():
            column = nodes.table.space.column(name)
            capacity = nodes.allocatable(column)
            filled = nodes.used(column) + pods.request.amounts[name]
            has = (capacity > 0) & (strategy.weight != 0)
            weights += strategy.weight
            over |= has & (filled > capacity)
            safe = np.where(capacity > 0, capacity, 1.0)
            if strategy.type == MOST:
                part: Floats = filled / safe
            elif strategy.type == LEAST:
                part = (capacity - filled) / safe
            else:
                continue
            total += np.where(has, strategy.weight * part, 0.0)
        if not weights:
            return np.zeros(len(nodes))  # Weights of an annotation may cancel out.
        total /= weights
        total[over] = 0.0
        return total

    def _avoid(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        whole = sum(self.scarce.values())
        if not whole:
            return None
        space = nodes.table.space
        present: Floats = np.zeros(len(nodes))
        for name, weight in self.scarce.items():
            present += weight * (nodes.allocatable(space.column(name)) > 0)
        lacks = np.zeros(len(nodes), dtype=np.bool_)
        for name in pods.requested:
            lacks |= nodes.allocatable(space.column(name)) <= 0
        return np.where(lacks, 0.0, 1.0 - present / whole)

    # --------------------------------------------------------------------------------------- filter

    def filters(self) -> Iterable[Filter]:
        proportional: Proportional = self.arguments.proportional
        if not proportional.enable:
            return
        for name in _listed(proportional.resources):
            reason = f"proportional of resource {name} check failed"
            yield Filter(
                f"proportional {name}",
                reason,
                Code.UNRESOLVABLE,
                Depends.NODE_ROW,
                self._keeps(name),
                self.name,
            )

    def _keeps(self, name: str) -> Mask:
        proportional: Proportional = self.arguments.proportional
        listed = _listed(proportional.resources)

        def rate(resource: str) -> float:
            stated = proportional.resource_proportion.get(f"{name}.{resource}", 1.0)
            return stated if stated >= 0 else 1.0

        def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
            request = pods.request.amounts
            if any(request.get(one, 0.0) > 0 for one in listed):
                return None
            space = nodes.table.space
            column = space.column(name)

            def idle(of: int) -> Floats:
                return nodes.allocatable(of) - nodes.used(of)

            devices = idle(column)
            cpu = idle(space.column(CPU)) - request.get(CPU, 0.0) >= devices * rate(CPU)
            memory = (
                idle(space.column(MEMORY)) - request.get(MEMORY, 0.0)
                >= devices * rate(MEMORY) * 1e6
            )
            return (nodes.allocatable(column) <= 0) | (cpu & memory)

        return mask


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _usable(name: str) -> bool:
    return "*" not in name or (name.count("*") == 1 and name.endswith("*") and name != "*")


def _sound(one: Strategy) -> Strategy:
    kind = MOST if one.type == MOST else LEAST
    return Strategy(kind, one.weight if one.weight > 0 else 1)
