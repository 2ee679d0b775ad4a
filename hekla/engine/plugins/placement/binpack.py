"""binpack: fills nodes up, so that whole nodes stay free for large pods.  Reference:
plugins-placement 3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec
import numpy as np

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import (
    MAX_SCORE,
    Arguments,
    Depends,
    Plugin,
    Reads,
    Score,
    Source,
)
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import CPU, MEMORY, Floats

if TYPE_CHECKING:
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task


class ResourceWeights(Arguments, frozen=True):
    """A weight for cpu, for memory, and for each of the resources that are listed: its key is the
    family and the name of the resource."""

    family: ClassVar[str]
    made: ClassVar[frozenset[str]] = frozenset({"others"})
    others: dict[str, int] = {}

    @classmethod
    def accepts(cls, key: str) -> bool:
        return key.startswith(cls.family)

    def extended(self, rest: Tree) -> Self:
        for key, value in rest.items():
            if type(value) is not int or value < 0:
                raise ValueError(f"{key} = {value!r}: a weight is a whole number from 0 up")
        others = {key.removeprefix(self.family): value for key, value in rest.items()}
        return msgspec.structs.replace(self, others=others)

    def by_resource(self, listed: str, cpu: int, memory: int) -> dict[str, int]:
        """Resource -> weight: 1 where none is stated."""
        names = [name.strip() for name in listed.split(",") if name.strip()]
        weights = {name: self.others.get(name, 1) for name in names}
        weights[CPU] = cpu if cpu >= 0 else 1
        weights[MEMORY] = memory if memory >= 0 else 1
        return weights


class BinPackArguments(ResourceWeights, frozen=True):
    family: ClassVar[str] = "binpack.resources."
    weight: int = msgspec.field(default=1, name="binpack.weight")
    cpu: int = msgspec.field(default=1, name="binpack.cpu")
    memory: int = msgspec.field(default=1, name="binpack.memory")
    resources: str = msgspec.field(default="", name="binpack.resources")


class BinPack(Plugin):
    """How full each node would be, 0 to 100 times the plugin's weight."""

    name = "binpack"
    Arguments = BinPackArguments
    arguments: BinPackArguments
    reads = Reads(nodes=Source.NODES)

    def __init__(self, arguments: BinPackArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.weights = arguments.by_resource(arguments.resources, arguments.cpu, arguments.memory)

    def scores(self) -> Iterable[Score]:
        if self.arguments.weight:
            yield Score(
                "binpack", float(self.arguments.weight), Depends.NODE_ROW, self.filled, batch=False
            )

    def filled(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        """`[nodes]`, 0 to 100; a node that would overflow in any weighted resource gets 0."""
        total: Floats = np.zeros(len(nodes))
        over = np.zeros(len(nodes), dtype=np.bool_)
        weights = 0
        space = nodes.table.space
        for name in pods.requested:
            weight = self.weights.get(name)
            if weight is None:
                continue
            weights += weight
            column = space.column(name)
            allocatable = nodes.allocatable(column)
            filled = nodes.used(column) + pods.request.amounts[name]
            has = allocatable > 0
            if weight:
                over |= has & (filled > allocatable)
                total += np.where(has, filled, 0.0) * weight / np.where(has, allocatable, 1.0)
        if weights:
            total /= weights
        total[over] = 0.0
        return total * MAX_SCORE
