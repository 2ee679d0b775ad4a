"""Writes the statuses of jobs: at once, or gathered while nothing but counts has changed.

A status is written when it says something new.  Where only its counts differ, or a job takes one of
its first steps (Pending, Running), the write is put off for a while, longer where the server is
busy, so that one write carries what would have been three; once it is due, the job is reconciled
again and what its status is by then is written.  While the server is busy, few of these late
writes are in flight at a time: pods' creation goes first.  In a flood of jobs, those that run
before it has been written that they are Pending are written once, as Running (decision 0202).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from hekla.api import batch
from hekla.api.meta import key as key_of
from hekla.controllers.job import metrics, states
from hekla.controllers.job.status import dated, first_phase
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.http.client import TransportError
from hekla.kube.status_writer import StatusWriter
from hekla.kube.workqueue import ROUNDING, WorkQueue

STATUS_INTERVAL = 0.5
"""Seconds between two writes of a status in which only the counts differ, and for which such counts
are gathered: pods that have just been made are often running, and the job with them, before anybody
could have read that they were pending.
"""
LONGEST_INTERVAL = 2.0
"""The same where the server is busy, and then for a job's first steps too: that it is Pending, that
it is Running (decision 0202)."""
FLOOD = 32
"""So many jobs whose first steps wait to be written are a flood."""
FLOOD_RATE = 16
"""So many jobs that take their first step within a second are one too."""
FLOOD_INTERVAL = 30.0
"""Seconds for which first steps wait in a flood while the server is busy."""
FLOOD_PATIENCE = 1.0
"""Seconds for which they wait in a flood on any server."""
LOOK_INTERVAL = 1.0
"""Seconds after which a waiting write is looked at again: the server may be quiet by then."""
LONGEST_TURN = 5.0
"""Seconds that the reconcile of a job may hold its place among the late writes."""
_FIRST_STEPS = {("", states.PENDING), ("", states.RUNNING), (states.PENDING, states.RUNNING)}
"""Changes of phase that nothing else waits for."""


@dataclass(slots=True)
class StatusRecord:
    """What is known of one job beyond what the watch has shown: its own writes, and what of its
    status is still to be written."""

    uid: str
    answered: batch.Job | None = None
    """The job as the server answered to the last write, until the watch shows it."""
    in_flight: bool = False
    """A write of the status has been sent and not answered."""
    written_at: float = 0.0
    late_since: float = 0.0
    """Since when the status on the server lacks nothing but counts and first steps; 0 where it
    lacks nothing."""
    due_at: float = 0.0
    """Until when it may."""
    first_step: batch.JobStatus | None = None
    """The status with a first step that waits to be written."""
    turn: asyncio.Event | None = None
    """Set once the reconcile is over that this job was queued for in its turn to write."""

    def end_turn(self) -> None:
        """The reconcile is over, or the job gone: the next job may write."""
        if self.turn is not None:
            self.turn.set()
            self.turn = None


class StatusUpdater:
    """The writes to job objects, and the newest version that is known of each."""

    def __init__(self, client: Client, jobs: Cache[batch.Job], queue: WorkQueue) -> None:
        self._client = client
        self._jobs = jobs
        self._queue = queue
        self._records: dict[str, StatusRecord] = {}
        self._first_steps: set[str] = set()
        """Keys of the jobs whose first steps wait to be written."""
        self._came_at: deque[float] = deque(maxlen=FLOOD_RATE)
        """When jobs took their first steps last."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._late_writes = StatusWriter(self._launch)
        self._delays = queue.delays_for(self._fall_due)

    def of(self, key: str, job: batch.Job) -> StatusRecord:
        """The record of a job; a job of the same name that was made anew begins with an empty
        one."""
        record = self._records.get(key)
        if record is None or record.uid != job.metadata.uid:
            record = self._records[key] = StatusRecord(job.metadata.uid)
        return record

    def forget(self, key: str) -> None:
        """The job is gone, or has finished and everything is written."""
        record = self._records.pop(key, None)
        self._first_steps.discard(key)
        if record is not None and record.turn is not None:
            record.turn.set()

    def newest(self, key: str) -> batch.Job | None:
        """The newest version that is known of a job: what the watch has shown, or what the server
        answered to the last write."""
        job = self._jobs.get(key)
        record = self._records.get(key)
        if job is None or record is None or record.answered is None:
            return job
        answered = record.answered
        if answered.metadata.uid == job.metadata.uid and _version(answered) > _version(job):
            return answered
        return job

    def is_echo(self, key: str, job: batch.Job) -> bool:
        """Whether the watch shows no more of a job than what was written here."""
        record = self._records.get(key)
        if record is None:
            return False
        if record.in_flight:
            # Most likely this write, before its answer; `write` compares the two.
            return True
        answered = record.answered
        if (
            answered is not None
            and answered.metadata.resource_version == job.metadata.resource_version
        ):
            record.answered = None
            return True
        return False

    async def patch(self, job: batch.Job, record: StatusRecord, patch: dict[str, Any]) -> batch.Job:
        """Merge a patch into a job outside of its status.  Gives the job as it is then."""
        record.answered = await self._client.patch(
            batch.JOB, job.metadata.name, patch, job.metadata.namespace
        )
        return record.answered

    async def annotate(self, key: str, uid: str, annotations: dict[str, str]) -> None:
        """Set annotations of a job, unless it is gone."""
        job = self.newest(key)
        if job is None or job.metadata.uid != uid:
            return
        patch = {"metadata": {"annotations": annotations, "uid": uid}}
        fresh = await self._client.patch(
            batch.JOB, job.metadata.name, patch, job.metadata.namespace
        )
        newest = self.newest(key)
        record = self._records.get(key)
        if record is not None and newest is not None and _version(fresh) > _version(newest):
            record.answered = fresh

    # -- writing -----------------------------------------------------------------------------------

    async def write(
        self, job: batch.Job, record: StatusRecord, wanted: batch.JobStatus
    ) -> batch.Job:
        """Write a status now.  Gives the job as it is then."""
        key = key_of(job)
        record.in_flight = True
        try:
            fresh = await self._client.update_status(
                batch.JOB, msgspec.structs.replace(job, status=wanted)
            )
        except TransportError:
            raise  # the caller tries again in a while, and sees then what `is_echo` has passed over
        except BaseException:
            self._queue.add(key)  # for what `is_echo` has passed over
            raise
        finally:
            record.in_flight = False
        shown = self._jobs.get(key)
        if shown is not None and _version(shown) > _version(fresh):
            self._queue.add(key)  # somebody else has changed it since
        record.answered = (
            None if shown is not None and _version(shown) >= _version(fresh) else fresh
        )
        record.written_at, record.late_since = time.monotonic(), 0.0
        self._set_first_step(key, record, None)
        if fresh.status.state.phase != job.status.state.phase:
            metrics.count_phase(fresh, key, fresh.status.state.phase)
        return fresh

    async def settle(
        self, job: batch.Job, record: StatusRecord, wanted: batch.JobStatus
    ) -> float | None:
        """Write a status if it says something new, now or, where it may wait, later.

        Gives 0.0 where the job is to be reconciled again because of the phase that it has come to.
        """
        if wanted == job.status:
            record.late_since = 0.0
            self._set_first_step(key_of(job), record, None)
            return None
        before, after = job.status.state.phase, wanted.state.phase
        moved = after != before
        if not before and record.first_step is None:
            self._came_at.append(time.monotonic())
        catches_up = wanted is record.first_step
        if record.first_step is not None and moved:
            wanted = dated(wanted, record.first_step)
        may_wait = not moved or (before, after) in _FIRST_STEPS
        if (
            may_wait
            and not catches_up
            and wanted.controlled_resources == job.status.controlled_resources
            and self._put_off(job, record, wanted, moved)
        ):
            return None
        if not before and after == states.RUNNING and not self._flooded:
            # Who waits for each phase in turn is to see each.
            job = await self.write(job, record, first_phase(wanted))
            self._set_first_step(key_of(job), record, wanted)  # should the next write fail
        await self.write(job, record, wanted)
        return 0.0 if moved and not _nothing_follows(before, wanted) else None

    def _put_off(
        self, job: batch.Job, record: StatusRecord, wanted: batch.JobStatus, moved: bool
    ) -> bool:
        """Have a status written later, where it is not due."""
        now = time.monotonic()
        record.late_since = record.late_since or now
        since = record.late_since if moved else max(record.written_at, record.late_since)
        debounce = self._client.debounce
        shortest, longest = STATUS_INTERVAL, LONGEST_INTERVAL
        if moved:
            flooded = self._flooded
            shortest = FLOOD_PATIENCE if flooded else 0.0
            held = flooded and not self._ebbs_for(wanted)
            longest = FLOOD_INTERVAL if held else LONGEST_INTERVAL
        wait = since + debounce.delay(shortest, longest) - now
        if wait <= 0 and (record.turn is not None or not debounce.busy):
            return False
        key = key_of(job)
        self._set_first_step(key, record, wanted if moved else None)
        if wait > 0:
            record.due_at = now + wait
            self._delays.after(key, min(wait, LOOK_INTERVAL))
        else:
            self._late_writes.put(key, partial(self._begin_turn, key, record))
        return True

    @property
    def _flooded(self) -> bool:
        return len(self._first_steps) >= FLOOD or self._come_fast

    @property
    def _come_fast(self) -> bool:
        came_at = self._came_at
        return len(came_at) == FLOOD_RATE and time.monotonic() - came_at[0] <= 1.0

    def _set_first_step(self, key: str, record: StatusRecord, step: batch.JobStatus | None) -> None:
        record.first_step = step
        (self._first_steps.discard if step is None else self._first_steps.add)(key)

    def _fall_due(self, key: str) -> None:
        """Have a job reconciled whose status may be late no longer: in its turn, while the server
        is busy."""
        record = self._records.get(key)
        if record is None or not record.late_since:
            return  # written meanwhile
        left = record.due_at - time.monotonic()
        busy = self._client.debounce.busy
        ebbs = left > LONGEST_INTERVAL and self._ebbs_for(record.first_step)
        if left > ROUNDING and (record.first_step is None or (busy and not ebbs)):
            self._delays.after(key, min(left, LOOK_INTERVAL))
        elif record.turn is None and busy:
            self._late_writes.put(key, partial(self._begin_turn, key, record))
        else:
            self._queue.add(key)

    def _ebbs_for(self, step: batch.JobStatus | None) -> bool:
        """Whether nothing more is to be gathered for a flood: the job runs, and no more jobs come
        fast.  That the server is slow is no reason to wait then."""
        return step is not None and step.state.phase == states.RUNNING and not self._come_fast

    def _begin_turn(self, key: str, record: StatusRecord) -> asyncio.Task[None] | None:
        """Have a job reconciled whose turn to write has come, if it still has something to write."""
        if self._records.get(key) is not record or not record.late_since:
            return None
        record.turn = asyncio.Event()
        self._queue.add(key)
        return asyncio.ensure_future(_within(LONGEST_TURN, record.turn.wait()))

    def _launch(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _nothing_follows(before: str, status: batch.JobStatus) -> bool:
    """Whether the reconcile that led to a new phase has looked at all that follows from it, too."""
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


def _version(job: batch.Job) -> int:
    text = job.metadata.resource_version
    return int(text) if text.isdigit() else 0
