"""The filters of a policy: on which nodes may a pod run, where has it room, and why not elsewhere.

Reference: plugins-placement 0.5; scheduler-core 6.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.framework.plugin import (
    Code,
    Depends,
    Filter,
    Plugin,
    defines,
    filter_of_predicate,
)
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.reasons import FitErrors, Reason
from hekla.engine.model.resources import EPSILON, Floats, ordered
from hekla.engine.model.time.reservations import Reservations

if TYPE_CHECKING:
    from hekla.engine.framework.hooks import Hooks
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task


_NONE: Rows = np.zeros(0, dtype=np.intp)
RESERVED = "Reservation"
"""The filter that keeps pods from nodes that are reserved for others."""


@dataclass(slots=True)
class Candidates:
    """Nodes that a class may go to, ascending: with room now, and with room once the releasing pods
    have gone."""

    idle: Rows
    future: Rows


class Filters:
    """What the plugins of a policy say about nodes, in the policy's order."""

    def __init__(self, hooks: Hooks) -> None:
        self.by_plugin: list[tuple[Plugin, list[Filter]]] = []
        for plugin in hooks.plugins:
            if not plugin.flags.get("enablePredicate", False):
                continue
            own = list(plugin.filters()) if defines(plugin, "filters") else []
            if defines(plugin, "predicate"):
                refusal = f"node(s) rejected by {plugin.name}"
                own.append(filter_of_predicate(plugin, plugin.name, refusal))
            if own:
                self.by_plugin.append((plugin, own))
        every = [one for _, own in self.by_plugin for one in own]
        self.static = [one for one in every if one.depends_on is Depends.STATIC]
        """Filters that only node objects decide."""
        self.row = [one for one in every if one.depends_on is Depends.NODE_ROW]
        """Filters that each node's own load decides."""
        self.cluster = [one for one in every if one.depends_on is Depends.CLUSTER]
        """Filters that look at other nodes too."""
        self.reserved: Reservations | None = None
        """Where there are Reservations."""
        self._own_row = self.row

    def open(self, reservations: Reservations) -> None:
        """A cycle begins.  Nodes that are reserved are asked about as each node's own load is, for
        it depends on the job and the time."""
        reserved = reservations if reservations else None
        if reserved is not self.reserved:
            self.reserved = reserved
            self.row = (
                self._own_row if reserved is None else [_not_reserved(reserved), *self._own_row]
            )

    def static_mask(self, session: Session, task: Task) -> Bools:
        """`[nodes]`: what does not change as long as no node object changes."""
        nodes, pods = session.state.nodes, task.pods

        def compute() -> Bools:
            return passing(self.static, nodes.ready.copy(), task, NodeView(nodes))

        return pods.static(("mask", id(self)), nodes, compute)

    def static_reasons(self, session: Session, task: Task) -> list[Reason]:
        """Why nodes are out for as long as no node object changes, each node under the first that
        speaks."""
        nodes, pods = session.state.nodes, task.pods

        def compute() -> list[Reason]:
            errors, remaining = FitErrors(len(nodes)), nodes.ready.copy()
            view = NodeView(nodes)
            for one in self.static:
                passed = one.mask(pods, view, task)
                if passed is not None:
                    _note_each(errors, one, pods, remaining & ~passed)
                    remaining &= passed
            return errors.reasons

        return pods.static(("reasons", id(self)), nodes, compute)

    def feasible(self, session: Session, task: Task, scope: Bools | None = None) -> Bools:
        """`[nodes]`: passes every filter; room is not asked."""
        mask = self.static_mask(session, task)
        if scope is not None:
            mask = mask & scope
        if session.shard_mode == "hard" and session.node_scope is not None:
            mask = mask & session.node_scope
        return passing((*self.row, *self.cluster), mask, task, NodeView(session.state.nodes))

    def passes(
        self, session: Session, task: Task, row: int, unresolvable_only: bool = False
    ) -> bool:
        """Every filter on one node; of those that evictions could help, none when asked so."""
        view = NodeView(session.state.nodes, np.array([row]))
        if self.reserved is not None and _is_reserved(self.reserved, task, row):
            return False
        for _, own in self.by_plugin:
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
        refused = None if self.reserved is None else self.reserved.refused(task)
        if refused is not None:
            mask &= ~refused
        final = (one for _, own in self.by_plugin for one in own if one.code is Code.UNRESOLVABLE)
        return passing(final, mask, task, NodeView(session.state.nodes))

    def candidates(
        self, session: Session, task: Task, scope: Bools | None = None, now: bool = False
    ) -> Candidates:
        """Nodes that pass every filter and have room, now or soon.

        `now`: count only on the room that is there, even where tasks wait for what is releasing.
        """
        if now:
            rows = np.flatnonzero(self.feasible(session, task, scope))
            free = rows[NodeView(session.state.nodes, rows).fits(task.request, future=False)]
            return Candidates(free, _NONE)
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
        fits = view.fits(task.request, future=True)
        mask = passing((*self.row, *self.cluster), fits, task, view)
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
        for refusal in self.reserved.refusals(task) if self.reserved is not None else ():
            kept = remaining & refusal.mask
            _note(errors, refusal.text, kept, RESERVED)
            unresolvable |= kept
            remaining &= ~kept
        if room:
            future = nodes.future_idle()
            for name in ordered(task.request.amounts):
                free = future[session.state.space.column(name)]
                lacking = remaining & ~(task.request.amounts[name] < free + EPSILON)
                _note(errors, f"Insufficient {name}", lacking, f"room:{name}", free)
                remaining &= ~lacking
        view = NodeView(nodes)
        for _, own in self.by_plugin:
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

    def explain_now(self, session: Session, task: Task) -> FitErrors:
        """Why no node has room now for a task that asks for nothing but a pod's place.

        A node whose pods are all taken has one to give only when those that leave it are gone: a
        kubelet refuses one pod more than it may have.
        """
        mask = self.feasible(session, task)
        count = int(mask.sum())
        if not count:
            return self.explain(session, task, room=False)
        text = "Too many pods until those that leave are gone"
        every = int(session.state.nodes.ready.sum())
        return FitErrors(every, [Reason(text, count, mask, "leaving")])


def _not_reserved(reservations: Reservations) -> Filter:
    """The filter of nodes that are reserved for others, now or before a pod would have ended."""

    def mask(pods: PodClass, view: NodeView, task: Task | None) -> Bools | None:
        refused = None if task is None else reservations.refused(task)
        return None if refused is None else ~view.take(refused)

    return Filter(
        RESERVED, "node(s) were reserved", Code.UNRESOLVABLE, Depends.NODE_ROW, mask, RESERVED
    )


def _is_reserved(reservations: Reservations, task: Task, row: int) -> bool:
    refused = reservations.refused(task)
    return refused is not None and bool(refused[row])


def passing(filters: Iterable[Filter], mask: Bools, task: Task, view: NodeView) -> Bools:
    """`[rows of the view]`: those of the mask that pass all of these filters."""
    for one in filters:
        passed = one.mask(task.pods, view, task)
        if passed is not None:
            mask = mask & passed
    return mask


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
