"""Placing many pods of one class at once where each placement changes a score of every node, by a
rule that is known.

The scores by load are worked out level by level, as for a merge; in each round the score by peers is
added to them, the best candidate is taken, and only what its placement changed is done again.  The
result equals placing one at a time, exactly. Reference: plugins-placement 0.5, 0.6, 2.2 (topology
spread).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.framework.plugin import Running
from hekla.engine.model.arrays import Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Floats
from hekla.engine.placement.filters import passing
from hekla.engine.placement.scorer import Scorer

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task
    from hekla.engine.placement.placer import Placer

FEW = 8
"""So many levels of one candidate cost hardly more than one."""


def running_scores(
    placer: Placer, session: Session, task: Task, rows: Rows
) -> list[tuple[float, Running]]:
    """Scores that placements of this class keep changing, with their weights."""
    view = NodeView(session.state.nodes, rows)
    found = (
        (score.weight, score.running(task.pods, view, task))
        for score in placer.scores.of_peers
        if score.running is not None
    )
    return [(weight, running) for weight, running in found if running is not None]


class Rounds:
    """The candidates and what each is worth with 0, 1, 2, ... more pods of the class, as far as
    somebody asked."""

    def __init__(
        self, placer: Placer, session: Session, task: Task, rows: Rows, pipelining: bool
    ) -> None:
        self.placer = placer
        self.session = session
        self.task = task
        rank = session.rank(rows)
        self.rows = rows if rank is None else rows[np.argsort(rank)]
        self.pipelining = pipelining
        self.scorer = Scorer(placer.scores.by_plugin, session, task, self.rows, peers=False)
        self.running = running_scores(placer, session, task, self.rows)
        self.depth = np.zeros(len(rows), dtype=np.intp)
        """`[candidates]`: pods placed on each."""
        self.levels: list[Floats] = []
        """For each number of pods `[candidates]`: scores by load, -inf where there is no room for
        one more, NaN if nobody asked."""
        self._deepen(np.arange(len(rows)), 0)

    def take(self, count: int) -> Rows:
        """Nodes for up to `count` pods, in the order in which they would be taken one by one; fewer
        as for a merge (`Merge.take`)."""
        chosen: list[int] = []
        base = self.levels[0].copy()
        open_still = int((base > -np.inf).sum())
        while len(chosen) < count and open_still:
            total = base
            for weight, running in self.running:
                total = total + weight * running.now()
            at = int(total.argmax())
            chosen.append(at)
            for _, running in self.running:
                running.placed(at)
            self.depth[at] += 1
            base[at] = self._next(at)
            if base[at] == -np.inf:
                open_still -= 1
                for _, running in self.running:
                    running.left(at)
                if any(not (base[extreme] > -np.inf).any() for extreme in self.scorer.extremes):
                    return self.rows[chosen]
        return self.rows[chosen]

    def _next(self, at: int) -> float:
        """The score by load of a candidate as it is now."""
        depth = int(self.depth[at])
        if depth == len(self.levels) or np.isnan(self.levels[depth][at]):
            # Whoever is as far will ask next: all of them together, or the few of them further
            # ahead.
            alike = np.flatnonzero(self.depth >= depth - 1)
            if len(alike) <= FEW:
                for level in range(depth, depth + FEW):
                    self._deepen(np.array([at]), level)
            else:
                self._deepen(alike, depth)
        return float(self.levels[depth][at])

    def _deepen(self, which: Rows, level: int) -> None:
        """Work out one level for some candidates."""
        if level == len(self.levels):
            self.levels.append(np.full(len(self.rows), np.nan))
        scores = self.levels[level]
        which = which[np.isnan(scores[which])]
        view = NodeView(
            self.session.state.nodes, self.rows[which], self.task.request, level, self.pipelining
        )
        alive = view.fits(self.task.request, future=True)
        if not self.pipelining:
            alive &= view.fits(self.task.request, future=False)
        if level:
            alive = passing(self.placer.filters.row, alive, self.task, view)
        scores[which] = np.where(alive, self.scorer.at(view, which), -np.inf)
