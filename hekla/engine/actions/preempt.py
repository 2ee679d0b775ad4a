"""preempt: a starving job takes room from lesser ones of its own queue.  Reference: scheduler-core
6.4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.explain.no_victims import FailedSearches, Search
from hekla.engine.framework.statement import Evicted, Statement
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.tasks import PREEMPTABLE, Job, Task
from hekla.engine.model.transfers import IN_VAIN, OTHERS
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.victims import agreed, in_order, leaving

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import PodClass

REASON = "preempt"
Wanted = Callable[[Task], bool]


class Preempt:
    """First between jobs of a queue, then between the tasks of one job."""

    name = "preempt"
    arguments: Mapping[str, bool | int] = {
        "predicateErrorCacheEnable": True,
        "enableTopologyAwarePreemption": False,
        "topologyAwarePreemptWorkerNum": 16,
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 1,
        "maxCandidateNodesAbsolute": 100,
    }

    def run(self, session: Session) -> None:
        starving: dict[str, list[Job]] = {}
        for job in session.active_jobs():
            if job.is_pending or job.has_topology or session.votes.job_valid(job) is not None:
                continue
            if session.votes.job_starving(job):
                starving.setdefault(job.queue, []).append(job)
        queues = session.order.queues_as_they_stand(starving)
        preemption = _Preemption(session)
        while queues:
            jobs = starving[queues.pop().name]
            tasks = {job.key: _waiting(session, job) for job in jobs}
            waiting = session.order.jobs_as_they_stand(jobs)
            while waiting:
                job = waiting.pop()
                if not _stands_back(session, job):
                    _between_jobs(session, preemption, job, tasks[job.key])
            for job in jobs:
                if not _stands_back(session, job):
                    _within_job(session, preemption, job)


def _stands_back(session: Session, job: Job) -> bool:
    """Whether a job lets others pass for a while, or waits behind another one of its queue."""
    return session.state.back_off.left(job.key, session.now) > 0 or session.order.own.held_back(job)


def _waiting(session: Session, job: Job) -> list[Task]:
    return session.order.sorted_tasks(task for task in job.pending() if not task.gated)


def _between_jobs(session: Session, preemption: _Preemption, job: Job, tasks: list[Task]) -> None:
    statement = session.statement()

    def wanted(victim: Task) -> bool:
        other = victim.job
        return (
            other is not None
            and session.in_session(other)
            and other.queue == job.queue
            and other is not job
        )

    why = ""
    while tasks and session.votes.job_starving(job):
        if not preemption.demand(statement, tasks.pop(0), wanted):
            why = why or preemption.search.text(f"of queue {job.queue}")
            session.hold_back(job, preemption.search.takers, REASON)
    if session.votes.job_pipelined(job):
        if statement.evicts:
            session.metric("eviction_transactions_total", 1.0, action=REASON)
        statement.commit()
    else:
        statement.discard()
    if why:
        session.no_victim[job.key] = why


def _within_job(session: Session, preemption: _Preemption, job: Job) -> None:
    alone = not any(job.counts.statuses[one] for one in PREEMPTABLE)
    for task in _waiting(session, job):
        statement = session.statement()
        if not (
            preemption.take_room(statement, task)
            if alone
            else preemption.demand(statement, task, lambda victim: victim.job is job)
        ):
            statement.discard()
            return
        statement.commit()


class _Preemption:
    """How one task finds a node by evicting others."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.topology_aware = session.argument(REASON, "enableTopologyAwarePreemption", False)
        self.search = Search()
        """What the last demand met."""
        self.failures = FailedSearches(session, "preemptable")
        self.full: dict[PodClass, int] = {}
        """Class -> how much had happened to nodes when none had room for it."""
        self.remembers = session.argument(REASON, "predicateErrorCacheEnable", True)
        self.refused: dict[tuple[str, str], Bools] = {}
        """Job and role -> nodes that refused one of its pods, whatever would help it: they are not
        asked again in this action."""

    def demand(self, statement: Statement, task: Task, wanted: Wanted) -> bool:
        """Promise the task a node, with the evictions that it takes; False where there is none."""
        session = self.session
        self.search = Search()
        if task.pods.preemption_policy == "Never":
            self.search.whole = "its preemptionPolicy is Never"
            return False
        if session.state.transfers.gave_up(task):
            self.search.whole = IN_VAIN
            self.search.takers[OTHERS] = None
            return False
        if not self._eligible(task):
            self.search.whole = f"node {task.nominated} is still being emptied for it"
            return False
        if blocked := session.votes.prefilter(task):
            self.search.whole = blocked
            return False
        mask = self._asked(task)
        session.metric("total_preemption_attempts", 1.0)
        job = task.job
        assert job is not None
        errors = job.fit_errors.get(task.key)
        if errors is not None and errors.unresolvable is not None:
            mask &= ~errors.unresolvable
        like = self.failures.like(task, mask)
        failed = self.failures.known(like) if like is not None else None
        if failed is not None:
            self.search = failed
            return False
        for rows in session.shard_groups(np.flatnonzero(mask)):
            found = (
                self._aware(statement, task, rows, wanted)
                if self.topology_aware
                else self._plain(statement, task, rows, wanted)
            )
            if found:
                return True
        if like is not None:
            self.failures.note(like, self.search)
        return False

    def take_room(self, statement: Statement, task: Task) -> bool:
        """Promise the task a node that has room without anybody's eviction: what `demand` comes to
        where nobody may be evicted."""
        session, job = self.session, task.job
        assert job is not None
        changes = len(session.state.nodes.log)
        if (
            self.topology_aware
            or task.pods.preemption_policy == "Never"
            or self.full.get(task.pods) == changes
        ):
            return False
        if (
            not session.votes.allocatable(session.queue_of(job), task)
            or not self._eligible(task)
            or session.votes.prefilter(task)
        ):
            return False
        room = placer_of(session).filters.candidates(session, task).future
        if not len(room) and not task.labels.terms and not task.pods.has_terms:
            self.full[task.pods] = changes
        errors = job.fit_errors.get(task.key)
        if errors is not None and errors.unresolvable is not None:
            room = room[~errors.unresolvable[room]]
        if task.role and len(job.tasks) > 1:
            room = room[self._asked(task)[room]]
        for rows in session.shard_groups(room):
            ranked = placer_of(session).scores.ranked(session, task, rows)
            if len(ranked):
                statement.pipeline(task, int(ranked[0]))
                return True
        return False

    def _asked(self, task: Task) -> Bools:
        """`[nodes]`: those that evictions could help, and that refused no other pod of the role in
        this action."""
        mask, job = placer_of(self.session).filters.preempt_mask(self.session, task), task.job
        assert job is not None
        if task.role and self.remembers and len(job.tasks) > 1:
            known = self.refused.get((job.key, task.role))
            if known is not None:
                mask &= ~known
            self.refused[job.key, task.role] = ~mask
        return mask

    def _eligible(self, task: Task) -> bool:
        """Not while the node that was promised last time is still being emptied.  Reference:
        scheduler-core 6.4, 1."""
        if not task.nominated:
            return True
        nodes = self.session.state.nodes
        row = nodes.rows.get(task.nominated)
        placer = placer_of(self.session)
        if row is None or placer.filters.passes(self.session, task, row):
            return False
        if not placer.filters.passes(self.session, task, row, unresolvable_only=True):
            return True
        return not any(
            one.disrupted and one.pod_priority < task.pod_priority
            for one in nodes.tasks[row].values()
        )

    def _candidates(self, task: Task, row: int, wanted: Wanted) -> list[Task]:
        found = [
            one
            for one in self.session.state.nodes.tasks[row].values()
            if one.status in PREEMPTABLE
            and one.preemptable
            and (one.best_effort or not task.best_effort)
            and wanted(one)
        ]
        assert task.job is not None
        return self.search.without_takers(self.session, task.job, found)

    def _refused(self, task: Task, candidates: list[Task], victims: list[Task]) -> None:
        self.search.refused(
            self.session,
            "preemptable",
            lambda plugin: plugin.preemptable(task, candidates),
            candidates,
            victims,
        )

    def _fits(self, task: Task, row: int) -> bool:
        session, job = self.session, task.job
        assert job is not None
        return (
            session.state.nodes.fits_future(row, task.request)
            and session.votes.allocatable(session.queue_of(job), task)
            and placer_of(session).filters.passes(session, task, row)
        )

    def _plain(self, statement: Statement, task: Task, rows: Rows, wanted: Wanted) -> bool:
        """The first node, best score first, where evicting from the lowest up makes room."""
        session = self.session
        for row in placer_of(session).scores.ranked(session, task, rows).tolist():
            candidates = self._candidates(task, row, wanted)
            victims, enough = agreed(
                session, task, row, candidates, lambda some: session.votes.preemptable(task, some)
            )
            session.metric("pod_preemption_victims", float(len(victims)))
            if not enough:
                self._refused(task, candidates, victims)
                continue
            queue = leaving(session, victims, task)
            trial = session.statement()
            evicted_something = False
            while queue and not self._fits(task, row):
                victim = queue.pop()
                trial.evict(victim, REASON)
                evicted_something = evicted_something or not victim.best_effort
            if not self._fits(task, row):
                trial.discard()
                continue
            trial.pipeline(task, row, evicted_something)
            statement.merge(trial)
            return True
        return False

    def _aware(self, statement: Statement, task: Task, rows: Rows, wanted: Wanted) -> bool:
        """Of the first nodes where it works, the one whose victims hurt least.

        As many nodes as upstream tries at once are all looked at, also where fewer candidates would
        be enough.
        """
        argument = self.session.argument
        share = len(rows) * argument(REASON, "minCandidateNodesPercentage", 10) // 100
        enough = min(
            max(share, argument(REASON, "minCandidateNodesAbsolute", 1)),
            argument(REASON, "maxCandidateNodesAbsolute", 100),
            len(rows),
        )
        at_once = argument(REASON, "topologyAwarePreemptWorkerNum", 16)
        found: list[tuple[int, list[Task]]] = []
        for number, row in enumerate(rows.tolist()):
            if len(found) >= max(enough, 1) and number >= at_once:
                break
            victims = self._least_victims(task, row, wanted)
            if victims:
                found.append((row, victims))
        if not found:
            return False
        row, victims = min(found, key=lambda one: self._harm(one[1]))
        for victim in victims:
            statement.evict(victim, REASON)
        statement.pipeline(task, row, True)
        return True

    def _least_victims(self, task: Task, row: int, wanted: Wanted) -> list[Task]:
        """Evict until it fits, then spare whom it can, the highest first; everything is undone
        again."""
        session = self.session
        candidates = self._candidates(task, row, wanted)
        victims, enough = agreed(
            session, task, row, candidates, lambda some: session.votes.preemptable(task, some)
        )
        if not enough:
            self._refused(task, candidates, victims)
            return []
        trial = session.statement()
        queue = in_order(session, victims, task)
        while queue:
            trial.evict(queue.pop(0), REASON)
            if self._fits(task, row):
                break
        if not trial or not self._fits(task, row):
            trial.rollback()
            return []
        needed: list[Task] = []
        order = [one.task for one in trial.operations if isinstance(one, Evicted)]
        for victim in reversed(order):
            trial.spare(victim)
            if not self._fits(task, row):
                trial.evict(victim, REASON)
                needed.append(victim)
        trial.rollback()
        return needed

    def _harm(self, victims: list[Task]) -> tuple[float, ...]:
        highest = max(victim.pod_priority for victim in victims)
        latest = min(
            victim.start or self.session.now for victim in victims if victim.pod_priority == highest
        )
        return (
            victims[0].pod_priority,
            sum(victim.pod_priority + 2**31 for victim in victims),
            len(victims),
            -latest,
        )
