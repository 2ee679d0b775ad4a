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
import signal
import time
from collections.abc import Callable
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.text import quantity
from hekla.api.text.times import instant
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.local.kubelet import environment
from hekla.local.kubelet.host import HOST_ADDRESS, Host
from hekla.local.kubelet.network.network import NetworkError
from hekla.local.kubelet.pods import containers, resizing, statuses
from hekla.local.kubelet.pods.containers import Run
from hekla.local.kubelet.pods.images import ImageError
from hekla.local.kubelet.pods.statuses import FINAL, PENDING, PodView
from hekla.local.kubelet.records import PodDirectory, PodRecord
from hekla.local.kubelet.runtime import isolation, probes
from hekla.local.kubelet.runtime.launching import Launching
from hekla.local.kubelet.runtime.runtime import CannotStart, Instance
from hekla.local.kubelet.volumes import volumes
from hekla.local.kubelet.volumes.mounting import Mounting

log = logging.getLogger("agent.pod")

SHORTEST_GRACE = 2.0
RETRY = 5.0
"""Seconds until something that a pod waits for is looked at again, if nothing wakes it before."""
QUIET = 0.05
"""Seconds that news of a pod which has not started yet may wait, because better news often follows.
"""
LONGEST_BACK_OFF = 300.0


class Worker:
    """One pod."""

    def __init__(
        self,
        host: Host,
        pod: core.Pod,
        admit: Callable[[core.Pod], tuple[str, str] | None],
        allocatable: Callable[[], dict[str, str | int | float]],
        closed: Callable[[Worker], None],
    ) -> None:
        self.host = host
        self.pod = pod
        self.uid = pod.metadata.uid
        self.key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self.admit = admit
        self.allocatable = allocatable
        self.closed = closed
        self.directory = PodDirectory(host.root, self.uid)
        self.volumes = Mounting(host, pod, self.directory)
        self.inits, self.mains = containers.runs_of(pod)
        self.guests: list[Run] = []
        """Ephemeral containers."""
        self.view = PodView(
            [run.view for run in self.inits], [run.view for run in self.mains], host_ip=HOST_ADDRESS
        )
        self.deleted = False
        """The object is gone from the API server."""
        self.admitted = False
        self.vacated = False
        """Its containers have ended for good: what it asked for is free, though its object is still
        there."""
        self.restored = False
        """An agent before this one had begun with the pod."""
        self.taken_up = time.time()
        self.final = pod.status.phase in FINAL
        """Succeeded or Failed was reported, perhaps by an agent that died before the object was
        deleted: nothing runs, nothing starts."""
        self.evicted = ""
        """Why the node ends the pod; empty while it does not."""
        self.machine_stops = False
        self.scratch_limits = volumes.scratch_limits(pod)
        self.cable: str | None = None
        """Path of the pod's network namespace; None until it is connected, "" where it shares the
        machine's."""
        self.stop_began: float | None = None
        self.reported: dict[str, Any] | None = None
        self.conditions: dict[str, core.PodCondition] = {}
        self._late: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._told: set[tuple[str, str]] = set()
        self.task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> list[Run]:
        return [*self.inits, *self.mains, *self.guests]

    def start(self) -> None:
        self.task = asyncio.create_task(self._live(), name=f"pod {self.key}")

    def restore(self) -> None:
        """Takes up what an agent before this one has begun."""
        record = self.directory.record()
        begun = record is not None or bool(self.pod.status.start_time)
        for run in self.runs:
            if containers.restore(run, self.pod, self.directory, self.host, self._on_end):
                begun = True
                self.limit_memory(run)
        if begun:
            self.admitted = self.restored = True
            self.view.started = instant(self.pod.status.start_time) or time.time()
        if record is not None and record.address:
            self.place(record.address)
            ready = any(
                c.type == "Ready" and c.status == "True" for c in self.pod.status.conditions
            )
            self.host.note_ready(self.uid, ready and not self.pod.metadata.deletion_timestamp)
        # a pod that is on its way out is not advanced, but all that runs in it must end
        self.let_in()

    # --- being told -------------------------------------------------------------------------------

    def wake(self) -> None:
        self._woken.set()

    def update(self, pod: core.Pod) -> None:
        self.pod = pod
        if pod.metadata.deletion_timestamp:
            self.host.note_ready(self.uid, False)
        self.wake()

    @property
    def over(self) -> bool:
        """Nothing of it is to be ended any more, or that is on its way."""
        return (
            self.final or self.deleted or bool(self.evicted or self.pod.metadata.deletion_timestamp)
        )

    def evict(self, message: str) -> None:
        """The node needs what the pod has, or the pod has taken more than it may."""
        self.evicted = message
        self.wake()

    def shut_down(self) -> None:
        """The node goes down."""
        if not self.over:
            self.machine_stops = True
            self.evict("Pod was terminated in response to imminent node shutdown.")

    def gone(self) -> None:
        """The object has vanished from the API server."""
        self.deleted = True
        self.wake()

    def _on_end(self, instance: Instance) -> None:
        for run in self.runs:
            if run.instance is instance:
                run.ended.set()
        self.wake()

    def event(self, kind: str, reason: str, message: str, container: str = "") -> None:
        """Records an event, about a container of the pod where one is named."""
        path = f"spec.containers{{{container}}}" if container else ""
        if any(run.spec.name == container for run in self.inits):
            path = f"spec.initContainers{{{container}}}"
        self.host.recorder.event(
            self.pod, "Warning" if kind == "Warning" else "Normal", reason, message, field_path=path
        )

    def complain(self, reason: str, message: str, container: str = "") -> None:
        """A warning that is said once, however often the worker runs into it."""
        if (reason, message) not in self._told:
            self._told.add((reason, message))
            self.event("Warning", reason, message, container)

    # --- the loop ---------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            self._woken.clear()
            try:
                wait: float | None = await self.step()
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

    async def step(self) -> float | None:
        """Does what is next; gives the seconds until it wants to run again, None when the pod is
        over."""
        self.note_ends()
        if self.deleted or self.pod.metadata.deletion_timestamp:
            await self.terminate()
            return None
        if self.final:
            return LONGEST_BACK_OFF
        if not self.admitted and not self.take():
            return LONGEST_BACK_OFF
        if self.evicted:
            self.view.disrupted = self.evicted
            await self.fail("Terminated" if self.machine_stops else "Evicted", self.evicted)
            return LONGEST_BACK_OFF
        left = self.time_left()
        if left is not None and left <= 0:
            await self.fail(
                "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
            )
            return LONGEST_BACK_OFF
        resizing.resize(self)
        if not await self.plug():
            return RETRY
        wait = RETRY
        if await self.mount():
            wait = await self.advance()
        await self.conclude()
        self.report()
        if self.view.resize is not None:
            wait = min(wait, RETRY)
        return wait if left is None else min(wait, left)

    def take(self) -> bool:
        """Node admission; False when the pod was refused, which is then its end."""
        refused = self.admit(self.pod)
        if refused is None:
            self.admitted = True
            self.view.started = time.time()
            return True
        reason, message = refused
        self.event("Warning", reason, message)
        self.final = True
        self.send(statuses.rejected(self.pod, reason, message, time.time()))
        self.closed(self)
        return False

    async def plug(self) -> bool:
        """Gives the pod its address and its place in the network; False while that cannot be."""
        if self.cable is not None:
            return True
        network = None if self.pod.spec.host_network else self.host.network
        try:
            if network is not None:
                await self.host.connect()
            if not self.view.sandbox or (
                network is not None and self.host.addresses.taken.get(self.uid) != self.view.pod_ip
            ):
                self.place(self.host.addresses.take(self.uid, self.view.pod_ip))
            if network is None:
                self.cable = ""
            else:
                pids = [
                    run.instance.claim.pid
                    for run in self.runs
                    if run.instance is not None and run.instance.exit is None
                ]
                ports = [
                    [port.host_ip, port.host_port, port.container_port]
                    for run in self.runs
                    for port in run.spec.ports
                    if port.host_port and port.protocol in ("", "TCP")
                ]
                await self.host.isolated()
                self.cable = await network.attach(self.uid, self.view.pod_ip, pids, ports)
        except NetworkError as error:
            self.complain("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            return False
        return True

    def unplug(self) -> None:
        """The network has been made anew: the pod must be connected again."""
        self.cable = None
        self.wake()

    def release(self) -> None:
        """Nothing of the pod runs any more: its place in the network and its address are free."""
        network = self.host.network
        if network is None or self.pod.spec.host_network or not self.view.sandbox:
            return
        network.tell({"do": "detach", "uid": self.uid})
        self.host.addresses.give_back(self.uid)

    def place(self, address: str) -> None:
        """Directory, address, names."""
        if self.pod.spec.host_network:
            address = HOST_ADDRESS
        meta = self.pod.metadata
        self.directory.make(
            PodRecord(meta.namespace, meta.name, self.uid, self.pod.spec.node_name, address)
        )
        self.view.pod_ip = (
            self.host.addresses.take(self.uid, address)
            if not self.pod.spec.host_network
            else address
        )
        self.host.name(self.pod, self.view.pod_ip, self.directory)
        self.view.sandbox = True

    def time_left(self) -> float | None:
        """Seconds until activeDeadlineSeconds are over."""
        seconds = self.pod.spec.active_deadline_seconds
        return None if seconds is None else self.view.started + seconds - time.time()

    def sources(self) -> environment.Sources:
        return self.host.sources(self.pod, self.view.pod_ip, self.allocatable())

    async def mount(self) -> bool:
        """Brings the volumes up to date; False while one of them cannot be."""
        try:
            await self.volumes.renew(self.pod, [run.spec for run in self.runs], self.sources)
        except (volumes.MountError, ApiError, TransportError) as error:
            text = (
                str(error)
                if isinstance(error, volumes.MountError)
                else f"MountVolume.SetUp failed: {error}"
            )
            self.complain("FailedMount", text)
            return self.volumes.complete
        return True

    # --- containers -------------------------------------------------------------------------------

    def note_ends(self) -> None:
        for run in self.runs:
            end = run.note_end(self.pod, self.host)
            if end is None or not run.again(self.pod.spec.restart_policy, end.code):
                continue
            delay = run.start_at - time.time()
            if delay > 0 and self.stop_began is None:
                meta = self.pod.metadata
                where = f"container={run.spec.name} pod={meta.name}_{meta.namespace}({self.uid})"
                seconds = containers.back_off(run.failures)
                run.view.waiting = (
                    "CrashLoopBackOff",
                    f"back-off {go_seconds(seconds)} restarting failed {where}",
                )
                self.event(
                    "Warning",
                    "BackOff",
                    f"Back-off restarting failed container {run.spec.name} in pod "
                    f"{meta.name}_{meta.namespace}({self.uid})",
                    run.spec.name,
                )

    async def advance(self) -> float:
        """Starts what is to run now; gives the seconds until there may be more to start."""
        self.let_in()
        if not any(run.running or run.view.ended or run.view.last for run in self.mains):
            for run in self.inits:
                wait = await self.ensure(run)
                if not run.complete:
                    return wait
            for run in self.mains:
                if run.view.waiting == ("PodInitializing", ""):
                    run.view.waiting = ("ContainerCreating", "")
        else:
            for run in self.inits:
                if run.sidecar:
                    await self.ensure(run)
        waits = [await self.ensure(run) for run in self.mains]
        waits += [await self.ensure(run) for run in self.guests]
        return min(waits)

    def let_in(self) -> None:
        """Takes up the ephemeral containers that have been added since."""
        for spec in self.pod.spec.ephemeral_containers[len(self.guests) :]:
            run = containers.guest_of(spec)
            self.guests.append(run)
            self.view.guests.append(run.view)
            containers.restore(run, self.pod, self.directory, self.host, self._on_end)

    async def ensure(self, run: Run) -> float:
        """Starts a container if it should run and does not; gives the seconds until it should be
        looked at again."""
        if run.running:
            if run.prober is None:  # an agent before this one has started it
                self.probe(run)
            return LONGEST_BACK_OFF
        if run.view.ended is not None and run.noted:
            if not run.again(self.pod.spec.restart_policy, run.view.ended.code):
                return LONGEST_BACK_OFF
            if self.final:
                return LONGEST_BACK_OFF
        left = run.start_at - time.time()
        if left > 0:
            return left
        return await self.begin(run)

    async def begin(self, run: Run) -> float:
        """Starts the next instance of a container."""
        attempt = run.attempt + 1 if run.view.ended is not None else run.attempt
        slot = self.directory.slot(run.spec.name, attempt)
        try:
            launching = Launching(
                self.host,
                self.pod,
                self.directory,
                self.volumes.paths,
                self.sources(),
                self.view.pod_ip,
                self.cable,
                self.complain,
            )
            launch = launching.of(run.spec, attempt)
        except ImageError as error:
            return self.cannot_pull(run, error)
        except environment.ConfigError as error:
            run.view.waiting = ("CreateContainerConfigError", str(error))
            self.complain("Failed", f"Error: {error}", run.spec.name)
            return RETRY
        except (volumes.MountError, OSError) as error:
            run.view.waiting = ("CreateContainerConfigError", str(error))
            self.complain("Failed", f"Error: {error}", run.spec.name)
            return RETRY
        run.pull_failures = 0
        # the order of its streams is known by the notes alone, so by these from the first line on
        if launch.split:
            slot.prepare(launch)
            self.host.clock.follow(slot)
        try:
            instance = await self.host.runtime.start(slot, launch, self._on_end)
        except CannotStart as error:
            self.host.clock.leave(slot)
            run.view.waiting = ("RunContainerError", str(error))
            self.complain("Failed", f"Error: {error}", run.spec.name)
            return RETRY
        run.attempt = attempt
        run.view.image_id = containers.image_id(run.spec.image)
        run.view.user = containers.identity(launch)
        run.begin(instance, self.uid)
        self.limit_memory(run)
        self.host.clock.follow(slot)
        self.directory.forget_before(run.spec.name, attempt - 1)
        self.event(
            "Normal",
            "Pulled",
            f'Container image "{run.spec.image}" already present on machine',
            run.spec.name,
        )
        self.event("Normal", "Created", "Container created", run.spec.name)
        if instance.exit is not None and instance.exit.reason == "StartError":
            self.event("Warning", "Failed", f"Error: {instance.exit.message}", run.spec.name)
        else:
            self.event("Normal", "Started", "Container started", run.spec.name)
        if instance.exit is None:
            await self.after_start(run)
        return 0.0 if instance.exit is not None else LONGEST_BACK_OFF

    def limit_memory(self, run: Run) -> None:
        """Has the container watched where no control group holds it to its limit."""
        limit = run.spec.resources.limits.get("memory")
        if (
            limit
            and self.host.groups is None
            and run.instance is not None
            and run.instance.exit is None
        ):
            self.host.ceilings.watch(run.instance, quantity.whole(limit))

    def cannot_pull(self, run: Run, error: ImageError) -> float:
        if run.spec.image_pull_policy == "Never" and error.reason == "ErrImagePull":
            error = ImageError(
                "ErrImageNeverPull",
                f'Container image "{run.spec.image}" is not present with pull policy of Never',
            )
        run.pull_failures += 1
        delay = min(LONGEST_BACK_OFF, containers.FIRST_BACK_OFF * 2.0 ** (run.pull_failures - 1))
        run.start_at = time.time() + delay
        if error.reason != "ErrImagePull":
            run.view.waiting = (error.reason, error.message)
        elif run.pull_failures == 1:
            run.view.waiting = ("ErrImagePull", error.message)
            run.start_at = time.time() + 1.0
        else:
            run.view.waiting = (
                "ImagePullBackOff",
                f'Back-off pulling image "{run.spec.image}": ErrImagePull: {error.message}',
            )
        self.complain(
            "Failed", f'Failed to pull image "{run.spec.image}": {error.message}', run.spec.name
        )
        return run.start_at - time.time()

    # --- probes and hooks -------------------------------------------------------------------------

    def target(self, run: Run) -> probes.Target:
        assert run.instance is not None
        ports = {port.name: port.container_port for port in run.spec.ports if port.name}
        if self.host.isolation.mounts:
            return probes.Target(run.instance, self.view.pod_ip, ports)
        paths = isolation.Paths(volumes.mounts(run.spec, self.volumes.paths, {})[0])
        return probes.Target(run.instance, self.view.pod_ip, ports, paths.rewrite)

    async def after_start(self, run: Run) -> None:
        """The postStart hook, which holds up the next container, then the probes."""
        hook = run.spec.lifecycle.post_start if run.spec.lifecycle else None
        if hook is not None:
            outcome = await probes.ask(hook, self.target(run), SHORTEST_GRACE * 60)
            if not outcome.good:
                self.event(
                    "Warning",
                    "FailedPostStartHook",
                    f"PostStartHook failed: {outcome.text}",
                    run.spec.name,
                )
                await self.stop_one(run, lambda: time.time() + self.grace(), "FailedPostStartHook")
                return
        self.probe(run)

    def probe(self, run: Run) -> None:
        spec = run.spec
        if (
            spec.startup_probe is None
            and spec.liveness_probe is None
            and spec.readiness_probe is None
        ):
            return

        def on_result(kind: str, good: bool, text: str) -> None:
            if kind == "startup" and good:
                run.view.started = True
                run.view.ready = spec.readiness_probe is None
            elif kind == "readiness":
                run.view.ready = good
            elif not good:
                self.event(
                    "Normal",
                    "Killing",
                    f"Container {spec.name} failed {kind} probe, will be restarted",
                    spec.name,
                )
                asked = {"startup": spec.startup_probe, "liveness": spec.liveness_probe}[kind]
                own = asked.termination_grace_period_seconds if asked is not None else None
                grace = self.grace() if own is None else max(1.0, float(own))
                run.killing = asyncio.create_task(
                    self.stop_one(run, lambda: time.time() + grace, "")
                )
            self.wake()

        def on_failure(kind: str, text: str) -> None:
            self.event(
                "Warning",
                "Unhealthy",
                f"{kind.capitalize()} probe failed: {text.strip()}",
                spec.name,
            )

        run.prober = probes.Prober(spec, self.target(run), on_result, on_failure)
        run.prober.start(run.view.started)

    # --- stopping ---------------------------------------------------------------------------------

    def grace(self) -> float:
        """Seconds that containers get from now on."""
        meta = self.pod.metadata
        seconds = (
            meta.deletion_grace_period_seconds
            if meta.deletion_timestamp
            else self.pod.spec.termination_grace_period_seconds
        )
        if (self.deleted and not meta.deletion_timestamp) or self.evicted:
            seconds = 0
        return max(SHORTEST_GRACE, 30.0 if seconds is None else float(seconds))

    def kill_at(self) -> float:
        """When patience ends, in seconds since the epoch; a second deletion may have brought it
        nearer."""
        assert self.stop_began is not None
        return max(self.stop_began + self.grace(), self.taken_up + SHORTEST_GRACE)

    async def stop(self) -> None:
        """Ends every container: the main ones at once, then the sidecars in reverse."""
        if self.stop_began is None:
            self.stop_began = time.time()
            if (
                self.restored and self.pod.metadata.deletion_timestamp
            ):  # the agent before this one may have begun already
                self.stop_began = min(
                    self.stop_began, instant(self.pod.metadata.deletion_timestamp) - self.grace()
                )
        await asyncio.gather(
            *(
                self.stop_one(run, self.kill_at)
                for run in [*self.mains, *self.guests, *self.inits]
                if not run.sidecar
            )
        )
        for run in reversed(self.inits):
            await self.stop_one(run, lambda: max(self.kill_at(), time.time() + SHORTEST_GRACE))
        self.note_ends()

    async def stop_one(
        self, run: Run, deadline: Callable[[], float], why: str | None = None
    ) -> None:
        """preStop, SIGTERM, patience, SIGKILL."""
        if not run.running or run.instance is None or run.instance.exit is not None:
            return
        until = deadline() if why is not None else None

        def left() -> float:
            return (deadline() if until is None else until) - time.time()

        if run.prober is not None:
            run.prober.stop()
        if why is None:
            self.event("Normal", "Killing", f"Stopping container {run.spec.name}", run.spec.name)
        hook = run.spec.lifecycle.pre_stop if run.spec.lifecycle else None
        if hook is not None and why != "FailedPostStartHook":
            outcome = await probes.ask(hook, self.target(run), max(0.1, left()))
            if not outcome.good:
                self.event(
                    "Warning",
                    "FailedPreStopHook",
                    f"PreStopHook failed: {outcome.text}",
                    run.spec.name,
                )
        number = signal.SIGTERM
        if run.spec.lifecycle is not None and run.spec.lifecycle.stop_signal:
            with contextlib.suppress(AttributeError):
                number = getattr(signal, run.spec.lifecycle.stop_signal)
        await self.host.runtime.signal(run.instance, number)
        least = time.time() + SHORTEST_GRACE if hook is not None else 0.0
        while not run.ended.is_set() and (wait := max(left(), least - time.time())) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait, 0.25)):
                    await run.ended.wait()
        if not run.ended.is_set():
            await self.host.runtime.kill(run.instance)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SHORTEST_GRACE):
                    await run.ended.wait()

    async def fail(self, reason: str, message: str) -> None:
        """Ends the pod as a whole."""
        self.view.verdict = (reason, message)
        self.event("Warning", reason, message)
        await self.stop()
        self.settle()

    async def conclude(self) -> None:
        """Ends the pod when its containers have."""
        if self.final or statuses.phase(self.view, self.pod.spec.restart_policy) not in FINAL:
            return
        if any(run.running for run in self.runs):
            await self.stop()  # sidecars
        self.settle()

    def settle(self) -> None:
        """Reports the last status; the pod holds nothing of the node any more, only its logs."""
        self.final = True
        self.report()
        self.host.unname(self.uid)
        if self.host.network is not None and self.view.sandbox:
            self.release()
            meta = self.pod.metadata
            self.directory.make(
                PodRecord(meta.namespace, meta.name, self.uid, self.pod.spec.node_name, "")
            )
        self.closed(self)

    async def terminate(self) -> None:
        """The pod is to go: containers first, then the last status, then the object, then the
        files."""
        self.view.terminating = True
        await self.stop()
        while self.host.runtime.instances and any(run.running for run in self.runs):
            await asyncio.sleep(0.05)
            self.note_ends()
        self.vacated = (
            True  # before anybody is told, because who is told may send the next pod at once
        )
        if not self.deleted:
            if not self.final or self.pod.status.phase not in FINAL:
                self.report()
            await self.host.reporter.flush(self.uid)
            await self.delete()
        self.clean()

    async def delete(self) -> None:
        """Removes the object, if it is still this pod; finalizers may keep it, which is not ours to
        wait for."""
        meta = self.pod.metadata
        while not self.deleted and not await self.host.reporter.delete(
            self.uid, meta.namespace, meta.name
        ):
            await asyncio.sleep(0.5)

    def clean(self) -> None:
        """Nothing of the pod stays on this machine."""
        for run in self.runs:
            run.forget_tasks()
        if self._late is not None:
            self._late.cancel()
        self.host.unname(self.uid)
        self.release()
        self.host.addresses.give_back(self.uid)
        self.directory.remove()
        self.final = True
        self.closed(self)

    # --- reporting --------------------------------------------------------------------------------

    def report(self) -> None:
        """Sends the status if it says anything new."""
        if self.deleted:
            return
        old = {c.type: c for c in self.pod.status.conditions} | self.conditions
        status = statuses.status(self.pod, self.view, list(old.values()), time.time())
        if status == self.reported:
            return
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if (
            status["phase"] == PENDING
            and not any(run.view.ended or run.running for run in self.runs)
            and not self._told
        ):
            self._late = asyncio.get_running_loop().call_later(QUIET, self.send, status)
            return
        self.send(status)

    def send(self, status: dict[str, Any]) -> None:
        self._late = None
        self.reported = status
        before = {c.type: c for c in self.pod.status.conditions} | self.conditions
        patched = [
            statuses.replacing(condition, before.get(condition["type"]))
            for condition in status.get("conditions", ())
        ]
        for kind in resizing.CONDITIONS & before.keys() - {
            condition["type"] for condition in patched
        }:
            patched.append({"$patch": "delete", "type": kind})
            self.conditions.pop(kind, None)
        for condition in status.get("conditions", ()):
            self.conditions[condition["type"]] = core.PodCondition(
                type=condition["type"],
                status=condition["status"],
                last_transition_time=condition["lastTransitionTime"],
                reason=condition.get("reason", ""),
                message=condition.get("message", ""),
            )
            if condition["type"] == "Ready":
                self.host.note_ready(
                    self.uid,
                    condition["status"] == "True" and not self.pod.metadata.deletion_timestamp,
                )
        meta = self.pod.metadata
        self.host.reporter.put(
            self.uid,
            meta.namespace,
            meta.name,
            {**status, "conditions": patched} if patched else status,
        )


def go_seconds(seconds: float) -> str:
    """A duration as Go writes it: 10s, 1m20s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
