"""gangpreempt and gangreclaim: room for a whole gang in one domain, by evicting as few whole gangs
as possible.

Where preempt and reclaim look for a node a task, these look for a domain a job, so jobs with a
topology are served too. Reference: scheduler-core 6.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.actions.allocate import Worksheet, worksheet
from hekla.engine.actions.bundles import (
    Bundle,
    approved,
    at_their_turn,
    bundles_of,
    in_order,
    needed,
    sufficient,
)
from hekla.engine.actions.evicting import commit, stands_back
from hekla.engine.actions.victim_search import by_age, unresolvable
from hekla.engine.explain.no_victims import Search
from hekla.engine.framework.heap import LiveHeap
from hekla.engine.framework.statement import Statement
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.hypernodes import ROOT
from hekla.engine.model.queues.balance import Demand, demand_of
from hekla.engine.model.resources import PODS, Amounts, add, empty, subtract
from hekla.engine.model.tasks import (
    NOWHERE,
    PREEMPTABLE,
    Job,
    Status,
    SubJob,
    Task,
    requests_of,
)
from hekla.engine.model.transfers import IN_VAIN, OTHERS
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.refused_nodes import Refused

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

MOST_DOMAINS = 8
MOST_TRIALS = 3
"""How often a plan is made again with fewer victims."""
Plan = tuple[Statement, list[tuple[SubJob, str]]]
"""What is evicted and promised, and where each sub-job goes."""


class GangPreempt:
    """From lesser jobs of the same queue."""

    name = "gangpreempt"
    arguments: Mapping[str, bool | int | str] = {
        "maxDomains": MOST_DOMAINS,
        "allowWholeBundle": True,
    }
    across_queues = False

    def run(self, session: Session) -> None:
        starving: dict[str, LiveHeap[Job]] = {}
        for job in session.active_jobs():
            if (
                job.is_pending
                or session.votes.job_valid(job) is not None
                or not session.votes.job_starving(job)
            ):
                continue
            heap = starving.get(job.queue)
            if heap is None:
                heap = starving[job.queue] = session.order.jobs_as_they_stand()
            heap.push(job)
        queues = session.order.queues_as_they_stand(starving)
        while queues:
            queue = queues.pop()
            if self.across_queues and session.votes.overused(queue):
                continue
            jobs = starving[queue.name]
            while jobs:
                job = jobs.pop()
                if not stands_back(session, job):
                    self._serve(session, job)

    def _serve(self, session: Session, job: Job) -> None:
        sheet = demand(session, job)
        tasks = [task for sub_job in sheet.order for task in sheet.tasks[sub_job.uid]]
        if not tasks:
            return
        if any(task.pods.preemption_policy == "Never" for task in tasks):
            session.no_victim.setdefault(job.key, "its preemptionPolicy is Never")
            return
        if any(session.state.transfers.gave_up(task) for task in tasks):
            session.no_victim.setdefault(job.key, IN_VAIN)
            session.hold_back(job, [OTHERS], self.name)
            return
        queue = session.queue_of(job)
        if self.across_queues and not session.votes.preemptive(queue, tasks):
            session.no_victim.setdefault(job.key, session.votes.not_preemptive(queue, tasks))
            return
        search = Search()
        need = requests_of(tasks)
        for domain in self._domains(session, job):
            made = self._make_room(session, job, sheet, need, domain, search)
            if made is not None:
                statement, places = made
                commit(session, statement, self.name)
                for sub_job, place in places:
                    sub_job.nominated_domain = place
                return
        whose = "of other queues" if self.across_queues else f"of lesser jobs of queue {job.queue}"
        session.no_victim.setdefault(job.key, search.text(whose, "domain"))
        session.hold_back(job, search.takers, self.name)

    def _domains(self, session: Session, job: Job) -> list[str]:
        most = session.argument(self.name, "maxDomains", MOST_DOMAINS)
        found = dict.fromkeys(
            name for names in session.domains.gradient_of_job(job, "evict") for name in names
        )
        if not found and not job.has_hard_topology:
            return [ROOT]
        return list(found)[: most if most > 0 else MOST_DOMAINS]

    def _make_room(
        self,
        session: Session,
        job: Job,
        sheet: Worksheet,
        need: Amounts,
        domain: str,
        search: Search,
    ) -> Plan | None:
        """Evict bundle by bundle until the job can be promised its places in the domain."""
        nodes = session.state.nodes
        scope = session.domains.nodes(domain)
        mask = nodes.ready if scope is None else scope & nodes.ready
        free = (nodes.idle() + nodes.releasing)[:, mask].sum(axis=1)
        room = session.state.space.amounts(free)
        bundles = self._bundles(session, job, mask, need, search)
        if self.across_queues and bundles:
            demand = demand_of(
                session.state.space,
                job.queue,
                (task for part in sheet.order for task in sheet.tasks[part.uid]),
                free,
            )
            bundles = self._balanced(session, demand, bundles)
            search.unbalanced += not bundles
        search.short += bool(bundles)
        for taken in sufficient(bundles, need, room):
            made = _plan(session, job, sheet, _tasks(taken), domain, self.name)
            if made is not None:
                return self._spare(session, job, sheet, taken, domain, made)
        return None

    def _balanced(self, session: Session, demand: Demand, bundles: list[Bundle]) -> list[Bundle]:
        """Those that leave queues no worse balanced, each going after the ones before it."""
        going: dict[str, Amounts] = {}
        kept = []
        for bundle in bundles:
            lost = going.setdefault(bundle.job.queue, empty())
            tasks: list[Task] = []
            for task in bundle.tasks:
                if session.votes.balanced(demand, task, going):
                    add(lost, task.request.amounts)
                    tasks.append(task)
            if not bundle.safe and len(tasks) < len(bundle.tasks):
                for task in tasks:
                    subtract(lost, task.request.amounts)
            elif tasks:
                kept.append(Bundle(bundle.job, tasks, bundle.safe))
        return kept

    def _spare(
        self,
        session: Session,
        job: Job,
        sheet: Worksheet,
        taken: list[Bundle],
        domain: str,
        made: Plan,
    ) -> Plan:
        """The plan without victims whose room nobody was promised, as long as such a plan holds.

        Upstream evicts all that a job can spare as soon as it needs any of it.
        """
        for _ in range(MOST_TRIALS):
            fewer = needed(session, taken)
            if len(_tasks(fewer)) == len(_tasks(taken)):
                break
            made[0].rollback()
            less = _plan(session, job, sheet, _tasks(fewer), domain, self.name)
            if less is None:
                again = _plan(session, job, sheet, _tasks(taken), domain, self.name)
                assert again is not None, "a plan that held holds again"
                return again
            taken, made = fewer, less
        return made

    def _bundles(
        self, session: Session, job: Job, mask: Bools, need: Amounts, search: Search
    ) -> list[Bundle]:
        by_job: dict[str, list[Task]] = {}
        for row in np.flatnonzero(mask).tolist():
            for one in sorted(session.state.nodes.tasks[row].values(), key=by_age):
                other = one.job
                if session.in_session(other) and self._may_go(session, job, one, other):
                    by_job.setdefault(other.key, []).append(one)
        allowed = {key: search.without_takers(session, job, tasks) for key, tasks in by_job.items()}
        if session.votes.may_spare:
            unspared = (search.without_spared(session, job, tasks) for tasks in allowed.values())
            allowed = dict(zip(allowed, unspared))
            search.untouched = 0
        found = [
            bundle
            for key, tasks in allowed.items()
            if tasks
            for bundle in bundles_of(session.state.jobs[key], tasks, session.votes.victim_key)
        ]
        found = in_order(session, found, job, need, self.across_queues)
        candidates = [task for bundle in found for task in bundle.tasks]
        if not candidates:
            search.empty += 1
            search.untouched += bool(search.kept)
            return []
        found = approved(
            found, {task.key for task in session.votes.evictable(self.name, job, candidates)}
        )
        if not session.argument(self.name, "allowWholeBundle", True):
            found = [bundle for bundle in found if bundle.safe]
        if not found:
            search.spared += 1
            search.sparing(
                session, "evictable", lambda plugin: plugin.evictable(self.name, job, candidates)
            )
        return at_their_turn(
            session, job, in_order(session, found, job, need, self.across_queues), search
        )

    def _may_go(self, session: Session, job: Job, task: Task, other: Job) -> bool:
        return (
            task.status in PREEMPTABLE
            and task.preemptable
            and other is not job
            and other.queue == job.queue
            and other.stated_preemptable
            and session.votes.lesser(other, job)
        )


class GangReclaim(GangPreempt):
    """From jobs of other queues that may be reclaimed."""

    name = "gangreclaim"
    across_queues = True

    def _may_go(self, session: Session, job: Job, task: Task, other: Job) -> bool:
        return (
            task.status is Status.RUNNING
            and task.preemptable
            and other.queue != job.queue
            and session.queue_of(other).reclaimable
            and other.stated_preemptable
        )


def _tasks(bundles: list[Bundle]) -> list[Task]:
    return [task for bundle in bundles for task in bundle.tasks]


def demand(session: Session, job: Job) -> Worksheet:
    """What a job lacks: all that it has to place before it is ready, one sub-job after."""
    sheet = worksheet(session, job)
    for uid, tasks in sheet.tasks.items():
        sheet.tasks[uid] = [task for task in tasks if not task.gated]
    order = [sub_job for sub_job in sheet.order if sheet.tasks[sub_job.uid]]
    return Worksheet(order[:1] if session.votes.job_ready(job) else order, sheet.tasks)


def _plan(
    session: Session, job: Job, sheet: Worksheet, victims: list[Task], domain: str, reason: str
) -> Plan | None:
    """Evict all victims and promise the job's tasks their places; nothing has happened where that
    fails."""
    was_ready = session.votes.job_ready(job)
    statement = session.statement()
    for victim in victims:
        statement.evict(victim, reason)
    places: list[tuple[SubJob, str]] = []
    for sub_job in sheet.order:
        domains = [domain]
        if job.has_hard_topology:
            domains = [
                name
                for names in session.domains.gradient_of_sub_job(sub_job, domain, "evict")
                for name in names
            ]
        for name in domains:
            trial = _promise(session, job, sub_job, sheet.tasks[sub_job.uid], name)
            if trial is not None:
                statement.merge(trial)
                places.append((sub_job, name))
                break
        else:
            statement.rollback()
            return None
        if was_ready or session.votes.job_pipelined(job):
            break
    if not places or not session.votes.job_pipelined(job):
        statement.rollback()
        return None
    return statement, places


def _promise(
    session: Session, job: Job, sub_job: SubJob, tasks: list[Task], domain: str
) -> Statement | None:
    """A node for every task of the sub-job, or none."""
    placer, queue = placer_of(session), session.queue_of(job)
    scope = session.domains.nodes(domain)
    trial, refused = session.statement(), Refused(session, evicting=True)
    for at, task in enumerate(tasks, 1):
        found = NOWHERE
        if session.votes.allocatable(queue, task) and not session.votes.prefilter(task):
            within, hopeless = refused.remaining_nodes(task, scope), unresolvable(job, task)
            if hopeless is not None:
                within = ~hopeless if within is None else within & ~hopeless
            candidates = placer.filters.candidates(session, task, within)
            rows = candidates.idle if len(candidates.idle) else candidates.future
            if not len(rows):
                rows = _being_left(session, task, within)
            if len(rows):
                found = placer.scores.best(session, task, session.preferred(rows))
        if found == NOWHERE:
            trial.rollback()
            return None
        trial.pipeline(task, found, True)
        refused.remember(task, tasks, at, scope)
    if session.votes.sub_job_ready(sub_job) or session.votes.sub_job_pipelined(sub_job):
        return trial
    trial.rollback()
    return None


def _being_left(session: Session, task: Task, within: Bools | None) -> Rows:
    """Nodes that are refused for now, but that pods leave which went before this cycle: they may be
    what is in the way.

    Upstream takes every node of which no filter says that evictions could not help, also where what
    is in the way stays.
    """
    nodes, placer = session.state.nodes, placer_of(session)
    left = np.zeros(len(nodes), dtype=np.bool_)
    for row in np.flatnonzero(nodes.releasing[session.state.space.column(PODS)] > 0).tolist():
        left[row] = any(
            one.status is Status.RELEASING and one.terminating for one in nodes.tasks[row].values()
        )
    if within is not None:
        left &= within
    if left.any():
        left &= placer.filters.preempt_mask(session, task)
    fitting = [row for row in np.flatnonzero(left).tolist() if nodes.fits_future(row, task.request)]
    idle = [row for row in fitting if nodes.fits_idle(row, task.request)]
    return np.array(idle or fitting, dtype=np.intp)
