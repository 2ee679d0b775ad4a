"""The job controller: looks at a job, its pods and its PodGroup, and writes what `plan.py` decides.

Which changes are a reason to look is in `event_handlers.py`; what is remembered from one look to the
next is in `memory.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from hekla.api import batch, names
from hekla.api.sizes import MOST_PODS
from hekla.api.text.durations import duration_text
from hekla.controllers.caches import JOB_INDEX, Caches
from hekla.controllers.events import Events
from hekla.controllers.job import states
from hekla.controllers.job.dependents import Dependents
from hekla.controllers.job.errors import TRANSIENT, RequeueAfter, SyncError
from hekla.controllers.job.event_handlers import EventHandlers
from hekla.controllers.job.failures import Failures
from hekla.controllers.job.memory import JobMemories, JobMemory
from hekla.controllers.job.plan import DependentsAction, Plan, View, plan
from hekla.controllers.job.pod_control import PodControl
from hekla.controllers.job.podgroup_control import PodGroupControl
from hekla.controllers.job.policies import decide
from hekla.controllers.job.status import dated
from hekla.controllers.job.status_updater import StatusRecord, StatusUpdater
from hekla.kube.client import Client
from hekla.kube.controller import Controller, Expectations
from hekla.kube.errors import ApiError, NotFound

log = logging.getLogger(__name__)

REQUEUE_AFTER = 2.0
"""Seconds until a job is reconciled again that waits for something that is not watched."""
LONGEST_BACKOFF = 10.0
UNSEEN = 5.0
"""Seconds to wait for the watch to show what was written and not answered.  Names are fixed and
deletions go by uid, so trying again is harmless; but what was answered is there, and writing it
again would only keep a late watch late.
"""


class JobController(Controller):
    """Brings batch jobs to what their specs ask, and through their lives."""

    name = "job-controller"

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: Events,
        *,
        most_retries: int = 15,
        most_pods: int = MOST_PODS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(caches.jobs, caches.pods, caches.groups, caches.queues, caches.priorities)
        self.most_retries = most_retries
        self.most_pods = most_pods
        self._events = events
        self._caches = caches
        self._clock = clock
        self.expectations = Expectations(doubt=UNSEEN)
        self.statuses = StatusUpdater(client, caches.jobs, self.queue)
        self.groups = PodGroupControl(client, caches.groups, self.expectations)
        self._memories = JobMemories(self.statuses)
        self._dependents = Dependents(client, caches, self.groups, self.statuses, events)
        self._pods = PodControl(client, self.expectations, events, clock)
        self._failures = Failures(client, self._annotate_failure, self.queue.add)
        self._handlers = EventHandlers(
            caches,
            self.queue,
            self.expectations,
            self.statuses,
            self.groups,
            self._memories,
            self._failures,
            clock,
        )

    def command(self, key: str, action: str) -> None:
        """Have an action carried out on a job."""
        self._memories.command(key, action, f"{action} was asked for")
        self.queue.add(key)

    def let_in(self, group: str, uid: str) -> None:
        """Create the pods of a PodGroup (namespace/name) that the scheduler has let in."""
        self._handlers.let_in(group, uid)

    # -- reconcile ---------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        job = self.statuses.newest(key)
        if job is None or job.metadata.deletion_timestamp:
            return None
        if not self.expectations.satisfied(key):
            self._handlers.turned_away.add(key)
            return self.expectations.remaining(key)
        self._handlers.turned_away.discard(key)
        memory = self._memories.of(key, job)
        try:
            view = self._view(key, job, memory)
            made = _in_order(plan(view), job, memory.status)
            self._failures.record_new(key, job)
            if made.delete and (wait := self._failures.holds(key, made.delete)) is not None:
                return wait
            self._announce(job, memory, made)
            again = await self._carry_out(key, job, memory, made, view)
        except NotFound as error:
            if error.details.get("name") == job.metadata.name:
                return None  # deleted meanwhile
            raise
        except TRANSIENT as error:
            log.info("%s: %s; again soon", key, error)
            memory.failures += 1
            return min(LONGEST_BACKOFF, 0.05 * 2.0 ** min(memory.failures, 10))
        except RequeueAfter as error:
            log.info("%s waits: %s", key, error)
            return REQUEUE_AFTER
        finally:
            memory.status.end_turn()
        memory.failures = 0
        if self._memories.answered(key, memory, made):
            self.queue.add(key)
        if (
            job.status.state.phase in batch.FINISHED
            and again is None
            and not memory.status.late_since
        ):
            self._memories.forget(key)  # nothing will come of this job that has to be remembered
        waits = [seconds for seconds in (again, made.wake) if seconds is not None]
        return min(waits) if waits else None

    def _view(self, key: str, job: batch.Job, memory: JobMemory) -> View:
        pods = {
            pod.metadata.name: pod
            for pod in self._caches.pods.by(JOB_INDEX, key)
            if pod.owner_uid == job.metadata.uid and pod.job_version is not None
        }
        handed_in = self._memories.unanswered(key, memory)
        return View(job, pods, self.groups.of(job), self._clock(), handed_in, self.most_pods)

    def _announce(self, job: batch.Job, memory: JobMemory, made: Plan) -> None:
        for type_, reason, message in made.events:
            self._events.event(job, type_, reason, message)
        for trigger in made.delayed:
            if trigger not in memory.announced:
                memory.announced.add(trigger)
                ruling = decide(job, trigger)
                message = f"Execute action {ruling.action} after {duration_text(ruling.delay)}"
                self._events.event(job, "Normal", "ExecuteAction", message)
        memory.announced.intersection_update(made.delayed)

    async def _carry_out(
        self, key: str, job: batch.Job, memory: JobMemory, made: Plan, view: View
    ) -> float | None:
        """Write the plan, in the order that survives a crash at any point."""
        if made.status_first:
            await self._stop(key, job, memory.status, made, view)
            return 0.0
        if made.dependents is DependentsAction.DELETE_ALL:
            await self.groups.delete(key, view.group)
            await self._dependents.delete_plugin_objects(job)
        elif made.dependents in (DependentsAction.ENSURE, DependentsAction.RECREATE_POD_GROUP):
            job = await self._ensure_dependents(key, job, memory, made, view)
        if made.create:
            try:
                await self._pods.create(key, job, memory.layout.templates, made.create)
            except (ApiError, SyncError, RequeueAfter):
                if memory.status.first_step is not None:
                    # A step that was put off does not wait for pods that cannot be made.
                    await self.statuses.write(job, memory.status, memory.status.first_step)
                raise
        if made.delete:
            await self._pods.delete(key, job, made.delete)
        return await self.statuses.settle(job, memory.status, made.status)

    async def _stop(
        self, key: str, job: batch.Job, record: StatusRecord, made: Plan, view: View
    ) -> None:
        """Write that the job, or a part of it, stops or has ended; then delete what it leaves."""
        status = made.status
        if record.first_step is not None and status.state.phase != job.status.state.phase:
            status = dated(status, record.first_step)
        await self.statuses.write(job, record, status)
        await self._pods.delete(key, job, made.delete)
        if made.dependents in (DependentsAction.DELETE_POD_GROUP, DependentsAction.DELETE_ALL):
            await self.groups.delete(key, view.group)
        if made.dependents is DependentsAction.DELETE_ALL:
            await self._dependents.delete_plugin_objects(job)

    async def _ensure_dependents(
        self, key: str, job: batch.Job, memory: JobMemory, made: Plan, view: View
    ) -> batch.Job:
        recreate = made.dependents is DependentsAction.RECREATE_POD_GROUP
        try:
            return await self._dependents.ensure(
                key, job, memory.status, memory.layout, view.group, recreate_group=recreate
            )
        except (SyncError, RequeueAfter):
            if not job.status.state.phase:  # a job shows up as Pending whatever it lacks
                shown = msgspec.structs.replace(made.status, controlled_resources={})
                await self.statuses.write(job, memory.status, shown)
            raise

    def given_up(self, key: str, error: Exception) -> None:
        """A job that cannot be synced is terminated rather than tried for ever."""
        super().given_up(key, error)
        job = self.statuses.newest(key)
        if job is not None and job.status.state.phase in states.AT_WORK:
            self._events.event(
                job,
                "Normal",
                "ExecuteAction",
                f"Job failed on action {states.SYNC_JOB} for retry limit reached: {error}",
            )
            self._memories.command(key, states.TERMINATE_JOB, cause=str(error))
            self.queue.add(key)

    async def _annotate_failure(self, key: str, uid: str, text: str) -> None:
        """Write down how a job failed last."""
        await self.statuses.annotate(key, uid, {names.LAST_FAILURE: text})


def _in_order(made: Plan, job: batch.Job, record: StatusRecord) -> Plan:
    """The plan, or where a first step of the job waits to be written and more has followed: the plan
    to write that step, because what the job was is to be seen before what becomes of it."""
    step = record.first_step
    if (
        step is not None
        and not _is_first_step(made)
        and job.status.state.phase in ("", states.PENDING)
    ):
        return Plan(step, wake=0.0)
    return made


def _is_first_step(made: Plan) -> bool:
    """Whether a plan leads no further than the first steps of a job."""
    return not made.status_first and made.status.state.phase in (states.PENDING, states.RUNNING)
