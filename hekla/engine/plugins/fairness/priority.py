"""priority: the higher priority goes first, and may take from the lower.  Reference:
plugins-fairness 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.engine.framework.plugin import Plugin, Reads, Source, Victims
from hekla.engine.model.tasks import Job, SubJob, Task

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView


class Priority(Plugin):
    """Order by PriorityClass."""

    name = "priority"
    reads = Reads(victims=Source.PREEMPTOR, waiting_order=True)

    def open(self, session: CycleView) -> None:
        self.session = session

    def task_order(self, task: Task) -> int:
        return -task.priority

    def job_order(self, job: Job) -> int:
        return -job.priority

    def sub_job_order(self, sub_job: SubJob) -> int:
        return -max(sub_job.priority, 0)

    def job_starving(self, job: Job) -> bool:
        return job.counts.ready + job.counts.waiting < len(job.tasks)

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        mine = preemptor.job
        if not self.session.in_session(mine):
            return Victims()
        chosen = []
        for task in candidates:
            job = task.job
            if not self.session.in_session(job):
                continue
            lower = (
                task.priority < preemptor.priority if job is mine else job.priority < mine.priority
            )
            if lower:
                chosen.append(task)
        return Victims(chosen)

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims:
        if kind == "gangreclaim":
            return Victims(list(candidates))
        return Victims(
            [
                task
                for task in candidates
                if task.job is not None and task.job.priority < job.priority
            ]
        )
