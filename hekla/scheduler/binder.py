"""Sends the engine's decisions to the API server, many at once, while the next cycle computes.

A refusal goes back into the state: a pod whose bind failed is pending again.  If the connection
breaks during a bind, the binder reads the pod to find out whether the bind took effect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from prometheus_client import Histogram

from hekla.api import nodeinfo, reservation, scheduling, shard, topology
from hekla.api.kubernetes import claims, core, policy, priority, resource, storage
from hekla.api.names import WAITING
from hekla.api.text.times import stamp
from hekla.engine.model.decisions import (
    Bind,
    Decisions,
    Event,
    Evict,
    EvictionNotice,
    PodCondition,
    QueueStatus,
    ReservationStatus,
    ShardStatus,
)
from hekla.engine.model.evictions.notices import EVICT_AT, EVICT_FOR
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Status
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, NotFound
from hekla.kube.events import Recorder, Severity
from hekla.kube.http.client import TransportError
from hekla.kube.status_writer import StatusWriter
from hekla.scheduler.bind_events import BindEvents
from hekla.scheduler.claims import ClaimBinder, ClaimError
from hekla.scheduler.devices import LockError, lock_node, lock_of, unlock_node
from hekla.scheduler.informers import RejectedObject
from hekla.scheduler.metrics import BIND_CALL, BOUND, FAILED_BINDS, PRE_BIND, PRE_BOUND
from hekla.scheduler.podgroup_statuses import LONGEST_IN_FLOOD, PodGroupStatusUpdater, now
from hekla.scheduler.volumes import VolumeBinder, VolumeError

log = logging.getLogger(__name__)

Tree = dict[str, Any]
FAILED = "FailedScheduling"
WAITING_REASONS = ("Unschedulable", WAITING)
NOT_PLACED = ("", "Pending", "Inqueue", "Unknown")
"""Phases of groups whose pods have no nodes yet."""
LOST = (ApiError, TransportError)

STABLE = 0.3
"""Seconds for which a pod's reason to wait must stay the same before it is written.  The reason
changes with each pod of a gang that is created; writing every version took five writes a pod, more
than everything else about it.
"""
QUEUE_DELAY = 1.0
"""Seconds for which changes of a queue's allocation are collected."""
LONGEST_UNSTABLE = 3.0
"""Seconds after which a reason is written even if it keeps changing; on a busy server, seconds for
which it must stay the same."""
LONGEST_DEFERRAL = 10.0
"""Seconds after which the reasons of pods and groups are written however busy the server is."""


def split(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name


class DeferredCondition(NamedTuple):
    """A pod condition that is not written yet, and the event that goes with it."""

    condition: PodCondition
    event: Event | None
    since: float
    """When the pod's first unwritten condition came (loop time)."""
    changed: float


class DeferredEvent(NamedTuple):
    """The newest event about a group that waits, and when the first one came (loop time)."""

    event: Event
    since: float


class Binder:
    """Writes decisions to the API server.

    It calls `state_changed` when an answer changes the state, so that a cycle follows.  `seen`
    gives the newest resourceVersion of a PodGroup, by its key, that the watch has shown; in
    `namespace` PodGroups are announced that are let in together.
    """

    def __init__(
        self,
        client: Client,
        state: State,
        recorder: Recorder,
        scheduler_name: str,
        state_changed: Callable[[], None],
        *,
        batch: bool = True,
        seen: Callable[[str], str] = lambda group: "",
        namespace: str = "",
    ) -> None:
        self.client = client
        self.state = state
        self.recorder = recorder
        self.scheduler_name = scheduler_name
        self.state_changed = state_changed
        self.batch = batch
        """Whether this scheduler writes the statuses of queues."""
        self.volumes = VolumeBinder(client, state)
        self.claims = ClaimBinder(client)
        self.locks: frozenset[str] = frozenset()
        """Device locks that are set on a node before a pod with devices is bound to it."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.writing: dict[str, asyncio.Task[None]] = {}
        """Object -> its write in flight.  A newer write of the same object waits for it."""
        self.status_writer = StatusWriter(self.launch)
        self.pod_groups = PodGroupStatusUpdater(
            client, state, self.write_in_order, self.status_writer, seen, namespace
        )
        self.bind_events = BindEvents(recorder, client.debounce, reference)
        self.deferred_events: dict[tuple[str, str], DeferredEvent] = {}
        """(Group, reason) -> the event that is recorded if the group still waits after a while."""
        self.deferred_queues: dict[str, QueueStatus] = {}
        """Queue -> its newest allocation that is not written yet."""
        self.deferred_conditions: dict[str, DeferredCondition] = {}
        """Pod -> its condition that has not stayed the same for long enough to be written."""

    def submit(self, decisions: Decisions) -> None:
        """Start the writes of all decisions, without waiting for any of them."""
        for group in decisions.pod_groups:
            self.pod_groups.update_early(group, decisions.explanations.get(group.key))
        for bind in decisions.binds:
            self.launch(self.bind(bind))
        for notice in decisions.notices or ():
            self.write_in_order(f"notice {notice.pod}", self.tell(notice))
        for eviction in decisions.evictions:
            self.launch(self.evict(eviction))
        told = {event.key: event for event in decisions.events if event.reason == FAILED}
        for condition in decisions.conditions:
            self.defer_condition(condition, told.get(condition.pod))
        for queue in decisions.queues if self.batch else ():
            self.defer_queue_status(queue)
        for shard_status in decisions.shards:
            self.write_in_order(f"shard {shard_status.name}", self.write_shard(shard_status))
        for reserved in decisions.reservations or ():
            self.write_in_order(f"reservation {reserved.name}", self.write_reservation(reserved))
        for pod in decisions.gates:
            self.launch(self.lift_gate(pod))
        for freed in decisions.freed:
            self.launch(self.claims.free(freed.claim, freed.uid))
        for event in decisions.events:
            if (
                event.kind == "PodGroup"
                and event.reason in WAITING_REASONS
                and event.type == "Warning"
            ):
                self.defer_event(event)
            elif event.reason != FAILED:
                self.record(event)

    def launch(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def write_in_order(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a write after the write in flight of the same object: both arrive in the order in
        which they were decided."""
        before = self.writing.get(name)

        async def follow() -> None:
            if before is not None:
                await asyncio.wait([before])
            await work

        task = asyncio.ensure_future(follow())
        self.writing[name] = task
        self.tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            self.tasks.discard(finished)
            if self.writing.get(name) is finished:
                del self.writing[name]

        task.add_done_callback(done)
        return task

    async def settle(self) -> None:
        """Wait until every write in flight has been answered."""
        self.bind_events.flush()
        while self.tasks:
            await asyncio.wait(self.tasks)

    # binds

    async def bind(self, bind: Bind) -> None:
        """Bind a pod to its node, after its volumes, claims and device lock.  A refusal rolls all
        of them back."""
        namespace, name = split(bind.pod)
        metadata: Tree = {"name": name, "namespace": namespace, "uid": bind.uid}
        if bind.annotations:
            metadata["annotations"] = bind.annotations
        target = {"apiVersion": "v1", "kind": "Node", "name": bind.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        locked = ""
        began = time.perf_counter()
        condition = self.writing.get(f"pod {bind.pod}")
        if condition is not None:
            # The reason why the pod waited must not arrive after the bind.
            await asyncio.wait((condition,))
        try:
            if bind.volumes:
                await self.volumes.bind(bind.volumes, bind.node)
            if bind.claims:
                await self.claims.bind(bind.claims, bind.pod, bind.uid)
            if bind.implied:
                await self.claims.make(bind.implied, bind.pod, bind.uid)
            if self.locks and (lock := lock_of(bind.annotations, self.locks)):
                await lock_node(self.client, bind.node, lock)
                locked = lock
            sent = time.perf_counter()
            PRE_BIND.observe(1000 * (sent - began))
            self.observe(PRE_BOUND, bind)
            await self.client.post(core.POD, name, namespace, "binding", body)
            BIND_CALL.observe(1000 * (time.perf_counter() - sent))
            self.observe(BOUND, bind)
        except (VolumeError, ClaimError, LockError) as error:
            if bind.claims and isinstance(error, LockError):
                await self.claims.give_back(bind.claims, bind.uid)
            await self.claims.unmake(bind.uid)
            self.refuse(bind, error)
            return
        except LOST as error:
            if not await self.was_bound(bind, error):
                if bind.claims:
                    await self.claims.give_back(bind.claims, bind.uid)
                await self.claims.unmake(bind.uid)
                if locked:
                    await self.attempt(bind.node, unlock_node(self.client, bind.node, locked))
                self.refuse(bind, error)
                return
        self.claims.made.pop(bind.uid, None)
        self.bind_events.bound(bind.pod, bind.uid, bind.node)

    def observe(self, stage: Histogram, bind: Bind) -> None:
        """Count the time from a pod's creation to a stage of its scheduling, in milliseconds."""
        task = self.state.tasks.get(bind.pod)
        if task is not None:
            stage.observe(max(0.0, 1000 * (time.time() - task.creation)))

    async def was_bound(self, bind: Bind, error: Exception) -> bool:
        """Whether a bind took effect that was not answered, or was refused as a conflict.  Reads
        the pod until the server answers."""
        if isinstance(error, ApiError) and not isinstance(error, Conflict) and error.code < 500:
            return False
        namespace, name = split(bind.pod)
        while True:
            try:
                pod = await self.client.get(core.POD.untyped, name, namespace)
            except NotFound:
                return False
            except LOST:
                await asyncio.sleep(0.2)
                continue
            return bool(
                pod["metadata"].get("uid") == bind.uid and pod["spec"].get("nodeName") == bind.node
            )

    def refuse(self, bind: Bind, error: Exception) -> None:
        """Make the pod pending again in the state, and record why on the pod."""
        FAILED_BINDS.inc()
        if isinstance(error, NotFound):
            self.state.bind_failed(bind.pod)
            self.state_changed()
            return  # the pod has gone; its event is on the way
        self.state.bind_failed(bind.pod, time.time())
        self.state_changed()
        message = f"failed to bind to node {bind.node}: {error}"
        log.warning("%s: %s", bind.pod, message)
        self.recorder.event(reference("Pod", bind.pod, bind.uid), "Warning", FAILED, message)
        self.write_in_order(
            f"pod {bind.pod}",
            self.write_condition(PodCondition(bind.pod, bind.uid, "SchedulerError", message, "")),
        )

    def defer_condition(self, condition: PodCondition, event: Event | None) -> None:
        """Keep a condition until it has stayed the same for a while; a newer one of the same pod
        replaces it."""
        loop = asyncio.get_running_loop()
        if not self.deferred_conditions:
            loop.call_later(STABLE, self.write_deferred_conditions)
        before = self.deferred_conditions.get(condition.pod)
        self.deferred_conditions[condition.pod] = DeferredCondition(
            condition, event, before.since if before else loop.time(), loop.time()
        )

    def defer_event(self, event: Event) -> None:
        """Keep an event about a group that waits until it has waited for a while: most groups wait
        for their own pods alone, and not for long."""
        loop = asyncio.get_running_loop()
        if not self.deferred_events:
            loop.call_later(STABLE, self.record_deferred_events)
        before = self.deferred_events.get((event.key, event.reason))
        self.deferred_events[event.key, event.reason] = DeferredEvent(
            event, before.since if before else loop.time()
        )

    def record_deferred_events(self) -> None:
        """Record the deferred events that are old enough and still true."""
        loop = asyncio.get_running_loop()
        # In a flood most groups wait for their own pods, and longer than else.
        longest = LONGEST_IN_FLOOD if self.pod_groups.announcer.flooded else LONGEST_DEFERRAL
        stable = self.client.debounce.delay(STABLE, longest)
        for held, (event, since) in list(self.deferred_events.items()):
            if not self.waits(event):
                del self.deferred_events[held]
            elif loop.time() - since >= stable:
                del self.deferred_events[held]
                self.record(event)
        if self.deferred_events:
            loop.call_later(STABLE / 2, self.record_deferred_events)

    def waits(self, complaint: Event) -> bool:
        """Whether the group of an event still waits: its phase says so or, for the reason Waiting,
        one of its pods is pending."""
        job = self.state.jobs.get(complaint.key)
        explains = complaint.reason == WAITING
        return job is not None and (
            job.phase in NOT_PLACED or (explains and bool(job.counts.statuses[Status.PENDING]))
        )

    def defer_queue_status(self, queue: QueueStatus) -> None:
        """Keep a queue's allocation for a while before it is written: it changes with every pod,
        and nobody waits for it."""
        if not self.deferred_queues:
            asyncio.get_running_loop().call_later(QUEUE_DELAY, self.write_deferred_queues)
        before = self.deferred_queues.get(queue.name)
        gone = set(queue.gone) | set(before.gone if before is not None else ())
        self.deferred_queues[queue.name] = QueueStatus(
            queue.name, queue.allocated, sorted(gone - queue.allocated.keys())
        )

    def write_deferred_queues(self) -> None:
        waiting, self.deferred_queues = self.deferred_queues, {}
        for name, queue in waiting.items():
            self.write_in_order(f"queue {name}", self.write_queue(queue))

    def write_deferred_conditions(self) -> None:
        """Write the deferred conditions that have stayed the same for long enough, of pods that are
        still pending."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        debounce = self.client.debounce
        stable = debounce.delay(STABLE, LONGEST_UNSTABLE)
        longest = debounce.delay(LONGEST_UNSTABLE, LONGEST_DEFERRAL)
        for pod, held in list(self.deferred_conditions.items()):
            if not self.is_pending(pod):
                del self.deferred_conditions[pod]
            elif now - held.changed >= stable or now - held.since >= longest:
                del self.deferred_conditions[pod]
                self.status_writer.put(f"pod {pod}", partial(self.start_condition, held))
        if self.deferred_conditions:
            loop.call_later(STABLE / 2, self.write_deferred_conditions)

    def is_pending(self, pod: str) -> bool:
        task = self.state.tasks.get(pod)
        return task is not None and task.status is Status.PENDING

    def start_condition(self, held: DeferredCondition) -> asyncio.Task[None] | None:
        """Start the write of a deferred condition, unless its pod no longer waits."""
        pod = held.condition.pod
        if not self.is_pending(pod):
            return None
        if held.event is not None:
            self.record(held.event)
        return self.write_in_order(f"pod {pod}", self.write_condition(held.condition))

    # evictions

    async def evict(self, evict: Evict) -> None:
        """Record the reason on the pod and its group, then delete the pod."""
        namespace, name = split(evict.pod)
        message = f"Pod is evicted, because of {evict.text}"
        if evict.job != evict.pod:
            self.recorder.event(reference("PodGroup", evict.job, ""), "Normal", "Evict", evict.text)
        self.recorder.event(reference("Pod", evict.pod, evict.uid), "Warning", "Evict", message)
        conditions = [
            {
                "type": "Ready",
                "status": "False",
                "reason": "Evict",
                "message": message,
                "lastTransitionTime": now(),
            },
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "lastTransitionTime": now(),
                "message": f"{self.scheduler_name}: preempting to accommodate a higher priority pod",
            },
        ]
        try:
            patch = {"metadata": {"uid": evict.uid}, "status": {"conditions": conditions}}
            await self.client.patch(
                core.POD, name, patch, namespace, type="strategic", subresource="status"
            )
            grace = None if evict.grace is UNSET else evict.grace
            await self.client.delete(core.POD, name, namespace, grace=grace, uid=evict.uid)
        except (NotFound, Conflict):
            return  # it is gone, or another pod has its name
        except LOST as error:
            log.warning("%s could not be evicted: %s", evict.pod, error)
            self.state.evict_failed(evict.pod)
            self.state_changed()

    async def tell(self, notice: EvictionNotice) -> None:
        """Tell a pod when it will be evicted, as annotations and events; or that it may stay."""
        namespace, name = split(notice.pod)
        marks: dict[str, str | None] = {EVICT_AT: None, EVICT_FOR: None}
        reason, message = (
            "EvictionWithdrawn",
            "Pod stays, because nobody waits for its room any more",
        )
        if notice.at:
            marks = {EVICT_AT: stamp(notice.at), EVICT_FOR: notice.claimant or None}
            purpose = f": {notice.purpose}" if notice.purpose else ""
            reason = "EvictionNotice"
            message = (
                f"Pod will be evicted at {stamp(notice.at)}, because of {notice.reason}{purpose}"
            )
        if notice.job and notice.job != notice.pod:
            group = reference("PodGroup", notice.job, "")
            self.recorder.event(group, "Normal", reason, f"{name}: {message}")
        pod = reference("Pod", notice.pod, notice.uid)
        self.recorder.event(pod, "Warning" if notice.at else "Normal", reason, message)
        patch = {"metadata": {"uid": notice.uid, "annotations": marks}}
        try:
            await self.client.patch(core.POD, name, patch, namespace)
        except (NotFound, Conflict):
            return  # it is gone, or another pod has its name
        except LOST as error:
            log.warning("%s could not be told of its eviction: %s", notice.pod, error)
            if notice.at:
                # It is not evicted without notice: the next cycle decides again.
                self.state.evict_failed(notice.pod)
                self.state_changed()

    # statuses

    async def write_condition(self, condition: PodCondition) -> None:
        namespace, name = split(condition.pod)
        entry = {
            "type": "PodScheduled",
            "status": "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastProbeTime": None,
            "lastTransitionTime": now(),
        }
        status: Tree = {"conditions": [entry]}
        if condition.nominated_node:
            status["nominatedNodeName"] = condition.nominated_node
        patch = {"metadata": {"uid": condition.uid}, "status": status}
        work = self.client.patch(
            core.POD, name, patch, namespace, type="strategic", subresource="status"
        )
        if not await self.attempt(condition.pod, work):
            self.state.condition_failed(condition.pod)

    async def write_queue(self, queue: QueueStatus) -> None:
        # A merge patch leaves keys alone that it does not name, so each resource that is gone is
        # set to null.
        patch = {"status": {"allocated": {**dict.fromkeys(queue.gone), **queue.allocated}}}
        await self.attempt(
            queue.name, self.client.patch(scheduling.QUEUE, queue.name, patch, subresource="status")
        )

    async def write_shard(self, shard_status: ShardStatus) -> None:
        status = {
            "nodesInUse": shard_status.in_use,
            "nodesToAdd": shard_status.to_add,
            "nodesToRemove": shard_status.to_remove,
            "lastUpdateTime": now(),
        }
        patch = {"metadata": {"uid": shard_status.uid}, "status": status}
        await self.attempt(
            shard_status.name,
            self.client.patch(shard.NODE_SHARD, shard_status.name, patch, subresource="status"),
        )

    async def write_reservation(self, reserved: ReservationStatus) -> None:
        status = msgspec.to_builtins(reserved)
        name, uid = status.pop("name"), status.pop("uid")
        for field in ("start", "end"):
            status[field] = status[field] or None  # an empty text is no time to the API server
        patch = {"metadata": {"uid": uid}, "status": status}
        await self.attempt(
            name,
            self.client.patch(reservation.RESERVATION, name, patch, subresource="status"),
        )

    async def attempt(self, key: str, write: Coroutine[Any, Any, Any]) -> bool:
        """Await a write whose failure must not stop the scheduler.  Returns False if it failed; an
        object that is gone counts as written."""
        try:
            await write
        except (NotFound, Conflict):
            return True
        except LOST as error:
            log.warning("status of %s: %s", key, error)
            return False
        return True

    async def lift_gate(self, pod: str) -> None:
        """Remove the queue gate from a pod for which its queue now has room."""
        namespace, name = split(pod)
        patch = {
            "spec": {
                "schedulingGates": [
                    {"name": "scheduling.volcano.sh/queue-allocation-gate", "$patch": "delete"}
                ]
            }
        }
        await self.attempt(
            pod, self.client.patch(core.POD, name, patch, namespace, type="strategic")
        )

    def record_rejected(self, refused: RejectedObject) -> None:
        """Record on an object that the engine cannot read it, and why."""
        self.recorder.event(
            reference(refused.kind, refused.key, refused.uid),
            "Warning",
            "Rejected",
            f"left out by the scheduler: {refused.reason}",
        )

    def record(self, event: Event) -> None:
        severity: Severity = "Warning" if event.type == "Warning" else "Normal"
        self.recorder.event(
            reference(event.kind, event.key, event.uid), severity, event.reason, event.message
        )


API_VERSIONS = {
    kind.kind: kind.api_version
    for kind in (
        core.POD,
        core.NODE,
        core.NAMESPACE,
        core.CONFIG_MAP,
        core.RESOURCE_QUOTA,
        claims.PERSISTENT_VOLUME,
        claims.PERSISTENT_VOLUME_CLAIM,
        topology.HYPER_NODE,
        shard.NODE_SHARD,
        nodeinfo.NUMATOPOLOGY,
        reservation.RESERVATION,
        policy.POD_DISRUPTION_BUDGET,
        priority.PRIORITY_CLASS,
        resource.RESOURCE_CLAIM,
        resource.RESOURCE_SLICE,
        resource.DEVICE_CLASS,
        resource.DEVICE_TAINT_RULE,
        storage.STORAGE_CLASS,
        storage.CSI_NODE,
        storage.CSI_DRIVER,
        storage.CSI_STORAGE_CAPACITY,
    )
}
"""Kind -> apiVersion, for events; PodGroups and Queues are not in it."""


def reference(kind: str, key: str, uid: str) -> Tree:
    """The fields of an object to which an event refers."""
    namespace, name = split(key)
    version = API_VERSIONS.get(kind, scheduling.POD_GROUP.api_version)
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
    }
