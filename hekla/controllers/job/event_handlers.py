"""Which changes of jobs, pods, PodGroups and queues are a reason to reconcile a job.

Much of what the watch shows is what the controller has written itself; looking again because of that
would double its work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hekla.api import batch, scheduling
from hekla.api.meta import key as key_of
from hekla.controllers.caches import Caches
from hekla.controllers.job import metrics, states
from hekla.controllers.job.counts import PENDING
from hekla.controllers.job.failures import Failures
from hekla.controllers.job.memory import JobMemories
from hekla.controllers.job.podgroup import complaint, lets_pods_in
from hekla.controllers.job.podgroup_control import PodGroupControl
from hekla.controllers.job.policies import (
    POD_EVICTED,
    UNKNOWN,
    Trigger,
    decide,
    from_pod,
    listens,
)
from hekla.controllers.job.status_updater import StatusUpdater
from hekla.controllers.job.window import replicas_of
from hekla.controllers.records import Pod
from hekla.kube.controller import Expectations
from hekla.kube.workqueue import WorkQueue


class EventHandlers:
    """Queues the jobs that a change concerns, and keeps what only the change itself shows."""

    def __init__(
        self,
        caches: Caches,
        queue: WorkQueue,
        expectations: Expectations,
        statuses: StatusUpdater,
        groups: PodGroupControl,
        memories: JobMemories,
        failures: Failures,
        clock: Callable[[], float],
    ) -> None:
        self.turned_away: set[str] = set()
        """Jobs whose reconcile came before the watch had shown what was written for them."""
        self._caches = caches
        self._queue = queue
        self._expectations = expectations
        self._statuses = statuses
        self._groups = groups
        self._memories = memories
        self._failures = failures
        self._clock = clock
        caches.jobs.on_change(self._job_changed)
        caches.pods.on_change(self._pod_changed)
        caches.groups.on_change(self._group_changed)
        caches.queues.on_change(self._queue_changed)

    def _job_changed(self, old: batch.Job | None, new: batch.Job | None) -> None:
        if new is None:
            assert old is not None
            key = key_of(old)
            self._memories.forget(key)
            self._memories.drop_commands(key)
            self._expectations.forget(key)
            self.turned_away.discard(key)
            self._failures.forget(key)
            metrics.forget(old, key)
            return
        key = key_of(new)
        if not self._statuses.is_echo(key, new):
            self._queue.add(key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        key = pod.job_key
        if not key:
            return
        ours = self._expectations.show(key, old, new)
        if old is not None and new is not None and _same_to_us(old, new):
            return
        self._failures.observe(old, new)
        job = self._statuses.newest(key)
        if job is None:
            return
        if new is None:
            self._evicted(key, job, pod)
        elif ours and _waits_like_new(job, new) and not self._was_turned_away(key):
            return
        # Many pods of a job change together; one reconcile a moment later sees them all.
        self._queue.add_after(key, min(0.25, 0.02 + 0.0002 * replicas_of(job)))

    def _was_turned_away(self, key: str) -> bool:
        """Whether a reconcile that came too early has to be made up for, now that the watch has
        shown everything that was written for the job."""
        return key in self.turned_away and not self._expectations.pending(key)

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
            self._memories.of(key, job).triggers.append(replace(trigger, cause=cause))

    def let_in(self, group: str, uid: str) -> None:
        """The scheduler has let a PodGroup in, and its phase does not say so yet."""
        self._groups.let_in[group] = uid
        known = self._caches.groups.get(group)
        key = _job_of(known) if known is not None and known.metadata.uid == uid else None
        if key is not None:
            self._queue.add(key, urgent=True)

    def _group_changed(
        self, old: scheduling.PodGroup | None, new: scheduling.PodGroup | None
    ) -> None:
        group = new if new is not None else old
        assert group is not None
        key = _job_of(group)
        if key is None:
            return
        ours = self._expectations.show(key, old, new)
        old = self._groups.as_let_in(old) if old is not None else None
        if new is None or lets_pods_in(new):
            self._groups.let_in.pop(key_of(group), None)
        else:
            new = self._groups.as_let_in(new)
        job = self._statuses.newest(key)
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
                self._memories.of(key, job).triggers.append(trigger)
        # A group that lets pods in goes first: the sooner its pods are made, the sooner they are
        # bound, and new jobs have to wait for that anyway.
        self._queue.add(key, urgent=lets_pods_in(new))

    def _as_made(self, key: str, job: batch.Job, group: scheduling.PodGroup) -> bool:
        """Whether a PodGroup is as this controller has made it, and lets no pods in yet."""
        memory = self._memories.known(key, job)
        if memory is None or lets_pods_in(group) or complaint(job, group):
            return False
        return not self._groups.changes(group, memory.layout)

    def _queue_changed(self, old: scheduling.Queue | None, new: scheduling.Queue | None) -> None:
        if old is None and new is not None:
            for job in self._caches.jobs.all():
                if job.spec.queue == new.metadata.name and job.status.state.phase in states.AT_WORK:
                    self._queue.add(key_of(job))


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


def _job_of(group: scheduling.PodGroup) -> str | None:
    """The key of the job that a PodGroup belongs to."""
    owner = group.metadata.controller()
    if owner is None or owner.kind != batch.JOB.kind or owner.api_version != batch.JOB.api_version:
        return None
    return f"{group.metadata.namespace}/{owner.name}"
