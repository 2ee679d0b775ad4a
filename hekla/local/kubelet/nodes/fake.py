"""Fake nodes in KWOK's manner: Node objects with nothing behind them, and pods that only pretend to
run.

Every node annotated `kwok.x-k8s.io/node: fake` is looked after, whoever made it; `--fake-nodes`
makes some.  All of it is one cache over bound pods that keeps a few fields of each, one heap of
timers, and a pipeline of status patches.  What a pod is due for follows from its object alone, so
an agent that was killed goes on where it was.  Reference: local-cluster 9.2, 9.3.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import socket
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from hekla.api import names
from hekla.api.kinds import read_as
from hekla.api.kubernetes import apps, core
from hekla.api.kubernetes.coordination import LEASE
from hekla.api.meta import Struct, key
from hekla.api.schema import Int32
from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound
from hekla.kube.http.client import TransportError
from hekla.kube.leader import micro_time
from hekla.kube.objects import unread
from hekla.local.kubelet.nodes import machine
from hekla.local.kubelet.nodes.node import LEASE_NAMESPACE, lease
from hekla.local.kubelet.nodes.simulated_life import GOING_DELAY, RESTING, Plan, duration, plan
from hekla.local.kubelet.pods.images import ImageError, Images, parse
from hekla.local.kubelet.pods.statuses import restarts

log = logging.getLogger("agent.fake")

ANNOTATION = "kwok.x-k8s.io/node"
KWOK_NAMESPACE, KWOK = "kube-system", "kwok-controller"
SENDERS = 24
FEW = 8
"""Senders while the server is busy: nodes that start their pods for real report later than they are
bound, too."""
RETRY = 0.5
LEASE_SECONDS = 40
RENEW_EVERY = 25.0
"""Seconds between renewals of one fake node's lease: 40 writes a second for a thousand nodes."""
TICK = 0.25
ADDRESS_BASE = 10 << 24 | 128 << 16
ADDRESSES = (1 << 23) - 2


# --- what is kept of a pod ------------------------------------------------------------------------


class Meta(Struct):
    """The metadata that matters for pretending."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class FakeContainer(Struct):
    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    restart_policy: str = ""


class FakeSpec(Struct):
    node_name: str = ""
    restart_policy: str = ""
    active_deadline_seconds: int | None = None
    containers: list[FakeContainer] = []
    init_containers: list[FakeContainer] | None = None
    readiness_gates: list[core.PodReadinessGate] | None = None


class Running(Struct):
    started_at: str = ""


class FakeState(Struct):
    running: Running | None = None


class FakeContainerStatus(Struct):
    state: FakeState | None = None
    restart_count: Int32 = 0


class FakeStatus(Struct):
    phase: str = ""
    pod_ip: str = ""
    start_time: str = ""
    container_statuses: list[FakeContainerStatus] | None = None


class FakePod(Struct):
    """A pod, reduced to what pretending takes: some hundred bytes where the whole object takes
    thousands."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: FakeSpec = msgspec.field(default_factory=FakeSpec)
    status: FakeStatus = msgspec.field(default_factory=FakeStatus)


class NodeCondition(Struct):
    type: str = ""
    status: str = ""


class FakeNodeStatus(Struct):
    conditions: list[NodeCondition] = []
    allocatable: dict[str, Any] | None = None


class FakeNode(Struct):
    metadata: Meta = msgspec.field(default_factory=Meta)
    status: FakeNodeStatus = msgspec.field(default_factory=FakeNodeStatus)


POD = read_as(core.POD, FakePod)
WRITTEN = unread(core.POD)
NODE = read_as(core.NODE, FakeNode)


@dataclass(frozen=True, slots=True)
class Size:
    """The nodes that `--fake-nodes` makes."""

    count: int = 0
    name: str = "fake-node"
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    gpus: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    taint: bool = False


# --- bodies ---------------------------------------------------------------------------------------


def node_body(size: Size, number: int, now: str) -> Json:
    """A whole fake node, Ready from its first moment.  Reference: 9.3."""
    name = f"{size.name}-{number}"
    amounts: Json = {"cpu": size.cpu, "memory": size.memory, "pods": str(size.pods)}
    if size.gpus:
        amounts[names.NVIDIA_GPU] = str(size.gpus)
    labels = {
        names.HOSTNAME: name,
        names.OS: "linux",
        names.ARCH: "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "kubernetes.io/role": "agent",
        "node-role.kubernetes.io/agent": "",
        "type": "kwok",
        **size.labels,
    }
    taints = [{"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}] if size.taint else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {ANNOTATION: "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": amounts, "allocatable": amounts, **node_ready(name, now)},
    }


def node_ready(name: str, now: str) -> Json:
    """Conditions, addresses and the rest of a node that is well."""
    healthy = (
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    )
    return {
        "phase": "Running",
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status, reason, message in healthy
        ],
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "",
            "osImage": "",
            "containerRuntimeVersion": "",
            "kubeletVersion": f"kwok-{machine.KUBELET_VERSION}",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def conditions(pod: FakePod, ready: bool, reason: str, now: str) -> list[Json]:
    """The pod's conditions, all alike but Initialized."""
    state: Json = {
        "status": "True" if ready else "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    if reason or started_before(pod):
        state["reason"] = reason or None
    found: list[Json] = [{**state, "type": kind} for kind in ("Ready", "ContainersReady")]
    if ready:
        found += [{**state, "type": kind} for kind in ("Initialized", "PodReadyToStartContainers")]
        found += [{**state, "type": gate.condition_type} for gate in pod.spec.readiness_gates or ()]
    elif reason == "PodCompleted":
        found.append({**state, "type": "Initialized", "status": "True"})
    return found


def started_before(pod: FakePod) -> bool:
    """Whether its conditions may hold a reason that must be taken away."""
    return bool(pod.status.container_statuses)


def container_status(
    container: FakeContainer,
    uid: str,
    state: Json,
    *,
    ready: bool,
    count: int,
    last: Json | None = None,
) -> Json:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": count,
        "state": state,
        "lastState": last or {},
        "containerID": f"kwok://{uid}/{container.name}",
    }


def running_status(pod: FakePod, address: str, count: int, last: Json | None, now: str) -> Json:
    """What the stage pod-ready reports."""
    uid = pod.metadata.uid
    running = {"running": {"startedAt": now}}
    status: Json = {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": pod.status.start_time or now,
        "conditions": conditions(pod, True, "", now),
        "containerStatuses": [
            container_status(c, uid, running, ready=True, count=count, last=last)
            for c in pod.spec.containers
        ],
    }
    if pod.spec.init_containers:
        done = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": now,
                "finishedAt": now,
            }
        }
        status["initContainerStatuses"] = [
            container_status(
                c, uid, running if c.restart_policy == "Always" else done, ready=True, count=0
            )
            for c in pod.spec.init_containers
        ]
    return status


def terminated(life: Plan, started: str, now: str) -> Json:
    reason = life.reason or ("Error" if life.code else "Completed")
    end: Json = {"exitCode": life.code, "reason": reason, "startedAt": started, "finishedAt": now}
    if life.message:
        end["message"] = life.message
    return {"terminated": end}


def ended_status(pod: FakePod, life: Plan, count: int, now: str) -> Json:
    """What the stage pod-complete reports, or its failing counterpart."""
    state = terminated(life, started_at(pod) or now, now)
    named = any(c.name == life.container for c in pod.spec.containers)
    other = (
        terminated(Plan(code=143), started_at(pod) or now, now) if named else state
    )  # ended with the one that failed
    return {
        "phase": "Failed" if life.code else "Succeeded",
        "conditions": conditions(pod, False, "PodFailed" if life.code else "PodCompleted", now),
        "containerStatuses": [
            container_status(
                c,
                pod.metadata.uid,
                state if c.name == life.container else other,
                ready=False,
                count=count,
            )
            for c in pod.spec.containers
        ],
    }


def started_at(pod: FakePod) -> str:
    """When the pod's container started, as its status says; "" while it does not run."""
    for status in pod.status.container_statuses or ():
        if status.state is not None and status.state.running is not None:
            return status.state.running.started_at
    return ""


# --- the pretenders -------------------------------------------------------------------------------


class FakeNodes:
    """All fake nodes and the pods on them."""

    def __init__(self, client: Client, size: Size, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._size = size
        self._clock = clock
        self.nodes: Cache[FakeNode] = Cache(client, NODE)
        self.pods: Cache[FakePod] | None = None
        self._managed: dict[str, str] = {}
        """Names of the nodes that are ours, with their uids."""
        self._timers: list[tuple[float, int, str, str]] = []
        """(due, number, key, uid): the pod is to be looked at then."""
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._queue: deque[tuple[str, str]] = deque()
        self._queued: set[str] = set()
        """Uids that wait in the queue or are being served."""
        self._senders = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.others: Cache[dict[str, Any]] = Cache(
            client,
            apps.DEPLOYMENT.untyped,
            namespace=KWOK_NAMESPACE,
            fields=f"metadata.name={KWOK}",
        )
        """KWOK's own controller, where somebody has installed it."""
        self.standing_back = False
        self._last_address = 0
        self._restarts: dict[str, tuple[int, float, Json]] = {}
        """By uid, of pods that back off: (restarts so far, when the next one is due, last state).
        """
        self._delayed: dict[str, float] = {}
        """By uid, of pods that are to start late: when."""
        self._going: dict[str, float] = {}
        """By uid, of deleted pods that stay for a while: until when."""

    async def start(self) -> None:
        """Makes the nodes that are asked for and begins to look after all fake ones."""
        await self.nodes.start()
        await self.nodes.synced()
        self.nodes.on_change(self._node_changed)
        await self._make_nodes()
        self.others.on_change(self._other_changed)
        await self.others.start()
        self._tasks.append(asyncio.create_task(self._renew_for_ever(), name="fake leases"))
        await self._watch_pods()

    async def close(self) -> None:
        await self._stop_watching()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_watching()  # one of the tasks may just have begun to

    async def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for cache in (self.nodes, self.pods, self.others):
            if cache is not None:
                await cache.stop()

    def _other_changed(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        """Leaves everything to KWOK while it is there, and takes it up again when it has gone."""
        back = new is not None
        if back == self.standing_back:
            return
        self.standing_back = back
        log.info(
            "%s has %s: fake nodes are %s",
            KWOK,
            "come" if back else "gone",
            "left to it" if back else "looked after again",
        )
        if not back:
            for pod in self.pods.all() if self.pods is not None else ():
                if pod.spec.node_name in self._managed:
                    self._look(pod)

    # --- nodes ------------------------------------------------------------------------------------

    async def _make_nodes(self) -> None:
        missing = deque(
            n for n in range(self._size.count) if f"{self._size.name}-{n}" not in self.nodes
        )
        now = stamp(self._clock())

        async def make() -> None:
            while missing:
                body = node_body(self._size, missing.popleft(), now)
                try:
                    await self._client.create(core.NODE.untyped, body)
                except AlreadyExists:
                    continue

        await asyncio.gather(*(make() for _ in range(SENDERS)))

    def _node_changed(self, old: FakeNode | None, new: FakeNode | None) -> None:
        found = new or old
        assert found is not None
        name = found.metadata.name
        if new is None or (new.metadata.annotations or {}).get(ANNOTATION) != "fake":
            self._managed.pop(name, None)
            return
        fresh = name not in self._managed
        self._managed[name] = new.metadata.uid
        ready = any(c.type == "Ready" and c.status == "True" for c in new.status.conditions)
        if not ready and not self.standing_back:
            self._background(self._make_ready(new), f"fake node {name}")
        if fresh and self.pods is not None:
            for pod in self.pods.all():
                if pod.spec.node_name == name:
                    self._look(pod)
        elif self.pods is None and self._tasks:
            self._background(self._watch_pods(), "fake pods")

    def _background(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(
            lambda done: self._tasks.remove(done) if done in self._tasks else None
        )

    async def _make_ready(self, node: FakeNode) -> None:
        """The stage node-initialize: a node that somebody else made, or whose heartbeat was missed."""
        name = node.metadata.name
        status = node_ready(name, stamp(self._clock()))
        if not node.status.allocatable:
            status |= {
                part: {"cpu": "1k", "memory": "1Ti", "pods": "1M"}
                for part in ("allocatable", "capacity")
            }
        try:
            await self._renew(name, node.metadata.uid)
            await self._client.patch(
                core.NODE.untyped, name, {"status": status}, type="strategic", subresource="status"
            )
        except (ApiError, TransportError) as error:
            log.info("fake node %s: %s", name, error)

    async def _renew_for_ever(self) -> None:
        """Renews every lease once in RENEW_EVERY seconds, evenly spread."""
        while True:
            began = self._clock()
            due = list(self._managed.items()) if not self.standing_back else []
            for at, (name, uid) in enumerate(due):
                try:
                    await self._renew(name, uid)
                except (ApiError, TransportError) as error:
                    log.info("fake node %s: lease not renewed: %s", name, error)
                    await asyncio.sleep(RETRY)
                ahead = began + RENEW_EVERY * (at + 1) / len(due) - self._clock()
                if ahead > TICK:
                    await asyncio.sleep(ahead)
            if (rest := began + RENEW_EVERY - self._clock()) > 0:
                await asyncio.sleep(min(rest, 1.0) if not due else rest)

    async def _renew(self, name: str, uid: str) -> None:
        kind = LEASE.untyped
        try:
            await self._client.patch(
                kind,
                name,
                {"spec": {"holderIdentity": name, "renewTime": micro_time()}},
                LEASE_NAMESPACE,
            )
        except NotFound:
            try:
                await self._client.create(kind, lease(name, uid, LEASE_SECONDS))
            except (AlreadyExists, NotFound):
                return

    # --- pods -------------------------------------------------------------------------------------

    async def _watch_pods(self) -> None:
        """Begins to watch bound pods, once there is a fake node to have some."""
        if self.pods is not None or not self._managed:
            return
        self.pods = Cache(self._client, POD, fields="spec.nodeName!=")
        self.pods.on_change(self._pod_changed)
        await self.pods.start()
        await self.pods.synced()

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
        if new.spec.node_name in self._managed:
            self._look(new)
        else:
            new.spec.containers = []
        if new.status.phase in ("Succeeded", "Failed"):
            new.spec.containers = []
            new.metadata.annotations = new.metadata.labels = None

    def _look(self, pod: FakePod) -> None:
        """Finds when the pod is due next, and queues it if that is now."""
        if self.standing_back:
            return
        due = self._due(pod)
        if due is None:
            return
        if due <= self._clock():
            self._enqueue(key(pod), pod.metadata.uid)
            return
        self._numbers += 1
        heapq.heappush(self._timers, (due, self._numbers, key(pod), pod.metadata.uid))
        self._arm()

    def _due(self, pod: FakePod) -> float | None:
        """When something is to be done with the pod; None for never."""
        if pod.metadata.deletion_timestamp:
            stays = duration((pod.metadata.annotations or {}).get(GOING_DELAY, ""))
            return self._going.setdefault(pod.metadata.uid, self._clock() + stays) if stays else 0.0
        phase = pod.status.phase
        if phase in ("Succeeded", "Failed"):
            return None
        life = life_of(pod)
        times = []
        if phase != "Running":
            times.append(
                self._delayed.setdefault(pod.metadata.uid, self._clock() + life.delay)
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

    def _arm(self) -> None:
        """Sets the one timer to the earliest due time."""
        if not self._timers:
            return
        ahead = max(0.0, self._timers[0][0] - self._clock())
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + ahead:
                return
            self._timer.cancel()
        self._timer = loop.call_later(ahead, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, name, uid = heapq.heappop(self._timers)
            pod = self.pods.get(name) if self.pods is not None else None
            if pod is not None and pod.metadata.uid == uid:
                self._look(pod)
        self._arm()

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
            self._background(self._serve(*self._queue.popleft()), "fake pods")

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
            pod = self.pods.get(name) if self.pods is not None else None
            if pod is not None and pod.metadata.uid == uid:
                await self._advance(pod)
        except (NotFound, Conflict):
            pass  # gone, or another pod of that name has come: the watch tells
        except Invalid as error:
            log.warning("fake pod %s: %s", name, error)
        except (ApiError, TransportError) as error:
            log.info("fake pod %s: %s; again in %g s", name, error, RETRY)
            self._numbers += 1
            heapq.heappush(self._timers, (self._clock() + RETRY, self._numbers, name, uid))
            self._arm()
        finally:
            self._queued.discard(uid)
        again = self.pods.get(name) if self.pods is not None else None
        if again is not None and pod is not None and again is not pod and again.metadata.uid == uid:
            self._look(again)

    async def _advance(self, pod: FakePod) -> None:
        """Does with a pod what it is due for."""
        meta, now = pod.metadata, self._clock()
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


NEVER = 1e8
"""Seconds."""


@lru_cache(maxsize=1024)
def is_refused(image: str) -> bool:
    """Whether no registry has an image."""
    try:
        row = Images().row(parse(image))
    except ImageError:
        return False
    return row is not None and row.refuse


def life_of(pod: FakePod) -> Plan:
    if any(is_refused(c.image) for c in pod.spec.containers if c.image):
        return Plan(
            delay=NEVER
        )  # as on a node that pulls it: people roll out such an image to see what waits for it
    commands = [
        [*(c.command or ()), *(c.args or ())] if c.command else [] for c in pod.spec.containers
    ]
    luck = (
        zlib.crc32(pod.metadata.uid.encode()) / 0xFFFFFFFF
    )  # the same after a restart of the agent
    rests = any(not c.command and RESTING.search(c.image) for c in pod.spec.containers)
    return plan(
        pod.metadata.annotations or {}, pod.metadata.labels or {}, commands, luck=luck, rests=rests
    )


def restart_count(pod: FakePod) -> int:
    return max((status.restart_count for status in pod.status.container_statuses or ()), default=0)


def number_of(address: str) -> int:
    """The number behind a fake pod's address; 0 for any other."""
    try:
        return max(
            0, int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big") - ADDRESS_BASE
        )
    except OSError:
        return 0
