"""reclaim: a queue takes back what it deserves from queues that hold more than theirs.  Reference:
scheduler-core 6.5."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from hekla.engine.actions.evicting import conclude, stands_back, waiting_tasks
from hekla.engine.actions.victim_search import VictimSearch
from hekla.engine.framework.heap import LiveHeap
from hekla.engine.framework.statement import Statement
from hekla.engine.model.arrays import Rows
from hekla.engine.model.queues.balance import Demand, demand_of
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.victims import make_room

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

REASON = "reclaim"
_RUNNING = (Status.RUNNING,)


class Reclaim:
    """Across queues; the victims' queues must allow it."""

    name = "reclaim"
    arguments: Mapping[str, bool | int | str] = {"predicateErrorCacheEnable": True}

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
        search = VictimSearch(
            session,
            REASON,
            "reclaimable",
            lambda plugin, task, candidates: plugin.reclaimable(task, candidates),
        )
        while queues:
            queue = queues.pop()
            if session.votes.overused(queue):
                continue
            jobs = starving[queue.name]
            while jobs:
                job = jobs.pop()
                if not stands_back(session, job):
                    _reclaim_for_job(session, job, search)
                if jobs:
                    # As upstream: what it took moves it, and a queue that moves makes others meet.
                    queues.push(queue)


def _reclaim_for_job(session: Session, job: Job, search: VictimSearch) -> None:
    queue = session.queue_of(job)
    statement = session.statement()
    why = ""
    for task in waiting_tasks(session, job):
        if not session.votes.job_starving(job):
            break
        search.begin()
        if not search.gave_up(task):
            if task.pods.preemption_policy == "Never":
                continue
            if not session.votes.preemptive(queue, [task]) or session.votes.prefilter(task):
                why = (
                    why
                    or session.votes.prefilter(task)
                    or session.votes.not_preemptive(queue, [task])
                )
                continue
            nodes = placer_of(session).filters.preempt_mask(session, task)
            if search.promise(statement, task, nodes, partial(_make_room, search, job, task)):
                continue
        why = why or search.met.text("of other queues")
        session.hold_back(job, search.met.takers, REASON)
    if why:
        # What preempt found, among the jobs of its own queue.
        within = session.no_victim.get(job.key, "")
        session.no_victim[job.key] = f"{within}; {why}" if within not in ("", why) else why
    conclude(session, job, statement, REASON)


def _make_room(search: VictimSearch, job: Job, task: Task, rows: Rows) -> Statement | None:
    """The first node where evicting makes room, as far as queues stay balanced."""
    session = search.session
    nodes, votes = session.state.nodes, session.votes
    may_go = partial(_may_go, session, job)
    for row in rows.tolist():
        candidates = search.candidates(task, row, _RUNNING, may_go)
        if not candidates or not make_room(session, task, row, candidates):
            # The plugins only ever take candidates away.
            search.met.empty += not candidates
            search.met.short += bool(candidates)
            continue
        victims, enough = search.victims(task, row, candidates)
        if not enough:
            continue
        balance = _Balance(
            session, demand_of(nodes.space, job.queue, [task], nodes.future_idle_of(row))
        )
        fits = partial(nodes.fits_future, row, task.request)
        trial = search.evict_until(fits, task, victims, balance.may_go)
        if trial is None or not votes.allocatable(session.queue_of(job), task):
            search.met.unbalanced += balance.spared
            search.met.short += not balance.spared
            if trial is not None:
                trial.discard()
            continue
        trial.pipeline(task, row, trial.evicts)
        return trial
    return None


class _Balance:
    """Which victims may go without leaving queues worse balanced, and whether any was spared."""

    def __init__(self, session: Session, demand: Demand) -> None:
        self.session = session
        self.demand = demand
        self.spared = False

    def may_go(self, victim: Task) -> bool:
        if self.session.votes.balanced(self.demand, victim):
            return True
        self.spared = True
        return False


def _may_go(session: Session, job: Job, one: Task) -> bool:
    other = one.job
    return (
        session.in_session(other)
        and other.queue != job.queue
        and session.queue_of(other).reclaimable
    )
