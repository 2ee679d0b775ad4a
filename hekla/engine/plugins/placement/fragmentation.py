"""fragmentation: a pod goes where the part of the cluster that nobody can use grows least.

What pods can use depends on what pods come; the mix of their shapes is learned from those that came
(`ShapeMix`), or stated.  The measure and its source are in `model/fragmentation/measure.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Depends, Plugin, Reads, Score, Source
from hekla.engine.framework.session import session_of
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.devices import vgpu, whole
from hekla.engine.model.fragmentation.measure import (
    Need,
    Places,
    Shapes,
    after,
    expected,
    fitting,
    gradient,
    unusable,
)
from hekla.engine.model.fragmentation.mix import ShapeMix
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import CPU, MEMORY, Amounts, Floats, amounts
from hekla.engine.placement.placer import placer_of
from hekla.engine.plugins.placement.deviceshare import DeviceShare

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task

RESOURCES = (CPU, MEMORY, "gpu")
"""What is measured, in the order of the measure's rows."""
ROUNDED = 4
"""Digits of a rise that count: less is a tie, and goes to the node that is fuller."""
FULLER, CPU_FULLER = 1e-6, 1e-11
"""What a node gains by having no card free, and by having no cpu free, where rises are equal."""
SHOWN_EVERY = 10.0
"""Seconds between two times that fragmentation is shown as metrics."""
RENEWED = 8
"""The mix is looked at again when it has grown by one in so many."""


class StatedShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shape as the policy states it."""

    requests: dict[str, int | float | str]
    weight: float = 1.0


class FragmentationArguments(Arguments, frozen=True):
    by_structure: ClassVar[frozenset[str]] = frozenset({"mix"})
    weight: int = msgspec.field(default=1, name="fragmentation.weight")
    cpu: float = msgspec.field(default=1.0, name="fragmentation.cpu")
    memory: float = msgspec.field(default=1.0, name="fragmentation.memory")
    gpu: float = msgspec.field(default=1.0, name="fragmentation.gpu")
    gpus: str = msgspec.field(default="nvidia.com/gpu", name="fragmentation.gpuResources")
    mix: list[StatedShape] = msgspec.field(default=[], name="fragmentation.mix")

    def extended(self, rest: Tree) -> FragmentationArguments:
        for name in (*RESOURCES, "weight"):
            value = getattr(self, name)
            if value < 0:
                raise ValueError(f"fragmentation.{name} = {value!r}: a weight is 0 or more")
        for at, one in enumerate(self.mix):
            if one.weight <= 0:
                raise ValueError(f"fragmentation.mix[{at}].weight = {one.weight!r}: more than 0")
            try:
                amounts(one.requests)
            except ValueError as error:
                raise ValueError(f"fragmentation.mix[{at}].requests: {error}") from None
        return self


@dataclass(slots=True)
class Rises:
    """By how much a pod raises fragmentation on each node, and for which state of each."""

    stamps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    scores: Floats = field(default_factory=lambda: np.zeros(0))

    def grow(self, size: int) -> None:
        more = size - len(self.stamps)
        if more > 0:
            self.stamps = np.append(self.stamps, np.full(more, -1, dtype=np.int64))
            self.scores = np.append(self.scores, np.zeros(more))


class Fragmentation(Plugin):
    """Scores nodes, and says which card of a node a share of one comes from."""

    name = "fragmentation"
    Arguments = FragmentationArguments
    arguments: FragmentationArguments
    reads = Reads(nodes=Source.ANYTHING)

    def __init__(self, arguments: FragmentationArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.gpus = tuple(one.strip() for one in arguments.gpus.split(",") if one.strip())
        self.mix: ShapeMix | None = None
        self._renew_at = 0
        self._shown = float("-inf")
        self._measured_by: tuple[object, ...] = ()
        """What the shapes and scales were worked out from."""
        self._shapes: Shapes | None = None
        self.classes: list[PodClass | None] = []
        """One of each shape; None where the policy states it."""
        self._rises: dict[Need, Rises] = {}
        self._needs: dict[PodClass, Need] = {}
        self._access: tuple[int, Bools | None] = (-1, None)

    def open(self, session: CycleView) -> None:
        self.session = session_of(session)
        self.nodes = session.state.nodes
        found = (one for one in self.session.hooks.plugins if isinstance(one, DeviceShare))
        self.sharing = next(found, None)
        if self.sharing is not None:
            self.sharing.card_order = self._card_order
        if not self.arguments.mix:
            pods = session.state.pods
            if pods.mix is None:
                pods.mix = ShapeMix(task for job in session.jobs() for task in job.tasks.values())
            self.mix = pods.mix
            if self.mix.version >= self._renew_at:
                self._renew_at = self.mix.version + 1 + self.mix.version // RENEWED
                self._forget()
        count = max(int(self.nodes.ready.sum()), 1)
        means = tuple(session.total.get(name, 0.0) / count for name in (CPU, MEMORY))
        own = self.arguments
        self.scale = np.array(
            [
                own.cpu / means[0] if means[0] else 0.0,
                own.memory / means[1] if means[1] else 0.0,
                own.gpu,
            ]
        )
        cards = tuple(session.total.get(name, 0.0) for name in (*self.gpus, vgpu.MEMORY))
        if self._measured_by != (means, cards):
            self._measured_by = (means, cards)
            self._forget()

    def _forget(self) -> None:
        self._shapes = None
        self._rises.clear()
        self._needs.clear()
        self._access = (-1, None)

    def close(self, session: CycleView) -> None:
        """Show what is free and of no use to the mix, not in every cycle."""
        if session.now - self._shown < SHOWN_EVERY or not session.state.metered:
            return
        self._shown = session.now
        free, lost = self.lost(np.arange(len(self.nodes)))
        for at, name in enumerate(RESOURCES):
            session.metric("fragmentation_free", float(free[at].sum()), resource=name)
            session.metric("fragmentation_unusable", float(lost[at].sum()), resource=name)

    # -------------------------------------------------------------------------------------- the mix

    @property
    def shapes(self) -> Shapes:
        """The mix as it was looked at last."""
        if self._shapes is None:
            if self.arguments.mix:
                total = sum(one.weight for one in self.arguments.mix)
                self.classes = [None] * len(self.arguments.mix)
                needs = [self._need_of(amounts(one.requests)) for one in self.arguments.mix]
                popularity = [one.weight / total for one in self.arguments.mix]
            else:
                assert self.mix is not None
                popular = self.mix.popular()
                self.classes = [*(one.pods for one in popular)]
                needs = [self.need(one.pods) for one in popular]
                popularity = [one.popularity for one in popular]
            self._shapes = Shapes(needs, popularity)
        return self._shapes

    def access(self) -> Bools | None:
        """`[shapes, nodes]`: where the shapes may go at all; None where it is everywhere."""
        shapes, nodes = self.shapes, self.nodes
        if self._access[0] == nodes.static_version:
            return self._access[1]
        view = NodeView(nodes)
        mask = np.ones((len(shapes.needs), len(nodes)), dtype=np.bool_)
        filters = placer_of(self.session).filters.static
        shared, plain = self._with_cards(view)
        for at, pods in enumerate(self.classes):
            if pods is not None:
                for one in filters:
                    passed = one.mask(pods, view, None)
                    if passed is not None:
                        mask[at] &= passed
            if shapes.needs[at].number:
                mask[at] &= shared if shapes.needs[at].shared else plain
        self._access = nodes.static_version, None if mask.all() else mask
        return self._access[1]

    def need(self, pods: PodClass) -> Need:
        """What pods of a class ask for, as the measure has it: where containers ask for different
        shares of cards, as if all asked for the largest."""
        found = self._needs.get(pods)
        if found is not None:
            return found
        asked = self._need_of(pods.request.amounts)
        shared = None if self.sharing is None else self.sharing.shared_cards(_NOWHERE)
        if shared is not None and shared[0].asked(pods):
            each = shared[0].needs(pods)
            number = sum(one.number for one in each)
            largest = max(each, key=lambda one: (one.memory, one.percent), default=None)
            if largest is not None:
                share, percent = largest.memory, largest.percent or 100
                if largest.cores == 100:
                    share, percent = 0, 100
                asked = asked._replace(number=number, share=share, percent=percent, shared=True)
        self._needs[pods] = asked
        return asked

    def _need_of(self, asked: Amounts) -> Need:
        number = sum(whole(asked, name) for name in self.gpus)
        share = whole(asked, vgpu.MEMORY)
        if share or whole(asked, vgpu.NUMBER):
            number = whole(asked, vgpu.NUMBER) or 1
            return Need(asked[CPU], asked[MEMORY], number, share, 100, shared=True)
        return Need(asked[CPU], asked[MEMORY], number)

    # ------------------------------------------------------------------------------------- the nodes

    def places(self, view: NodeView) -> Places:
        """The nodes of a view as the measure has them: what pods hold or are promised is taken."""
        space = view.table.space
        cpu, memory = (
            view.allocatable(column) - view.requested(column)
            for column in (space.column(CPU), space.column(MEMORY))
        )
        count = np.zeros(len(view), dtype=np.intp)
        for column in self._card_columns():
            count += ((view.allocatable(column) - view.requested(column)) // 1000).astype(np.intp)
        rows = np.arange(len(view.table)) if view.rows is None else view.rows
        shared = None if self.sharing is None else self.sharing.shared_cards(np.unique(rows))
        width = max(int(count.max(initial=0)), 1)
        cards = np.where(np.arange(width)[:, None] < count, 1000.0, -1.0)
        card, closed = np.where(count > 0, 1000.0, 1.0), np.zeros(len(view))
        if shared is None or not shared[1].there[rows].any():
            return Places(cpu, memory, cards, card, closed)
        table = shared[1]
        here = table.there[rows] & (table.number[rows] > 0)
        there = (np.arange(len(table.memory))[:, None] < table.number[rows]) & here
        left = np.where(there, table.memory[:, rows] - table.used_memory[:, rows], -1).astype(float)
        takes = there & (table.shares[:, rows] > 0)
        own = np.full((max(width, len(left)), len(view)), -1.0)
        own[:width] = np.where(here, -1.0, cards)
        own[: len(left)] = np.where(takes, left, own[: len(left)])
        card = np.where(here, np.maximum(table.memory[:, rows].max(axis=0, initial=1), 1), card)
        closed = np.where(there & ~takes, left, 0.0).sum(axis=0)
        return Places(cpu, memory, own, card, closed)

    def _card_columns(self) -> list[int]:
        """Of the resources that are whole cards, as far as there are any."""
        index = self.nodes.space.index
        return [index[name] for name in self.gpus if name in index]

    def _with_cards(self, view: NodeView) -> tuple[Bools, Bools]:
        """`[nodes]` twice: which have cards that pods share, which have other cards."""
        everywhere = np.arange(len(view.table))
        plain = np.zeros(len(view.table), dtype=np.bool_)
        for column in self._card_columns():
            plain |= view.allocatable(column) > 0
        shared = None if self.sharing is None else self.sharing.shared_cards(everywhere)
        if shared is None:
            return np.zeros(len(view.table), dtype=np.bool_), plain
        return shared[1].there[everywhere] & (shared[1].number[everywhere] > 0), plain

    # ----------------------------------------------------------------------------------------- score

    def scores(self) -> Iterable[Score]:
        weight = float(self.arguments.weight)
        if weight:
            yield Score("fragmentation", weight, Depends.NODE_ROW, self._alone, batch=False)
            yield Score(
                "fragmentation of cards", weight, Depends.CLUSTER, self._on_cards, batch=False
            )

    def fragmentation(self, rows: Rows) -> Floats:
        """`[rows]`: expected fragmentation of these nodes as they are."""
        access = self.access()
        seen = None if access is None else access[:, rows]
        return expected(self.shapes, self.places(NodeView(self.nodes, rows)), self.scale, seen)

    def lost(self, rows: Rows) -> tuple[Floats, Floats]:
        """`[3, rows]` twice, of cpu (millicores), memory (bytes) and GPUs: what is free, and what of
        it the mix is expected to leave, were each node filled with pods of one shape."""
        free, left = self.left_by_shape(rows)
        weights = self.shapes.by_resource
        whole = np.maximum(weights.sum(axis=1), 1e-12)
        return free, np.einsum("rs,rsp->rp", weights, left) / whole[:, None]

    def left_by_shape(self, rows: Rows) -> tuple[Floats, Floats]:
        """`[3, rows]`: what is free; `[3, shapes, rows]`: what of it pods of a shape leave."""
        access, places = self.access(), self.places(NodeView(self.nodes, rows))
        seen = None if access is None else access[:, rows]
        cards = (np.maximum(places.cards, 0.0).sum(axis=0) + places.closed) / places.card
        free = np.array([places.cpu, places.memory, cards])
        return free, unusable(self.shapes, places, seen, filled=True)

    def _alone(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        return None if self.need(pods).shared else self._score(pods, nodes)

    def _on_cards(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        """Which cards a pod gets is known only once it has its node, so the next one has to wait
        for that."""
        return self._score(pods, nodes) if self.need(pods).shared else None

    def _score(self, pods: PodClass, nodes: NodeView) -> Floats:
        """`[nodes]`, 0 to 100: 50 where nothing changes, less where fragmentation rises."""
        need = self.need(pods)
        imagined = not isinstance(nodes.extra, int) or nodes.extra > 0
        if imagined:
            return self._rated(need, nodes)
        table = nodes.table
        known = self._rises.setdefault(need, Rises())
        known.grow(len(table))
        stale = known.stamps[: len(table)] != table.stamps
        rows = np.flatnonzero(stale) if nodes.rows is None else nodes.rows[stale[nodes.rows]]
        if len(rows):
            known.scores[rows] = self._rated(need, NodeView(table, rows))
            known.stamps[rows] = table.stamps[rows]
        return nodes.take(known.scores[: len(table)])

    def _rated(self, need: Need, view: NodeView) -> Floats:
        if not len(view):
            return np.zeros(0)
        places, access = self.places(view), self.access()
        rises = gradient(
            self.shapes, places, need, self.scale, None if access is None else view.take(access)
        )
        found = np.isfinite(rises)
        gains = -np.round(np.where(found, rises, 0.0), ROUNDED)
        scores = 50.0 * (1.0 + gains / (1.0 + np.abs(gains)))
        cards = (np.maximum(places.cards, 0.0).sum(axis=0) + places.closed) / places.card
        whole_cpu = np.maximum(view.allocatable(view.table.space.column(CPU)), 1.0)
        scores += FULLER / (1.0 + cards) + CPU_FULLER * (1.0 - places.cpu / whole_cpu)
        return np.where(found, scores, 0.0)

    def _card_order(
        self, device: vgpu.VirtualGpu, cards: vgpu.Cards, pods: PodClass, row: int
    ) -> tuple[int, ...]:
        """The cards of a node that holds the pod already, but not on its cards: those first where
        fragmentation rises least; of equal ones, and for pods of several, the fullest first."""
        need = self.need(pods)
        left = np.array([float(one.memory - one.used_memory) for one in cards.cards])
        takes = np.array([one.shares > one.used for one in cards.cards])
        count = len(left)
        places = self.places(NodeView(self.nodes, np.full(count, row)))
        places.cpu, places.memory = places.cpu + need.cpu, places.memory + need.memory
        places.cards = np.repeat(np.where(takes, left, -1.0)[:, None], count, axis=1)
        places.closed = np.full(count, float(left[~takes].sum()))
        wide = fitting(places, need)[:, 0] if count else np.zeros(0, dtype=np.bool_)
        rises = np.zeros(count)
        if need.number == 1 and count > 1:
            access = self.access()
            seen = None if access is None else access[:, np.full(count, row)]
            then = after(places, need, np.eye(count, dtype=np.bool_))
            rises = np.round(expected(self.shapes, then, self.scale, seen), ROUNDED)
        return tuple(np.lexsort((left, rises, ~wide)).tolist())


_NOWHERE: Rows = np.zeros(0, dtype=np.intp)
