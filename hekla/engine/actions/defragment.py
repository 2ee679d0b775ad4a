"""defragment: moves pods so that more of what is free can be used.  Off unless the policy names it.

It plans first: on the session's own tables it evicts pods one after another, looks where the policy
would put them again, and keeps the moves that are worth it.  Then all is undone, and what is left is
a plan; `vcctl top fragmentation --plan` shows one.  Carried out, it only evicts: whoever made the
pods makes them again, and they are placed like all others.

It ends.  A round begins only when fragmentation is at least one gain lower than it was before the
last round, as long as nothing outside has changed (`Transfers`); so there are at most as many rounds
as gains fit into what there was, wherever pods go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hekla.engine.model.gangs import breaks_gang
from hekla.engine.model.tasks import NOWHERE, Status, Task
from hekla.engine.placement.landing import Landing
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.arrays import Rows
    from hekla.engine.model.resources import Floats
    from hekla.engine.model.tasks import Job

NODES, TRIES = 64, 128
"""So many nodes, those with most to gain, are looked at in a round, and so many pods on them."""
SYSTEM = "kube-system"


class Move(NamedTuple):
    """A pod that would go to another node."""

    task: Task
    source: str
    target: str
    gain: float
    """By how much expected fragmentation falls."""


class Plan(NamedTuple):
    """Moves in their order, and what they are good for."""

    moves: list[Move]
    before: float
    """Expected fragmentation of all nodes: a GPU, or what an average node has of cpu or memory,
    counts 1, times the plugin's weights."""
    after: float
    fit: dict[str, int]
    """Waiting job -> how many of its pods would find a node that find none now."""


class Defragment:
    """Carries out a plan, if it is worth it."""

    name = "defragment"
    arguments: Mapping[str, bool | int | str] = {"minGain": 50, "moves": 5}

    def run(self, session: Session) -> None:
        if not session.hooks("fragmentation") or session.state.nodes.moving:
            return
        transfers = session.state.transfers
        if any(_comes_back(session, job) for job in session.active_jobs()):
            return
        least = session.argument(self.name, "minGain", 50) / 100
        if transfers.fragmented < np.inf and _level(session) > transfers.fragmented - least:
            return
        found = plan(session, least, session.argument(self.name, "moves", 5))
        for move in found.moves:
            statement = session.statement()
            statement.evict(move.task, self.name, purpose_of(move, found))
            statement.commit()
        if found.moves:
            transfers.fragmented = found.before
            session.metric("defragmentations_total", 1.0)


def purpose_of(move: Move, found: Plan) -> str:
    """What an eviction is for, in words."""
    text = f"moved so that more of what is free can be used: fragmentation falls by {move.gain:.2f}"
    text += f" of {found.before:.2f}, and {move.target} has room for it"
    if found.fit:
        waiting = ", ".join(f"{count} of {job}" for job, count in sorted(found.fit.items()))
        text += f"; pods that then fit: {waiting}"
    return text


def plan(session: Session, least: float, most: int) -> Plan:
    """Which pods to move.  Each move gains at least `least` > 0, and there are at most `most`."""
    losses = _losses(session)
    before = float(losses.sum())
    landing = Landing(session, Defragment.name)
    moves: list[Move] = []
    waiting = _waiting(session)
    fitting = {job.key: _places(session, job) for job in waiting}
    try:
        if least > 0:
            for task in _candidates(session, losses):
                if len(moves) >= most:
                    break
                move = _tried(session, landing, task, losses, least)
                if move is not None:
                    moves.append(move)
        after = float(_losses(session).sum()) if moves else before
        fit = {}
        if moves:
            for job in waiting:
                more = _places(session, job) - fitting[job.key]
                if more > 0:
                    fit[job.key] = more
    finally:
        landing.undo()
    return Plan(moves, before, after, fit)


def _tried(
    session: Session, landing: Landing, task: Task, losses: Floats, least: float
) -> Move | None:
    """The move of one pod, kept where it gains enough; `losses` follow it."""
    job, votes = task.job, session.votes
    if job is None or task.status is not Status.RUNNING:
        return None
    if job.min_available > 1 and breaks_gang(task, job):
        return None
    if votes.spares(task, None) or not votes.let_go([task]):
        return None
    source = task.row
    target = landing.moves(task)
    if target == NOWHERE:
        return None
    rows = np.array([source, target])
    now = _of(session, rows)
    gain = float((losses[rows] - now).sum())
    if gain < least:
        landing.take_back()
        return None
    losses[rows] = now
    names = session.state.nodes.names
    return Move(task, names[source], names[target], gain)


def _candidates(session: Session, losses: Floats) -> list[Task]:
    """Pods of ours on the nodes that lose most, those first that may go most cheaply."""
    nodes = session.state.nodes
    found: list[Task] = []
    for row in np.argsort(-losses, kind="stable")[:NODES].tolist():
        if losses[row] <= 0 or not nodes.ready[row]:
            continue
        here = [
            task
            for task in nodes.tasks[row].values()
            if task.preemptable and task.namespace != SYSTEM and session.in_session(task.job)
        ]
        found += sorted(here, key=lambda task: _least_missed(session, task))
        if len(found) >= TRIES:
            break
    return found[:TRIES]


def _least_missed(session: Session, task: Task) -> tuple[object, ...]:
    """Who leaves first, as plugins order victims; then low priorities, then the young."""
    ordered = tuple(plugin.victim_order(task) for plugin in session.hooks("victim_order"))
    return *ordered, task.priority, -task.creation, task.key


def _losses(session: Session) -> Floats:
    return _of(session, np.arange(len(session.state.nodes)))


def _of(session: Session, rows: Rows) -> Floats:
    """`[rows]`: fragmentation, by the first plugin that measures it."""
    return session.hooks("fragmentation")[0].fragmentation(rows)


def _level(session: Session) -> float:
    return float(_losses(session).sum())


def _comes_back(session: Session, job: Job) -> bool:
    """Whether a job still has to find places for pods that were evicted."""
    return job.lineage in session.state.transfers.disturbed and any(job.pending())


def _waiting(session: Session) -> list[Job]:
    return [job for job in session.active_jobs() if any(not one.gated for one in job.pending())]


def _places(session: Session, job: Job) -> int:
    """For how many of its waiting pods, each by itself, there is a node."""
    filters = placer_of(session).filters
    known: dict[object, bool] = {}
    count = 0
    for task in job.pending():
        if task.gated:
            continue
        if task.pods not in known:
            known[task.pods] = len(filters.candidates(session, task).future) > 0
        count += known[task.pods]
    return count
