"""The jobs, the queues that they are in, and what of them has to be looked at again."""

from __future__ import annotations

import math

from hekla.engine.model import resources
from hekla.engine.model.queues.partycounts import PartyCounts
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.queues.spending import Spending
from hekla.engine.model.queues.sums import Sums
from hekla.engine.model.queues.usage import Usage
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import NOT_LET_IN, Job, Status, Task
from hekla.engine.model.time.arrivals import Arrivals
from hekla.engine.model.time.backoff import BackOff
from hekla.engine.model.time.runs import Runs


class JobTable:
    """Jobs by their key (`namespace/name` of the PodGroup), with the sums of their queues.

    A change marks a job `dirty`; `count_changed` counts again what is.  So a cycle costs as much as there
    were changes, not as there are jobs.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.dirty: dict[str, Job] = {}
        """Jobs that changed since their sums were last counted."""
        self.active: dict[str, Job] = {}
        """Jobs that have something to decide: pending tasks, or not let in yet."""
        self.unreported: dict[str, Job] = {}
        """Jobs that changed since their status was last compared with what the API has."""
        self.changed: dict[str, Job] | None = None
        """Jobs that came, changed or left since somebody who keeps more of them asked; None where
        nobody does."""
        self.orphaned: dict[str, Job] = {}
        """Jobs that nobody looks at, because their queue or PodGroup does not exist, and that have
        not been told so."""
        self.reserved: Amounts = resources.empty()
        """Sum over jobs of what overcommit counts as promised."""
        self.sums = Sums(self.queues, self.reserved)
        self.priority_classes: dict[str, int] = {}
        self.default_priority = 0
        self._default_class = ""
        self.back_off = BackOff()
        self.usage: Usage | None = None
        """What was used of the queues, where a plugin asks."""
        self.service: Usage | None = None
        """What each job has had of a resource, where a plugin asks."""
        self.parties: PartyCounts | None = None
        """What each party has at once, where a plugin asks."""
        self.spending: Spending | None = None
        """What each party has used of its budget, where a plugin asks."""
        self.arrivals: Arrivals | None = None
        """Which jobs have come, where somebody estimates."""
        self.runs: Runs | None = None
        """What jobs took, where the policy learns from it."""

    def of_group(self, key: str) -> Job:
        """The job of this key, made where there is none."""
        job = self.by_key.get(key)
        if job is None:
            job = self.by_key[key] = Job(key)
        return job

    def of_bare_pod(self, task: Task, owner: str, queue: str) -> Job:
        """The job that a pod without a PodGroup is by itself (`bare_pod_schedulers`)."""
        job = self.of_group(task.key)
        if not job.has_group:
            job.has_group = job.shadow = True
            job.lineage = f"{task.namespace}/{owner}" if owner else job.key
            job.queue = queue
            job.min_available = 1
            job.phase = "Inqueue"
            job.creation = task.creation
            job.priority_class = task.priority_class
        return job

    def drop(self, job: Job) -> None:
        """The job is gone."""
        self.by_key.pop(job.key, None)
        self.back_off.succeeded(job.key)
        self.unreported.pop(job.key, None)
        self.mark_gone(job)

    def mark_changed(self, job: Job) -> None:
        """The job's sums and status have to be looked at again."""
        self.dirty[job.key] = job
        self.unreported[job.key] = job
        job.rests_until = -math.inf

    def mark_uncounted(self, job: Job) -> None:
        """The job's sums have to be looked at; there is nothing to report of it."""
        self.dirty[job.key] = job

    def mark_queue_changed(self, name: str) -> None:
        """Every job of the queue has to be looked at again."""
        for job in self.by_key.values():
            if job.queue == name:
                self.mark_changed(job)

    def mark_gone(self, job: Job) -> None:
        """A job that left must leave the sums too."""
        self.dirty[job.key] = job
        if self.by_key.get(job.key) is not job:
            self._look_again(job)
            self.sums.count()
            self.dirty.pop(job.key, None)

    def count_changed(self) -> None:
        """Sums, and who is active, of the jobs that have changed."""
        for job in self.dirty.values():
            self._look_again(job)
        self.sums.count()
        self.dirty.clear()

    def _look_again(self, job: Job) -> None:
        key = job.key
        if self.changed is not None:
            self.changed[key] = job
        for counted in (self.usage, self.service, self.parties):
            if counted is not None:
                counted.changed.mark(job, self.by_key.get(key) is job)
        if self.runs is not None:
            self.runs.look(job, self.by_key.get(key) is job)
        if self.arrivals is not None:
            self.arrivals.look(job, self.by_key.get(key) is job)
        if not (job.has_group and key in self.by_key and job.queue in self.queues):
            self.sums.leave(job)
            self.active.pop(key, None)
            if key in self.by_key and (job.has_group or job.counts.statuses[Status.PENDING]):
                self.orphaned[key] = job
            else:
                self.orphaned.pop(key, None)
            return
        if self.orphaned:
            self.orphaned.pop(key, None)
        job.priority = self.priority_classes.get(job.priority_class, self.default_priority)
        if job.shadow and job.priority_class not in self.priority_classes and job.tasks:
            job.priority = max([task.priority for task in job.tasks.values()])
        self.sums.look(job)
        if job.phase in NOT_LET_IN or job.counts.statuses[Status.PENDING]:
            self.active[key] = job
        else:
            self.active.pop(key, None)

    def remove_queue(self, name: str) -> bool:
        """The queue is gone; False where there was none."""
        if self.queues.pop(name, None) is None:
            return False
        self.mark_queue_changed(name)
        # At once: a queue of the same name that comes before the next cycle begins with sums of
        # nothing.
        for job in self.dirty.values():
            if job.queue == name or (
                job.contribution is not None and job.contribution.queue == name
            ):
                self._look_again(job)
        self.sums.count()
        return True

    def put_queue(self, fresh: Queue) -> Queue | None:
        """The queue came or changed: what it was before."""
        old = self.queues.get(fresh.name)
        if old is not None:
            fresh.allocated, fresh.request, fresh.inqueue = old.allocated, old.request, old.inqueue
            fresh.elastic, fresh.jobs, fresh.version = old.elastic, old.jobs, old.version
        self.queues[fresh.name] = fresh
        if old is None:
            self.mark_queue_changed(fresh.name)
        return old

    def put_priority_class(self, name: str, value: int, default: bool) -> bool:
        """A class came or changed: whether its value did."""
        changed = self.priority_classes.get(name) != value
        self.priority_classes[name] = value
        if default:
            self._default_class, self.default_priority = name, value
        elif name == self._default_class:
            self._default_class, self.default_priority = "", 0
        self._touch_all()
        return changed

    def remove_priority_class(self, name: str) -> None:
        self.priority_classes.pop(name, None)
        if name == self._default_class:
            self._default_class, self.default_priority = "", 0
        self._touch_all()

    def _touch_all(self) -> None:
        """Also those that run: who may be evicted depends on priorities."""
        self.dirty.update(self.by_key)
