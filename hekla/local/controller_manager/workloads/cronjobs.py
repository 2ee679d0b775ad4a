"""CronJobs of Kubernetes' own group: creates a Job at each time of the schedule, and keeps the
history short.  Reference: local-cluster 10.6.

The schedules' grammar and the arithmetic of missed runs are shared with the batch system's own kind
(`hekla.api.text.schedule`, `hekla.kube.runs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC

from hekla.api.kubernetes.batch import CRON_JOB, JOB
from hekla.api.text.schedule import Schedule, ScheduleError, parse, zone_named
from hekla.api.text.times import instant, stamp, zoned_stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.kube.runs import Missed, most_recent, until_next
from hekla.local.controller_manager.ownership import deleting, manager, reference
from hekla.local.controller_manager.workloads.job.plan import COMPLETE, condition, finished

KIND, JOBS = CRON_JOB.untyped, JOB.untyped
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
TOO_MANY = (
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
)


def job_name(cron: Json, run: float) -> str:
    """The name of a run's Job.  It depends on the run alone, so a second attempt finds the first
    one's Job."""
    return f"{cron['metadata']['name']}-{int(run) // 60}"


def job_body(cron: Json, run: float) -> Json:
    template, zone = cron["spec"]["jobTemplate"], cron["spec"].get("timeZone")
    meta = template.get("metadata") or {}
    at = zoned_stamp(run, zone_named(zone) if zone else UTC)
    return {
        "metadata": {
            "name": job_name(cron, run),
            "namespace": cron["metadata"]["namespace"],
            "labels": dict(meta.get("labels") or {}),
            "annotations": {**(meta.get("annotations") or {}), SCHEDULED: at},
            "ownerReferences": [reference(CRON_JOB, cron)],
        },
        "spec": template["spec"],
    }


def job_reference(job: Json) -> Json:
    meta = job["metadata"]
    names = {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", **names}


def surplus(cron: Json, jobs: list[Json]) -> list[Json]:
    """Finished Jobs beyond the two limits of the history, oldest first."""
    gone: list[Json] = []
    for complete, field in (
        (True, "successfulJobsHistoryLimit"),
        (False, "failedJobsHistoryLimit"),
    ):
        limit = cron["spec"].get(field)
        if limit is None:
            continue
        ended = [
            job
            for job in jobs
            if finished(job) is not None and (condition(job, COMPLETE) is not None) == complete
        ]
        ended.sort(
            key=lambda job: (
                instant(job.get("status", {}).get("startTime")),
                job["metadata"]["name"],
            )
        )
        gone += ended[: max(0, len(ended) - limit)]
    return gone


def since(cron: Json, now: float | None = None) -> float:
    """The time from which on missed runs are counted; with `now`, not earlier than the deadline for
    starting allows."""
    earliest = instant(cron.get("status", {}).get("lastScheduleTime")) or instant(
        cron["metadata"]["creationTimestamp"]
    )
    deadline = cron["spec"].get("startingDeadlineSeconds")
    return max(earliest, now - deadline) if now is not None and deadline is not None else earliest


class CronJobController(Controller):
    """Reconciles a CronJob and the Jobs that it has made."""

    name = "cronjob"

    def __init__(
        self,
        client: Client,
        crons: Cache[Json],
        jobs: Cache[Json],
        recorder: Recorder,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(crons, jobs)
        self.client = client
        self.crons = crons
        self.jobs = jobs
        self.recorder = recorder
        self.clock = clock
        self.enqueue(crons)
        self.enqueue(jobs, cron_of)

    async def reconcile(self, key: str) -> float | None:
        cron = self.crons.get(key)
        if cron is None or deleting(cron):
            return None
        owned = self.jobs.by("manager", cron["metadata"]["uid"])
        status = await self.bookkeep(cron, owned)
        await self.forget_old(cron, owned)
        again = None
        try:
            again = await self.start_due(cron, status)
        finally:
            if status != (cron.get("status") or {}):
                with suppress(NotFound):
                    await self.client.update_status(KIND, {**cron, "status": status})
        return again

    async def bookkeep(self, cron: Json, owned: list[Json]) -> Json:
        """The status by the existing Jobs: which are active, and when the last one succeeded."""
        status: Json = dict(cron.get("status") or {})
        active = list(status.get("active") or ())
        listed = {entry["uid"] for entry in active}
        by_uid = {job["metadata"]["uid"]: job for job in owned}
        for uid, job in by_uid.items():
            name, ended = job["metadata"]["name"], finished(job)
            if ended is None:
                if uid not in listed:
                    if name.startswith(f"{cron['metadata']['name']}-") and SCHEDULED in (
                        job["metadata"].get("annotations") or {}
                    ):
                        # Made by us, before the status could be written.
                        active.append(job_reference(job))
                    else:
                        why = f"Saw a job that the controller did not create or forgot: {name}"
                        self.recorder.event(cron, "Warning", "UnexpectedJob", why)
                continue
            if uid in listed:
                active = [entry for entry in active if entry["uid"] != uid]
                message = f"Saw completed job: {name}, condition: {ended['type']}"
                self.recorder.event(cron, "Normal", "SawCompletedJob", message)
            at = job.get("status", {}).get("completionTime")
            if (
                ended["type"] == COMPLETE
                and at
                and instant(at) > instant(status.get("lastSuccessfulTime"))
            ):
                status["lastSuccessfulTime"] = at
        for entry in list(active):
            if entry["uid"] not in by_uid and not await self.exists(cron, entry):
                active.remove(entry)
                self.recorder.event(
                    cron, "Normal", "MissingJob", f"Active job went missing: {entry['name']}"
                )
        set_active(status, active)
        return status

    async def exists(self, cron: Json, entry: Json) -> bool:
        """Whether a Job exists on the server; the cache may be late."""
        try:
            found = await self.client.get(JOBS, entry["name"], cron["metadata"]["namespace"])
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == entry["uid"])

    async def forget_old(self, cron: Json, owned: list[Json]) -> None:
        for job in surplus(cron, owned):
            if not deleting(job):
                await self.delete(cron, job["metadata"]["name"], job["metadata"]["uid"])

    async def start_due(self, cron: Json, status: Json) -> float | None:
        """Start the run that is due.  Gives the seconds until the next one."""
        spec, now = cron["spec"], self.clock()
        if spec.get("suspend"):
            return None
        schedule = self.schedule(cron)
        if schedule is None:
            return None
        try:
            recent = most_recent(since(cron, now), schedule, now)
        except ValueError as error:
            self.recorder.event(
                cron, "Warning", "InvalidSchedule", f"invalid schedule: {spec['schedule']}: {error}"
            )
            return None
        if recent.missed is Missed.MANY:
            self.recorder.event(cron, "Warning", "TooManyMissedTimes", TOO_MANY)
        following = until_next(recent.run if recent.run is not None else since(cron), schedule, now)
        run = recent.run
        if run is None or instant(status.get("lastScheduleTime")) >= run:
            return following
        name, active = job_name(cron, run), status.get("active") or []
        if any(entry["name"] == name for entry in active):
            # It was made before the status could be written.
            status["lastScheduleTime"] = stamp(run)
            return following
        policy = spec.get("concurrencyPolicy", "Allow")
        if policy == "Forbid" and active:
            why = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.recorder.event(cron, "Normal", "JobAlreadyActive", why)
            return following
        if policy == "Replace":
            for entry in list(active):
                await self.delete(cron, entry["name"], entry["uid"])
            set_active(status, [])
        made = await self.make(cron, run)
        if made is not None:
            if finished(made) is None:
                set_active(status, [*(status.get("active") or ()), job_reference(made)])
            status["lastScheduleTime"] = stamp(run)
        return following

    def schedule(self, cron: Json) -> Schedule | None:
        """The schedule in its time zone; None when it cannot be read, which an event reports."""
        spec = cron["spec"]
        try:
            return parse(spec["schedule"], spec.get("timeZone"))
        except ScheduleError as error:
            reason = "UnparseableSchedule"
            why = f'unparseable schedule: "{spec["schedule"]}" : {error}'
            if spec.get("timeZone") and "time zone" in str(error):
                reason, why = "UnknownTimeZone", f'invalid timeZone: "{spec["timeZone"]}" : {error}'
            self.recorder.event(cron, "Warning", reason, why)
            return None

    async def make(self, cron: Json, run: float) -> Json | None:
        body, namespace = job_body(cron, run), cron["metadata"]["namespace"]
        name = body["metadata"]["name"]
        try:
            made = await self.client.create(JOBS, body, namespace)
        except AlreadyExists:
            found = await self.client.get(JOBS, name, namespace)
            owner = manager(found)
            return found if owner is not None and owner["uid"] == cron["metadata"]["uid"] else None
        except ApiError as error:
            if not error.has_cause("NamespaceTerminating"):
                self.recorder.event(
                    cron, "Warning", "FailedCreate", f"Error creating job: {error.message}"
                )
            raise
        self.recorder.event(cron, "Normal", "SuccessfulCreate", f"Created job {name}")
        return made

    async def delete(self, cron: Json, name: str, uid: str) -> None:
        try:
            await self.client.delete(
                JOB, name, cron["metadata"]["namespace"], uid=uid, propagation="Background"
            )
        except (NotFound, Conflict):
            return
        self.recorder.event(cron, "Normal", "SuccessfulDelete", f"Deleted job {name}")


def set_active(status: Json, active: list[Json]) -> None:
    if active:
        status["active"] = active
    else:
        status.pop("active", None)


def cron_of(job: Json) -> str | None:
    """The key of the CronJob that made a Job."""
    owner = manager(job)
    if (
        owner is None
        or owner["kind"] != CRON_JOB.kind
        or owner["apiVersion"] != CRON_JOB.api_version
    ):
        return None
    return f"{job['metadata']['namespace']}/{owner['name']}"
