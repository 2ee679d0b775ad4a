"""Placing pods of one class one at a time, where each placement changes what other nodes are worth:
required spread, anti-affinity.

What a placement cannot have changed is not asked again.  Reference: plugins-placement 0.5, 0.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.framework.plugin import Depends, Normalise
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Floats
from hekla.engine.placement.filters import Candidates, passing
from hekla.engine.placement.scorer import normalised

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task
    from hekla.engine.placement.placer import Placer


AHEAD = 8
NOWHERE = -1 << 60
"""No row, and no entry of the log either."""


@dataclass(slots=True)
class Loaded:
    """What the load of nodes decides, one entry a row of a view: room now and soon, raw scores by
    their place in the policy."""

    idle: Bools
    future: Bools
    raw: dict[int, Floats]

    def copy(self, row: int, other: Loaded, at: int) -> None:
        """Take over one entry of another."""
        self.idle[row], self.future[row] = other.idle[at], other.future[at]
        for place, values in self.raw.items():
            values[row] = other.raw[place][at]


class Steps:
    """Room, filters and scores of one class over all nodes, for placing it one at a time.

    What depends on a node's own load is computed once for all and again for the rows that the node
    table's log names; only what looks at other nodes is computed at every step.  The answers equal
    those of `Filters.candidates` and `Scores.best`.
    """

    def __init__(self, placer: Placer, session: Session, task: Task, scope: Bools | None) -> None:
        self.placer = placer
        self.session = session
        self.task = task
        nodes = session.state.nodes
        self.allowed = placer.filters.static_mask(session, task)
        if scope is not None:
            self.allowed = self.allowed & scope
        if session.shard_mode == "hard" and session.node_scope is not None:
            self.allowed = self.allowed & session.node_scope
        everywhere = NodeView(nodes)
        scores = [score for _, score in placer.scores.by_plugin]
        self.statics = {
            at: score.raw(task.pods, everywhere, task)
            for at, score in enumerate(scores)
            if score.depends_on is Depends.STATIC
        }
        """Raw scores that only node objects decide, by their place in the policy."""
        self.by_load = {
            at: score for at, score in enumerate(scores) if score.depends_on is Depends.NODE_ROW
        }
        """Scores that each node's own load decides, by their place in the policy."""
        self.now = self._loaded(everywhere, self.allowed)
        self.next = self._loaded(NodeView(nodes, None, task.request, 1), self.allowed)
        """As `now`, with one more pod of the class on each node."""
        self.seen = len(nodes.log)
        self.ahead: dict[int, tuple[int, Loaded]] = {}
        """For rows that have changed: what was computed in advance, and how much of it is past."""
        self.chosen = NOWHERE

    def _loaded(self, view: NodeView, allowed: Bools) -> Loaded:
        task, pods = self.task, self.task.pods
        future = allowed & view.fits(task.request, future=True)
        future = passing(self.placer.filters.row, future, task, view)
        raws = {at: score.raw(pods, view, task) for at, score in self.by_load.items()}
        owned = {at: np.array(raw, dtype=np.float64) for at, raw in raws.items() if raw is not None}
        return Loaded(future & view.fits(task.request, future=False), future, owned)

    def _renew(self) -> None:
        """Compute again what changed since the last step."""
        log = self.session.state.nodes.log
        changed = log[self.seen :]
        self.seen = len(log)
        if len(changed) == 1 and changed[0] == self.chosen:
            row = changed[0]
            if row not in self.ahead:
                self.ahead[row] = AHEAD, self.next
                self.now.copy(row, self.next, row)
                return
            at, levels = self.ahead[row]
            self._advance(row, at, levels if at < AHEAD else self._levels(row))
        elif changed:
            for row in {row if row >= 0 else ~row for row in changed}:
                self._advance(row, 0, self._levels(row))

    def _advance(self, row: int, at: int, levels: Loaded) -> None:
        at = 0 if at == AHEAD else at
        self.now.copy(row, levels, at)
        self.ahead[row] = at + 1, levels

    def _levels(self, row: int) -> Loaded:
        """One row as it is and as it will be after 1, 2, ... more pods of the class: hardly dearer
        than as it is."""
        rows = np.full(AHEAD, row)
        return self._loaded(
            NodeView(self.session.state.nodes, rows, self.task.request, np.arange(AHEAD)),
            self.allowed[rows],
        )

    def candidates(self) -> Candidates:
        """Nodes that pass every filter and have room, now or soon."""
        self._renew()
        view = NodeView(self.session.state.nodes)
        future = passing(self.placer.filters.cluster, self.now.future, self.task, view)
        return Candidates(np.flatnonzero(self.now.idle & future), np.flatnonzero(future))

    def choose(self, task: Task, rows: Rows, pipelining: bool) -> int:
        """The best of the candidates that `candidates` gave, for this task of the class; what is
        promised only is not foreseen."""
        row = int(rows[0]) if len(rows) == 1 else self._best(task, rows)
        self.chosen = NOWHERE if pipelining else row
        return row

    def _best(self, task: Task, rows: Rows) -> int:
        view = NodeView(self.session.state.nodes, rows)
        total: Floats = np.zeros(len(rows))
        own: list[Floats] = []
        peers: list[Floats] = []
        for at, (_, score) in enumerate(self.placer.scores.by_plugin):
            if at in self.statics or at in self.by_load:
                known = self.statics[at] if at in self.statics else self.now.raw.get(at)
                raw = None if known is None else known[rows]
            else:
                raw = score.raw(task.pods, view, task)
            if raw is None:
                continue
            # Last, as in merge.Scorer: the order of additions decides the last digit.
            if at in self.by_load and score.normalise is Normalise.NONE:
                own.append(score.weight * raw)
            elif score.depends_on is Depends.PEERS:
                peers.append(score.weight * raw)
            else:
                total += score.weight * normalised(raw, score.normalise)
        for part in (*own, *peers):
            total += part
        return self.placer.scores.best_by(self.session, rows, total)
