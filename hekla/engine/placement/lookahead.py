"""Nodes chosen ahead: many small jobs of one class then cost one merge of scores, not one each.

Reference: decision 0061, 0198.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.framework.plugin import Source
from hekla.engine.model.arrays import Rows
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.tasks import NOWHERE
from hekla.engine.placement.merge import Merge

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task
    from hekla.engine.placement.placer import Placer

Key = tuple["PodClass", Hashable]
"""A class, and what else tells its tasks apart: nothing, their labels, or their spread peers."""

ALONE = "alone"
"""In place of the peers: none of them is on a node yet, so the task is spread among nobody."""
GROWTH = 64
"""Each sequence that is used up is followed by one so many times as long: a merge costs by the
node, one for 512 pods hardly more than one for 8."""
MOST = 4096
LASTING = 512
"""At least so many choices where the last ones held into this cycle: jobs of later cycles take what
is left."""


@dataclass(slots=True)
class NodeSequence:
    """The next nodes for a class, valid as long as nothing but these choices happens to a node."""

    rows: list[int]
    next: int
    given: list[int]
    """The rows handed out last; exactly these must be what the node table's log says since."""
    at: int
    """Length of the log when they were handed out."""
    static: int
    """Version of the node objects that the choices were made from."""
    lasted: bool = False
    """Whether these choices, or those before them, held from one cycle into the next."""

    def holds(self, log: list[int]) -> bool:
        """Whether nothing but the choices last handed out has happened to any node."""
        return log[self.at :] == self.given


class Lookahead:
    """For each class, the sequence of nodes that its next tasks take."""

    def __init__(self, placer: Placer) -> None:
        self.placer = placer
        self.sequences: dict[Key, NodeSequence] = {}
        judging = {plugin for plugin, own in placer.filters.by_plugin if own}
        judging |= {plugin for plugin, _ in placer.scores.by_plugin}
        self.lasts = all(plugin.reads.nodes is Source.NODES for plugin in judging)
        """Whether a choice may hold beyond its cycle."""

    def begin_cycle(self, nodes: NodeTable) -> None:
        """Keep the choices that are still valid: no node they depend on has changed since."""
        log = nodes.log
        self.sequences = {
            (pods, whose): known
            for (pods, whose), known in self.sequences.items()
            if self.lasts
            and whose is None
            and pods.plain
            and known.static == nodes.static_version
            and known.holds(log)
        }
        log.clear()
        for known in self.sequences.values():
            known.given, known.at, known.lasted = [], 0, True

    def known(self, session: Session, key: Key) -> NodeSequence | None:
        """The sequence under this key, if it is still valid."""
        found = self.sequences.get(key)
        return found if found is not None and found.holds(session.state.nodes.log) else None

    def next(self, session: Session, task: Task) -> Rows | None:
        """`[1]`: the node with room now for one task; None where it has to be chosen the long way.

        The sequence reaches further each time it is used up.
        """
        if task.nominated or session.shard_mode != "none" or self.restricted(task):
            return None
        log = session.state.nodes.log
        key = self.key(task)
        before = self.sequences.get(key)
        known = before if before is not None and before.holds(log) else None
        if known is not None and known.next < len(known.rows):
            known.given = known.rows[known.next : known.next + 1]
            known.next += 1
            known.at = len(log)
            return np.array(known.given)
        reach = self._reach(session, task, key, before, known)
        if self.placer.changes_others(session, task):
            return None
        idle = self.placer.filters.candidates(session, task).idle
        if not len(idle):
            return None
        if reach == 1:
            # Most classes of a cycle have one pod, and the best node is found without a merge.
            best = self.placer.scores.best(session, task, idle)
            if best == NOWHERE:
                return None
            rows = [best]
        elif key[1] in (None, ALONE):
            rows = Merge(self.placer, session, task, idle, False).take(reach).tolist()
        else:
            rows = self.placer.many(session, task, idle, False).take(reach).tolist()
        lasted = before is not None and before.lasted
        version = session.state.nodes.static_version
        self.sequences[key] = NodeSequence(rows, 1, rows[:1], len(log), version, lasted)
        return np.array(rows[:1])

    def restricted(self, task: Task) -> bool:
        """Whether a reservation keeps nodes from the task, which the choices for its class may be
        among."""
        reserved = self.placer.filters.reserved
        return reserved is not None and reserved.refused(task) is not None

    def _reach(
        self,
        session: Session,
        task: Task,
        key: Key,
        before: NodeSequence | None,
        known: NodeSequence | None,
    ) -> int:
        """How many nodes to choose: no more than there are jobs that could ask for them."""
        if known is not None:
            wanted = max(len(session.state.active), LASTING if known.lasted else 2)
            return min(GROWTH * len(known.rows), MOST, wanted)
        if before is None and key[1] in (None, ALONE):
            return min(GROWTH, session.asking.get(task.pods, 1))
        return 1

    def key(self, task: Task) -> Key:
        """Tasks of one key are the same to every filter and score, whichever of them were placed
        before."""
        labels = task.labels
        if labels.terms:
            return task.pods, labels
        if labels.peers is None or not self.placer.scores.of_peers or task.pods.states_spread:
            return task.pods, None
        return task.pods, (labels.peers, labels.counted) if labels.peers.rows else ALONE
