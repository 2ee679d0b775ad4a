"""The sum of all scores of one class of pods over one set of candidates.

Reference: plugins-placement 0.6; scheduler-core 6.0, 9.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.engine.framework.plugin import Depends, Normalise, Plugin, Score
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Floats

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task


class Scorer:
    """Scores of one class over one set of candidates; the normalised parts are computed once for
    the set.

    `peers`: with the scores that depend on peers as they are now.  They are added last, in every way to
    place, because the order of additions decides the last digit.
    """

    def __init__(
        self,
        scores: Sequence[tuple[Plugin, Score]],
        session: Session,
        task: Task,
        rows: Rows,
        peers: bool = True,
    ) -> None:
        self.pods = task.pods
        self.task = task
        self.fixed: Floats = np.zeros(len(rows))
        self.moving: list[Score] = []
        self.extremes: list[Bools] = []
        """For each normalised score: which candidates hold the value that the others are measured
        by."""
        self.by_peers: list[Floats] = []
        view = NodeView(session.state.nodes, rows)
        for _, score in scores:
            if score.depends_on is Depends.PEERS:
                raw = score.raw(self.pods, view, task) if peers else None
                if raw is not None:
                    self.by_peers.append(score.weight * raw)
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
        for part in self.by_peers:
            total += part[which]
        return total


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
