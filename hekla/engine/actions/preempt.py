"""preempt: a starving job takes room from lesser ones of its own queue.  Reference: scheduler-core
6.4."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from hekla.engine.actions.evicting import conclude, stands_back, waiting_tasks
from hekla.engine.actions.victim_search import MayGo, VictimSearch, unresolvable
from hekla.engine.framework.statement import Evicted, Statement
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.tasks import PREEMPTABLE, Job, Task
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.victims import in_order

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import PodClass

REASON = "preempt"


class Preempt:
    """First between jobs of a queue, then between the tasks of one job."""

    name = "preempt"
    arguments: Mapping[str, bool | int | str] = {
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
            tasks = {job.key: waiting_tasks(session, job) for job in jobs}
            waiting = session.order.jobs_as_they_stand(jobs)
            while waiting:
                job = waiting.pop()
                if not stands_back(session, job):
                    _between_jobs(session, preemption, job, tasks[job.key])
            for job in jobs:
                if not stands_back(session, job):
                    _within_job(session, preemption, job)


def _between_jobs(session: Session, preemption: _Preemption, job: Job, tasks: list[Task]) -> None:
    statement = session.statement()

    def wanted(victim: Task) -> bool:
        other = victim.job
        return session.in_session(other) and other.queue == job.queue and other is not job

    why = ""
    while tasks and session.votes.job_starving(job):
        if not preemption.demand(statement, tasks.pop(0), wanted):
            met = preemption.search.met
            why = why or met.text(f"of queue {job.queue}")
            session.hold_back(job, met.takers, REASON)
    conclude(session, job, statement, REASON)
    if why:
        session.no_victim[job.key] = why


def _within_job(session: Session, preemption: _Preemption, job: Job) -> None:
    alone = not any(job.counts.statuses[one] for one in PREEMPTABLE)
    for task in waiting_tasks(session, job):
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
        self.search = VictimSearch(
            session,
            REASON,
            "preemptable",
            lambda plugin, task, candidates: plugin.preemptable(task, candidates),
        )
        self.full: dict[PodClass, int] = {}
        """Class -> how much had happened to nodes when none had room for it."""
        self.remembers = session.argument(REASON, "predicateErrorCacheEnable", True)
        self.refused: dict[tuple[str, str], Bools] = {}
        """Job and role -> nodes that refused one of its pods, whatever would help it: they are not
        asked again in this action."""

    def demand(self, statement: Statement, task: Task, wanted: MayGo) -> bool:
        """Promise the task a node, with the evictions that it takes; False where there is none."""
        session, search = self.session, self.search
        search.begin()
        if task.pods.preemption_policy == "Never":
            search.met.whole = "its preemptionPolicy is Never"
            return False
        if search.gave_up(task):
            return False
        if not self._eligible(task):
            search.met.whole = f"node {task.nominated} is still being emptied for it"
            return False
        if blocked := session.votes.prefilter(task):
            search.met.whole = blocked
            return False
        nodes = self._asked(task)
        session.metric("total_preemption_attempts", 1.0)
        make_room = self._least_harm if self.topology_aware else self._best_score

        def may_go(victim: Task) -> bool:
            return (victim.best_effort or not task.best_effort) and wanted(victim)

        return search.promise(statement, task, nodes, lambda rows: make_room(task, rows, may_go))

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
        hopeless = unresolvable(job, task)
        if hopeless is not None:
            room = room[~hopeless[room]]
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

    def _fits(self, task: Task, row: int) -> bool:
        session, job = self.session, task.job
        assert job is not None
        return (
            session.state.nodes.fits_future(row, task.request)
            and session.votes.allocatable(session.queue_of(job), task)
            and placer_of(session).filters.passes(session, task, row)
        )

    def _best_score(self, task: Task, rows: Rows, may_go: MayGo) -> Statement | None:
        """The first node, best score first, where evicting from the lowest up makes room."""
        session, search = self.session, self.search
        for row in placer_of(session).scores.ranked(session, task, rows).tolist():
            candidates = search.candidates(task, row, PREEMPTABLE, may_go)
            victims, enough = search.victims(task, row, candidates)
            session.metric("pod_preemption_victims", float(len(victims)))
            if not enough:
                continue
            trial = search.evict_until(partial(self._fits, task, row), task, victims)
            if trial is not None:
                gone = [one.task for one in trial.operations if isinstance(one, Evicted)]
                trial.pipeline(task, row, any(not victim.best_effort for victim in gone))
                return trial
        return None

    def _least_harm(self, task: Task, rows: Rows, may_go: MayGo) -> Statement | None:
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
            victims = self._least_victims(task, row, may_go)
            if victims:
                found.append((row, victims))
        if not found:
            return None
        row, victims = min(found, key=lambda one: self._harm(one[1]))
        trial = self.session.statement()
        for victim in victims:
            trial.evict(victim, REASON)
        trial.pipeline(task, row, True)
        return trial

    def _least_victims(self, task: Task, row: int, may_go: MayGo) -> list[Task]:
        """Evict until it fits, then spare whom it can, the highest first; everything is undone
        again."""
        session, search = self.session, self.search
        candidates = search.candidates(task, row, PREEMPTABLE, may_go)
        victims, enough = search.victims(task, row, candidates)
        if not enough:
            return []
        trial = session.statement()
        queue = in_order(session, victims, task)
        while queue:
            victim = queue.pop(0)
            if search.spares(victim, task):
                continue
            trial.evict(victim, REASON)
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
