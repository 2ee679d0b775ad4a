"""The pods on fake nodes: one cache over bound pods that keeps a few fields of each, one heap of
timers, and a pipeline of status patches.

What a pod is due for follows from its object alone, so a kubelet that was killed goes on where it
was.  Reference: local-cluster 9.2.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import socket
import time
from collections import deque
from collections.abc import Container

from hekla.api.meta import key
from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, Invalid, NotFound
from hekla.kube.http.client import TransportError
from hekla.local.kubelet.background_tasks import BackgroundTasks
from hekla.local.kubelet.nodes.fake_objects import POD, WRITTEN, FakePod
from hekla.local.kubelet.nodes.fake_statuses import (
    conditions,
    container_status,
    ended_status,
    life_of,
    restart_count,
    running_status,
    started_at,
    terminated,
)
from hekla.local.kubelet.nodes.simulated_life import GOING_DELAY, Plan, duration
from hekla.local.kubelet.pods.statuses import restarts

log = logging.getLogger("kubelet.fake")

SENDERS = 24
FEW = 8
"""Senders while the server is busy: nodes that start their pods for real report later than they are
bound, too."""
RETRY = 0.5
"""Seconds until a status that could not be sent is tried again."""
ADDRESS_BASE = 10 << 24 | 128 << 16
ADDRESSES = (1 << 23) - 2


class FakePods:
    """All pods on fake nodes."""

    def __init__(self, client: Client, nodes: Container[str]) -> None:
        """`nodes` has the names of the fake nodes, and changes with them."""
        self._client = client
        self._nodes = nodes
        self.cache: Cache[FakePod] | None = None
        """Of bound pods; None before there is a fake node to have some."""
        self.paused = False
        """Somebody else looks after the pods."""
        self._timers: list[tuple[float, int, str, str]] = []
        """(due, number, key, uid): the pod is to be looked at then."""
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._queue: deque[tuple[str, str]] = deque()
        self._queued: set[str] = set()
        """Uids that wait in the queue or are being served."""
        self._senders = 0
        self._tasks = BackgroundTasks()
        self._last_address = 0
        self._restarts: dict[str, tuple[int, float, Json]] = {}
        """By uid, of pods that back off: (restarts so far, when the next one is due, last state).
        """
        self._delayed: dict[str, float] = {}
        """By uid, of pods that are to start late: when."""
        self._going: dict[str, float] = {}
        """By uid, of deleted pods that stay for a while: until when."""

    async def watch(self) -> None:
        """Begin to watch bound pods, unless that was begun before."""
        if self.cache is not None:
            return
        self.cache = Cache(self._client, POD, fields="spec.nodeName!=")
        self.cache.on_change(self._pod_changed)
        await self.cache.start()
        await self.cache.synced()

    async def stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.cache is not None:
            await self.cache.stop()

    async def close(self) -> None:
        await self._tasks.cancel()
        await self.stop_watching()

    def schedule_all(self, nodes: Container[str]) -> None:
        """Look after the pods on these nodes, whatever was seen of them before."""
        for pod in self.cache.all() if self.cache is not None else ():
            if pod.spec.node_name in nodes:
                self._schedule(pod)

    def _pod_changed(self, old: FakePod | None, new: FakePod | None) -> None:
        if new is None:
            if old is not None:
                self._restarts.pop(old.metadata.uid, None)
                self._delayed.pop(old.metadata.uid, None)
                self._going.pop(old.metadata.uid, None)
            return
        if new.status.pod_ip.startswith("10.") and (
            old is None or old.status.pod_ip != new.status.pod_ip
        ):
            self._last_address = max(self._last_address, number_of(new.status.pod_ip))
        if new.spec.node_name in self._nodes:
            self._schedule(new)
        else:
            new.spec.containers = []
        if new.status.phase in ("Succeeded", "Failed"):
            new.spec.containers = []
            new.metadata.annotations = new.metadata.labels = None

    def _schedule(self, pod: FakePod) -> None:
        """Find when the pod is due next, and queue it if that is now."""
        if self.paused:
            return
        due = self._due(pod)
        if due is None:
            return
        if due <= time.time():
            self._enqueue(key(pod), pod.metadata.uid)
            return
        self._numbers += 1
        heapq.heappush(self._timers, (due, self._numbers, key(pod), pod.metadata.uid))
        self._set_timer()

    def _due(self, pod: FakePod) -> float | None:
        """When something is to be done with the pod; None for never."""
        if pod.metadata.deletion_timestamp:
            if pod.metadata.deletion_grace_period_seconds == 0:
                return None  # the server waits for nobody: the pod is as good as gone
            stays = duration((pod.metadata.annotations or {}).get(GOING_DELAY, ""))
            return self._going.setdefault(pod.metadata.uid, time.time() + stays) if stays else 0.0
        phase = pod.status.phase
        if phase in ("Succeeded", "Failed"):
            return None
        life = life_of(pod)
        times = []
        if phase != "Running":
            times.append(
                self._delayed.setdefault(pod.metadata.uid, time.time() + life.delay)
                if life.delay
                else 0.0
            )
        else:
            backing_off = self._restarts.get(pod.metadata.uid)
            started = started_at(pod)
            if backing_off is not None and not started:
                times.append(backing_off[1])
            elif not started:
                times.append(0.0)
            elif life.run_time is not None and not (
                life.code == 0 and pod.spec.restart_policy == "Always"
            ):
                times.append(instant(started) + life.run_time)
        if pod.spec.active_deadline_seconds is not None and pod.status.start_time:
            times.append(instant(pod.status.start_time) + pod.spec.active_deadline_seconds)
        return min(times) if times else None

    def _set_timer(self) -> None:
        """Sets the one timer to the earliest due time."""
        if not self._timers:
            return
        ahead = max(0.0, self._timers[0][0] - time.time())
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + ahead:
                return
            self._timer.cancel()
        self._timer = loop.call_later(ahead, self._fall_due)

    def _fall_due(self) -> None:
        self._timer = None
        now = time.time()
        while self._timers and self._timers[0][0] <= now:
            _, _, name, uid = heapq.heappop(self._timers)
            pod = self.cache.get(name) if self.cache is not None else None
            if pod is not None and pod.metadata.uid == uid:
                self._schedule(pod)
        self._set_timer()

    def _enqueue(self, name: str, uid: str) -> None:
        if uid not in self._queued:
            self._queued.add(uid)
            self._queue.append((name, uid))
            self._send()

    def _send(self) -> None:
        """Begins to serve what is queued, with as many senders as may be: few while the server is
        busy with what pods wait for."""
        while self._queue and self._senders < self._room:
            self._senders += 1
            self._tasks.start(self._serve(*self._queue.popleft()), "fake pods")

    @property
    def _room(self) -> int:
        return FEW if self._client.debounce.busy else SENDERS

    async def _serve(self, name: str, uid: str) -> None:
        """One of the senders, of which there are any only while there is something to send."""
        try:
            while True:
                await self._serve_one(name, uid)
                self._send()
                if not self._queue or self._senders > self._room:
                    return
                name, uid = self._queue.popleft()
        finally:
            self._senders -= 1

    async def _serve_one(self, name: str, uid: str) -> None:
        try:
            pod = self.cache.get(name) if self.cache is not None else None
            if pod is not None and pod.metadata.uid == uid:
                await self._advance(pod)
        except (NotFound, Conflict):
            pass  # deleted, or replaced by another pod of that name: the watch shows it
        except Invalid as error:
            log.warning("fake pod %s: %s", name, error)
        except (ApiError, TransportError) as error:
            log.info("fake pod %s: %s; again in %g s", name, error, RETRY)
            self._numbers += 1
            heapq.heappush(self._timers, (time.time() + RETRY, self._numbers, name, uid))
            self._set_timer()
        finally:
            self._queued.discard(uid)
        again = self.cache.get(name) if self.cache is not None else None
        if again is not None and pod is not None and again is not pod and again.metadata.uid == uid:
            self._schedule(again)

    async def _advance(self, pod: FakePod) -> None:
        """Does with a pod what it is due for."""
        meta, now = pod.metadata, time.time()
        if meta.deletion_timestamp:
            await self._client.delete(POD, meta.name, meta.namespace, grace=0, uid=meta.uid)
            return
        status = self._next_status(pod, now)
        if status is not None:
            body = {"metadata": {"uid": meta.uid}, "status": status}
            await self._client.patch(
                WRITTEN, meta.name, body, meta.namespace, type="strategic", subresource="status"
            )

    def _next_status(self, pod: FakePod, now: float) -> Json | None:
        """The status that follows, None when nothing is due."""
        uid, text = pod.metadata.uid, stamp(now)
        deadline = pod.spec.active_deadline_seconds
        if (
            deadline is not None
            and pod.status.start_time
            and now >= instant(pod.status.start_time) + deadline
        ):
            failed = ended_status(pod, Plan(code=137), 0, text)
            return {
                **failed,
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            }
        count, due, last = self._restarts.get(uid, (0, 0.0, {}))
        started = started_at(pod)
        if pod.status.phase != "Running" or (not started and now >= due):
            self._delayed.pop(uid, None)
            address = pod.status.pod_ip or self._address()
            return running_status(pod, address, count, last or None, text)
        life = life_of(pod)
        if not started or life.run_time is None or now < instant(started) + life.run_time:
            return None
        if not restarts(pod.spec.restart_policy, life.code):
            self._restarts.pop(uid, None)
            return ended_status(pod, life, restart_count(pod), text)
        return self._backing_off(pod, life, now)

    def _backing_off(self, pod: FakePod, life: Plan, now: float) -> Json:
        """A container that ended and will run again: waiting, with its end as the last state."""
        count = restart_count(pod) + 1
        delay = min(300.0, 10.0 * 2.0 ** (count - 2)) if count > 1 else 1.0
        last = terminated(life, started_at(pod), stamp(now))
        self._restarts[pod.metadata.uid] = (count, now + delay, last)
        waiting = {
            "waiting": {
                "reason": "CrashLoopBackOff",
                "message": f"back-off {delay:.0f}s restarting failed container",
            }
        }
        return {
            "conditions": conditions(pod, False, "ContainersNotReady", stamp(now)),
            "containerStatuses": [
                container_status(
                    c, pod.metadata.uid, waiting, ready=False, count=count - 1, last=last
                )
                for c in pod.spec.containers
            ],
        }

    def _address(self) -> str:
        self._last_address = self._last_address % ADDRESSES + 1
        number = ADDRESS_BASE + self._last_address
        return ".".join(str(byte) for byte in number.to_bytes(4, "big"))


def number_of(address: str) -> int:
    """The number behind a fake pod's address; 0 for any other."""
    try:
        return max(
            0, int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big") - ADDRESS_BASE
        )
    except OSError:
        return 0
