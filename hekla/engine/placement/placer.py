"""Filter, score, place: the order that every reader expects, written once.

Placing k pods of one class is one call: a merge of the nodes' scores (`merge`), or, where a filter
or score looks at other nodes too (inter-pod terms, spread), one step after another (`steps`); and
in rounds where only the pod's kin count (`rounds`). Reference: plugins-placement 0.5, 0.6;
scheduler-core 6.0, 9.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hekla.engine.framework.plugin import Code, Depends, Filter, Normalise, Plugin, Score, defines
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodes import NodeTable, NodeView
from hekla.engine.model.reasons import FitErrors, Reason
from hekla.engine.model.resources import EPSILON, Floats, ordered
from hekla.engine.model.tasks import NOWHERE
from hekla.engine.placement.merge import Merge, Scorer
from hekla.engine.placement.rounds import Rounds
from hekla.engine.placement.steps import Candidates, Steps

if TYPE_CHECKING:
    from hekla.engine.framework.session import Hooks, Session
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task

_NONE: Rows = np.zeros(0, dtype=np.intp)


AheadKey = tuple["PodClass", Any]
"""A class, and what else tells its tasks apart: nothing, their labels, their kin."""


@dataclass(slots=True)
class Ahead:
    """The next choices for a class, good for as long as nothing but these choices happened to any
    node."""

    rows: list[int]
    next: int
    given: list[int]
    """The choices last handed out; exactly these must be what the log says since."""
    at: int
    """Length of the node table's log when they were handed out."""
    static: int
    """Version of the node objects that they were made from."""
    lasted: bool = False
    """Whether they, or those before them, held from one cycle to the next."""


MOST_AHEAD = 4096
ALONE = "alone"
"""In place of its labels: a task none of whose kin is on a node yet, so that it is spread among
nobody."""
LASTING_AHEAD = 512
"""So far at least where choices held from one cycle to the next: the jobs of later cycles take what
is left."""
AHEAD_GROWTH = 64
"""A merge costs by the node: one for 512 pods hardly more than one for 8."""


class Placer:
    """The filters and scores of a policy, in the policy's order."""

    def __init__(self, hooks: Hooks) -> None:
        self.filters: list[tuple[Plugin, list[Filter]]] = []
        for plugin in hooks.plugins:
            if not plugin.flags.get("enablePredicate", False):
                continue
            own = list(plugin.filters()) if defines(plugin, "filters") else []
            if defines(plugin, "predicate"):
                own.append(_simple_filter(plugin))
            if own:
                self.filters.append((plugin, own))
        self.scores: list[tuple[Plugin, Score]] = []
        for plugin in hooks.plugins:
            if not plugin.flags.get("enableNodeOrder", False):
                continue
            listed = list(plugin.scores()) if defines(plugin, "scores") else []
            if defines(plugin, "score"):
                listed.append(_simple_score(plugin))
            self.scores.extend((plugin, score) for score in listed if score.weight)
        self.one_at_a_time = any(plugin.one_at_a_time for plugin in hooks.plugins)
        self.kin_scores = [score for _, score in self.scores if score.depends_on is Depends.KIN]
        self.static_filters = [
            one for _, own in self.filters for one in own if one.depends_on is Depends.STATIC
        ]
        self.row_filters = [
            one for _, own in self.filters for one in own if one.depends_on is Depends.NODE_ROW
        ]
        self.cluster_filters = [
            one for _, own in self.filters for one in own if one.depends_on is Depends.CLUSTER
        ]
        self.ahead: dict[AheadKey, Ahead] = {}
        """For each class, nodes that were chosen ahead of need."""
        judging = {plugin for plugin, own in (*self.filters, *self.scores) if own}
        self.lasts = all(
            (vars(type(plugin)) | vars(plugin)).get("judges_by_nodes", False) for plugin in judging
        )
        """Whether what was chosen ahead may hold beyond a cycle."""

    def begin_cycle(self, nodes: NodeTable) -> None:
        """Of what was chosen ahead before, that stays which is as it would be chosen now: nothing
        else has happened to any node."""
        log = nodes.log
        self.ahead = {
            (pods, whose): known
            for (pods, whose), known in self.ahead.items()
            if self.lasts
            and whose is None
            and pods.plain
            and known.static == nodes.static_version
            and log[known.at :] == known.given
        }
        log.clear()
        for known in self.ahead.values():
            known.given, known.at, known.lasted = [], 0, True

    # --------------------------------------------------------------------------------------- filter

    def static_mask(self, session: Session, task: Task) -> Bools:
        """`[nodes]`: what does not change as long as no node object changes."""
        nodes, pods = session.state.nodes, task.pods

        def compute() -> Bools:
            mask = nodes.ready.copy()
            view = NodeView(nodes)
            for one in self.static_filters:
                passed = one.mask(pods, view, task)
                if passed is not None:
                    mask &= passed
            return mask

        return pods.static(("mask", id(self)), nodes, compute)

    def static_reasons(self, session: Session, task: Task) -> list[Reason]:
        """Why nodes are out for as long as no node object changes, each node under the first that
        speaks."""
        nodes, pods = session.state.nodes, task.pods

        def compute() -> list[Reason]:
            errors, remaining = FitErrors(len(nodes)), nodes.ready.copy()
            view = NodeView(nodes)
            for one in self.static_filters:
                passed = one.mask(pods, view, task)
                if passed is not None:
                    _note_each(errors, one, pods, remaining & ~passed)
                    remaining &= passed
            return errors.reasons

        return pods.static(("reasons", id(self)), nodes, compute)

    def feasible(self, session: Session, task: Task, scope: Bools | None = None) -> Bools:
        """`[nodes]`: passes every filter; room is not asked."""
        nodes, pods = session.state.nodes, task.pods
        mask = self.static_mask(session, task)
        if scope is not None:
            mask = mask & scope
        if session.shard_mode == "hard" and session.node_scope is not None:
            mask = mask & session.node_scope
        view = NodeView(nodes)
        for one in (*self.row_filters, *self.cluster_filters):
            passed = one.mask(pods, view, task)
            if passed is not None:
                mask = mask & passed
        return mask

    def passes(
        self, session: Session, task: Task, row: int, unresolvable_only: bool = False
    ) -> bool:
        """Every filter on one node; of those that evictions could help, none when asked so."""
        view = NodeView(session.state.nodes, np.array([row]))
        for _, own in self.filters:
            for one in own:
                if unresolvable_only and one.code is not Code.UNRESOLVABLE:
                    continue
                passed = one.mask(task.pods, view, task)
                if passed is not None and not passed[0]:
                    return False
        return bool(session.state.nodes.ready[row])

    def preempt_mask(self, session: Session, task: Task) -> Bools:
        """`[nodes]`: no filter says that evictions could not help."""
        mask = session.state.nodes.ready.copy()
        if session.shard_mode == "hard" and session.node_scope is not None:
            mask &= session.node_scope
        view = NodeView(session.state.nodes)
        for _, own in self.filters:
            for one in own:
                if one.code is Code.UNRESOLVABLE:
                    passed = one.mask(task.pods, view, task)
                    if passed is not None:
                        mask &= passed
        return mask

    def candidates(self, session: Session, task: Task, scope: Bools | None = None) -> Candidates:
        """Nodes that pass every filter and have room, now or soon."""
        if scope is not None:
            return self._candidates_within(session, task, scope)
        mask = self.feasible(session, task)
        view = NodeView(session.state.nodes)
        future = np.flatnonzero(mask & view.fits(task.request, future=True))
        if not session.state.nodes.moving:
            return Candidates(future, future)
        return Candidates(future[view.fits(task.request, future=False)[future]], future)

    def _candidates_within(self, session: Session, task: Task, scope: Bools) -> Candidates:
        """The same in a part of the cluster, at the cost of that part."""
        allowed = self.static_mask(session, task) & scope
        if session.shard_mode == "hard" and session.node_scope is not None:
            allowed &= session.node_scope
        rows = np.flatnonzero(allowed)
        view = NodeView(session.state.nodes, rows)
        mask = view.fits(task.request, future=True)
        for one in (*self.row_filters, *self.cluster_filters):
            passed = one.mask(task.pods, view, task)
            if passed is not None:
                mask = mask & passed
        future = rows[mask]
        if not session.state.nodes.moving:
            return Candidates(future, future)
        return Candidates(rows[mask & view.fits(task.request, future=False)], future)

    def explain(
        self, session: Session, task: Task, scope: Bools | None = None, room: bool = True
    ) -> FitErrors:
        """Why no node will do: counts a reason, in the order in which the filters speak."""
        nodes, pods = session.state.nodes, task.pods
        remaining = nodes.ready.copy()
        if scope is not None:
            remaining &= scope
        errors = FitErrors(nodes=int(remaining.sum()))
        unresolvable = np.zeros(len(nodes), dtype=np.bool_)
        if session.shard_mode == "hard" and session.node_scope is not None:
            outside = remaining & ~session.node_scope
            _note(errors, "node isn't in scheduler node shard", outside, "shard")
            remaining &= session.node_scope
        if room:
            future = nodes.future_idle()
            for name in ordered(task.request.amounts):
                free = future[session.state.space.column(name)]
                lacking = remaining & ~(task.request.amounts[name] < free + EPSILON)
                _note(errors, f"Insufficient {name}", lacking, f"room:{name}", free)
                remaining &= ~lacking
        view = NodeView(nodes)
        for _, own in self.filters:
            failed = np.zeros(len(nodes), dtype=np.bool_)
            going = remaining.copy()
            refused: dict[str, Bools] = {}
            for one in own:
                passed = one.mask(pods, view, task)
                if passed is None:
                    continue
                bad = refused[one.name] = going & ~passed
                if one.silent_after in refused:
                    bad = bad & ~refused[one.silent_after]
                _note_each(errors, one, pods, bad)
                failed |= bad
                if one.code is Code.UNRESOLVABLE:
                    unresolvable |= bad
                    going &= ~bad
            remaining &= ~failed
        errors.unresolvable = unresolvable
        return errors

    # ---------------------------------------------------------------------------------------- score

    def total(self, session: Session, task: Task, rows: Rows) -> Floats:
        """`[rows]`: the sum of all scores on these candidates."""
        return Scorer(self.scores, session, task, rows).at(
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

    def preferred(self, session: Session, rows: Rows) -> Rows:
        """The candidates inside this scheduler's shard, if there are any; all of them without
        shards."""
        if session.shard_mode != "soft" or session.node_scope is None:
            return rows
        inside = rows[session.node_scope[rows]]
        return inside if len(inside) else rows

    # ---------------------------------------------------------------------------------------- place

    def fill(
        self, session: Session, task: Task, count: int, rows: Rows, pipelining: bool
    ) -> tuple[Rows, bool]:
        """Nodes for up to `count` pods like `task`, in the order in which they would be taken one
        by one.

        The second value tells whether the choice must be looked at again before more is placed,
        although `count` was not reached and room may be left: because a placement changed what
        other nodes are worth.
        """
        rows = self.preferred(session, rows)
        if not len(rows):
            return _NONE, False
        if count == 1 or self._wide(session, task):
            return np.array([self.best(session, task, rows)]), count > 1
        return self._many(session, task, rows, pipelining).take(count)

    def _many(self, session: Session, task: Task, rows: Rows, pipelining: bool) -> Merge | Rounds:
        """What places many pods like `task` on these candidates."""
        among_kin = task.labels.kin is not None and self.kin_scores
        return (Rounds if among_kin else Merge)(self, session, task, rows, pipelining)

    def choose_ahead(self, session: Session, task: Task, count: int) -> Rows | None:
        """Nodes with room now for `count` pods like `task`, from a sequence that reaches further
        each time it is used up.

        Many small jobs of one class then cost one merge, not one each.  None where the choice has
        to be made the long way.
        """
        if session.shard_mode != "none":
            return None
        log = session.state.nodes.log
        key = self.ahead_key(task)
        known = self.ahead.get(key)
        lasted = known is not None and known.lasted
        reach = (
            min(AHEAD_GROWTH, session.asking.get(task.pods, 1))
            if known is None and key[1] in (None, ALONE)
            else 1
        )
        if known is not None and log[known.at :] == known.given:
            if known.next + count <= len(known.rows):
                known.given = known.rows[known.next : known.next + count]
                known.next += count
                known.at = len(log)
                return np.array(known.given)
            # No further than there are jobs that could ask: a daemon's cycle has a few dozen of
            # them.
            wanted = max(len(session.state.active), LASTING_AHEAD if lasted else 2)
            reach = min(AHEAD_GROWTH * len(known.rows), MOST_AHEAD, wanted)
        if reach < count or self._wide(session, task):
            return None
        idle = self.candidates(session, task).idle
        if not len(idle):
            return None
        if (
            reach == 1
        ):  # most classes of a cycle have one pod, and the best node is found without a merge
            rows = [self.best(session, task, idle)]
        else:
            made = (
                Merge(self, session, task, idle, False)
                if key[1] in (None, ALONE)
                else self._many(session, task, idle, False)
            )
            rows = made.take(reach)[0].tolist()
        self.ahead[key] = known = Ahead(
            rows, count, rows[:count], len(log), session.state.nodes.static_version, lasted
        )
        return np.array(known.given)

    def ahead_key(self, task: Task) -> AheadKey:
        """Tasks of one key are the same to every filter and score, whichever of them were placed
        before."""
        labels = task.labels
        if labels.terms:
            return task.pods, labels
        if labels.kin is None or not self.kin_scores or task.pods.states_spread:
            return task.pods, None
        return task.pods, (labels.kin, labels.counted) if labels.kin.rows else ALONE

    def steps(self, session: Session, task: Task, scope: Bools | None) -> Steps | None:
        """What to place pods like `task` with one at a time, where each placement changes what
        other nodes are worth."""
        return Steps(self, session, task, scope) if self._wide(session, task) else None

    def _wide(self, session: Session, task: Task) -> bool:
        """Whether a placement of this class changes what other nodes are worth to it, or has to be
        told of before the next."""
        if task.pods.has_terms or self.one_at_a_time:
            return True
        view = NodeView(session.state.nodes, _NONE)
        return any(
            one.mask(task.pods, view, task) is not None for one in self.cluster_filters
        ) or any(
            (
                score.depends_on is Depends.CLUSTER
                or (score.depends_on is Depends.NODE_ROW and score.normalise is not Normalise.NONE)
            )
            and score.raw(task.pods, view, task) is not None
            for _, score in self.scores
        )


def placer_of(session: Session) -> Placer:
    """The placer of the session's policy: the one door to nodes for pods."""
    return session.hooks.part(Placer)


def _note(errors: FitErrors, text: str, mask: Bools, name: str, free: Floats | None = None) -> None:
    count = int(np.count_nonzero(mask))
    if count:
        errors.reasons.append(Reason(text, count, mask, name, free))


def _note_each(errors: FitErrors, one: Filter, pods: PodClass, mask: Bools) -> None:
    """One reason for all nodes, or those that the filter has for each."""
    if one.detail is None:
        _note(errors, one.reason, mask, one.name)
        return
    texts: dict[str, list[int]] = {}
    for row in np.flatnonzero(mask).tolist():
        texts.setdefault(one.detail(pods, row), []).append(row)
    for text, rows in texts.items():
        part = np.zeros(len(mask), dtype=np.bool_)
        part[rows] = True
        _note(errors, text, part, one.name)


def _simple_filter(plugin: Plugin) -> Filter:
    """A plugin with a plain `predicate(pods, nodes) -> mask`."""

    def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        return plugin.predicate(pods, nodes)

    return Filter(
        name=plugin.name,
        reason=getattr(plugin, "predicate_reason", f"node(s) rejected by {plugin.name}"),
        code=getattr(plugin, "predicate_code", Code.UNSCHEDULABLE),
        depends_on=getattr(plugin, "predicate_depends_on", Depends.CLUSTER),
        mask=mask,
        plugin=plugin.name,
    )


def _simple_score(plugin: Plugin) -> Score:
    """A plugin with a plain `score(pods, nodes) -> [nodes]`."""

    def raw(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        return plugin.score(pods, nodes)

    return Score(
        plugin.name, 1.0, getattr(plugin, "score_depends_on", Depends.CLUSTER), raw, batch=False
    )
