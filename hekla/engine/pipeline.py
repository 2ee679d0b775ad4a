"""Filter, score, place: the order that every reader expects, written once.

Placing k pods of one class is one call.  A node's score after 0, 1, 2, ... more pods of the class is a sequence that depends on
that node alone, so choosing the best node k times over is a merge of such sequences by their heads.  The merge has a closed
form: entries in order of the *smallest value so far* in their sequence, ties by node, then by position.  So a gang is placed by
computing a few levels of scores as vectors and sorting, and the result equals placing one at a time, exactly.  Where a filter
or score looks at other nodes too (inter-pod terms, spread), one placement is one step.
Reference: plugins-placement 0.5, 0.6; scheduler-core 6.0, 9.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.engine.nodes import Bools, NodeView, Rows
from hekla.engine.plugin import Code, Depends, Filter, Normalise, Plugin, Score, defines
from hekla.engine.reasons import FitErrors, Reason
from hekla.engine.resources import EPSILON, Floats, ordered

if TYPE_CHECKING:
    from hekla.engine.podclass import PodClass
    from hekla.engine.session import Hooks, Session
    from hekla.engine.tasks import Task

_NONE: Rows = np.zeros(0, dtype=np.intp)


@dataclass(slots=True)
class Candidates:
    """Nodes that a class may go to: with room now, and with room once the releasing have gone."""

    idle: Rows
    future: Rows


@dataclass(slots=True)
class Ahead:
    """The next choices for a class, good for as long as nothing but these choices happened to any node."""

    rows: list[int]
    next: int
    given: list[int]
    """The choices last handed out; exactly these must be what the log says since."""
    at: int
    """Length of the node table's log when they were handed out."""


MOST_AHEAD = 512
AHEAD_GROWTH = 8


class Pipeline:
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
        self.static_filters = [one for _, own in self.filters for one in own if one.depends_on is Depends.STATIC]
        self.row_filters = [one for _, own in self.filters for one in own if one.depends_on is Depends.NODE_ROW]
        self.cluster_filters = [one for _, own in self.filters for one in own if one.depends_on is Depends.CLUSTER]

    # ------------------------------------------------------------------------------------------------- filter

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

    def passes(self, session: Session, task: Task, row: int, unresolvable_only: bool = False) -> bool:
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
        mask = mask & view.fits(task.request, future=True)
        return Candidates(
            idle=np.flatnonzero(mask & view.fits(task.request, future=False)), future=np.flatnonzero(mask)
        )

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
        return Candidates(idle=rows[mask & view.fits(task.request, future=False)], future=rows[mask])

    def explain(self, session: Session, task: Task, scope: Bools | None = None, room: bool = True) -> FitErrors:
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
            for one in own:
                passed = one.mask(pods, view, task)
                if passed is None:
                    continue
                bad = going & ~passed
                _note_each(errors, one, pods, bad)
                failed |= bad
                if one.code is Code.UNRESOLVABLE:
                    unresolvable |= bad
                    going &= ~bad
            remaining &= ~failed
        errors.unresolvable = unresolvable
        return errors

    # ------------------------------------------------------------------------------------------------- score

    def total(self, session: Session, task: Task, rows: Rows) -> Floats:
        """`[rows]`: the sum of all scores on these candidates."""
        return self._scorer(session, task, rows).at(NodeView(session.state.nodes, rows), slice(None))

    def best(self, session: Session, task: Task, rows: Rows) -> int:
        """The best of the candidates; ties go to the policy's order of nodes."""
        if len(rows) == 1:
            return int(rows[0])
        return self.best_by(session, rows, self.total(session, task, rows))

    def best_by(self, session: Session, rows: Rows, total: Floats) -> int:
        """The candidate with the highest total; ties go to the policy's order of nodes."""
        rank = session.rank(rows)
        if rank is None:
            return int(rows[int(np.argmax(total))])
        tied = np.flatnonzero(total == total.max())
        return int(rows[tied[int(np.argmin(rank[tied]))]])

    def ranked(self, session: Session, task: Task, rows: Rows) -> Rows:
        """The candidates, best first."""
        if len(rows) < 2:
            return rows
        return rows[np.argsort(-self.total(session, task, rows), kind="stable")]

    def _scorer(self, session: Session, task: Task, rows: Rows) -> _Scorer:
        return _Scorer(self.scores, session, task, rows)

    def preferred(self, session: Session, rows: Rows) -> Rows:
        """The candidates inside this scheduler's shard, if there are any; all of them without shards."""
        if session.shard_mode != "soft" or session.node_scope is None:
            return rows
        inside = rows[session.node_scope[rows]]
        return inside if len(inside) else rows

    # ------------------------------------------------------------------------------------------------- place

    def fill(
        self, session: Session, task: Task, count: int, rows: Rows, pipelining: bool
    ) -> tuple[Rows, bool]:
        """Nodes for up to `count` pods like `task`, in the order in which they would be taken one by one.

        The second value tells whether the choice must be looked at again before more is placed, although `count` was not
        reached and room may be left: because a placement changed what other nodes are worth.
        """
        rows = self.preferred(session, rows)
        if not len(rows):
            return _NONE, False
        if count == 1 or self._wide(session, task):
            return np.array([self.best(session, task, rows)]), count > 1
        merge = _Merge(self, session, task, rows, pipelining)
        return merge.take(count)

    def choose_ahead(self, session: Session, task: Task, count: int) -> Rows | None:
        """Nodes with room now for `count` pods like `task`, from a sequence that reaches further each time it is used up.

        Many small jobs of one class then cost one merge, not one each.  None where the choice has to be made the long way.
        """
        if session.shard_mode != "none":
            return None
        log = session.state.nodes.log
        key = (task.pods, task.labels if task.labels.terms else None)
        known = session.ahead.get(key)
        reach = 1
        if known is not None and log[known.at :] == known.given:
            if known.next + count <= len(known.rows):
                known.given = known.rows[known.next : known.next + count]
                known.next += count
                known.at = len(log)
                return np.array(known.given)
            reach = min(AHEAD_GROWTH * len(known.rows), MOST_AHEAD)
        if reach < count or self._wide(session, task):
            return None
        idle = self.candidates(session, task).idle
        if not len(idle):
            return None
        if reach == 1:  # most classes of a cycle have one pod, and the best node is found without a merge
            rows = [self.best(session, task, idle)]
        else:
            rows = (_Merge(self, session, task, idle, False).take(reach)[0]).tolist()
        session.ahead[key] = known = Ahead(rows, count, rows[:count], len(log))
        return np.array(known.given)

    def steps(self, session: Session, task: Task, scope: Bools | None) -> Steps | None:
        """What to place pods like `task` with one at a time, where each placement changes what other nodes are worth."""
        return Steps(self, session, task, scope) if self._wide(session, task) else None

    def _wide(self, session: Session, task: Task) -> bool:
        """Whether a placement of this class changes what other nodes are worth to it."""
        if task.pods.has_terms:
            return True
        view = NodeView(session.state.nodes, _NONE)
        return any(one.mask(task.pods, view, task) is not None for one in self.cluster_filters) or any(
            (score.depends_on is Depends.CLUSTER or (score.depends_on is Depends.NODE_ROW and score.normalise is not Normalise.NONE))
            and score.raw(task.pods, view, task) is not None
            for _, score in self.scores
        )


AHEAD = 8
NOWHERE = -1 << 60
"""No row, and no entry of the log either."""


@dataclass(slots=True)
class Loaded:
    """What the load of nodes decides, one entry a row of a view: room now and soon, raw scores by their place in the policy."""

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

    What depends on a node's own load is computed once for all and again for the rows that the node table's log names; only
    what looks at other nodes is computed at every step.  The answers equal those of `Pipeline.candidates` and `best`.
    """

    def __init__(self, pipeline: Pipeline, session: Session, task: Task, scope: Bools | None) -> None:
        self.pipeline = pipeline
        self.session = session
        self.task = task
        nodes = session.state.nodes
        self.allowed = pipeline.static_mask(session, task)
        if scope is not None:
            self.allowed = self.allowed & scope
        if session.shard_mode == "hard" and session.node_scope is not None:
            self.allowed = self.allowed & session.node_scope
        everywhere = NodeView(nodes)
        scores = [score for _, score in pipeline.scores]
        self.statics = {
            at: score.raw(task.pods, everywhere, task) for at, score in enumerate(scores) if score.depends_on is Depends.STATIC
        }
        """Raw scores that only node objects decide, by their place in the policy."""
        self.by_load = {at: score for at, score in enumerate(scores) if score.depends_on is Depends.NODE_ROW}
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
        for one in self.pipeline.row_filters:
            passed = one.mask(pods, view, task)
            if passed is not None:
                future = future & passed
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
        """One row as it is and as it will be after 1, 2, ... more pods of the class: hardly dearer than as it is."""
        rows = np.full(AHEAD, row)
        return self._loaded(NodeView(self.session.state.nodes, rows, self.task.request, np.arange(AHEAD)), self.allowed[rows])

    def candidates(self) -> Candidates:
        """Nodes that pass every filter and have room, now or soon."""
        self._renew()
        view = NodeView(self.session.state.nodes)
        passing: Bools | None = None
        for one in self.pipeline.cluster_filters:
            passed = one.mask(self.task.pods, view, self.task)
            if passed is not None:
                passing = passed if passing is None else passing & passed
        idle, future = self.now.idle, self.now.future
        if passing is None:
            return Candidates(np.flatnonzero(idle), np.flatnonzero(future))
        return Candidates(np.flatnonzero(idle & passing), np.flatnonzero(future & passing))

    def choose(self, rows: Rows, pipelining: bool) -> int:
        """The best of the candidates that `candidates` gave; what is promised only is not foreseen."""
        row = int(rows[0]) if len(rows) == 1 else self._best(rows)
        self.chosen = NOWHERE if pipelining else row
        return row

    def _best(self, rows: Rows) -> int:
        view = NodeView(self.session.state.nodes, rows)
        total: Floats = np.zeros(len(rows))
        own: list[Floats] = []
        for at, (_, score) in enumerate(self.pipeline.scores):
            if at in self.statics or at in self.by_load:
                known = self.statics[at] if at in self.statics else self.now.raw.get(at)
                raw = None if known is None else known[rows]
            else:
                raw = score.raw(self.task.pods, view, self.task)
            if raw is None:
                continue
            if at in self.by_load and score.normalise is Normalise.NONE:
                own.append(score.weight * raw)  # last, as in _Scorer: the order of additions decides the last digit
            else:
                total += score.weight * normalised(raw, score.normalise)
        for part in own:
            total += part
        return self.pipeline.best_by(self.session, rows, total)


class _Scorer:
    """Scores of one class over one set of candidates; the normalised parts are computed once for the set."""

    def __init__(self, scores: Sequence[tuple[Plugin, Score]], session: Session, task: Task, rows: Rows) -> None:
        self.pods = task.pods
        self.task = task
        self.fixed: Floats = np.zeros(len(rows))
        self.moving: list[Score] = []
        self.extremes: list[Bools] = []
        """For each normalised score: which candidates hold the value that the others are measured by."""
        view = NodeView(session.state.nodes, rows)
        for _, score in scores:
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
        return total


class _Merge:
    """The merge of the candidates' score sequences, in as few vector steps as the answer needs."""

    def __init__(self, pipeline: Pipeline, session: Session, task: Task, rows: Rows, pipelining: bool) -> None:
        self.pipeline = pipeline
        self.session = session
        self.task = task
        self.rows = rows
        self.pipelining = pipelining
        self.scorer = pipeline._scorer(session, task, rows)
        self.open = np.ones(len(rows), dtype=np.bool_)
        """Candidates whose sequence may go on beyond the levels computed so far."""
        self.depth = np.zeros(len(rows), dtype=np.intp)
        self.lowest: Floats = np.full(len(rows), np.inf)
        self.values: list[Floats] = []
        self.positions: list[Rows] = []
        self.levels: list[Rows] = []

    def take(self, count: int) -> tuple[Rows, bool]:
        self._deepen(np.arange(len(self.rows)), 2)
        rank = self.session.rank(self.rows)
        if rank is None:
            rank = np.arange(len(self.rows))
        while True:
            values = np.concatenate(self.values)
            positions = np.concatenate(self.positions)
            levels = np.concatenate(self.levels)
            chosen = _top(values, rank[positions], levels, count)
            taken = np.bincount(positions[chosen], minlength=len(self.rows))
            short = np.flatnonzero((taken == self.depth) & self.open)
            if not len(short):
                break
            self._deepen(short, int(self.depth[short].max()))
        order = chosen[np.lexsort((levels[chosen], rank[positions[chosen]], -values[chosen]))]
        sequence = positions[order]
        cut = self._first_change(sequence, taken)
        if cut is not None and cut + 1 < len(sequence):
            return self.rows[sequence[: cut + 1]], True
        return self.rows[sequence], False

    def _deepen(self, which: Rows, by: int) -> None:
        """Compute `by` more levels for some candidates."""
        task, pods = self.task, self.task.pods
        which = which[self.open[which]]
        for _ in range(by):
            if not len(which):
                return
            # Candidates of one step may be at different depths when extended apart; group them.
            depths = self.depth[which]
            alike = depths.min() == depths.max()
            for depth in depths[:1] if alike else np.unique(depths):
                group = which if alike else which[depths == depth]
                view = NodeView(
                    self.session.state.nodes, self.rows[group], task.request, int(depth), self.pipelining
                )
                alive = view.fits(task.request, future=True)
                if not self.pipelining:
                    alive &= view.fits(task.request, future=False)
                if depth:
                    for one in self.pipeline.row_filters:
                        passed = one.mask(pods, view, task)
                        if passed is not None:
                            alive &= passed
                self.open[group[~alive]] = False
                group = group[alive]
                if not len(group):
                    continue
                view = NodeView(
                    self.session.state.nodes, self.rows[group], task.request, int(depth), self.pipelining
                )
                scores = np.minimum(self.scorer.at(view, group), self.lowest[group])
                self.lowest[group] = scores
                self.values.append(scores)
                self.positions.append(group)
                self.levels.append(np.full(len(group), depth, dtype=np.intp))
                self.depth[group] += 1
            which = which[self.open[which]]

    def _first_change(self, sequence: Rows, taken: NDArray[np.intp]) -> int | None:
        """Where the last candidate that others are measured by is used up; from there on scores change."""
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

    return Score(plugin.name, 1.0, getattr(plugin, "score_depends_on", Depends.CLUSTER), raw, batch=False)
