"""Writes the statuses of PodGroups: the phase Inqueue at once or, in a flood, with those of other
groups; everything else as rarely as possible.

Half a dozen cycles decide about a group until it runs, and each finds something new: a condition, a
phase, one more running pod.  The status is written when it stops changing (decision 0202).  Nothing
is lost by waiting: the phase that the controller waits for is written or announced at once, and a
scheduler that restarts reads the group and decides again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from hekla.api import scheduling
from hekla.api.kinds import read_as
from hekla.api.names import EXPLANATION, JOB_VERSION, START_ESTIMATE, WAITING
from hekla.api.text.times import stamp
from hekla.engine.framework.joborder import waits
from hekla.engine.model.decisions import PodGroupStatus
from hekla.engine.model.explanations import Explanation
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Job, Status
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, NotFound
from hekla.kube.http.client import TransportError
from hekla.kube.status_writer import StatusWriter
from hekla.scheduler.inqueue_announcer import InqueueAnnouncer

log = logging.getLogger(__name__)

Work = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a write of the object of that name, after the write in flight of the same object."""

DELAY, LONGEST_DELAY = 0.35, 10.0
"""Seconds that a status is deferred from its last change; from its first change, three times as
long at most.  Scheduled, Running and the first count of running pods follow each other closely; on
a busy server they take longer, and so does the delay: the longest while it is flooded with groups,
because binds go first."""
LONGEST_IN_FLOOD = 30.0
"""Seconds that a status is deferred at most while the server is flooded with groups, where it takes
so long over each that they come no further in less."""
STARTING = 6
"""While pods are bound that do not run yet, the delay from the first change is so many times as
long: most pods run soon, and are counted then."""
SLOW = 0.05
"""Seconds of response time above which no status is written early.  More than what counts as busy,
because few writes at a time are no load."""
EARLY = 4
"""Early writes in flight at a time: those of groups that have just begun to run."""
UNHEARD = 3.0
"""Seconds after which the phase of an announced group is written whose pods have not come, however
busy the server is, where it is not known that somebody reads announcements."""
KEPT = 1000
"""Groups that are gone and still remembered as running, besides as many as there are jobs."""
REMEMBERED = LONGEST_IN_FLOOD + 5.0
"""Seconds for which a written status is remembered.  By then the watch has shown it, and every
status that was deferred before is written."""


class Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class Answer(msgspec.Struct):
    """The part of a PodGroup that is decoded from the answer to a write."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


POD_GROUP = read_as(scheduling.POD_GROUP, Answer)


class Estimates(Protocol):
    """When waiting jobs start."""

    def annotation(self, job: Job) -> str | None:
        """What a waiting job's PodGroup is to say of it, if anything is known."""

    def written(self, job: Job) -> None:
        """It does now."""


class DeferredStatus(NamedTuple):
    """The newest unwritten status of a PodGroup, and the explanation why the group waits."""

    status: PodGroupStatus
    explained: Explanation | None
    since: float
    """When the first unwritten status came (loop time)."""
    changed: float


class Written(NamedTuple):
    """The last status that was written to a PodGroup, and its resourceVersion since."""

    content: tuple[Any, ...]
    version: str
    at: float


class PodGroupStatusUpdater:
    """Writes what cycles decided about PodGroups.

    `write_in_order` starts urgent writes, `status_writer` those that nobody waits for; `seen` gives
    the newest resourceVersion of a group that the watch has shown.  In `namespace` the groups are
    announced that are let in together; "" for none.
    """

    def __init__(
        self,
        client: Client,
        state: State,
        write_in_order: Work,
        status_writer: StatusWriter,
        seen: Callable[[str], str] = lambda key: "",
        namespace: str = "",
    ) -> None:
        self.client = client
        self.state = state
        self.write_in_order = write_in_order
        self.status_writer = status_writer
        self.seen = seen
        self.deferred: dict[str, DeferredStatus] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.written: dict[str, Written] = {}
        """Statuses that were written and that the watch has not shown yet, the oldest first."""
        self.early_writes: set[asyncio.Task[None]] = set()
        """Writes in flight of groups that have just begun to run."""
        self.reported_running: dict[str, str] = {}
        """Groups whose phase Running was written early -> their uid."""
        self.admitted: set[str] = set()
        """Groups whose phase Inqueue is written or announced."""
        self.estimates: Estimates | None = None
        """Who says when waiting jobs start, if anybody does."""
        self.announcer = InqueueAnnouncer(
            client, namespace, status_writer.launch, self.write_admissions
        )

    def update(self, group: PodGroupStatus, explained: Explanation | None = None) -> None:
        """Write or announce the phase Inqueue at once, and defer everything else."""
        if group.phase != "Running":
            self.reported_running.pop(group.key, None)
        if group.phase != "Inqueue":
            self.announcer.heard(group.key)
        if (
            group.phase == "Inqueue"
            and group.key not in self.admitted
            and self.pods_wait_for(group.key)
        ):
            self.admitted.add(group.key)
            if self.is_of_a_job(group) and self.announcer.announce(group.key, group.uid):
                self.defer(group, explained)
            else:
                self.write_now(group, explained)
        elif self.is_written(group):
            self.deferred.pop(group.key, None)
            self.status_writer.drop(f"group {group.key}")
        else:
            self.defer(group, explained)

    def update_early(self, group: PodGroupStatus, explained: Explanation | None = None) -> None:
        """Write at once that a group has begun to run, where the server has time for it.

        Its pods are bound and not seen running yet, so a second write will follow.  It is done for
        few groups at a time, and for none in a flood or while the server is slow; all other statuses
        go to `update`.
        """
        if (
            group.phase != "Running"
            or self.reported_running.get(group.key) == group.uid
            or len(self.early_writes) >= EARLY
            or self.announcer.flooded
            or self.client.debounce.response_time > SLOW
        ):
            self.update(group, explained)
            return
        if len(self.reported_running) > 2 * len(self.state.jobs) + KEPT:
            self.reported_running = {
                key: uid for key, uid in self.reported_running.items() if key in self.state.jobs
            }
        self.reported_running[group.key] = group.uid
        self.announcer.heard(group.key)
        self.admitted.discard(group.key)
        task = self.write_now(group, explained)
        self.early_writes.add(task)
        task.add_done_callback(self.early_writes.discard)

    def write_now(self, group: PodGroupStatus, explained: Explanation | None) -> asyncio.Task[None]:
        """Start a write in the place of one that was deferred."""
        self.deferred.pop(group.key, None)
        self.status_writer.drop(f"group {group.key}")
        return self.write_in_order(f"group {group.key}", self.write(group, explained))

    def write_admissions(self, groups: Iterable[str]) -> None:
        """Write the phase Inqueue of groups whose announcement nobody has heard."""
        for key in groups:
            deferred = self.deferred.get(key)
            if deferred is not None and deferred.status.phase == "Inqueue":
                self.write_now(deferred.status, deferred.explained)

    def is_of_a_job(self, group: PodGroupStatus) -> bool:
        """Whether Hekla's job controller has made the group: nobody else hears announcements."""
        job = self.state.jobs.get(group.key)
        return job is not None and JOB_VERSION in job.annotations

    def pods_wait_for(self, group: str) -> bool:
        """Whether the controller creates the group's pods only once its phase is Inqueue.

        If the pods exist already, their binds say the same.  Groups that the controller creates for
        pods without one (`podgroup-` and the owner's uid) come after their pods.
        """
        if group.rpartition("/")[2].startswith("podgroup-"):
            return False
        job = self.state.jobs.get(group)
        return job is None or len(job.tasks) < max(job.min_available, 1)

    def is_written(self, group: PodGroupStatus) -> bool:
        """Whether the server has this status already: the cycle that decided it could not know."""
        written = self.written.get(group.key)
        if written is None:
            return False
        seen = self.seen(group.key)
        if not (seen.isdigit() and written.version.isdigit()) or int(seen) > int(written.version):
            del self.written[group.key]  # somebody else has changed it since
            return False
        return written.content == content_of(group)

    def defer(self, group: PodGroupStatus, explained: Explanation | None) -> None:
        loop = asyncio.get_running_loop()
        if self.timer is None:
            self.timer = loop.call_later(DELAY, self.flush)
        before = self.deferred.get(group.key)
        now = loop.time()
        self.deferred[group.key] = DeferredStatus(
            group, explained, before.since if before else now, now
        )

    def flush(self) -> None:
        """Write the statuses that have stayed the same, or been deferred, for long enough."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for key in [key for key, written in self.written.items() if now - written.at >= REMEMBERED]:
            del self.written[key]
        debounce = self.client.debounce
        in_the_way = self.announcer.flooded and debounce.busy
        stable = (
            debounce.delay(LONGEST_DELAY, LONGEST_IN_FLOOD)
            if in_the_way
            else debounce.delay(DELAY, LONGEST_DELAY)
        )
        for key, (group, explained, since, changed) in list(self.deferred.items()):
            patience = stable
            if group.phase == "Inqueue" and self.pods_wait_for(key) and not self.announcer.is_heard:
                patience = min(stable, UNHEARD)
            if now - changed < patience and now - since < max(patience, 3 * DELAY):
                continue
            if now - since < max(stable, STARTING * DELAY) and self.is_starting(group):
                continue
            del self.deferred[key]
            if group.phase != "Inqueue":
                self.admitted.discard(key)
            self.announcer.forget(key)
            self.status_writer.put(f"group {key}", partial(self.start, group, explained))
        pause = min(stable / 8, DELAY)
        self.timer = loop.call_later(pause, self.flush) if self.deferred else None

    def is_starting(self, group: PodGroupStatus) -> bool:
        """Whether pods of the group are bound and do not run yet, so that its counts will change."""
        job = self.state.jobs.get(group.key)
        return (
            job is not None
            and job.pg_uid == group.uid
            and any(job.counts.statuses[one] for one in (Status.BINDING, Status.BOUND))
        )

    def start(
        self, group: PodGroupStatus, explained: Explanation | None
    ) -> asyncio.Task[None] | None:
        """Start the write of a deferred status, unless the server has it already or the group is
        gone: a finished job's group is, before its pods."""
        job = self.state.jobs.get(group.key)
        if job is None or not job.has_group or job.pg_uid != group.uid:
            return None
        newest = self.with_current_counts(group)
        return (
            None
            if self.is_written(newest)
            else self.write_in_order(f"group {group.key}", self.write(newest, explained))
        )

    def with_current_counts(self, group: PodGroupStatus) -> PodGroupStatus:
        """The status with the present counts of pods: the cycle that decided it may be seconds ago."""
        job = self.state.jobs.get(group.key)
        if job is None or job.pg_uid != group.uid:
            return group
        running, succeeded, failed = (
            len(job.counts.statuses[one])
            for one in (Status.RUNNING, Status.SUCCEEDED, Status.FAILED)
        )
        return PodGroupStatus(
            group.key, group.uid, group.phase, running, succeeded, failed, group.conditions
        )

    async def write(self, group: PodGroupStatus, explained: Explanation | None) -> None:
        namespace, _, name = group.key.rpartition("/")
        conditions = [
            {**condition, "lastTransitionTime": condition.get("lastTransitionTime") or now()}
            for condition in group.conditions
        ]
        status = {
            "phase": group.phase,
            "running": group.running or None,
            "succeeded": group.succeeded or None,
            "failed": group.failed or None,
            "conditions": conditions,
        }
        metadata: dict[str, Any] = {"uid": group.uid}
        job = self.state.jobs.get(group.key)
        wanted = {EXPLANATION: explanation_of(group, explained)}
        if job is not None and job.pg_uid == group.uid:
            wanted |= self.estimate_of(job)
        annotations = {
            name: text or None
            for name, text in wanted.items()
            if text or (job is not None and name in job.annotations)
        }
        if annotations:
            metadata["annotations"] = annotations
        patch = {"metadata": metadata, "status": status}
        subresource = "status" if scheduling.POD_GROUP.status else None
        try:
            answer = await self.client.patch(
                POD_GROUP, name, patch, namespace, subresource=subresource
            )
        except (NotFound, Conflict):
            return
        except (ApiError, TransportError) as error:
            log.warning("status of %s: %s", group.key, error)
            if isinstance(error, TransportError) or error.code >= 500:
                self.retry(group, explained)
            return
        self.has_written(job, annotations)
        self.written.pop(group.key, None)
        self.written[group.key] = Written(
            content_of(group), answer.metadata.resource_version, asyncio.get_running_loop().time()
        )

    def estimate_of(self, job: Job) -> dict[str, str]:
        """The annotation of a job's start: empty text for one that waits no more, nothing where what
        it says is to stay."""
        if self.estimates is None:
            return {}
        text = self.estimates.annotation(job)
        return {START_ESTIMATE: text or ""} if text or not waits(job) else {}

    def has_written(self, job: Job | None, annotations: Mapping[str, str | None]) -> None:
        """The server has these annotations; the watch shows them as nothing new."""
        if job is None or not annotations:
            return
        kept = {name: text for name, text in job.annotations.items() if name not in annotations}
        job.annotations = kept | {name: text for name, text in annotations.items() if text}
        if annotations.get(START_ESTIMATE) and self.estimates is not None:
            self.estimates.written(job)

    def update_estimate(self, key: str) -> None:
        """Write by itself that a job's start has moved, unless a status that goes along is waiting."""
        if key not in self.deferred:
            self.status_writer.put(f"estimate {key}", partial(self.start_estimate, key))

    def start_estimate(self, key: str) -> asyncio.Task[None] | None:
        job = self.state.jobs.get(key)
        text = self.estimate_of(job).get(START_ESTIMATE) if job is not None else None
        if job is None or not text or job.annotations.get(START_ESTIMATE) == text:
            return None
        return self.write_in_order(f"group {key}", self.write_estimate(job, text))

    async def write_estimate(self, job: Job, text: str) -> None:
        patch = {"metadata": {"uid": job.pg_uid, "annotations": {START_ESTIMATE: text}}}
        try:
            answer = await self.client.patch(POD_GROUP, job.name, patch, job.namespace)
        except (NotFound, Conflict):
            return
        except (ApiError, TransportError) as error:
            # The next renewal finds it unwritten.
            log.warning("start estimate of %s: %s", job.key, error)
            return
        self.has_written(job, {START_ESTIMATE: text})
        if (written := self.written.get(job.key)) is not None:
            self.written[job.key] = written._replace(version=answer.metadata.resource_version)

    def retry(self, group: PodGroupStatus, explained: Explanation | None) -> None:
        """Defer a status again whose write failed, because the cycles assume that it is written.  A
        newer status of the group replaces it."""
        job = self.state.jobs.get(group.key)
        if job is not None and job.pg_uid == group.uid and group.key not in self.deferred:
            self.defer(group, explained)


def explanation_of(group: PodGroupStatus, explained: Explanation | None) -> str:
    """The explanation's numbers, for the annotation beside the condition that has the words; empty
    where there is no such condition or nothing to count."""
    if explained is None or not any(
        one.get("type") == WAITING and one.get("message") == explained.text
        for one in group.conditions
    ):
        return ""
    return explained.numbers()


def content_of(group: PodGroupStatus) -> tuple[Any, ...]:
    """What makes two statuses equal: everything but times and cycle numbers."""
    conditions = tuple(
        (one.get("type"), one.get("status"), one.get("reason"), one.get("message"))
        for one in group.conditions
    )
    return group.uid, group.phase, group.running, group.succeeded, group.failed, conditions


def now() -> str:
    return stamp(time.time())
