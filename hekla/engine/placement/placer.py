"""Filter, score, place: the order that every reader expects, written once.

All tasks of one class that follow each other are placed in one call.  Behind it, their nodes come

- from the ones chosen ahead, for the next of many small jobs of one class (`lookahead`);
- as the best node, for a single task;
- from a merge of the nodes' scores, where a placement changes only its own node (`merge`);
- in rounds, where it also changes how pods are spread among their peers (`rounds`);
- one at a time, where it changes what other nodes are worth: inter-pod terms, spread (`steps`).

Each way gives what placing one at a time would give; tests hold it to that.
Reference: plugins-placement 0.5, 0.6; scheduler-core 6.0, 9.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.framework.plugin import Depends, Normalise
from hekla.engine.framework.statement import Placement
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.reasons import UNSCORED, FitErrors, Reason
from hekla.engine.model.tasks import NOWHERE
from hekla.engine.placement.filters import Candidates, Filters
from hekla.engine.placement.lookahead import Lookahead
from hekla.engine.placement.merge import Merge
from hekla.engine.placement.rounds import Rounds
from hekla.engine.placement.scores import Scores
from hekla.engine.placement.steps import Steps

if TYPE_CHECKING:
    from hekla.engine.framework.hooks import Hooks
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task

_NONE: Rows = np.zeros(0, dtype=np.intp)


class Room(Enum):
    """The room that a placement may count on."""

    NOW_OR_SOON = "now, else what releasing pods leave"
    NOW = "now"


class Placer:
    """The filters and scores of a policy, and the nodes chosen ahead by them."""

    def __init__(self, hooks: Hooks) -> None:
        self.filters = Filters(hooks)
        self.scores = Scores(hooks)
        self.one_at_a_time = hooks.one_at_a_time
        self.lookahead = Lookahead(self)

    def place(
        self,
        session: Session,
        tasks: Sequence[Task],
        scope: Bools | None = None,
        room: Room = Room.NOW_OR_SOON,
    ) -> Iterator[Placement]:
        """Choose nodes for tasks of one class, in their order, until one finds none.

        `scope` is `[nodes]`, the nodes in question; None for all.  The caller has to carry out each
        placement before it asks for the next one, which counts on it.  If a task finds no node, the
        last placement says why, and the tasks after it are not tried.
        """
        blocked = session.votes.prefilter(tasks[0])
        if blocked:
            yield _refused(tasks, partial(_blocked, session, blocked, scope))
            return
        if len(tasks) == 1 and scope is None and room is Room.NOW_OR_SOON:
            known = self.lookahead.next(session, tasks[0])
            if known is not None:
                yield Placement(tasks, known)
                return
        steps = self.steps(session, tasks, scope)
        while tasks:
            task = tasks[0]  # The same to the filters; a score may still tell one from the other.
            session.step("Predicate")
            if steps is not None:
                candidates = steps.candidates()
            else:
                candidates = self.filters.candidates(session, task, scope, room is Room.NOW)
            rows, pipelined = _with_room(session, task, candidates)
            if not len(rows):
                session.step("")
                yield _refused(tasks, partial(self._explain, session, task, scope, room))
                return
            session.step("Scoring")
            rows = session.preferred(rows)
            if steps is not None:
                chosen = np.array([steps.choose(task, rows, pipelined)])
            elif task.nominated or len(tasks) == 1 or self.changes_others(session, task):
                chosen = np.array([self.scores.best(session, task, rows)])
            else:
                chosen = self.many(session, task, rows, pipelined).take(len(tasks))
            session.step("")
            if chosen[0] == NOWHERE:
                yield _refused(tasks, partial(FitErrors, len(rows), base=UNSCORED))
                return
            yield Placement(tasks[: len(chosen)], chosen, pipelined)
            tasks = tasks[len(chosen) :]

    def steps(self, session: Session, tasks: Sequence[Task], scope: Bools | None) -> Steps | None:
        """What places these tasks one at a time, where that is more than a first choice."""
        if len(tasks) == 1 or not self.changes_others(session, tasks[0]):
            return None
        return Steps(self, session, tasks[0], scope)

    def many(self, session: Session, task: Task, rows: Rows, pipelining: bool) -> Merge | Rounds:
        """What places many tasks like this one on these candidates."""
        among_peers = task.labels.peers is not None and self.scores.of_peers
        return (Rounds if among_peers else Merge)(self, session, task, rows, pipelining)

    def changes_others(self, session: Session, task: Task) -> bool:
        """Whether a placement of this class changes what other nodes are worth to it, or plugins
        have to be told of it before the next."""
        if task.pods.has_terms or self.one_at_a_time:
            return True
        view = NodeView(session.state.nodes, _NONE)
        return any(
            one.mask(task.pods, view, task) is not None for one in self.filters.cluster
        ) or any(
            (
                score.depends_on is Depends.CLUSTER
                or (score.depends_on is Depends.NODE_ROW and score.normalise is not Normalise.NONE)
            )
            and score.raw(task.pods, view, task) is not None
            for _, score in self.scores.by_plugin
        )

    def _explain(self, session: Session, task: Task, scope: Bools | None, room: Room) -> FitErrors:
        if room is Room.NOW:
            return self.filters.explain_now(session, task)
        return self.filters.explain(session, task, scope)


def placer_of(session: Session) -> Placer:
    """The placer of the session's policy: the one door to nodes for pods."""
    return session.hooks.part(Placer)


def _with_room(session: Session, task: Task, candidates: Candidates) -> tuple[Rows, bool]:
    """The candidates to choose from, and whether their room is only there later.

    The node that an earlier cycle freed for the task comes before all others.
    """
    if task.nominated:
        row = session.state.nodes.rows.get(task.nominated)
        if row is not None and row in candidates.future:
            return candidates.future[candidates.future == row], row not in candidates.idle
    if len(candidates.idle):
        return candidates.idle, False
    return candidates.future, True


def _refused(tasks: Sequence[Task], why_not: Callable[[], FitErrors]) -> Placement:
    return Placement(tasks, _NONE, why_not=why_not)


def _blocked(session: Session, reason: str, scope: Bools | None) -> FitErrors:
    """No node at all will do."""
    mask = session.state.nodes.ready if scope is None else scope
    count = int(mask.sum())
    return FitErrors(count, [Reason(reason, count, mask, "prefilter")])
