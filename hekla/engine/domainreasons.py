"""Why no domain of the network holds a group that has to stay within one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hekla.engine.amounts import describe
from hekla.engine.hypernodes import ROOT
from hekla.engine.resources import EPSILON, Floats
from hekla.engine.tasks import Group, Job, Task

if TYPE_CHECKING:
    from hekla.engine.session import Session


class DomainVerdict(NamedTuple):
    """What is said after the job's name, and what would help."""

    text: str
    remedy: str
    needed: int
    """Pods that have to be in one domain."""
    best: str = ""
    """The domain that has room for the most; empty where there is none."""
    room: int = 0
    """For so many."""


def domain_verdict(session: Session, group: Group) -> DomainVerdict | None:
    """Where room is what the domains lack; None where they have it and something else is in the way."""
    topology, tree = group.effective, session.tree
    task = next((one for one in group.pending() if not one.best_effort), None)
    if task is None or topology is None or topology.highest_tier is None:
        return None
    tier = topology.highest_tier
    needed = max(group.min_available - group.counts.ready, 1)
    which = "needs" if isinstance(group, Job) else "has a sub-group that needs"
    asked = f"{needed} {'pod' if needed == 1 else 'pods'} of {describe(task.request.amounts)}"
    lead = f"{which} room for {asked} in one domain of tier {tier} or lower"
    names = [name for name, one in tree.by_name.items() if one.tier <= tier and name != ROOT]
    if not names:
        return DomainVerdict(
            f"{lead}; there is none.", "It starts once HyperNodes of such a tier are there, or its tier is raised.", needed
        )
    nodes = session.state.nodes
    room, empty = (tree.sums(_fits(session, task, free)) for free in (nodes.future_idle(), nodes.allocatable))
    best = max(names, key=lambda name: (float(room[tree.number[name]]), -tree.number[name]))
    most, ever = int(room[tree.number[best]]), max(int(empty[tree.number[name]]) for name in names)
    if most >= needed:
        return None
    where = f"of {len(names)}, {best} has the most, for {most}" if len(names) > 1 else f"the only one, {best}, has it for {most}"
    if ever < needed:
        remedy = f"It starts once a domain holds {needed} of them, or its tier is raised."
        return DomainVerdict(f"{lead}: {where}; even empty none has it for more than {ever}.", remedy, needed, best, most)
    return DomainVerdict(f"{lead}: {where}.", f"It starts when one has room for {needed - most} more.", needed, best, most)


def _fits(session: Session, task: Task, free: Floats) -> Floats:
    """`[nodes]`: how many pods like this each node has room for, of those that it may use."""
    suits = session.hooks.pipeline.static_mask(session, task)
    fits: Floats = np.where(suits, np.inf, 0.0)
    for column, value in task.request:
        if value > 0:
            fits = np.minimum(fits, np.floor((free[column] + EPSILON) / value))
    return np.maximum(np.where(np.isfinite(fits), fits, 0.0), 0.0)
