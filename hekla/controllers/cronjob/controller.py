"""The cron job controller: makes a job when its time has come, and keeps the list of those that run
(reference: controllers 8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC
from typing import Any

import msgspec

from hekla.api import batch, names
from hekla.api.kubernetes.core import ObjectReference
from hekla.api.meta import key as key_of
from hekla.api.text.schedule import Schedule, ScheduleError, parse, zone_named
from hekla.api.text.times import instant, stamp, zoned_stamp
from hekla.controllers.caches import CRON_INDEX, Caches, concerns
from hekla.controllers.cronjob.history import surplus
from hekla.controllers.cronjob.runs import Missed, job_name, most_recent, until_next
from hekla.controllers.events import Events
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.objects import controller_reference


class _Books:
    """The status during one reconcile: changed step by step, written once."""

    def __init__(self, cron: batch.CronJob) -> None:
        self.cron = cron
        self.active = list(cron.status.active)
        self.last_schedule = cron.status.last_schedule_time
        self.last_success = cron.status.last_successful_time

    def drop(self, uid: str) -> None:
        self.active = [entry for entry in self.active if entry.uid != uid]

    @property
    def uids(self) -> set[str]:
        return {entry.uid for entry in self.active}

    @property
    def status(self) -> batch.CronJobStatus:
        return batch.CronJobStatus(
            active=self.active,
            last_schedule_time=self.last_schedule,
            last_successful_time=self.last_success,
        )


class CronJobController(Controller):
    """Reconciles a cron job and the jobs that it has made."""

    name = "cronjob-controller"

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: Events,
        *,
        stamped: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(caches.cron_jobs, caches.jobs)
        self._client = client
        self._caches = caches
        self._events = events
        self._stamped = stamped
        self._clock = clock
        caches.cron_jobs.on_change(self._cron_changed)
        self.enqueue(caches.jobs, _cron_of, of=(concerns, [CRON_INDEX]))

    def _cron_changed(self, old: batch.CronJob | None, new: batch.CronJob | None) -> None:
        if new is None or (
            old is not None
            and old.spec == new.spec
            and old.metadata.generation == new.metadata.generation
        ):
            return
        changed = old is not None and (old.spec.schedule, old.spec.time_zone) != (
            new.spec.schedule,
            new.spec.time_zone,
        )
        if not changed:
            self.queue.add(key_of(new))
            return
        try:
            delay = delay_after_change(new, self._clock())
        except ScheduleError as error:
            self._warn(
                new, "UnParseableCronJobSchedule", f"unparseable schedule for cronjob: {error}"
            )
            return
        if delay is not None:
            # A new schedule begins with its next run; missed runs of the old one are not made up
            # for.
            self.queue.add_after(key_of(new), delay)

    async def reconcile(self, key: str) -> float | None:
        cron = self._caches.cron_jobs.get(key)
        if cron is None or cron.metadata.deletion_timestamp:
            return None
        books = _Books(cron)
        owned = [
            job
            for job in self._caches.jobs.by(CRON_INDEX, cron.metadata.uid)
            if job.metadata.namespace == cron.metadata.namespace
        ]
        self._note_finished(books, owned)
        await self._prune(cron, owned)
        await self._check_active(books, owned)
        try:
            again = await self._schedule(books)
        finally:
            await self._write(books)
        return again

    # -- what has been -----------------------------------------------------------------------------

    def _note_finished(self, books: _Books, owned: list[batch.Job]) -> None:
        for job in owned:
            phase = job.status.state.phase
            if phase not in batch.FINISHED:
                continue
            if job.metadata.uid in books.uids:
                books.drop(job.metadata.uid)
                self._say(
                    books.cron,
                    "SawCompletedJob",
                    f"Saw completed job: {job.metadata.name} in active, remove",
                )
            ended = job.status.state.last_transition_time
            if phase == batch.JobPhase.COMPLETED and instant(ended) > instant(books.last_success):
                books.last_success = ended

    async def _prune(self, cron: batch.CronJob, owned: list[batch.Job]) -> None:
        for job in surplus(cron, owned):
            if not job.metadata.deletion_timestamp:
                await self._delete(cron, job.metadata.name, job.metadata.uid)

    async def _check_active(self, books: _Books, owned: list[batch.Job]) -> None:
        """Bring the list of active jobs in line with the jobs that exist."""
        cron = books.cron
        known = {job.metadata.uid for job in owned}
        for job in owned:
            if job.status.state.phase not in batch.FINISHED and job.metadata.uid not in books.uids:
                # One that was created before a status could be written belongs on the list.
                if job.metadata.name.startswith(f"{cron.metadata.name}-"):
                    books.active.append(_reference(job))
                else:
                    self._warn(
                        cron,
                        "OrphanedJob",
                        f"Found job {job.metadata.name} that is not in the list of active jobs",
                    )
        for entry in list(books.active):
            if entry.uid in known:
                continue
            try:
                found = await self._client.get(batch.JOB, entry.name, cron.metadata.namespace)
            except NotFound:
                found = None
            if found is None or found.metadata.uid != entry.uid:
                self._warn(
                    cron,
                    "StaleReference",
                    f"Active job {entry.name} does not exist any more; it is left out",
                )
                books.drop(entry.uid)

    # -- what comes --------------------------------------------------------------------------------

    async def _schedule(self, books: _Books) -> float | None:
        """Start the run that is due.  Gives the seconds until the next one."""
        cron, now = books.cron, self._clock()
        if cron.spec.suspend:
            return None
        schedule = self._parse(cron)
        try:
            recent = most_recent(cron, schedule, now, deadline=True)
        except ValueError as error:
            self._warn(cron, "InvalidSchedule", f"Error getting schedule time: {error}")
            raise
        if recent.missed is Missed.MANY:
            self._warn(
                cron,
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds",
            )
        if recent.run is None:
            return until_next(cron, schedule, now)
        name = job_name(cron, recent.run)
        if (
            any(entry.name == name for entry in books.active)
            or instant(books.last_schedule) == recent.run
        ):
            return until_next(cron, schedule, now)
        if books.active and not await self._make_room(books, recent.run):
            return until_next(cron, schedule, now)
        made = await self._create(cron, name, recent.run)
        if made is None:
            return until_next(cron, schedule, now)
        if made.metadata.uid not in books.uids:
            books.active.append(_reference(made))
        books.last_schedule = stamp(recent.run)
        following = msgspec.structs.replace(cron, status=books.status)
        return until_next(following, schedule, now)

    def _parse(self, cron: batch.CronJob) -> Schedule:
        zone = cron.spec.time_zone
        if "TZ" in cron.spec.schedule:
            self._warn(
                cron,
                "UnsupportedSchedule",
                f"TZ or CRON_TZ in schedule {cron.spec.schedule!r} is not supported; use timeZone",
            )
            zone = None
        if zone is not None:
            try:
                zone_named(zone)
            except ScheduleError as error:
                self._warn(cron, "InvalidTimeZone", f'Invalid time zone "{zone}": {error}')
                raise
        return parse(cron.spec.schedule, zone)

    async def _make_room(self, books: _Books, run: float) -> bool:
        """Apply the concurrency policy to the jobs that still run.  Gives whether the run may
        start."""
        cron = books.cron
        policy = cron.spec.concurrency_policy
        if policy == batch.ConcurrencyPolicy.FORBID:
            still = ", ".join(entry.name for entry in books.active)
            self._warn(
                cron,
                "ForbidConcurrent",
                f"the run of {stamp(run)} does not start: {still} still runs (concurrencyPolicy Forbid)",
            )
            return False
        if policy == batch.ConcurrencyPolicy.REPLACE:
            self._warn(
                cron, "ReplaceConcurrent", "the jobs of this cron job that still run are replaced"
            )
            for entry in list(books.active):
                try:
                    job = await self._client.get(batch.JOB, entry.name, cron.metadata.namespace)
                except ApiError as error:
                    self._warn(cron, "FailedGet", f"Get job: {error}")
                    raise
                await self._delete(cron, entry.name, job.metadata.uid, strict=True)
                books.drop(entry.uid)
        return True

    async def _create(self, cron: batch.CronJob, name: str, run: float) -> batch.Job | None:
        namespace = cron.metadata.namespace
        try:
            made = await self._client.create(
                batch.JOB, job_body(cron, name, run, stamped=self._stamped), namespace
            )
        except AlreadyExists:
            return await self._adopt(cron, name)
        except ApiError as error:
            terminating = error.has_cause("NamespaceTerminating")
            self._warn(
                cron,
                "NamespaceTerminating" if terminating else "FailedCreate",
                f"Error creating job: {error}",
            )
            raise
        self._say(
            cron,
            "SuccessfulCreate",
            f"Created job {name} for CronJob {namespace}/{cron.metadata.name}",
        )
        return made

    async def _adopt(self, cron: batch.CronJob, name: str) -> batch.Job | None:
        """The job that already has the run's name, if it is this cron job's and has not finished;
        somebody else's is reported and left alone."""
        found = await self._client.get(batch.JOB, name, cron.metadata.namespace)
        owner = found.metadata.controller()
        if owner is None or owner.uid != cron.metadata.uid:
            self._warn(
                cron,
                "ForeignJob",
                f"Job {name} exists already and does not belong to this cron job",
            )
            return None
        return None if found.status.state.phase in batch.FINISHED else found

    async def _delete(
        self, cron: batch.CronJob, name: str, uid: str, *, strict: bool = False
    ) -> None:
        try:
            await self._client.delete(
                batch.JOB, name, cron.metadata.namespace, uid=uid, propagation="Background"
            )
        except NotFound:
            return
        except ApiError as error:
            self._warn(cron, "FailedDelete", f'Error deleting job "{name}": {error}')
            if strict:
                raise
            return
        self._say(cron, "SuccessfulDelete", f'Deleted job "{name}"')

    async def _write(self, books: _Books) -> None:
        if books.status != books.cron.status:
            fresh = msgspec.structs.replace(books.cron, status=books.status)
            await self._client.update_status(batch.CRON_JOB, fresh)

    def _say(self, cron: batch.CronJob, reason: str, message: str) -> None:
        self._events.event(cron, "Normal", reason, message)

    def _warn(self, cron: batch.CronJob, reason: str, message: str) -> None:
        self._events.event(cron, "Warning", reason, message)


def delay_after_change(cron: batch.CronJob, now: float) -> float | None:
    """Seconds until the next run of a schedule that was just changed.  Raises ScheduleError."""
    zone = None if "TZ" in cron.spec.schedule else cron.spec.time_zone
    return until_next(cron, parse(cron.spec.schedule, zone), now)


def job_body(cron: batch.CronJob, name: str, run: float, *, stamped: bool = True) -> dict[str, Any]:
    """The job of a run."""
    template = cron.spec.job_template
    annotations = dict(template.metadata.annotations)
    if stamped:
        zone = zone_named(cron.spec.time_zone) if cron.spec.time_zone else UTC
        annotations[names.CRON_JOB_SCHEDULED_TIMESTAMP] = zoned_stamp(run, zone)
    return {
        "metadata": {
            "name": name,
            "namespace": cron.metadata.namespace,
            "labels": dict(template.metadata.labels),
            "annotations": annotations,
            "ownerReferences": [
                controller_reference(batch.CRON_JOB, cron.metadata.name, cron.metadata.uid)
            ],
        },
        "spec": msgspec.to_builtins(template.spec),
    }


def _reference(job: batch.Job) -> ObjectReference:
    return ObjectReference(
        api_version=batch.JOB.api_version,
        kind=batch.JOB.kind,
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        uid=job.metadata.uid,
        resource_version=job.metadata.resource_version,
    )


def _cron_of(job: batch.Job) -> str | None:
    """The key of the cron job that made a job."""
    owner = job.metadata.controller()
    if (
        owner is None
        or owner.kind != batch.CRON_JOB.kind
        or owner.api_version != batch.CRON_JOB.api_version
    ):
        return None
    return f"{job.metadata.namespace}/{owner.name}"
