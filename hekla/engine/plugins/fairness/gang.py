"""gang: a job starts with its minimum of pods or not at all, and is not broken below it.
Reference: plugins-fairness 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from hekla.engine.explain.upstream_texts import job_text, last_allocated
from hekla.engine.framework.plugin import (
    PERMIT,
    REJECT,
    Answer,
    Arguments,
    Plugin,
    Reads,
    Source,
    Victims,
)
from hekla.engine.model.conditions import UNSCHEDULABLE, set_condition
from hekla.engine.model.tasks import SCHEDULED, Group, Job, Status, SubJob, Task

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

READY_REASON = "tasks in gang are ready to be scheduled"


class GangArguments(Arguments, frozen=True):
    single_pods_may_go: bool = msgspec.field(default=False, name="gang.preemptSinglePods")


class Gang(Plugin):
    """All or nothing."""

    name = "gang"
    Arguments = GangArguments
    arguments: GangArguments
    reads = Reads(victims=Source.PREEMPTOR, between_placements=Source.JOBS, waiting_order=True)

    def __init__(self, arguments: GangArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.unready: dict[str, Job] = {}
        """Jobs that were not ready when they were last looked at: a cycle looks at those that
        changed."""

    def open(self, session: CycleView) -> None:
        self.session = session

    def job_valid(self, job: Job) -> Answer | None:
        if job.role_minimums and not job.roles_valid():
            return Answer(
                "NotEnoughPodsOfTask", "Not enough valid pods of each task for gang-scheduling"
            )
        if job.min_sub_jobs and not job.sub_jobs_valid():
            return Answer(
                "NotEnoughPodsOfTask", "Not enough valid subGroups of each task for gang-scheduling"
            )
        valid = job.counts.valid
        if valid < job.min_available:
            message = f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {job.min_available}"
            return Answer("NotEnoughTasks", message)
        return None

    def job_order(self, job: Job) -> bool:
        return job.is_ready()

    def sub_job_order(self, sub_job: SubJob) -> bool:
        return sub_job.is_ready()

    def job_ready(self, job: Job) -> bool:
        counts = job.counts
        if counts.ready + counts.pending_best_effort < job.min_available:
            return False
        # Most jobs ask for neither; this is asked at every turn.
        return (not job.role_minimums or job.roles_ready()) and (
            not job.min_sub_jobs or job.sub_jobs_reach(pipelined=False)
        )

    def sub_job_ready(self, sub_job: SubJob) -> bool:
        return sub_job.is_ready()

    def tasks_until_ready(self, sub_job: SubJob) -> int:
        """Fewer than this can never complete the gang, so they may be placed without asking in
        between."""
        group: Group = sub_job if sub_job.job.policies else sub_job.job
        counts = group.counts
        return group.min_available - counts.ready - counts.pending_best_effort

    def job_pipelined(self, job: Job) -> int:
        held = job.is_pipelined() and job.roles_pipelined() and job.sub_jobs_reach(pipelined=True)
        return PERMIT if held else REJECT

    def sub_job_pipelined(self, sub_job: SubJob) -> int:
        return PERMIT if sub_job.is_pipelined() else REJECT

    def job_starving(self, job: Job) -> bool:
        return job.is_starving()

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        if not self.arguments.single_pods_may_go:
            return self.reclaimable(preemptor, candidates)
        gangs = {task.key for task in self.reclaimable(preemptor, candidates).tasks}
        return Victims([task for task in candidates if task.key in gangs or self._is_single(task)])

    def _is_single(self, task: Task) -> bool:
        """Whether the pod's job has no minimum that it is needed for: there is no gang to keep
        whole."""
        job = task.job
        if not self.session.in_session(job):
            return False
        return job.min_available <= 1 and not job.role_minimums and not job.min_sub_jobs

    def reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        left: dict[str, int] = {}
        chosen: list[Task] = []
        for task in candidates:
            job = task.job
            if not self.session.in_session(job):
                continue
            ready = left.setdefault(job.key, job.counts.ready)
            if ready > job.min_available:
                left[job.key] = ready - 1
                chosen.append(task)
        return Victims(chosen)

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims:
        return Victims(list(candidates))

    def close(self, session: CycleView) -> None:
        for job in session.changed_jobs():
            if not job.tasks or not session.in_session(job):
                continue
            if job.is_ready():
                self.unready.pop(job.key, None)
                set_condition(job, session.uid, "Scheduled", READY_REASON, "")
                session.metric("unschedule_task_count", 0.0, job_id=job.name)
                continue
            if _leaving(job):
                self.unready.pop(job.key, None)
                continue
            unready = job.min_available - job.counts.ready - last_allocated(job)
            message = f"{unready}/{len(job.tasks)} tasks in gang unschedulable: {job_text(job)}"
            set_condition(job, session.uid, UNSCHEDULABLE, "NotEnoughResources", message)
            session.metric("unschedule_task_count", float(unready), job_id=job.name)
            session.metric("job_retry_counts", 1.0, job_id=job.name)
            self.unready[job.key] = job
        self.unready = {
            key: job for key, job in self.unready.items() if job.tasks and session.job(key) is job
        }
        session.metric("unschedule_job_count", float(len(self.unready)))


def _leaving(job: Job) -> bool:
    """Not ready only because pods that have a node are on their way out."""
    counts = job.counts
    if counts.statuses[Status.PENDING] or counts.statuses[Status.PIPELINED]:
        return False
    placed = sum(1 for task in counts.statuses[Status.RELEASING].values() if task.row >= 0)
    return placed > 0 and counts.of(*SCHEDULED) + placed >= job.min_available
