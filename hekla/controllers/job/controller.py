"""The job controller: carries the plan of `plan.py` to the API server.

`reconcile` looks at the job, its pods and its PodGroup in the caches, asks for a plan, and writes
it.  What it keeps in memory is either derived (molds, the last spec that was laid out) or has no
place on the server: commands that were consumed and evictions that the watch has shown, until they
are answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from hekla.api import batch, names, scheduling
from hekla.api.kubernetes import core
from hekla.api.meta import key as key_of
from hekla.api.sizes import MOST_PODS
from hekla.controllers.caches import JOB_INDEX, Caches
from hekla.controllers.events import Events
from hekla.controllers.job import companions, metrics, states
from hekla.controllers.job.counts import PENDING
from hekla.controllers.job.failures import Failures
from hekla.controllers.job.plan import Beside, Plan, View, plan
from hekla.controllers.job.plugins import Plugin, PluginError, plugins_of
from hekla.controllers.job.pod_template import BodyTemplate
from hekla.controllers.job.podgroup import (
    complaint,
    difference,
    group_body,
    lets_pods_in,
    live_spec,
)
from hekla.controllers.job.podrequests import PodRequests
from hekla.controllers.job.pods import mold_of
from hekla.controllers.job.policies import (
    COMMAND_ISSUED,
    POD_EVICTED,
    UNKNOWN,
    Trigger,
    decide,
    from_pod,
    listens,
)
from hekla.controllers.job.status import dated, first_phase
from hekla.controllers.job.trouble import TRANSIENT, Trouble, Wait
from hekla.controllers.job.volumes import claim_body, claim_name, unnamed
from hekla.controllers.job.window import replicas_of
from hekla.controllers.records import Pod
from hekla.kube.client import Client
from hekla.kube.controller import Controller, Expectations
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.flags import duration_text
from hekla.kube.http.client import TransportError
from hekla.kube.objects import unread
from hekla.kube.status_writer import StatusWriter
from hekla.kube.workqueue import ROUNDING

log = logging.getLogger(__name__)

STATUS_INTERVAL = 0.5
"""Seconds between two writes of a status in which only the counts differ, and for which such counts
are gathered: pods that have just been made are often running, and the job with them, before anybody
could have read that they were pending.
"""
LONGEST_INTERVAL = 2.0
"""The same where the server is busy, and then for a job's first steps too: that it is Pending, that
it is Running (decision 0202)."""
WAITING = 2.0
"""Seconds between two looks for something that a job waits for and that is not watched."""
LONGEST_BACKOFF = 10.0
_FIRST_STEPS = {("", states.PENDING), ("", states.RUNNING), (states.PENDING, states.RUNNING)}
"""Changes of phase that nothing else waits for."""
_MADE = unread(scheduling.POD_GROUP)
UNSEEN = 5.0
"""Seconds to wait for the watch to show what was written and not answered.  Names are fixed and
deletions go by uid, so trying again is harmless; but what was answered is there, and writing it
again would only keep a late watch late.
"""


@dataclass(slots=True)
class _Memory:
    """What is remembered of one job.  `layout` names the state of the job that molds and the
    group's spec were made for."""

    uid: str
    triggers: list[Trigger] = field(default_factory=list)
    announced: set[Trigger] = field(default_factory=set)
    written: batch.Job | None = None
    writing: bool = False
    """The status is being written."""
    written_at: float = 0.0
    counted_at: float = 0.0
    """Since when the status on the server lags behind in nothing but counts and first steps; 0: it
    does not."""
    due_at: float = 0.0
    """Until when it may."""
    step: batch.JobStatus | None = None
    """The status with a first step that waits to be written."""
    turn: asyncio.Event | None = None
    """Set once the look is over for which the lane has let this job in."""
    layout: tuple[object, ...] = ()
    plugins: list[Plugin] = field(default_factory=list)
    molds: dict[str, BodyTemplate] = field(default_factory=dict)
    group_spec: dict[str, Any] = field(default_factory=dict)
    group_seen: tuple[object, ...] = ()
    """The generation of the PodGroup that was compared with `group_spec` last, and the layout of
    that."""
    laid_out_at: int = -1
    """The generation whose companions were looked at last."""
    failures: int = 0


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
        self.client = client
        self.most_retries = most_retries
        self.most_pods = most_pods
        self._events = events
        self._caches = caches
        self._clock = clock
        self._memory: dict[str, _Memory] = {}
        self._orders: dict[str, list[Trigger]] = {}
        """Commands for jobs, consumed and not yet carried out."""
        self.expectations = Expectations(_job_key, doubt=UNSEEN)
        self._pods = PodRequests(client, self.expectations, events, clock)
        self._failures = Failures(client, self._note_failure, self.queue.add)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lane = StatusWriter(self._launch)
        """Jobs whose status may wait, while the server is busy: few at a time, so that what pods
        wait for goes by."""
        self._lagging = self.queue.aside(self._status_is_due)
        self._turned_away: set[str] = set()
        """Jobs that wanted a look before the watch had shown what was written for them."""
        caches.jobs.on_change(self._job_changed)
        caches.pods.on_change(self._pod_changed)
        caches.groups.on_change(self._group_changed)
        caches.queues.on_change(self._queue_changed)

    # -- what the watches say ----------------------------------------------------------------------

    def command(self, key: str, action: str) -> None:
        """Have an action carried out on a job."""
        self._orders.setdefault(key, []).append(
            Trigger(COMMAND_ISSUED, action=action, cause=f"{action} was asked for")
        )
        self.queue.add(key)

    def _job_changed(self, old: batch.Job | None, new: batch.Job | None) -> None:
        if new is None:
            assert old is not None
            key = key_of(old)
            memory = self._memory.pop(key, None)
            if memory is not None and memory.turn is not None:
                memory.turn.set()
            self._orders.pop(key, None)
            self.expectations.forget(key)
            self._turned_away.discard(key)
            self._failures.forget(key)
            metrics.forget(old, key)
            return
        key = key_of(new)
        memory = self._memory.get(key)
        if memory and memory.writing:
            # most likely our own words, before the answer: it is looked at when that is there
            return
        if (
            memory
            and memory.written
            and memory.written.metadata.resource_version == new.metadata.resource_version
        ):
            memory.written = None  # our own words have come back
            return
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
        job = self._job(key)
        if job is None:
            return
        if new is None:
            self._evicted(key, job, pod)
        elif ours and _waits_like_new(job, new) and not self._wants_a_look(key):
            return
        # Many pods of a job change together; one look a moment later sees them all.
        self.queue.add_after(key, min(0.25, 0.02 + 0.0002 * replicas_of(job)))

    def _wants_a_look(self, key: str) -> bool:
        """Once the watch has shown what a look has written: whether there is to be another, because
        one came too early."""
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
        trigger = from_pod(POD_EVICTED, job, pod, since=self._clock())
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
        job = self._job(key)
        if job is None:
            return
        if (
            ours
            and new is not None
            and self._as_made(key, job, new)
            and not self._wants_a_look(key)
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
        self.queue.add(
            key, ahead=lets_pods_in(new)
        )  # its pods are bound the sooner, and new jobs have to wait for that anyway

    def _as_made(self, key: str, job: batch.Job, group: scheduling.PodGroup) -> bool:
        """Whether a PodGroup is still as a look at the job would have it, and lets no pods in yet."""
        memory = self._memory.get(key)
        if (
            memory is None
            or memory.uid != job.metadata.uid
            or lets_pods_in(group)
            or complaint(job, group)
        ):
            return False
        return not self._changes(memory, group)

    def _queue_changed(self, old: scheduling.Queue | None, new: scheduling.Queue | None) -> None:
        if old is None and new is not None:
            for job in self._caches.jobs.all():
                if job.spec.queue == new.metadata.name and job.status.state.phase in states.AT_WORK:
                    self.queue.add(key_of(job))

    # -- one look ----------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        job = self._job(key)
        if job is None or job.metadata.deletion_timestamp:
            return None
        if not self.expectations.satisfied(key):
            self._turned_away.add(key)
            return self.expectations.remaining(key)
        self._turned_away.discard(key)
        memory = self._remember(key, job)
        try:
            return await self._look(key, job, memory)
        finally:
            if memory.turn is not None:
                memory.turn.set()
                memory.turn = None

    async def _look(self, key: str, job: batch.Job, memory: _Memory) -> float | None:
        view = self._view(key, job, memory)
        made = plan(view)
        if (
            memory.step is not None
            and not _is_a_step(made)
            and job.status.state.phase in ("", states.PENDING)
        ):
            made = Plan(
                memory.step, wake=0.0
            )  # what the job was until now shall be seen before what becomes of it
        self._failures.look(key, job)
        if made.delete and (wait := self._failures.holds(key, made.delete)) is not None:
            return wait
        self._announce(job, memory, made)
        try:
            again = await self._carry_out(key, job, memory, made, view)
        except NotFound as error:
            if error.details.get("name") == job.metadata.name:
                return None  # deleted meanwhile
            raise
        except TRANSIENT as error:
            log.info("%s: %s; again soon", key, error)
            memory.failures += 1
            return min(LONGEST_BACKOFF, 0.05 * 2.0 ** min(memory.failures, 10))
        except Wait as error:
            log.info("%s waits: %s", key, error)
            return WAITING
        memory.failures = 0
        self._answered(key, memory, made)
        if job.status.state.phase in batch.FINISHED and again is None and not memory.counted_at:
            self._memory.pop(key, None)  # nothing will come of this job that has to be remembered
        waits = [seconds for seconds in (again, made.wake) if seconds is not None]
        return min(waits) if waits else None

    def given_up(self, key: str, error: Exception) -> None:
        """A job that cannot be synced is terminated rather than tried for ever."""
        super().given_up(key, error)
        job = self._job(key)
        if job is not None and job.status.state.phase in states.AT_WORK:
            self._events.event(
                job,
                "Normal",
                "ExecuteAction",
                f"Job failed on action {states.SYNC_JOB} for retry limit reached: {error}",
            )
            self._orders.setdefault(key, []).append(
                Trigger(COMMAND_ISSUED, action=states.TERMINATE_JOB, cause=str(error))
            )
            self.queue.add(key)

    def _job(self, key: str) -> batch.Job | None:
        """The newest that is known of a job: what the watch has shown, or what the server answered
        to our last write."""
        job = self._caches.jobs.get(key)
        memory = self._memory.get(key)
        if job is None or memory is None or memory.written is None:
            return job
        written = memory.written
        if written.metadata.uid == job.metadata.uid and _version(written) > _version(job):
            return written
        return job

    def _remember(self, key: str, job: batch.Job) -> _Memory:
        memory = self._memory.get(key)
        if memory is None or memory.uid != job.metadata.uid:
            memory = self._memory[key] = _Memory(job.metadata.uid)
        return memory

    def _view(self, key: str, job: batch.Job, memory: _Memory) -> View:
        pods = {
            pod.metadata.name: pod
            for pod in self._caches.pods.by(JOB_INDEX, key)
            if pod.owner_uid == job.metadata.uid and pod.job_version is not None
        }
        handed_in = [*self._orders.get(key, ()), *memory.triggers]
        return View(job, pods, self._group(job), self._clock(), handed_in, self.most_pods)

    def _group(self, job: batch.Job) -> scheduling.PodGroup | None:
        """The job's PodGroup; one of the name that was used before Volcano 1.5 is taken over."""
        namespace = job.metadata.namespace
        name = names.pod_group_name(job.metadata.name, job.metadata.uid)
        for candidate in (name, job.metadata.name):
            group = self._caches.groups.get(f"{namespace}/{candidate}")
            if group is not None and not group.metadata.deletion_timestamp:
                owner = group.metadata.controller()
                if owner is None or owner.uid == job.metadata.uid:
                    return group
        return None

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

    def _answered(self, key: str, memory: _Memory, made: Plan) -> None:
        if not memory.triggers and key not in self._orders:
            return
        used = set(made.used)
        memory.triggers = [trigger for trigger in memory.triggers if trigger not in used]
        orders = [trigger for trigger in self._orders.pop(key, []) if trigger not in used]
        if orders:
            self._orders[key] = orders
            self.queue.add(key)

    # -- carrying out ------------------------------------------------------------------------------

    async def _carry_out(
        self, key: str, job: batch.Job, memory: _Memory, made: Plan, view: View
    ) -> float | None:
        """Write the plan, in the order that survives a crash at any point."""
        if made.status_first:
            moved = made.status.state.phase != job.status.state.phase
            status = (
                dated(made.status, memory.step)
                if moved and memory.step is not None
                else made.status
            )
            before, job = job, await self._write_status(job, memory, status)
            await self._pods.delete(key, before, made.delete)
            if made.beside is Beside.DISSOLVE:
                await self._delete_group(key, view.group)
            return 0.0
        if made.beside is Beside.REMOVE:
            await self._delete_group(key, view.group)
            await companions.delete_all(self.client, job)
        elif made.beside in (Beside.ENSURE, Beside.RENEW):
            try:
                job = await self._prepare(key, job, memory, made, view)
            except (Trouble, Wait):
                if not job.status.state.phase:  # a job shows up as Pending whatever it lacks
                    shown = msgspec.structs.replace(made.status, controlled_resources={})
                    await self._write_status(job, memory, shown)
                raise
        if made.create:
            try:
                await self._pods.create(key, job, memory.molds, made.create)
            except (ApiError, Trouble, Wait):
                if (
                    memory.step is not None
                ):  # nor may a step that was put off wait for pods that cannot be made
                    await self._write_status(job, memory, memory.step)
                raise
        if made.delete:
            await self._pods.delete(key, job, made.delete)
        return await self._settle(job, memory, made.status)

    async def _settle(
        self, job: batch.Job, memory: _Memory, status: batch.JobStatus
    ) -> float | None:
        """Write the status if it says something new; counts alone may wait for more of them."""
        if status == job.status:
            memory.counted_at, memory.step = 0.0, None
            return None
        before, after = job.status.state.phase, status.state.phase
        moved = after != before
        hurry = status is memory.step
        if memory.step is not None and moved:
            status = dated(status, memory.step)
        lags = not moved or (before, after) in _FIRST_STEPS
        if lags and not hurry and status.controlled_resources == job.status.controlled_resources:
            now = time.monotonic()
            memory.counted_at = memory.counted_at or now
            since = memory.counted_at if moved else max(memory.written_at, memory.counted_at)
            wait = (
                since
                + self.client.pace.gather(0.0 if moved else STATUS_INTERVAL, LONGEST_INTERVAL)
                - now
            )
            if wait > 0 or (memory.turn is None and self.client.pace.busy):
                key = key_of(job)
                memory.step = status if moved else None
                if wait > 0:
                    memory.due_at = now + wait
                    self._lagging.after(key, wait)
                else:
                    self._lane.put(key, partial(self._let_in, key, memory))
                return None
        if (
            not before and after == states.RUNNING
        ):  # who waits for each phase in turn shall see each
            job = await self._write_status(job, memory, first_phase(status))
            memory.step = status  # and if the next write fails, it is made up for
        await self._write_status(job, memory, status)
        return 0.0 if moved and not _nothing_follows(before, status) else None

    def _status_is_due(self, key: str) -> None:
        """Has a job looked at whose status may lag no longer: in its turn, while the server is
        busy."""
        memory = self._memory.get(key)
        if memory is None or not memory.counted_at:
            return  # written meanwhile
        left = memory.due_at - time.monotonic()
        if left > ROUNDING:
            self._lagging.after(key, left)
        elif memory.turn is None and self.client.pace.busy:
            self._lane.put(key, partial(self._let_in, key, memory))
        else:
            self.queue.add(key)

    def _let_in(self, key: str, memory: _Memory) -> asyncio.Task[None] | None:
        """Has a job looked at whose turn to write has come, if it still has something to write."""
        if self._memory.get(key) is not memory or not memory.counted_at:
            return None
        memory.turn = asyncio.Event()
        self.queue.add(key)
        return asyncio.ensure_future(_within(UNSEEN, memory.turn.wait()))

    def _launch(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_status(
        self, job: batch.Job, memory: _Memory, status: batch.JobStatus
    ) -> batch.Job:
        key = key_of(job)
        memory.writing = True
        try:
            fresh = await self.client.update_status(
                batch.JOB, msgspec.structs.replace(job, status=status)
            )
        except (
            TransportError
        ):  # it is tried again in a while, and sees what was not looked at meanwhile
            raise
        except BaseException:
            self.queue.add(key)  # for what was not looked at meanwhile
            raise
        finally:
            memory.writing = False
        shown = self._caches.jobs.get(key)
        if shown is not None and _version(shown) > _version(fresh):
            self.queue.add(key)  # somebody else has changed it since
        memory.written = None if shown is not None and _version(shown) >= _version(fresh) else fresh
        memory.written_at, memory.counted_at, memory.step = time.monotonic(), 0.0, None
        if fresh.status.state.phase != job.status.state.phase:
            metrics.count_phase(fresh, key, fresh.status.state.phase)
        return fresh

    async def _prepare(
        self, key: str, job: batch.Job, memory: _Memory, made: Plan, view: View
    ) -> batch.Job:
        """All that has to stand before pods may: queue, plugins' objects, claims, the PodGroup."""
        queue = self._caches.queues.get(job.spec.queue)
        if queue is None:
            self._warn(
                job,
                "PodGroupError",
                f"Failed to create PodGroup, err: queue {job.spec.queue} does not exist",
            )
            raise Wait(f"queue {job.spec.queue} does not exist")
        if (
            queue.spec.extend_clusters
            and job.metadata.annotations.get(names.JOB_FORWARDING) != "true"
        ):
            job = await self._patch_job(
                job, memory, {"metadata": {"annotations": {names.JOB_FORWARDING: "true"}}}
            )
        try:
            self._lay_out(job, memory, forwarded=bool(queue.spec.extend_clusters))
            if memory.plugins:
                await self._ensure_companions(job, memory)
        except Wait as error:
            self._warn(job, "PluginError", str(error))
            raise
        except (PluginError, ApiError) as error:
            if isinstance(error, TRANSIENT):
                raise
            when = "add" if job.status.state.phase in ("", states.PENDING) else "update"
            self._warn(job, "PluginError", f"Execute plugin when job {when} failed, err: {error}")
            raise Trouble(str(error)) from error
        if job.spec.volumes:
            job = await self._ensure_claims(job, memory)
        try:
            await self._ensure_group(
                key, job, memory, view.group, renew=made.beside is Beside.RENEW
            )
        except ApiError as error:
            if isinstance(error, TRANSIENT):
                raise
            self._warn(job, "PodGroupError", f"Failed to create PodGroup, err: {error}")
            raise Trouble(str(error)) from error
        return job

    def _lay_out(self, job: batch.Job, memory: _Memory, *, forwarded: bool) -> None:
        """Molds and the PodGroup's spec, made anew when what they were made from has changed."""
        layout = (
            job.metadata.generation,
            job.status.version,
            job.status.retry_count,
            forwarded,
            len(self._caches.priorities),
        )
        if memory.layout == layout and memory.molds:
            return
        memory.plugins = plugins_of(job)
        memory.molds = {
            task.name: mold_of(job, task, memory.plugins, forwarded=forwarded)
            for task in job.spec.tasks
        }
        memory.group_spec = live_spec(job, self._caches.priority_of)
        memory.layout = layout

    async def _ensure_companions(self, job: batch.Job, memory: _Memory) -> None:
        for plugin in memory.plugins:
            new = job.status.controlled_resources.get(f"plugin-{plugin.name}") != plugin.name
            if not new and memory.laid_out_at == job.metadata.generation:
                continue
            for companion in plugin.companions(job):
                if new or companion.follows_scale:
                    await companions.ensure(self.client, job, companion, expect=not new)
        memory.laid_out_at = job.metadata.generation

    async def _ensure_claims(self, job: batch.Job, memory: _Memory) -> batch.Job:
        namespace = job.metadata.namespace
        try:
            for position in range(len(job.spec.volumes)):
                name = claim_name(job, position)
                if f"volume-pvc-{name}" in job.status.controlled_resources:
                    continue
                if job.spec.volumes[position].volume_claim is not None:
                    try:
                        await self.client.create(
                            core.PERSISTENT_VOLUME_CLAIM.untyped,
                            claim_body(job, position),
                            namespace,
                        )
                    except AlreadyExists:
                        pass
                else:
                    await self.client.get(core.PERSISTENT_VOLUME_CLAIM.untyped, name, namespace)
        except NotFound as error:
            text = f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
            self._warn(job, "PVCError", f"Failed to create PVC, err: {text}")
            raise Wait(text) from error
        except ApiError as error:
            if isinstance(error, TRANSIENT):
                raise
            self._warn(job, "PVCError", f"Failed to create PVC, err: {error}")
            raise Trouble(str(error)) from error
        if not unnamed(job):
            return job
        volumes = [
            {**msgspec.to_builtins(volume), "volumeClaimName": claim_name(job, position)}
            for position, volume in enumerate(job.spec.volumes)
        ]
        return await self._patch_job(job, memory, {"spec": {"volumes": volumes}})

    async def _patch_job(self, job: batch.Job, memory: _Memory, patch: dict[str, Any]) -> batch.Job:
        memory.written = await self.client.patch(
            batch.JOB, job.metadata.name, patch, job.metadata.namespace
        )
        return memory.written

    async def _note_failure(self, key: str, uid: str, text: str) -> None:
        """Writes down how a job failed last; of a job that is gone nothing is written."""
        job = self._job(key)
        if job is None or job.metadata.uid != uid:
            return
        changes = {"metadata": {"annotations": {names.LAST_FAILURE: text}, "uid": uid}}
        fresh = await self.client.patch(
            batch.JOB, job.metadata.name, changes, job.metadata.namespace
        )
        newest = self._job(key)
        if key in self._memory and newest is not None and _version(fresh) > _version(newest):
            self._memory[key].written = fresh

    # -- PodGroup ----------------------------------------------------------------------------------

    async def _ensure_group(
        self,
        key: str,
        job: batch.Job,
        memory: _Memory,
        group: scheduling.PodGroup | None,
        *,
        renew: bool,
    ) -> None:
        if renew:
            await self._delete_group(key, group)
            group = None
        if group is None:
            body = group_body(job, memory.group_spec)
            try:
                with self.expectations.creating(
                    key, f"{job.metadata.namespace}/{body['metadata']['name']}"
                ):
                    await self.client.create(_MADE, body, job.metadata.namespace)
            except AlreadyExists:
                pass  # the watch may have shown it already, and would not again
            return
        changes = self._changes(memory, group)
        if changes:
            await self.client.patch(
                scheduling.POD_GROUP.untyped,
                group.metadata.name,
                {"spec": changes},
                job.metadata.namespace,
            )

    def _changes(self, memory: _Memory, group: scheduling.PodGroup) -> dict[str, Any]:
        """What the PodGroup's spec lacks; compared once a generation, which a change of its status
        leaves alone."""
        meta = group.metadata
        seen = (meta.uid, meta.generation or meta.resource_version, *memory.layout)
        if memory.group_seen == seen:
            return {}
        changes = difference(group, memory.group_spec)
        if not changes:
            memory.group_seen = seen
        return changes

    async def _delete_group(self, key: str, group: scheduling.PodGroup | None) -> None:
        if group is None:
            return
        meta = group.metadata
        try:
            with self.expectations.deleting(key, meta.uid):
                await self.client.delete(
                    scheduling.POD_GROUP, meta.name, meta.namespace, uid=meta.uid
                )
        except (NotFound, Conflict):
            pass  # gone, or another by that name; the watch may have shown that already

    def _warn(self, job: batch.Job, reason: str, message: str) -> None:
        self._events.event(job, "Warning", reason, message)


def _is_a_step(made: Plan) -> bool:
    """Whether a plan leads no further than the first steps of a job."""
    return not made.status_first and made.status.state.phase in (states.PENDING, states.RUNNING)


def _nothing_follows(before: str, status: batch.JobStatus) -> bool:
    """Whether the look that led to a new phase has looked at all that follows from it, too."""
    if status.state.phase == states.PENDING:
        return not before
    return status.state.phase == states.RUNNING and not status.succeeded and not status.failed


async def _within(seconds: float, work: Coroutine[Any, Any, Any]) -> None:
    """Waits for something, but not for longer than this."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass


def _waits_like_new(job: batch.Job, pod: Pod) -> bool:
    """Whether a pod is as the look that made it has counted it, and nothing of the job answers that
    it waits."""
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


def _version(job: batch.Job) -> int:
    text = job.metadata.resource_version
    return int(text) if text.isdigit() else 0
