"""binpack: fills nodes up, so that whole nodes stay free for large pods.  Reference:
plugins-placement 3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

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
from hekla.engine.model.nodes import NodeView
from hekla.engine.model.resources import CPU, MEMORY, Floats

if TYPE_CHECKING:
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task

_FAMILY = "binpack.resources."


class BinPackArguments(Arguments, frozen=True):
    weight: int = msgspec.field(default=1, name="binpack.weight")
    cpu: int = msgspec.field(default=1, name="binpack.cpu")
    memory: int = msgspec.field(default=1, name="binpack.memory")
    resources: str = msgspec.field(default="", name="binpack.resources")
    made: ClassVar[frozenset[str]] = frozenset({"others"})
    others: dict[str, int] = {}

    @classmethod
    def accepts(cls, key: str) -> bool:
        return key.startswith(_FAMILY)

    def extended(self, rest: Tree) -> BinPackArguments:
        for key, value in rest.items():
            if type(value) is not int or value < 0:
                raise ValueError(f"{key} = {value!r}: a weight is a whole number from 0 up")
        return msgspec.structs.replace(
            self, others={key.removeprefix(_FAMILY): value for key, value in rest.items()}
        )


class BinPack(Plugin):
    """How full each node would be, 0 to 100 times the plugin's weight."""

    name = "binpack"
    Arguments = BinPackArguments
    arguments: BinPackArguments
    reads = Reads(nodes=Source.NODES)

    def __init__(self, arguments: BinPackArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        listed = [name.strip() for name in arguments.resources.split(",") if name.strip()]
        self.weights: dict[str, int] = {name: arguments.others.get(name, 1) for name in listed}
        self.weights[CPU] = arguments.cpu if arguments.cpu >= 0 else 1
        self.weights[MEMORY] = arguments.memory if arguments.memory >= 0 else 1

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
