"""Keeps a job's last failure readable after its pods are gone: which pod failed, how, and the last
lines that it printed.

It is kept in an annotation of the Job, because Volcano's own definitions drop an unknown field of
the status (decision 0070). Only failed pods cost anything here: the log is read beside the job's
own work, with few requests at a time, and the deletion of a failed pod waits for it no longer than
a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from hekla.api import batch, names
from hekla.api.text.times import instant
from hekla.controllers.job.counts import FAILED
from hekla.controllers.job.policies import failure, worst_end
from hekla.controllers.records import POD, Pod
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

LINES = 20
LENGTH = 2048
"""Characters of the log that are kept, from its end."""
READ = 64 * 1024
"""Bytes of the log that are requested: a limit counts from the first of the lines, so it must leave
room for long ones."""
AT_ONCE = 8
"""Requests at a time."""
PATIENCE = 2.0
"""Seconds that a log may take."""
HELD = 1.0
"""Seconds for which a pod is kept from being deleted so that its log can be read."""
CONSEQUENCE = 5.0
"""Seconds within which a further failure of the same run counts as a consequence of the first,
which stays the one shown."""


class LastFailure(msgspec.Struct, rename="camel", omit_defaults=True):
    """The annotation's content, as JSON."""

    pod: str
    uid: str
    time: str = ""
    container: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    run: int = 0
    """The version of the job that the pod belonged to."""
    restarts: int = 0
    log: str = ""


@dataclass(slots=True)
class _Recording:
    """A failure that is being written down."""

    uid: str
    began: float
    read: bool = False
    """The log has been read, or cannot be."""


@dataclass(slots=True)
class Failures:
    """What is known of failed pods and not yet written down."""

    client: Client
    write: Callable[[str, str, str], Awaitable[None]]
    """Puts the annotation on a job; called with its key, its uid and the text."""
    again: Callable[[str], None]
    """Queues a job for another reconcile."""
    _suspects: dict[str, dict[str, Pod]] = field(default_factory=dict)
    """Failed pods by job and name."""
    _recordings: dict[str, _Recording] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _few: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        """Remember a pod that has failed, or whose container was restarted."""
        if new is None or new.leaving:
            return
        status = new.status
        if status.phase == FAILED:
            news = old is None or old.status.phase != FAILED
        else:
            news = any(one.restart_count for one in status.container_statuses) and (
                old is None or _restarts(old) != _restarts(new)
            )
        if news and new.job_key and new.metadata.annotations.out_of_sync is None:
            self._suspects.setdefault(new.job_key, {})[new.metadata.name] = new

    def forget(self, key: str) -> None:
        self._suspects.pop(key, None)

    def record_new(self, key: str, job: batch.Job) -> None:
        """Start to write down the newest failure of a job, if there is one."""
        suspects = self._suspects.get(key)
        if not suspects or key in self._recordings:
            return
        del self._suspects[key]
        found = news(job, suspects.values())
        if found is None:
            return
        pod, kept = found
        self._recordings[key] = _Recording(pod.metadata.uid, time.monotonic())
        task = asyncio.get_running_loop().create_task(self._write_down(key, job, pod, kept))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def holds(self, key: str, pods: Iterable[Pod]) -> float | None:
        """Seconds to wait before these pods are deleted; None when nothing has to wait."""
        recording = self._recordings.get(key)
        if recording is None or recording.read or time.monotonic() - recording.began > HELD:
            return None
        return 0.02 if any(pod.metadata.uid == recording.uid for pod in pods) else None

    async def _write_down(self, key: str, job: batch.Job, pod: Pod, kept: LastFailure) -> None:
        try:
            async with self._few:
                kept.log = await self._log(pod, kept)
                self._recordings[key].read = True
                await self.write(key, job.metadata.uid, msgspec.json.encode(kept).decode())
        except (ApiError, TransportError) as error:
            log.info("%s: the failure of %s could not be written down: %s", key, kept.pod, error)
        finally:
            del self._recordings[key]
            if key in self._suspects:
                self.again(key)

    async def _log(self, pod: Pod, kept: LastFailure) -> str:
        """The last lines of the container; empty where they cannot be had."""
        if not kept.container:
            return ""
        query = {"container": kept.container, "tailLines": str(LINES), "limitBytes": str(READ)}
        if _previous(pod, kept.container):
            query["previous"] = "true"
        try:
            path = POD.path(pod.metadata.namespace, pod.metadata.name, "log")
            answer = await self.client.request("GET", path, query, timeout=PATIENCE)
        except (ApiError, TransportError, TimeoutError) as error:
            log.debug("log of %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
            return ""
        return tail(answer.body.decode(errors="replace"))


def tail(text: str) -> str:
    """The end of a log, from the beginning of a line where that is possible."""
    text = text.rstrip("\n")
    if len(text) <= LENGTH:
        return text
    cut = text[-LENGTH:]
    _, newline, lines = cut.partition("\n")
    return lines if newline else cut


def news(job: batch.Job, pods: Iterable[Pod]) -> tuple[Pod, LastFailure] | None:
    """The failure to write down: the first of a run, unless a failure of that run is already shown
    that came just before it."""
    shown = recorded(job.metadata.annotations)
    best: tuple[Pod, LastFailure] | None = None
    for pod in pods:
        if pod.owner_uid != job.metadata.uid:
            continue
        one = described(pod)
        if shown is not None and not _replaces(one, shown):
            continue
        if (
            best is None
            or _replaces(one, best[1])
            or (one.run == best[1].run and instant(one.time) < instant(best[1].time))
        ):
            best = pod, one
    return best


def _replaces(new: LastFailure, old: LastFailure) -> bool:
    if new.uid == old.uid and new.restarts == old.restarts:
        return False
    if new.run != old.run:
        return new.run > old.run
    return instant(new.time) > instant(old.time) + CONSEQUENCE


def described(pod: Pod) -> LastFailure:
    """How a pod failed, without its log."""
    kept = LastFailure(
        pod.metadata.name, pod.metadata.uid, run=pod.job_version or 0, restarts=_restarts(pod)
    )
    found = worst_end(pod)
    if found is None:
        kept.reason, kept.message = pod.status.reason, pod.status.message or failure(pod)
        return kept
    _, name, end = found
    kept.container, kept.exit_code, kept.reason, kept.message = (
        name,
        end.exit_code,
        end.reason,
        end.message,
    )
    kept.time = end.finished_at or ""
    return kept


def recorded(annotations: dict[str, str]) -> LastFailure | None:
    """The content of the annotation; None where there is none, or one that is not ours."""
    text = annotations.get(names.LAST_FAILURE)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=LastFailure)
    except msgspec.DecodeError:
        return None


def _restarts(pod: Pod) -> int:
    return sum(status.restart_count for status in pod.status.container_statuses)


def _previous(pod: Pod, container: str) -> bool:
    """Whether the container that failed has been started again since."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any(status.name == container and status.terminated is None for status in statuses)
