"""reclaim: a queue takes back what it deserves from queues that hold more than theirs.  Reference:
scheduler-core 6.5."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.explain.no_victims import FailedSearches, Search
from hekla.engine.framework.heap import LiveHeap
from hekla.engine.framework.plugin import Plugin, Victims
from hekla.engine.framework.statement import Statement
from hekla.engine.model.queues.balance import demand_of
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.model.transfers import IN_VAIN, OTHERS
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.victims import agreed, leaving, make_room

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

REASON = "reclaim"


class Reclaim:
    """Across queues; the victims' queues must allow it."""

    name = "reclaim"
    arguments: Mapping[str, bool | int] = {"predicateErrorCacheEnable": True}

    def run(self, session: Session) -> None:
        starving: dict[str, LiveHeap[Job]] = {}
        for job in session.active_jobs():
            if job.is_pending or session.votes.job_valid(job) is not None:
                continue
            heap = starving.get(job.queue)
            if heap is None:
                heap = starving[job.queue] = session.order.jobs_as_they_stand()
            if session.votes.job_starving(job):
                heap.push(job)
        queues = session.order.queues_as_they_stand(starving)
        failures = FailedSearches(session, "reclaimable")
        while queues:
            queue = queues.pop()
            if session.votes.overused(queue):
                continue
            jobs = starving[queue.name]
            while jobs:
                job = jobs.pop()
                if not session.state.back_off.left(
                    job.key, session.now
                ) and not session.order.own.held_back(job):
                    _reclaim_for_job(session, job, failures)
                if jobs:
                    # As upstream: what it took moves it, and a queue that moves makes others meet.
                    queues.push(queue)


def _reclaim_for_job(session: Session, job: Job, failures: FailedSearches) -> None:
    queue = session.queue_of(job)
    statement = session.statement()
    tasks = session.order.sorted_tasks(task for task in job.pending() if not task.gated)
    why = ""
    for task in tasks:
        if not session.votes.job_starving(job):
            break
        if session.state.transfers.gave_up(task):
            why = why or IN_VAIN
            session.hold_back(job, [OTHERS], REASON)
            continue
        if (
            task.pods.preemption_policy == "Never"
            or not session.votes.preemptive(queue, [task])
            or session.votes.prefilter(task)
        ):
            if task.pods.preemption_policy != "Never":
                why = (
                    why
                    or session.votes.prefilter(task)
                    or session.votes.not_preemptive(queue, [task])
                )
            continue
        search = _reclaim_for_task(session, statement, job, task, failures)
        if search is not None:
            why = why or search.text("of other queues")
            session.hold_back(job, search.takers, REASON)
    if why:
        # What preempt found, among the jobs of its own queue.
        within = session.no_victim.get(job.key, "")
        session.no_victim[job.key] = f"{within}; {why}" if within not in ("", why) else why
    if not session.votes.job_pipelined(job):
        statement.discard()
        return
    if statement.evicts:
        session.metric("eviction_transactions_total", 1.0, action=REASON)
    statement.commit()


def _reclaim_for_task(
    session: Session, statement: Statement, job: Job, task: Task, failures: FailedSearches
) -> Search | None:
    """Promise the task a node, with the evictions that it takes; where there is none, what the
    search met."""
    nodes = session.state.nodes
    mask = placer_of(session).filters.preempt_mask(session, task)
    errors = job.fit_errors.get(task.key)
    if errors is not None and errors.unresolvable is not None:
        mask &= ~errors.unresolvable
    like = failures.like(task, mask)
    failed = failures.known(like) if like is not None else None
    if failed is not None:
        return failed
    search = Search()
    for rows in session.shard_groups(np.flatnonzero(mask)):
        for row in rows.tolist():
            candidates = search.without_takers(
                session,
                job,
                [one for one in nodes.tasks[row].values() if _may_go(session, job, one)],
            )
            if not candidates or not make_room(session, task, row, candidates):
                # The plugins only ever take candidates away.
                search.empty += not candidates
                search.short += bool(candidates)
                continue
            victims, enough = agreed(
                session, task, row, candidates, lambda some: session.votes.reclaimable(task, some)
            )
            if not enough:
                ask = partial(_reclaimable, task, candidates)
                search.refused(session, "reclaimable", ask, candidates, victims)
                continue
            trial = session.statement()
            queue = leaving(session, victims, task)
            demand = demand_of(nodes.space, job.queue, [task], nodes.future_idle_of(row))
            unbalanced = False
            while queue and not nodes.fits_future(row, task.request):
                victim = queue.pop()
                if session.votes.balanced(demand, victim):
                    trial.evict(victim, REASON)
                else:
                    unbalanced = True
            if not nodes.fits_future(row, task.request) or not session.votes.allocatable(
                session.state.queues[job.queue], task
            ):
                search.unbalanced, search.short = (
                    search.unbalanced + unbalanced,
                    search.short + (not unbalanced),
                )
                trial.discard()
                continue
            trial.pipeline(task, row, trial.evicts)
            statement.merge(trial)
            return None
    if like is not None:
        failures.note(like, search)
    return search


def _reclaimable(task: Task, candidates: list[Task], plugin: Plugin) -> Victims:
    return plugin.reclaimable(task, candidates)


def _may_go(session: Session, job: Job, one: Task) -> bool:
    other = one.job
    return (
        one.status is Status.RUNNING
        and one.preemptable
        and other is not None
        and session.in_session(other)
        and other.queue != job.queue
        and session.queue_of(other).reclaimable
    )
