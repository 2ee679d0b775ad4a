"""One cycle: open, run the policy's actions, close.  Reference: scheduler-core 1.6, 5.1, 5.2.

Of the usual actions, `enqueue` admits PodGroups into whose queues they fit, before their pods exist;
`allocate` gives the pending tasks of admitted jobs nodes, and its decisions are the binds of the
cycle; `backfill` does that for tasks that request nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hekla.engine.actions import ACTIONS
from hekla.engine.actions.learning import review_runs
from hekla.engine.actions.notices import evict_on_notice, review_notices
from hekla.engine.actions.reservations import serve_reservations
from hekla.engine.explain.unanswered import Unanswered
from hekla.engine.framework.faults import fault
from hekla.engine.framework.hooks import Hooks
from hekla.engine.framework.policy import Policy
from hekla.engine.framework.session import Session
from hekla.engine.model.decisions import Decisions
from hekla.engine.model.hypernodes import settle_topology
from hekla.engine.model.state import State
from hekla.engine.placement.placer import Placer
from hekla.engine.report import report, report_queues

Stage = Callable[[str, str], None]


def _unwatched(kind: str, name: str) -> None:
    """For callers that do not mind where a cycle is."""


def cycle(
    state: State, policy: Policy, now: float, *, uid: str = "", stage: Stage = _unwatched
) -> Decisions:
    """Decide what to do about the cluster as it is.  `now`: seconds since 1970.

    What it decides is assumed to happen: bound pods hold their room in `state` from here on,
    evicted ones are on their way out, admitted PodGroups are Inqueue.  The same state and policy
    give the same decisions, in any process.
    """
    hooks = hooks_of(state, policy)
    rests = state.settled == (state.version, hooks) and not hooks.read_clock
    if rests and now < state.edge:
        return Decisions()
    with uncollected():
        return _run(state, policy, hooks, now, uid, stage)


def _run(
    state: State, policy: Policy, hooks: Hooks, now: float, uid: str, stage: Stage
) -> Decisions:
    session = open_session(state, hooks, now, uid, stage)
    for name in policy.actions if not session.blind else ():
        stage("action", name)
        try:
            ACTIONS[name].run(session)
        except Exception as error:
            # Whatever broke, the next action and the next cycle go on; what was half done is
            # undone.
            session.broke_off(f"action {name}", error)
    if state.reservations:
        serve_reservations(session)
    if state.eviction_notices.given:
        evict_on_notice(session)
    decided = close_session(session, stage)
    hooks.session = session if hooks.keeps_session else None
    stage("", "")
    return decided


def hooks_of(state: State, policy: Policy) -> Hooks:
    """The policy's plugins, made once and kept with the state that they are used on."""
    known = state.hooks
    if not isinstance(known, Hooks) or known.policy is not policy:
        before, known = known, Hooks(policy)
        state.hooks = known
        if isinstance(before, Hooks) and not known.part(Unanswered).alike(before.part(Unanswered)):
            state.unreported.update(
                (key, job) for key, job in state.jobs.items() if job.contribution is not None
            )
        state.transfers.forget()
    return known


def open_session(
    state: State, hooks: Hooks, now: float, uid: str = "", stage: Stage = _unwatched
) -> Session:
    """A session over the state, every plugin opened."""
    stage("open", "")
    state.count_changes()
    if state.job_table.arrivals is not None:
        state.job_table.arrivals.open(now)
    review_runs(state, hooks.policy, now)
    state.cycle += 1
    placer = hooks.part(Placer)
    placer.lookahead.begin_cycle(state.nodes)
    if state.reservations:
        state.reservations.open(now)
    placer.filters.open(state.reservations)
    session = Session(state, hooks, now, uid or f"cycle-{state.cycle}")
    session.stage = stage
    session.total = state.nodes.total()
    _open_shard(session)
    if state.eviction_notices:
        review_notices(session)
        state.count_changes()
    if session.tree.real:
        session.opening_room()
    for job in session.active_jobs():
        if job.has_topology:
            settle_topology(session.tree, job)
    for plugin in hooks.plugins:
        stage("plugin open", plugin.name)
        try:
            plugin.open(session)
        except Exception as error:
            session.broke_off(f"the opening of plugin {plugin.name}", error)
            session.blind = True
    return session


def _open_shard(session: Session) -> None:
    """Which nodes are this scheduler's."""
    state = session.state
    shard = state.shard
    status = shard.look(state)
    if status is not None:
        session.decisions.shards.append(status)
    if shard.trouble:
        session.decisions.problems.append(shard.trouble)
    session.shard_mode, session.node_scope = shard.mode, shard.mask(state.nodes.names)


def close_session(session: Session, stage: Stage = _unwatched) -> Decisions:
    """Say what became of every job that was looked at, undo what was only promised, and count what
    changed."""
    state = session.state
    for plugin in session.hooks.plugins:
        stage("plugin close", plugin.name)
        try:
            plugin.close(session)
        except Exception as error:  # a plugin's mistake: the others still close
            session.decisions.problems.append(
                f"close broke off: {fault(error, session.hooks.plugins)}"
            )
    stage("close", "")
    report(session)
    claimed = session.evicted_for.union(state.nominated)
    state.nominated = [
        key for key, job in session.touched.items() if key in claimed and job.counts.waiting
    ]
    for statement in reversed(session.promised):
        statement.rollback()
    for task in session.evicted:
        if state.tasks.get(task.key) is task:
            state.nodes.appear(task, task.row)
    for job in session.touched.values():
        if job.plugin_state:
            job.plugin_state.pop("allocated_now", None)
        for sub_job in job.sub_jobs.values():
            sub_job.nominated_domain = ""
    state.job_table.dirty.update(session.touched)
    state.count_changes()
    for settle in session.at_close:
        settle()
    report_queues(session)
    decided = session.decisions
    session.live.clear()
    state.edge = min(state.reservations.edge, session.edge)
    # A job whose phase this cycle found to be another has not met the actions in it.
    moved = bool(
        decided.binds
        or decided.evictions
        or decided.gates
        or decided.pod_groups
        or session.let_in_any
    )
    state.settled = (
        None
        if moved or state.unreported or state.job_table.orphaned or state.back_off.any(session.now)
        else (state.version, session.hooks)
    )
    return decided


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cyclic garbage: a cycle makes hardly any, nor do estimates, and each
    search goes through the whole state."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _age()
        gc.enable()


MANY_YOUNG = 20_000
MOST_AGED = 8
_aged = [0, 0]
"""How often the young were made old since Python last searched everything, and how often it had
done that."""


def _age() -> None:
    """Let what a large cycle made count as old at once.

    It is decisions, and what the state keeps of them: the search would begin with all of it as soon
    as it is allowed again, and find nothing.  Done a few times only between two searches of
    everything, because it puts them off.
    """
    # Whoever froze something meant it to stay so.
    if gc.get_count()[0] < MANY_YOUNG or gc.get_freeze_count():
        return
    searched = gc.get_stats()[2]["collections"]
    if searched != _aged[1]:
        _aged[:] = 0, searched
    if _aged[0] < MOST_AGED:
        _aged[0] += 1
        gc.freeze()
        gc.unfreeze()
