"""The life of one pod on this machine, from bound to gone.  Reference: local-cluster 8.2 to 8.6.

A worker looks at what is (the pod object, the slots on disk, the clock), does the next thing,
reports what changed, and sleeps until something wakes it: a change of the object or of what it
refers to, the end of a container, a timer.  It keeps no truth that it could not find again on disk,
so that it may die at any line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from hekla.api.kubernetes import core
from hekla.api.text.times import instant
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.local.kubelet import environment
from hekla.local.kubelet.addresses import HOST_ADDRESS
from hekla.local.kubelet.host import Host
from hekla.local.kubelet.network.network import NetworkError
from hekla.local.kubelet.pods import statuses
from hekla.local.kubelet.pods.containers import LONGEST_BACK_OFF
from hekla.local.kubelet.pods.context import PodContext
from hekla.local.kubelet.pods.pod_containers import RETRY, PodContainers
from hekla.local.kubelet.pods.probing import Probing
from hekla.local.kubelet.pods.resizing import Resizing
from hekla.local.kubelet.pods.sandbox import PodSandbox
from hekla.local.kubelet.pods.status_reporter import StatusReporter
from hekla.local.kubelet.pods.statuses import FINAL, PodView
from hekla.local.kubelet.pods.termination import Termination
from hekla.local.kubelet.records import PodDirectory
from hekla.local.kubelet.volumes import volumes
from hekla.local.kubelet.volumes.mounting import Mounting

log = logging.getLogger("kubelet.pod")


class PodWorker:
    """One pod."""

    def __init__(
        self,
        host: Host,
        pod: core.Pod,
        admit: Callable[[core.Pod], tuple[str, str] | None],
        allocatable: Callable[[], dict[str, str | int | float]],
        closed: Callable[[PodWorker], None],
    ) -> None:
        self._host = host
        self._admit = admit
        self._allocatable = allocatable
        self._closed = closed
        self.uid = pod.metadata.uid
        self.key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self.directory = PodDirectory(host.root, self.uid)
        self.view = PodView(host_ip=HOST_ADDRESS)
        self._woken = asyncio.Event()
        self._context = PodContext(host, pod, self.view, self.directory, self.wake)
        self.volumes = Mounting(host, pod, self.directory)
        self.scratch_limits = volumes.scratch_limits(pod)
        self._sandbox = PodSandbox(self._context)
        probing = Probing(self._context, self.volumes.paths)
        self._termination = Termination(self._context, probing)
        self.containers = PodContainers(
            self._context,
            self._sandbox,
            probing,
            self._termination,
            self.volumes.paths,
            self._sources,
        )
        self._resizing = Resizing(
            self._context, self.containers, self._termination, admit, allocatable
        )
        self._status = StatusReporter(self._context)
        self.admitted = False
        self.vacated = False
        """Its containers have ended for good: what it asked for is free, though its object is still
        there."""
        self._final = pod.status.phase in FINAL
        """Succeeded or Failed was reported, perhaps by a kubelet that died before the object was
        deleted: nothing runs, nothing starts."""
        self._node_shuts_down = False
        self.task: asyncio.Task[None] | None = None

    @property
    def pod(self) -> core.Pod:
        return self._context.pod

    @property
    def own_network(self) -> bool:
        """The pod does not share the machine's network."""
        return bool(self._sandbox.network_namespace)

    @property
    def deleted(self) -> bool:
        """The object is gone from the API server."""
        return self._context.deleted

    def start(self) -> None:
        self.task = asyncio.create_task(self._live(), name=f"pod {self.key}")

    def restore(self) -> None:
        """Take up what a kubelet before this one has begun."""
        record = self.directory.record()
        restored = self.containers.restore()
        if restored or record is not None or self.pod.status.start_time:
            self.admitted = self._termination.restored = True
            self.view.started = instant(self.pod.status.start_time) or time.time()
        if record is not None and record.address:
            self._sandbox.place(record.address)
            ready = any(
                c.type == "Ready" and c.status == "True" for c in self.pod.status.conditions
            )
            self._host.names.note_ready(
                self.uid, ready and not self.pod.metadata.deletion_timestamp
            )

    # --- what others tell the worker --------------------------------------------------------------

    def wake(self) -> None:
        """Have the pod looked at again."""
        self._woken.set()

    def update(self, pod: core.Pod) -> None:
        """The object has changed."""
        self._context.pod = pod
        if pod.metadata.deletion_timestamp:
            self._host.names.note_ready(self.uid, False)
        self.wake()

    @property
    def over(self) -> bool:
        """Nothing of it is to be ended any more, or that is on its way."""
        return (
            self._final
            or self.deleted
            or bool(self._termination.evicted or self.pod.metadata.deletion_timestamp)
        )

    def evict(self, message: str) -> None:
        """The node needs what the pod has, or the pod has taken more than it may."""
        self._termination.evicted = message
        self.wake()

    def shut_down(self) -> None:
        """The node goes down."""
        if not self.over:
            self._node_shuts_down = True
            self.evict("Pod was terminated in response to imminent node shutdown.")

    def gone(self) -> None:
        """The object has vanished from the API server."""
        self._context.deleted = True
        self.wake()

    def reconnect(self) -> None:
        """The pods' network has been made anew: the pod must be connected again."""
        self._sandbox.disconnect()
        self.wake()

    # --- the loop ---------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            self._woken.clear()
            try:
                wait: float | None = await self._step()
            except asyncio.CancelledError:
                raise
            except Exception:  # a pod without a worker would never end
                log.exception("pod %s: the worker failed; it goes on in %g s", self.key, RETRY)
                wait = RETRY
            if wait is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait if wait > 0 else 0.001):
                    await self._woken.wait()

    async def _step(self) -> float | None:
        """Do what is next.  Gives the seconds until the next step, None when the pod is over."""
        self.containers.note_ends()
        if self.deleted or self.pod.metadata.deletion_timestamp:
            await self._terminate()
            return None
        if self._final or not self._is_admitted():
            return LONGEST_BACK_OFF
        left = self._time_left()
        if (verdict := self._verdict(left)) is not None:
            await self._fail(*verdict)
            return LONGEST_BACK_OFF
        self._resizing.resize()
        if not await self._ensure_sandbox():
            return RETRY
        wait = RETRY
        if await self._mount():
            wait = await self.containers.start_next()
        await self._conclude()
        self._status.report()
        if self.view.resize is not None:
            wait = min(wait, RETRY)
        return wait if left is None else min(wait, left)

    def _is_admitted(self) -> bool:
        """Whether the node has admitted the pod, or does now; one that it refuses has ended."""
        if self.admitted:
            return True
        refused = self._admit(self.pod)
        if refused is None:
            self.admitted = True
            self.view.started = time.time()
            return True
        reason, message = refused
        self._context.event("Warning", reason, message)
        self._final = True
        self._status.send(statuses.rejected(reason, message, time.time()))
        self._closed(self)
        return False

    def _time_left(self) -> float | None:
        """Seconds until activeDeadlineSeconds are over; None without such a bound."""
        seconds = self.pod.spec.active_deadline_seconds
        return None if seconds is None else self.view.started + seconds - time.time()

    def _verdict(self, left: float | None) -> tuple[str, str] | None:
        """(reason, message) of why the pod fails as a whole; None while it does not."""
        if evicted := self._termination.evicted:
            self.view.disrupted = evicted
            return "Terminated" if self._node_shuts_down else "Evicted", evicted
        if left is not None and left <= 0:
            message = "Pod was active on the node longer than the specified deadline"
            return "DeadlineExceeded", message
        return None

    async def _ensure_sandbox(self) -> bool:
        """Give the pod its directory, address, names and network namespace, once; False while its
        network cannot be had."""
        try:
            await self._sandbox.ensure(self.containers)
        except NetworkError as error:
            message = f"Failed to create pod sandbox: {error}"
            self._context.warn_once("FailedCreatePodSandBox", message)
            return False
        return True

    async def _mount(self) -> bool:
        """Bring the volumes up to date; False while one of them has never been there."""
        try:
            specs = [container.spec for container in self.containers]
            await self.volumes.renew(self.pod, specs, self._sources)
        except (volumes.MountError, ApiError, TransportError) as error:
            mount_error = isinstance(error, volumes.MountError)
            text = str(error) if mount_error else f"MountVolume.SetUp failed: {error}"
            self._context.warn_once("FailedMount", text)
            return self.volumes.complete
        return True

    def _sources(self) -> environment.Sources:
        return self._host.sources(self.pod, self.view.pod_ip, self._allocatable())

    # --- the end ----------------------------------------------------------------------------------

    async def _conclude(self) -> None:
        """End the pod when its containers have."""
        if statuses.phase(self.view, self.pod.spec.restart_policy) not in FINAL:
            return
        if self.containers.running:
            await self.containers.stop_all()  # sidecars
        self._settle()

    async def _fail(self, reason: str, message: str) -> None:
        """End the pod as a whole."""
        self.view.verdict = (reason, message)
        self._context.event("Warning", reason, message)
        await self.containers.stop_all()
        self._settle()

    def _settle(self) -> None:
        """Report the last status; the pod holds nothing of the node any more, only its logs."""
        self._final = True
        self._status.report()
        self._sandbox.end()
        self._closed(self)

    async def _terminate(self) -> None:
        """Remove the pod: its containers first, then the last status, the object, and the files."""
        self.view.terminating = True
        await self.containers.stop_all()
        while self._host.runtime.instances and self.containers.running:
            await asyncio.sleep(0.05)
            self.containers.note_ends()
        # Before anybody is told, because who is told may send the next pod at once.
        self.vacated = True
        if not self.deleted:
            if not self._final or self.pod.status.phase not in FINAL:
                self._status.report()
            await self._host.reporter.flush(self.uid)
            await self._delete()
        self._clean()

    async def _delete(self) -> None:
        """Remove the object, if it is still this pod; finalizers may keep it, which nobody here
        waits for."""
        meta, reporter = self.pod.metadata, self._host.reporter
        while not self.deleted and not await reporter.delete(self.uid, meta.namespace, meta.name):
            await asyncio.sleep(0.5)

    def _clean(self) -> None:
        """Nothing of the pod stays on this machine."""
        self.containers.forget_tasks()
        self._status.cancel()
        self._sandbox.remove()
        self._final = True
        self._closed(self)
