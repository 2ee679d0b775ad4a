"""Records Events about objects, without ever delaying a daemon's work.

`Recorder.event` returns at once.  Equal events become one whose count grows, many similar ones are
combined, an object with too many is throttled, and events beyond the queue's limit are dropped and
counted.  The rules and numbers are client-go's, because users know their effect from `kubectl
describe`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from hekla.api.kubernetes.core import EVENT
from hekla.api.text.times import stamp
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.flowcontrol.throttle import TokenBucket
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

REMEMBERED = 4096
"""Series, groups and objects that are remembered; the least recently used are forgotten first."""
QUEUE_LIMIT = 8192
WRITERS = 4
PATIENT = QUEUE_LIMIT // 4
"""Events that may wait while the server is busy.  Above that they are written however busy it is,
long before any would be dropped."""
LONGEST_PAUSE = 0.5
"""Longest pause of a writer after each event while the server is busy, in seconds."""
GROUP_LIMIT = 10
"""Different messages of one object and reason within GROUP_SECONDS above which they are combined.
"""
GROUP_SECONDS = 600.0
SPAM_BURST = 25
SPAM_QPS = 1 / 300
"""Events of one object at once; after them, one in five minutes."""
COMBINED = "(combined from similar events): "
TRIES = 5
FLUSH_SECONDS = 2.0
MESSAGE_LIMIT = 1024
"""Characters of a message that the API server accepts."""

Severity = Literal["Normal", "Warning"]


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """A dict that forgets its least recently used entries."""

    def touch(self, key: K, make: Callable[[], V]) -> V:
        value = self.get(key)
        if value is None:
            value = self[key] = make()
            if len(self) > REMEMBERED:
                self.popitem(last=False)
        else:
            self.move_to_end(key)
        return value


@dataclass(slots=True)
class _Series:
    """One Event object: created once, its count patched afterwards."""

    body: dict[str, Any]
    namespace: str
    count: int = 0
    last: str = ""
    message: str = ""
    stored: bool = False
    queued: bool = False
    writing: bool = False
    tries: int = 0


@dataclass(slots=True)
class _Group:
    began: float
    messages: set[str] = field(default_factory=set)


class Recorder:
    """Records events as `component` (on `host`).  For one event loop; `close()` writes what waits."""

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        host: str = "",
    ) -> None:
        self.component = component
        self.host = host
        self.dropped = 0
        """Events that were lost to the spam filter, the full queue or the server's refusal."""
        self._client = client
        self._instance = host or socket.gethostname()
        self._series: _Recent[tuple[str, ...], _Series] = _Recent()
        self._groups: _Recent[tuple[str, ...], _Group] = _Recent()
        self._buckets: _Recent[tuple[str, ...], TokenBucket] = _Recent()
        self._queue: deque[_Series] = deque()
        self._wanted = asyncio.Event()
        self._writers: list[asyncio.Task[None]] = []
        self._writing = 0
        self._told_of_full = 0.0
        self._closing = False

    def event(
        self, obj: Any, type: Severity, reason: str, message: str, *, field_path: str = ""
    ) -> None:
        """Record an event about an object (a struct or JSON tree that has its kind).  Never waits
        and never raises."""
        target = reference(obj, field_path)
        now = time.time()
        subject = (target["kind"], target["namespace"], target["name"], target["uid"], field_path)
        if not self._buckets.touch(
            subject, lambda: TokenBucket(SPAM_QPS, SPAM_BURST, time.time)
        ).try_take():
            self.dropped += 1
            return
        if len(message) > MESSAGE_LIMIT:
            message = message[: MESSAGE_LIMIT - 3] + "..."
        kind_of_event = (*subject, type, reason)
        group = self._groups.touch(kind_of_event, lambda: _Group(now))
        if now - group.began > GROUP_SECONDS:
            group.began = now
            group.messages.clear()
        group.messages.add(message)
        combined = len(group.messages) > GROUP_LIMIT
        if combined:
            group.messages.remove(message)  # the set need not grow further
            message = COMBINED + message
        key = kind_of_event if combined else (*kind_of_event, message)
        series = self._series.touch(key, lambda: self._begin(target, type, reason, now))
        series.count += 1
        series.last = stamp(now)
        series.message = message
        # two writers of one series would both create it, or write it in the wrong order; the one
        # that writes it looks again
        if not series.writing:
            self._enqueue(series)

    async def close(self) -> None:
        """Write the waiting events for a few seconds at most, then stop."""
        self._closing = True
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while self._queue or self._writing:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.info("%d events were not written", len(self._queue))
        for writer in self._writers:
            writer.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
        self._writers.clear()

    def _begin(self, target: dict[str, str], type: Severity, reason: str, now: float) -> _Series:
        namespace = target["namespace"] or "default"
        source = (
            {"component": self.component, "host": self.host}
            if self.host
            else {"component": self.component}
        )
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{target['name'][:236]}.{int(now * 1e9):x}",
                "namespace": namespace,
            },
            "involvedObject": {name: value for name, value in target.items() if value},
            "type": type,
            "reason": reason,
            "source": source,
            "firstTimestamp": stamp(now),
            "reportingComponent": self.component,
            "reportingInstance": self._instance,
        }
        return _Series(body, namespace)

    def _enqueue(self, series: _Series) -> None:
        if series.queued:
            return  # the waiting write will have the new count
        if len(self._queue) >= QUEUE_LIMIT:
            self.dropped += 1
            if time.time() - self._told_of_full > 60:
                self._told_of_full = time.time()
                log.warning(
                    "more than %d events wait to be written; new ones are dropped", QUEUE_LIMIT
                )
            return
        series.queued = True
        self._queue.append(series)
        self._wanted.set()
        if not self._writers:
            loop = asyncio.get_running_loop()
            self._writers = [
                loop.create_task(self._write_on(), name="event writer") for _ in range(WRITERS)
            ]

    async def _write_on(self) -> None:
        while True:
            while not self._queue:
                self._wanted.clear()
                await self._wanted.wait()
            series = self._queue.popleft()
            series.queued = False
            series.writing = True
            count = series.count
            self._writing += 1
            try:
                await self._write(series)
                series.tries = 0
            except TransportError as error:
                await self._again(series, error)
            except (
                ApiError
            ) as error:  # a terminating namespace, no permission: another try would not help
                self.dropped += 1
                log.debug("the event %s was refused: %s", series.body["metadata"]["name"], error)
            except Exception:  # a bug of ours: other events are still written
                self.dropped += 1
                log.exception("the event %s could not be written", series.body["metadata"]["name"])
            finally:
                series.writing = False
                self._writing -= 1
            if series.count != count:
                self._enqueue(series)
            await self._give_way()

    async def _give_way(self) -> None:
        """Wait while the server is busy: events come after all other writes."""
        if len(self._queue) < PATIENT and not self._closing:
            await asyncio.sleep(self._client.debounce.delay(0.0, LONGEST_PAUSE))

    async def _write(self, series: _Series) -> None:
        moving = {"count": series.count, "lastTimestamp": series.last, "message": series.message}
        name = series.body["metadata"]["name"]
        if series.stored:
            try:
                await self._client.patch(
                    EVENT.untyped, name, moving, series.namespace, type="strategic"
                )
                return
            except NotFound:  # expired on the server: create it again
                series.body["metadata"]["name"] = (
                    f"{name.rpartition('.')[0]}.{int(time.time() * 1e9):x}"
                )
        await self._client.create(EVENT.untyped, {**series.body, **moving}, series.namespace)
        series.stored = True

    async def _again(self, series: _Series, error: TransportError) -> None:
        series.tries += 1
        if series.tries >= TRIES:
            self.dropped += 1
            series.tries = 0
            log.warning("an event could not be written: %s", error)
            return
        await asyncio.sleep(0.5 * series.tries)
        self._enqueue(series)


def reference(obj: Any, field_path: str = "") -> dict[str, str]:
    """The ObjectReference of a struct or JSON tree."""
    if isinstance(obj, dict):
        metadata = obj.get("metadata") or {}
        return {
            "kind": obj.get("kind") or "",
            "namespace": metadata.get("namespace") or "",
            "name": metadata.get("name") or "",
            "uid": metadata.get("uid") or "",
            "apiVersion": obj.get("apiVersion") or "",
            "resourceVersion": metadata.get("resourceVersion") or "",
            "fieldPath": field_path,
        }
    metadata = obj.metadata
    return {
        "kind": obj.kind,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "apiVersion": obj.api_version,
        "resourceVersion": metadata.resource_version,
        "fieldPath": field_path,
    }
