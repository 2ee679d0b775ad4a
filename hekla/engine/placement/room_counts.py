"""How many pods of each class fit on each node: kept from cycle to cycle, counted again where a
node's room has changed.

It is asked about thousands of jobs that wait, so it is arrays, and may say too much but never too
little: filters that depend on load are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.model.arrays import Ints, Rows
from hekla.engine.model.resources import EPSILON, Floats
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task

MANY = 1e6
"""More pods than any job has: a class that asks for nothing that runs out fits so often."""
FEW = 64


class RoomCounts:
    """Classes by row, `[classes, nodes]` pods that fit, and their sums `[classes]`."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        """Identity of a class -> its row; `classes` holds the classes."""
        self.classes: list[tuple[PodClass, Task]] = []
        """With a task of each, because filters are asked about tasks."""
        self.asked: Floats = np.zeros((0, 0))
        self.masks: Floats = np.zeros((0, 0))
        self.fit: Floats = np.zeros((0, 0))
        self.totals: Floats = np.zeros(0)
        self.room: Floats = np.zeros((0, 0))
        """`[resources, nodes]` that was counted with."""
        self.static = -1

    def refresh(self, session: Session) -> bool:
        """Count again where there is another room now: whether some node has more."""
        nodes = session.state.nodes
        room = nodes.future_idle()
        if self.static != nodes.static_version or self.room.shape != room.shape:
            self.static, self.room = nodes.static_version, room
            self._recount(session, range(len(self.classes)))
            return True
        changed = np.flatnonzero((self.room != room).any(axis=0))
        gained = bool(len(changed)) and bool((self.room < room).any())
        self.room = room
        if len(changed) and self.classes:
            fresh = self._fitting(slice(None), changed, room)
            self.totals += (fresh - self.fit[: len(self.classes), changed]).sum(axis=1)
            self.fit[: len(self.classes), changed] = fresh
        return gained

    def row_of(self, session: Session, task: Task) -> int:
        """The row of a task's class, which is counted if it is new."""
        row = self.rows.get(id(task.pods))
        if row is None:
            row = self.rows[id(task.pods)] = len(self.classes)
            self.classes.append((task.pods, task))
            if self.room.shape[1] == len(session.state.nodes):
                self._recount(session, [row])
        return row

    def keep(self, session: Session, live: Iterable[int]) -> dict[int, int]:
        """Give up all rows but these: where each of them has gone."""
        moved = {old: new for new, old in enumerate(sorted(set(live)))}
        self.classes = [self.classes[old] for old in moved]
        self.rows = {id(pods): row for row, (pods, _) in enumerate(self.classes)}
        self._recount(session, range(len(self.classes)))
        return moved

    def within(self, columns: Rows, room: Floats) -> Floats:
        """`[classes]`: what would fit if these nodes had this room, `[resources, columns]`."""
        fresh = self._fitting(slice(None), columns, None, room)
        found: Floats = self.totals + (fresh - self.fit[: len(self.classes), columns]).sum(axis=1)
        return found

    def _recount(self, session: Session, rows: Iterable[int]) -> None:
        """Masks and counts of these classes over all nodes."""
        listed = list(rows)
        nodes, filters = session.state.nodes, placer_of(session).filters
        width, count = len(nodes.space), len(self.classes)
        self._grow(count, width, len(nodes))
        for row in listed:
            pods, task = self.classes[row]
            self.asked[row] = 0.0
            for column, value in pods.request:
                self.asked[row, column] = value
            self.masks[row] = filters.static_mask(session, task)
        if listed:
            every = np.arange(len(nodes))
            which = np.array(listed)
            self.fit[which] = self._fitting(which, every, self.room)
            self.totals[which] = self.fit[which].sum(axis=1)

    def _grow(self, count: int, width: int, nodes: int) -> None:
        if (
            self.asked.shape[0] >= count
            and self.asked.shape[1] == width
            and self.fit.shape[1] == nodes
        ):
            self.totals = _padded(self.totals, (count,))
            return
        size = max(FEW, 2 * count)
        self.asked = _padded(self.asked, (size, width))
        if self.fit.shape[1] != nodes:
            self.masks, self.fit = np.zeros((size, nodes)), np.zeros((size, nodes))
        else:
            self.masks, self.fit = (_padded(one, (size, nodes)) for one in (self.masks, self.fit))
        self.totals = _padded(self.totals, (count,))

    def _fitting(
        self,
        which: slice | Ints | Rows,
        columns: Rows,
        room: Floats | None,
        given: Floats | None = None,
    ) -> Floats:
        """`[classes, columns]`: how many pods fit; `room` is of all nodes, `given` of the columns."""
        count = len(self.classes)
        asked, masks = self.asked[:count][which], self.masks[:count][which]
        free = room[:, columns] if given is None else given  # type: ignore[index]  # one is given
        most: Floats = np.full((len(asked), len(columns)), MANY)
        for resource in np.flatnonzero(asked.any(axis=0)).tolist():
            value = asked[:, resource]
            some = value > 0
            if some.all():
                np.minimum(most, (free[resource] + EPSILON) / value[:, None], out=most)
            else:
                most[some] = np.minimum(
                    most[some], (free[resource] + EPSILON) / value[some][:, None]
                )
        np.floor(np.maximum(most, 0.0, out=most), out=most)
        most *= masks[:, columns]
        return most


def _padded(old: Floats, shape: tuple[int, ...]) -> Floats:
    """The array in a larger (or smaller) one."""
    made = np.zeros(shape)
    part = tuple(slice(0, min(a, b)) for a, b in zip(old.shape, shape))
    made[part] = old[part]
    return made
