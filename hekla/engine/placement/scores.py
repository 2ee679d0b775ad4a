"""The scores of a policy: which of the nodes that would do is the best for a pod.

Reference: plugins-placement 0.6; scheduler-core 6.0, 9.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.framework.plugin import Depends, Plugin, Score, defines, score_of
from hekla.engine.model.arrays import Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import NOWHERE
from hekla.engine.placement.scorer import Scorer

if TYPE_CHECKING:
    from hekla.engine.framework.hooks import Hooks
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task

_NONE: Rows = np.zeros(0, dtype=np.intp)


class Scores:
    """What the plugins of a policy think of nodes, in the policy's order."""

    def __init__(self, hooks: Hooks) -> None:
        self.by_plugin: list[tuple[Plugin, Score]] = []
        for plugin in hooks.plugins:
            if not plugin.flags.get("enableNodeOrder", False):
                continue
            listed = list(plugin.scores()) if defines(plugin, "scores") else []
            if defines(plugin, "score"):
                listed.append(score_of(plugin, plugin.name))
            self.by_plugin.extend((plugin, score) for score in listed if score.weight)
        self.of_peers = [one for _, one in self.by_plugin if one.depends_on is Depends.PEERS]
        """Scores that the pod's spread peers decide."""

    def total(self, session: Session, task: Task, rows: Rows) -> Floats:
        """`[rows]`: the sum of all scores on these candidates."""
        return Scorer(self.by_plugin, session, task, rows).at(
            NodeView(session.state.nodes, rows), slice(None)
        )

    def best(self, session: Session, task: Task, rows: Rows) -> int:
        """The best of the candidates; ties go to the policy's order of nodes.  NOWHERE: they could
        not be scored."""
        if len(rows) == 1:
            return int(rows[0])
        return self.best_by(session, rows, self.total(session, task, rows))

    def best_by(self, session: Session, rows: Rows, total: Floats) -> int:
        """The candidate with the highest total; ties go to the policy's order of nodes.  NOWHERE:
        they could not be scored."""
        best = int(np.argmax(total))
        if total[best] == -np.inf:
            return NOWHERE
        rank = session.rank(rows)
        if rank is None:
            return int(rows[best])
        tied = np.flatnonzero(total == total.max())
        return int(rows[tied[int(np.argmin(rank[tied]))]])

    def ranked(self, session: Session, task: Task, rows: Rows) -> Rows:
        """The candidates, best first; nobody where they could not be scored."""
        if len(rows) < 2:
            return rows
        total = self.total(session, task, rows)
        return rows[np.argsort(-total, kind="stable")] if total.max() > -np.inf else _NONE
