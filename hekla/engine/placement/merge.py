"""Placing many pods of one class at once: a node's score after 0, 1, 2, ... more of them is a
sequence, and the sequences are merged.

The merge by heads has a closed form: entries in order of the *smallest value so far* in their
sequence, ties by node, then by position.  So a few levels are computed as vectors and sorted, and
the result equals placing one at a time, exactly. Reference: plugins-placement 0.5, 0.6;
scheduler-core 6.0, 9.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.engine.framework.plugin import Depends, Normalise, Plugin, Score
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodes import NodeView
from hekla.engine.model.resources import Floats

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task
    from hekla.engine.placement.placer import Placer


AT_ONCE = 1 << 16
"""Scores computed in one step at most, which bounds the memory that it takes."""
HARDLY_MORE = 512
"""So many scores cost hardly more than one."""


class Scorer:
    """Scores of one class over one set of candidates; the normalised parts are computed once for
    the set.

    `kin`: with the scores that depend on kin as they are now.  They are added last, in every way to
    place, because the order of additions decides the last digit.
    """

    def __init__(
        self,
        scores: Sequence[tuple[Plugin, Score]],
        session: Session,
        task: Task,
        rows: Rows,
        kin: bool = True,
    ) -> None:
        self.pods = task.pods
        self.task = task
        self.fixed: Floats = np.zeros(len(rows))
        self.moving: list[Score] = []
        self.extremes: list[Bools] = []
        """For each normalised score: which candidates hold the value that the others are measured
        by."""
        self.by_kin: list[Floats] = []
        view = NodeView(session.state.nodes, rows)
        for _, score in scores:
            if score.depends_on is Depends.KIN:
                raw = score.raw(self.pods, view, task) if kin else None
                if raw is not None:
                    self.by_kin.append(score.weight * raw)
                    if len(raw) and raw.max() != raw.min():
                        self.extremes.extend((raw == raw.max(), raw == raw.min()))
                continue
            if score.depends_on is Depends.NODE_ROW and score.normalise is Normalise.NONE:
                self.moving.append(score)
                continue
            raw = score.raw(self.pods, view, task)
            if raw is None:
                continue
            self.fixed += score.weight * normalised(raw, score.normalise)
            if score.normalise is not Normalise.NONE and len(raw) and raw.max() != raw.min():
                self.extremes.append(raw == raw.max())
                if score.normalise is Normalise.SPAN:
                    self.extremes.append(raw == raw.min())

    def at(self, view: NodeView, which: NDArray[np.intp] | slice) -> Floats:
        """`[rows of the view]`; `which` says which of the candidates these are."""
        total = self.fixed[which].copy()
        for score in self.moving:
            raw = score.raw(self.pods, view, self.task)
            if raw is not None:
                total += score.weight * raw
        for part in self.by_kin:
            total += part[which]
        return total


class Merge:
    """The merge of the candidates' score sequences, in as few vector steps as the answer needs."""

    def __init__(
        self, pipeline: Placer, session: Session, task: Task, rows: Rows, pipelining: bool
    ) -> None:
        self.pipeline = pipeline
        self.session = session
        self.task = task
        self.rows = rows
        self.pipelining = pipelining
        self.scorer = Scorer(pipeline.scores, session, task, rows)
        self.open = np.ones(len(rows), dtype=np.bool_)
        """Candidates whose sequence may go on beyond the levels computed so far."""
        self.depth = np.zeros(len(rows), dtype=np.intp)
        self.lowest: Floats = np.full(len(rows), np.inf)
        self.values: list[Floats] = []
        self.positions: list[Rows] = []
        self.levels: list[Rows] = []

    def take(self, count: int) -> tuple[Rows, bool]:
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
            return self.rows[sequence[: cut + 1]], True
        return self.rows[sequence], False

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
        task, pods, nodes = self.task, self.task.pods, self.session.state.nodes
        shape = count, len(which)
        candidates = np.tile(which, count)
        depths = (self.depth[which] + np.arange(count)[:, None]).ravel()
        view = NodeView(nodes, self.rows[candidates], task.request, depths, self.pipelining)
        alive = view.fits(task.request, future=True)
        if not self.pipelining and nodes.moving:
            alive &= view.fits(task.request, future=False)
        for one in self.pipeline.row_filters:
            passed = one.mask(pods, view, task)
            if passed is not None:
                alive &= passed
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


def normalised(raw: Floats, how: Normalise) -> Floats:
    """Raw scores of the candidates on the scale 0 to 100, in whole numbers as Kubernetes does it."""
    if how is Normalise.NONE or not len(raw):
        return raw
    if how is Normalise.SPAN:
        low, high = raw.min(), raw.max()
        if high == low:
            return np.zeros(len(raw))
        spanned: Floats = np.trunc(100.0 * (raw - low) / (high - low))
        return spanned
    high = raw.max()
    if how is Normalise.MAX:
        return np.floor(100.0 * raw / high) if high else raw
    return 100.0 - np.floor(100.0 * raw / high) if high else np.full(len(raw), 100.0)
