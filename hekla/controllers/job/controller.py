"""The job controller: looks at a job, its pods and its PodGroup, and writes what `plan.py` decides.

What it keeps in memory is either derived (the layout of a job) or has no place on the server:
commands that were consumed and evictions that the watch has shown, until they are answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from hekla.api import batch, names, scheduling
from hekla.api.meta import key as key_of
from hekla.api.sizes import MOST_PODS
from hekla.api.text.durations import duration_text
from hekla.controllers.caches import JOB_INDEX, Caches
from hekla.controllers.events import Events
from hekla.controllers.job import metrics, states
from hekla.controllers.job.counts import PENDING
from hekla.controllers.job.dependents import Dependents
from hekla.controllers.job.errors import TRANSIENT, RequeueAfter, SyncError
from hekla.controllers.job.failures import Failures
from hekla.controllers.job.layout import Layout
from hekla.controllers.job.plan import DependentsAction, Plan, View, plan
from hekla.controllers.job.pod_control import PodControl
from hekla.controllers.job.podgroup import complaint, lets_pods_in
from hekla.controllers.job.podgroup_control import PodGroupControl
from hekla.controllers.job.policies import (
    COMMAND_ISSUED,
    POD_EVICTED,
    UNKNOWN,
    Trigger,
    decide,
    from_pod,
    listens,
)
from hekla.controllers.job.status import dated
from hekla.controllers.job.status_updater import StatusRecord, StatusUpdater
from hekla.controllers.job.window import replicas_of
from hekla.controllers.records import Pod
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


@dataclass(slots=True)
class _Memory:
    """What is remembered of one job."""

    status: StatusRecord
    triggers: list[Trigger] = field(default_factory=list)
    """Evictions and PodGroups that turned Unknown, until a plan has answered them."""
    announced: set[Trigger] = field(default_factory=set)
    """Triggers with a delayed action that an event has told of."""
    layout: Layout = field(default_factory=Layout)
    failures: int = 0
    """In a row, of those that say nothing about the job."""


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
        self._memory: dict[str, _Memory] = {}
        self._commands: dict[str, list[Trigger]] = {}
        """Commands for jobs, consumed and not yet carried out."""
        self._turned_away: set[str] = set()
        """Jobs whose reconcile came before the watch had shown what was written for them."""
        self.expectations = Expectations(_job_key, doubt=UNSEEN)
        self.statuses = StatusUpdater(client, caches.jobs, self.queue)
        self.groups = PodGroupControl(client, caches.groups, self.expectations)
        self._dependents = Dependents(client, caches, self.groups, self.statuses, events)
        self._pods = PodControl(client, self.expectations, events, clock)
        self._failures = Failures(client, self._annotate_failure, self.queue.add)
        caches.jobs.on_change(self._job_changed)
        caches.pods.on_change(self._pod_changed)
        caches.groups.on_change(self._group_changed)
        caches.queues.on_change(self._queue_changed)

    # -- reconcile ---------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        job = self.statuses.newest(key)
        if job is None or job.metadata.deletion_timestamp:
            return None
        if not self.expectations.satisfied(key):
            self._turned_away.add(key)
            return self.expectations.remaining(key)
        self._turned_away.discard(key)
        memory = self._remember(key, job)
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
        self._answered(key, memory, made)
        if (
            job.status.state.phase in batch.FINISHED
            and again is None
            and not memory.status.late_since
        ):
            self._forget(key)  # nothing will come of this job that has to be remembered
        waits = [seconds for seconds in (again, made.wake) if seconds is not None]
        return min(waits) if waits else None

    def _view(self, key: str, job: batch.Job, memory: _Memory) -> View:
        pods = {
            pod.metadata.name: pod
            for pod in self._caches.pods.by(JOB_INDEX, key)
            if pod.owner_uid == job.metadata.uid and pod.job_version is not None
        }
        handed_in = [*self._commands.get(key, ()), *memory.triggers]
        return View(job, pods, self.groups.of(job), self._clock(), handed_in, self.most_pods)

    def _announce(self, job: batch.Job, memory: _Memory, made: Plan) -> None:
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
        self, key: str, job: batch.Job, memory: _Memory, made: Plan, view: View
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
        """Write that the job, or a part of it, stops; then delete the pods."""
        status = made.status
        if record.first_step is not None and status.state.phase != job.status.state.phase:
            status = dated(status, record.first_step)
        await self.statuses.write(job, record, status)
        await self._pods.delete(key, job, made.delete)
        if made.dependents is DependentsAction.DELETE_POD_GROUP:
            await self.groups.delete(key, view.group)

    async def _ensure_dependents(
        self, key: str, job: batch.Job, memory: _Memory, made: Plan, view: View
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

    def _answered(self, key: str, memory: _Memory, made: Plan) -> None:
        """Drop the commands and triggers that a plan has answered."""
        if not memory.triggers and key not in self._commands:
            return
        used = set(made.used)
        memory.triggers = [trigger for trigger in memory.triggers if trigger not in used]
        commands = [trigger for trigger in self._commands.pop(key, []) if trigger not in used]
        if commands:
            self._commands[key] = commands
            self.queue.add(key)

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
            self._commands.setdefault(key, []).append(
                Trigger(COMMAND_ISSUED, action=states.TERMINATE_JOB, cause=str(error))
            )
            self.queue.add(key)

    async def _annotate_failure(self, key: str, uid: str, text: str) -> None:
        """Write down how a job failed last."""
        await self.statuses.annotate(key, uid, {names.LAST_FAILURE: text})

    def _remember(self, key: str, job: batch.Job) -> _Memory:
        memory = self._memory.get(key)
        if memory is None or memory.status.uid != job.metadata.uid:
            memory = self._memory[key] = _Memory(self.statuses.of(key, job))
        return memory

    def _forget(self, key: str) -> None:
        self._memory.pop(key, None)
        self.statuses.forget(key)

    # -- event handlers ----------------------------------------------------------------------------

    def command(self, key: str, action: str) -> None:
        """Have an action carried out on a job."""
        self._commands.setdefault(key, []).append(
            Trigger(COMMAND_ISSUED, action=action, cause=f"{action} was asked for")
        )
        self.queue.add(key)

    def _job_changed(self, old: batch.Job | None, new: batch.Job | None) -> None:
        if new is None:
            assert old is not None
            key = key_of(old)
            self._forget(key)
            self._commands.pop(key, None)
            self.expectations.forget(key)
            self._turned_away.discard(key)
            self._failures.forget(key)
            metrics.forget(old, key)
            return
        key = key_of(new)
        if not self.statuses.is_echo(key, new):
            self.queue.add(key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        key = pod.job_key
        if not key:
            return
        ours = self.expectations.show(key, old, new)
        if old is not None and new is not None and _same_to_us(old, new):
            return
        self._failures.observe(old, new)
        job = self.statuses.newest(key)
        if job is None:
            return
        if new is None:
            self._evicted(key, job, pod)
        elif ours and _waits_like_new(job, new) and not self._was_turned_away(key):
            return
        # Many pods of a job change together; one reconcile a moment later sees them all.
        self.queue.add_after(key, min(0.25, 0.02 + 0.0002 * replicas_of(job)))

    def _was_turned_away(self, key: str) -> bool:
        """Whether a reconcile that came too early has to be made up for, now that the watch has
        shown everything that was written for the job."""
        return key in self._turned_away and not self.expectations.pending(key)

    def _evicted(self, key: str, job: batch.Job, pod: Pod) -> None:
        """A pod was deleted: an eviction, unless this controller did it or the pod had no place in
        the job."""
        if pod.metadata.annotations.out_of_sync is not None or pod.owner_uid != job.metadata.uid:
            return
        if (
            job.status.state.phase not in states.AT_WORK
            or (pod.job_version or 0) < job.status.version
        ):
            return
        trigger = from_pod(POD_EVICTED, pod, since=self._clock())
        if decide(job, trigger).action != states.SYNC_JOB:
            cause = f"pod {pod.metadata.name} was deleted"
            self._remember(key, job).triggers.append(replace(trigger, cause=cause))

    def _group_changed(
        self, old: scheduling.PodGroup | None, new: scheduling.PodGroup | None
    ) -> None:
        group = new if new is not None else old
        assert group is not None
        key = _job_key(group)
        if key is None:
            return
        ours = self.expectations.show(key, old, new)
        job = self.statuses.newest(key)
        if job is None:
            return
        if (
            ours
            and new is not None
            and self._as_made(key, job, new)
            and not self._was_turned_away(key)
        ):
            return
        if old is not None and new is not None:
            if (
                lets_pods_in(old) == lets_pods_in(new)
                and complaint(job, old) == complaint(job, new)
                and not _turned_unknown(old, new)
            ):
                return
            if _turned_unknown(old, new):
                # Volcano sends version 0 here, which a job that was restarted once never hears (its
                # bug 4).
                trigger = Trigger(
                    UNKNOWN,
                    version=job.status.version,
                    since=self._clock(),
                    cause="pods that the gang needs are not running",
                )
                self._remember(key, job).triggers.append(trigger)
        # A group that lets pods in goes first: the sooner its pods are made, the sooner they are
        # bound, and new jobs have to wait for that anyway.
        self.queue.add(key, urgent=lets_pods_in(new))

    def _as_made(self, key: str, job: batch.Job, group: scheduling.PodGroup) -> bool:
        """Whether a PodGroup is as this controller has made it, and lets no pods in yet."""
        memory = self._memory.get(key)
        if (
            memory is None
            or memory.status.uid != job.metadata.uid
            or lets_pods_in(group)
            or complaint(job, group)
        ):
            return False
        return not self.groups.changes(group, memory.layout)

    def _queue_changed(self, old: scheduling.Queue | None, new: scheduling.Queue | None) -> None:
        if old is None and new is not None:
            for job in self._caches.jobs.all():
                if job.spec.queue == new.metadata.name and job.status.state.phase in states.AT_WORK:
                    self.queue.add(key_of(job))


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


def _waits_like_new(job: batch.Job, pod: Pod) -> bool:
    """Whether a pod is as the reconcile that made it has counted it, and no policy of the job asks
    about waiting pods."""
    marks = pod.metadata.annotations
    current = marks.out_of_sync is None and (pod.job_version or 0) >= job.status.version
    return pod.status.phase == PENDING and not pod.leaving and current and not listens(job)


def _turned_unknown(old: scheduling.PodGroup, new: scheduling.PodGroup) -> bool:
    return new.status.phase == "Unknown" and old.status.phase != "Unknown"


def _same_to_us(old: Pod, new: Pod) -> bool:
    return (
        old.status == new.status
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and old.metadata.annotations == new.metadata.annotations
    )


def _job_key(obj: Pod | scheduling.PodGroup) -> str | None:
    """The job that a pod or a PodGroup belongs to."""
    if isinstance(obj, Pod):
        return obj.job_key or None
    owner = obj.metadata.controller()
    if owner is None or owner.kind != batch.JOB.kind or owner.api_version != batch.JOB.api_version:
        return None
    return f"{obj.metadata.namespace}/{owner.name}"
