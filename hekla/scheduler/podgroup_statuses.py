"""Writes the statuses of PodGroups: being let in at once, everything else as few times as it takes.

A group on its way is decided upon in half a dozen cycles, and each finds something new: a
condition, a phase, one more running pod. What is written is what stable when that has calmed down
(decision 0202).  Nothing is lost by waiting: the phase that pods wait for does not wait, and a
scheduler that dies reads the group as it is and decides again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import msgspec

from hekla.api import scheduling
from hekla.api.kinds import read_as
from hekla.api.names import EXPLANATION, WAITING
from hekla.api.text.times import stamp
from hekla.engine.model.decisions import PodGroupStatus
from hekla.engine.model.explanations import Explanation
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Status
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, NotFound
from hekla.kube.http.client import TransportError
from hekla.kube.status_writer import StatusWriter

log = logging.getLogger(__name__)

Work = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a write of the object of that name, after the one that is under way for it."""

DELAY, LONGEST_DELAY = 0.35, 10.0
"""Seconds for which the newest status is gathered, from the last change of it, three times as long
from the first.  Scheduled, Running and the first count of running pods come soon after each other;
less soon when the server is busy, and then gathering takes longer.
"""
STARTING = 6
"""So many times as long while pods are bound that do not run yet, from the first change: most run
soon, and are counted then."""
SLOW = 0.05
"""Seconds that an answer may take for that: the few writes at a time are no load, and on a crowded
machine each takes long."""
EARLY = 4
"""Groups at a time of which it is written at once that they run."""
KEPT = 1000
"""Groups that are gone and of which it is still known that they ran, besides as many as there are.
"""
REMEMBERED = LONGEST_DELAY + 5.0
"""Seconds for which it is remembered what was written; by then the watch has shown it, and what was
gathered before has had its turn."""


class Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class Answer(msgspec.Struct):
    """What is read of a PodGroup that was written."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


POD_GROUP = read_as(scheduling.POD_GROUP, Answer)


class DeferredStatus(NamedTuple):
    """The newest status of a PodGroup that waits to be written, and why the group waits."""

    status: PodGroupStatus
    explained: Explanation | None
    since: float
    """When the first of the unwritten ones came (loop time)."""
    changed: float


class Written(NamedTuple):
    """What a PodGroup has been told, and the version that it has had since."""

    content: tuple[Any, ...]
    version: str
    at: float


class PodGroupStatusUpdater:
    """Takes what cycles decided about PodGroups.

    `write_in_order` carries the writes, `status_writer` those that nobody waits for; `seen` gives the version of a
    group that the watch has shown.
    """

    def __init__(
        self,
        client: Client,
        state: State,
        write_in_order: Work,
        status_writer: StatusWriter,
        seen: Callable[[str], str] = lambda key: "",
    ) -> None:
        self.client = client
        self.state = state
        self.write_in_order = write_in_order
        self.status_writer = status_writer
        self.seen = seen
        self.deferred: dict[str, DeferredStatus] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.written: dict[str, Written] = {}
        """What groups have been told and the watch has not shown yet, the oldest first."""
        self.early_writes: set[asyncio.Task[None]] = set()
        """Writes of groups that have just begun to run."""
        self.reported_running: dict[str, str] = {}
        """Of groups of which it has been written so that they run, the uid."""
        self.admitted: set[str] = set()
        """Groups whose phase Inqueue has been written."""

    def update(self, group: PodGroupStatus, explained: Explanation | None = None) -> None:
        """Writes at once that a group was let in; anything else with what follows it soon."""
        if group.phase != "Running":
            self.reported_running.pop(group.key, None)
        if (
            group.phase == "Inqueue"
            and group.key not in self.admitted
            and self.pods_wait_for(group.key)
        ):
            self.admitted.add(group.key)
            self.deferred.pop(group.key, None)
            self.status_writer.drop(f"group {group.key}")
            self.write_in_order(f"group {group.key}", self.write(group, explained))
        elif self.is_written(group):
            self.deferred.pop(group.key, None)
            self.status_writer.drop(f"group {group.key}")
        else:
            self.defer(group, explained)

    def update_early(self, group: PodGroupStatus, explained: Explanation | None = None) -> None:
        """Takes the status of a group that may have begun to run.

        That it runs is written as soon as its pods are bound, before they can be seen running,
        where the server has time for one more write: few groups at a time, and none while it is
        busy, when what follows soon is said in one.
        """
        if (
            group.phase != "Running"
            or self.reported_running.get(group.key) == group.uid
            or len(self.early_writes) >= EARLY
            or self.client.debounce.response_time > SLOW
        ):
            self.update(group, explained)
            return
        if len(self.reported_running) > 2 * len(self.state.jobs) + KEPT:
            self.reported_running = {
                key: uid for key, uid in self.reported_running.items() if key in self.state.jobs
            }
        self.reported_running[group.key] = group.uid
        self.deferred.pop(group.key, None)
        self.status_writer.drop(f"group {group.key}")
        self.admitted.discard(group.key)
        task = self.write_in_order(f"group {group.key}", self.write(group, explained))
        self.early_writes.add(task)
        task.add_done_callback(self.early_writes.discard)

    def pods_wait_for(self, group: str) -> bool:
        """Whether pods are made only once the group is let in; where they are there, their binds
        tell the same.

        Groups that the controller makes for pods of others (`podgroup-` and the owner's uid) come
        after their pods.
        """
        if group.rpartition("/")[2].startswith("podgroup-"):
            return False
        job = self.state.jobs.get(group)
        return job is None or len(job.tasks) < max(job.min_available, 1)

    def is_written(self, group: PodGroupStatus) -> bool:
        """Whether the server says this already: the cycle that decided it could not know, or its
        counts were others then."""
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
        """Writes the statuses that have stood, or been gathered, for long enough."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for key in [key for key, written in self.written.items() if now - written.at >= REMEMBERED]:
            del self.written[key]
        stable = self.client.debounce.delay(DELAY, LONGEST_DELAY)
        for key, (group, explained, since, changed) in list(self.deferred.items()):
            if now - changed < stable and now - since < max(stable, 3 * DELAY):
                continue
            if now - since < max(stable, STARTING * DELAY) and self.is_starting(group):
                continue
            del self.deferred[key]
            if group.phase != "Inqueue":
                self.admitted.discard(key)
            self.status_writer.put(f"group {key}", partial(self.start, group, explained))
        self.timer = loop.call_later(stable / 8, self.flush) if self.deferred else None

    def is_starting(self, group: PodGroupStatus) -> bool:
        """Whether pods of the group are bound and do not run yet: the counts are about to change."""
        job = self.state.jobs.get(group.key)
        return (
            job is not None
            and job.pg_uid == group.uid
            and any(job.counts.statuses[one] for one in (Status.BINDING, Status.BOUND))
        )

    def start(
        self, group: PodGroupStatus, explained: Explanation | None
    ) -> asyncio.Task[None] | None:
        """Starts the write of a gathered status whose turn has come, if it still says something."""
        newest = self.with_current_counts(group)
        return (
            None
            if self.is_written(newest)
            else self.write_in_order(f"group {group.key}", self.write(newest, explained))
        )

    def with_current_counts(self, group: PodGroupStatus) -> PodGroupStatus:
        """The status with the counts of this moment: those of the cycle that decided it are as old
        as it has been gathered."""
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
        numbers = explanation_of(group, explained)
        if numbers or (job is not None and EXPLANATION in job.annotations):
            metadata["annotations"] = {EXPLANATION: numbers or None}
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
        if job is not None and "annotations" in metadata:
            job.annotations.pop(EXPLANATION, None)
            if numbers:
                job.annotations[EXPLANATION] = numbers
        self.written.pop(group.key, None)
        self.written[group.key] = Written(
            content_of(group), answer.metadata.resource_version, asyncio.get_running_loop().time()
        )

    def retry(self, group: PodGroupStatus, explained: Explanation | None) -> None:
        """The cycles take it for written, so it has to be; something newer about the same group
        goes before."""
        job = self.state.jobs.get(group.key)
        if job is not None and job.pg_uid == group.uid and group.key not in self.deferred:
            self.defer(group, explained)


def explanation_of(group: PodGroupStatus, explained: Explanation | None) -> str:
    """What goes beside the condition that has the same in words; empty where there is none, or
    nothing to count."""
    if explained is None or not any(
        one.get("type") == WAITING and one.get("message") == explained.text
        for one in group.conditions
    ):
        return ""
    return explained.numbers()


def content_of(group: PodGroupStatus) -> tuple[Any, ...]:
    """What a status tells, without the times and the cycle in which it came about."""
    conditions = tuple(
        (one.get("type"), one.get("status"), one.get("reason"), one.get("message"))
        for one in group.conditions
    )
    return group.uid, group.phase, group.running, group.succeeded, group.failed, conditions


def now() -> str:
    return stamp(time.time())
