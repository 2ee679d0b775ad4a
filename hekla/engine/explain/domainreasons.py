"""Why no domain of the network holds a group that has to stay within one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hekla.engine.explain.amounts import describe
from hekla.engine.model.hypernodes import ROOT, HyperTree
from hekla.engine.model.resources import EPSILON, Floats
from hekla.engine.model.tasks import Group, Job, SubJob, Task, is_allocated
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


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
    """Where room is what the domains lack; None where they have it and something else is in the
    way."""
    topology, tree = group.effective, session.tree
    task = next((one for one in group.pending() if not one.best_effort), None)
    if task is None or topology is None or topology.highest_tier is None:
        return None
    tier = topology.highest_tier
    needed = max(group.min_available - group.counts.ready, 1)
    which = "needs" if isinstance(group, Job) else "has a sub-group that needs"
    asked = f"{needed} {'pod' if needed == 1 else 'pods'} of {describe(task.request.amounts)}"
    lead = f"{which} room for {asked} in one domain of tier {tier} or lower{_left_out(tree)}"
    names = [name for name, one in tree.by_name.items() if one.tier <= tier and name != ROOT]
    if not names:
        return DomainVerdict(
            f"{lead}; there is none.",
            "It starts once HyperNodes of such a tier are there, or its tier is raised.",
            needed,
        )
    nodes = session.state.nodes
    room, empty = (
        tree.sums(_fits(session, task, free)) for free in (nodes.future_idle(), nodes.allocatable)
    )
    best = max(names, key=lambda name: (float(room[tree.number[name]]), -tree.number[name]))
    most, ever = int(room[tree.number[best]]), max(int(empty[tree.number[name]]) for name in names)
    if most >= needed:
        return None
    where = (
        f"of {len(names)}, {best} has the most, for {most}"
        if len(names) > 1
        else f"the only one, {best}, has it for {most}"
    )
    if ever < needed:
        remedy = f"It starts once a domain holds {needed} of them, or its tier is raised."
        return DomainVerdict(
            f"{lead}: {where}; even empty none has it for more than {ever}.",
            remedy,
            needed,
            best,
            most,
        )
    return DomainVerdict(
        f"{lead}: {where}.",
        f"It starts when one has room for {needed - most} more.",
        needed,
        best,
        most,
    )


def apart_verdict(session: Session, job: Job) -> DomainVerdict | None:
    """Of a job, or a sub-group of it, whose pods with a node are in no domain that it may stay
    within, so that no other is looked in."""
    if not job.has_hard_topology:
        return None
    groups: tuple[Job | SubJob, ...] = (job, *job.sub_jobs.values())
    for group in groups:
        topology = group.effective
        if (
            topology is None
            or not topology.hard
            or topology.highest_tier is None
            or not any(group.pending())
        ):
            continue
        held = sorted(
            {
                task.row
                for task in group.tasks.values()
                if task.row >= 0 and is_allocated(task.status)
            }
        )
        if held and not _domains(session, group):
            return _apart(session, group, topology.highest_tier, held)
    return None


def _domains(session: Session, group: Job | SubJob) -> list[str]:
    """Those in which allocate looks for room."""
    job = group.job if isinstance(group, SubJob) else group
    within = [name for names in session.domains.gradient_of_job(job, "allocate") for name in names]
    if not isinstance(group, SubJob):
        return within
    return [
        name
        for one in within
        for names in session.domains.gradient_of_sub_job(group, one, "allocate")
        for name in names
    ]


def _apart(session: Session, group: Group, tier: int, held: list[int]) -> DomainVerdict:
    """Its pods that have a node are in no domain that it may stay within: the HyperNode that held
    them has gone, or changed."""
    which = "has" if isinstance(group, Job) else "has a sub-group with"
    names = session.state.nodes.names
    where = ", ".join(names[row] for row in held[:3]) + (
        f" and {len(held) - 3} more" if len(held) > 3 else ""
    )
    count = f"{len(held)} {'pod' if len(held) == 1 else 'pods'}"
    text = f"{which} {count} on {where}, and no HyperNode of tier {tier} or lower holds them any more, so no more may join them."
    remedy = "It goes on once such a HyperNode is there again, its tier is raised, or all of its pods are made anew."
    return DomainVerdict(text, remedy, max(group.min_available - group.counts.ready, 1))


def _left_out(tree: HyperTree) -> str:
    """Domains that could have served and are in no tree, as an aside."""
    if not tree.left_out:
        return ""
    name, why = next(iter(tree.left_out.items()))
    more = f" and {len(tree.left_out) - 1} more" if len(tree.left_out) > 1 else ""
    return f" (HyperNode {name}{more} cannot be used as written: {why})"


def _fits(session: Session, task: Task, free: Floats) -> Floats:
    """`[nodes]`: how many pods like this each node has room for, of those that it may use."""
    suits = placer_of(session).filters.static_mask(session, task)
    fits: Floats = np.where(suits, np.inf, 0.0)
    for column, value in task.request:
        if value > 0:
            fits = np.minimum(fits, np.floor((free[column] + EPSILON) / value))
    return np.maximum(np.where(np.isfinite(fits), fits, 0.0), 0.0)
