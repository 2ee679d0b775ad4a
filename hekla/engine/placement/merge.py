"""Placing many pods of one class at once: a node's score after 0, 1, 2, ... more of them is a
sequence, and the sequences are merged.

The merge by heads has a closed form: entries in order of the *smallest value so far* in their
sequence, ties by node, then by position.  So a few levels are computed as vectors and sorted, and
the result equals placing one at a time, exactly. Reference: plugins-placement 0.5, 0.6;
scheduler-core 6.0, 9.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.engine.model.arrays import Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Floats
from hekla.engine.placement.filters import passing
from hekla.engine.placement.scorer import Scorer

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task
    from hekla.engine.placement.placer import Placer


AT_ONCE = 1 << 16
"""Scores computed in one step at most, which bounds the memory that it takes."""
HARDLY_MORE = 512
"""So many scores cost hardly more than one."""


class Merge:
    """The merge of the candidates' score sequences, in as few vector steps as the answer needs."""

    def __init__(
        self, placer: Placer, session: Session, task: Task, rows: Rows, pipelining: bool
    ) -> None:
        self.placer = placer
        self.session = session
        self.task = task
        self.rows = rows
        self.pipelining = pipelining
        self.scorer = Scorer(placer.scores.by_plugin, session, task, rows)
        self.open = np.ones(len(rows), dtype=np.bool_)
        """Candidates whose sequence may go on beyond the levels computed so far."""
        self.depth = np.zeros(len(rows), dtype=np.intp)
        self.lowest: Floats = np.full(len(rows), np.inf)
        self.values: list[Floats] = []
        self.positions: list[Rows] = []
        self.levels: list[Rows] = []

    def take(self, count: int) -> Rows:
        """Nodes for up to `count` pods, in the order in which they would be taken one by one.

        Fewer where a placement changes what the other nodes are worth: the scores have to be asked
        again then.
        """
        self._begin()
        self._deepen(np.arange(len(self.rows)), count // len(self.rows))
        rank = self.session.rank(self.rows)
        if rank is None:
            rank = np.arange(len(self.rows))
        while True:
            values = np.concatenate(self.values)
            positions = np.concatenate(self.positions)
            levels = np.concatenate(self.levels)
            chosen = _top(values, rank[positions], levels, count)
            values, positions, levels = values[chosen], positions[chosen], levels[chosen]
            taken = np.bincount(positions, minlength=len(self.rows))
            short = np.flatnonzero((taken == self.depth) & self.open)
            if not len(short):
                break
            # What was not chosen cannot be any more: further levels only take the place of others.
            self.values, self.positions, self.levels = [values], [positions], [levels]
            self._deepen(
                short, max(int(self.depth[short].max()), min(count, HARDLY_MORE // len(short)))
            )
        sequence = positions[np.lexsort((levels, rank[positions], -values))]
        cut = self._first_change(sequence, taken)
        if cut is not None and cut + 1 < len(sequence):
            return self.rows[sequence[: cut + 1]]
        return self.rows[sequence]

    def _begin(self) -> None:
        """The first level: every candidate has passed and has room as it is, so only its score is
        asked."""
        nodes = self.session.state.nodes
        whole = len(self.rows) == len(nodes)  # They ascend, so these are all.
        scores = self.scorer.at(NodeView(nodes, None if whole else self.rows), slice(None))
        self.lowest = scores.copy()
        self.depth += 1
        self.values.append(scores)
        self.positions.append(np.arange(len(self.rows)))
        self.levels.append(np.zeros(len(self.rows), dtype=np.intp))

    def _deepen(self, which: Rows, by: int) -> None:
        """Compute `by` more levels for some candidates: in one step, or in a few where they are
        many."""
        which = which[self.open[which]]
        while by and len(which):
            levels = min(by, max(1, AT_ONCE // len(which)))
            self._add_levels(which, levels)
            by -= levels
            which = which[self.open[which]]

    def _add_levels(self, which: Rows, count: int) -> None:
        """The next `count` levels of some open candidates, `[count x candidates]`, each candidate
        from its own depth."""
        task, nodes = self.task, self.session.state.nodes
        shape = count, len(which)
        candidates = np.tile(which, count)
        depths = (self.depth[which] + np.arange(count)[:, None]).ravel()
        view = NodeView(nodes, self.rows[candidates], task.request, depths, self.pipelining)
        alive = view.fits(task.request, future=True)
        if not self.pipelining and nodes.moving:
            alive &= view.fits(task.request, future=False)
        alive = passing(self.placer.filters.row, alive, task, view)
        alive = np.logical_and.accumulate(alive.reshape(shape), axis=0).ravel()
        if not alive.all():
            self.open[which] = alive.reshape(shape)[-1]
            candidates, depths = candidates[alive], depths[alive]
            view = NodeView(nodes, self.rows[candidates], task.request, depths, self.pipelining)
        scores = np.full(count * len(which), np.inf)
        scores[alive] = self.scorer.at(view, candidates)
        lowest = np.minimum.accumulate(
            np.minimum(scores.reshape(shape), self.lowest[which]), axis=0
        )
        self.lowest[which] = lowest[-1]
        self.depth[which] += alive.reshape(shape).sum(axis=0)
        self.values.append(lowest.ravel()[alive])
        self.positions.append(candidates)
        self.levels.append(depths)

    def _first_change(self, sequence: Rows, taken: NDArray[np.intp]) -> int | None:
        """Where the last candidate that others are measured by is used up; from there on scores
        change."""
        full = (taken == self.depth) & ~self.open
        first: int | None = None
        for extreme in self.scorer.extremes:
            if not full[extreme].all():
                continue
            last = int(np.flatnonzero(extreme[sequence])[-1])
            first = last if first is None else min(first, last)
        return first


def _top(values: Floats, rank: NDArray[np.intp], levels: Rows, count: int) -> Rows:
    """The `count` first entries by value, then rank, then level."""
    if len(values) <= count:
        return np.arange(len(values))
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > threshold)
    tied = np.flatnonzero(values == threshold)
    missing = count - len(above)
    if missing < len(tied):
        tied = tied[np.lexsort((levels[tied], rank[tied]))][:missing]
    return np.concatenate((above, tied))
