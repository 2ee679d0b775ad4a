"""Starts the containers of a pod in their order, starts them again when they have ended, and waits
between starts that fail.  Reference: local-cluster 8.3, 8.6."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hekla.api.text import quantity
from hekla.local.kubelet import environment
from hekla.local.kubelet.pods import containers
from hekla.local.kubelet.pods.containers import LONGEST_BACK_OFF, Container
from hekla.local.kubelet.pods.context import PodContext
from hekla.local.kubelet.pods.images import ImageError
from hekla.local.kubelet.pods.probing import Probing
from hekla.local.kubelet.pods.sandbox import PodSandbox
from hekla.local.kubelet.pods.termination import Termination
from hekla.local.kubelet.records import Launch, Slot
from hekla.local.kubelet.runtime.launching import Launching
from hekla.local.kubelet.runtime.runtime import CannotStart, Instance
from hekla.local.kubelet.volumes import volumes

RETRY = 5.0
"""Seconds until something that a pod waits for is looked at again, if nothing wakes it before."""
POST_START_TIMEOUT = 120.0


class PodContainers:
    """All containers of one pod."""

    def __init__(
        self,
        context: PodContext,
        sandbox: PodSandbox,
        probing: Probing,
        termination: Termination,
        paths: dict[str, Path],
        sources: Callable[[], environment.Sources],
    ) -> None:
        self._context = context
        self._sandbox = sandbox
        self._probing = probing
        self._termination = termination
        self._paths = paths
        """Where each volume is, by its name."""
        self._sources = sources
        self.inits, self.mains = containers.containers_of(context.pod)
        self.ephemeral: list[Container] = []
        view = context.view
        view.inits = [container.view for container in self.inits]
        view.mains = [container.view for container in self.mains]

    def __iter__(self) -> Iterator[Container]:
        yield from self.inits
        yield from self.mains
        yield from self.ephemeral

    @property
    def running(self) -> bool:
        """Whether any of them runs."""
        return any(container.running for container in self)

    def restore(self) -> bool:
        """Find again what a kubelet before this one has started; False where it had not begun."""
        begun = False
        for container in self:
            if self._restore(container):
                begun = True
                self.limit_memory(container)
        # A pod that is on its way out starts nothing more, but all that runs in it must end.
        self._add_ephemeral()
        return begun

    def _restore(self, container: Container) -> bool:
        context = self._context
        return containers.restore(
            container, context.pod, context.directory, context.host, self._on_end
        )

    def _add_ephemeral(self) -> None:
        """Take up the ephemeral containers that have been added to the pod since."""
        for spec in self._context.pod.spec.ephemeral_containers[len(self.ephemeral) :]:
            container = containers.ephemeral_container(spec)
            self.ephemeral.append(container)
            self._context.view.ephemeral.append(container.view)
            self._restore(container)

    # --- ends -------------------------------------------------------------------------------------

    def _on_end(self, instance: Instance) -> None:
        for container in self:
            if container.instance is instance:
                container.ended.set()
        self._context.wake()

    def note_ends(self) -> None:
        """Take the ends of containers into the pod's view, and tell of those that back off."""
        pod, host = self._context.pod, self._context.host
        for container in self:
            end = container.note_end(pod, host)
            if end is None or not container.again(pod.spec.restart_policy, end.code):
                continue
            if container.start_at > time.time() and self._termination.began is None:
                self._back_off(container)

    def _back_off(self, container: Container) -> None:
        meta, name = self._context.pod.metadata, container.spec.name
        pod = f"{meta.name}_{meta.namespace}({meta.uid})"
        seconds = go_seconds(containers.back_off(container.failures))
        container.view.waiting = (
            "CrashLoopBackOff",
            f"back-off {seconds} restarting failed container={name} pod={pod}",
        )
        message = f"Back-off restarting failed container {name} in pod {pod}"
        self._context.event("Warning", "BackOff", message, name)

    async def stop_all(self) -> None:
        """End every container for good."""
        await self._termination.stop_all(self.inits, [*self.mains, *self.ephemeral])
        self.note_ends()

    def forget_tasks(self) -> None:
        """End what runs beside the containers: probes, and kills that are under way."""
        for container in self:
            container.forget_tasks()

    # --- starting ---------------------------------------------------------------------------------

    async def start_next(self) -> float:
        """Start what is to run now.  Gives the seconds until there may be more to start."""
        self._add_ephemeral()
        if not any(
            container.running or container.view.ended or container.view.last
            for container in self.mains
        ):
            for init in self.inits:
                wait = await self._ensure(init)
                if not init.complete:
                    return wait
            for main in self.mains:
                if main.view.waiting == ("PodInitializing", ""):
                    main.view.waiting = ("ContainerCreating", "")
        else:
            for init in self.inits:
                if init.sidecar:
                    await self._ensure(init)
        return min([await self._ensure(one) for one in [*self.mains, *self.ephemeral]])

    async def _ensure(self, container: Container) -> float:
        """Start a container if it should run and does not.  Gives the seconds until it should be
        looked at again."""
        if container.running:
            if container.prober is None:  # a kubelet before this one has started it
                self._probe(container)
            return LONGEST_BACK_OFF
        view, policy = container.view, self._context.pod.spec.restart_policy
        if (
            view.ended is not None
            and container.noted
            and not container.again(policy, view.ended.code)
        ):
            return LONGEST_BACK_OFF
        left = container.start_at - time.time()
        if left > 0:
            return left
        return await self._start(container)

    async def _start(self, container: Container) -> float:
        """Start the next instance of a container.  Gives the seconds until it should be checked
        again."""
        attempt = container.attempt + (container.view.ended is not None)
        slot = self._context.directory.slot(container.spec.name, attempt)
        try:
            launch = self._launch(container, attempt)
        except ImageError as error:
            return self._cannot_pull(container, error)
        except (environment.ConfigError, volumes.MountError, OSError) as error:
            return self._cannot_start(container, "CreateContainerConfigError", error)
        container.pull_failures = 0
        try:
            instance = await self._run(slot, launch)
        except CannotStart as error:
            return self._cannot_start(container, "RunContainerError", error)
        container.attempt = attempt
        container.view.image_id = containers.image_id(container.spec.image)
        container.view.user = containers.identity(launch)
        container.begin(instance, self._context.uid)
        self.limit_memory(container)
        self._context.host.clock.follow(slot)
        self._context.directory.forget_before(container.spec.name, attempt - 1)
        self._tell_of_start(container, instance)
        if instance.exit is not None:
            return 0.0
        await self._after_start(container)
        return LONGEST_BACK_OFF

    def _launch(self, container: Container, attempt: int) -> Launch:
        """What the container is started with: command, environment, user, mounts, limits, namespaces.
        Raises ImageError, ConfigError, MountError, OSError."""
        context = self._context
        launching = Launching(
            context.host,
            context.pod,
            context.directory,
            self._paths,
            self._sources(),
            self._sandbox.address,
            self._sandbox.network_namespace,
            context.warn_once,
        )
        return launching.of(container.spec, attempt)

    async def _run(self, slot: Slot, launch: Launch) -> Instance:
        """Raises CannotStart."""
        host = self._context.host
        if launch.split:
            # Only the times of its lines tell the order of the two streams, so they are taken from
            # the first line on.
            slot.prepare(launch)
            host.clock.follow(slot)
        try:
            return await host.runtime.start(slot, launch, self._on_end)
        except CannotStart:
            host.clock.leave(slot)
            raise

    def _tell_of_start(self, container: Container, instance: Instance) -> None:
        event, spec = self._context.event, container.spec
        image = f'Container image "{spec.image}" already present on machine'
        event("Normal", "Pulled", image, spec.name)
        event("Normal", "Created", "Container created", spec.name)
        if instance.exit is not None and instance.exit.reason == "StartError":
            event("Warning", "Failed", f"Error: {instance.exit.message}", spec.name)
        else:
            event("Normal", "Started", "Container started", spec.name)

    async def _after_start(self, container: Container) -> None:
        """Run the postStart hook, which holds up the next container; then begin to probe."""
        lifecycle = container.spec.lifecycle
        hook = lifecycle.post_start if lifecycle else None
        if hook is not None and not await self._probing.run_hook(
            container, hook, POST_START_TIMEOUT, "PostStart"
        ):
            await self._termination.stop(container, hook=False)
            return
        self._probe(container)

    def _probe(self, container: Container) -> None:
        def kill(grace: float | None) -> None:
            container.killing = asyncio.create_task(
                self._termination.stop(container, None if grace is None else max(1.0, grace))
            )

        self._probing.start(container, kill)

    def limit_memory(self, container: Container) -> None:
        """Have a running container watched where no control group holds it to its limit."""
        host, instance = self._context.host, container.instance
        limit = container.spec.resources.limits.get("memory")
        if limit and host.groups is None and instance is not None and instance.exit is None:
            host.memory_limits.watch(instance, quantity.whole(limit))

    # --- what keeps a container from starting -----------------------------------------------------

    def _cannot_start(self, container: Container, reason: str, error: Exception) -> float:
        container.view.waiting = (reason, str(error))
        self._context.warn_once("Failed", f"Error: {error}", container.spec.name)
        return RETRY

    def _cannot_pull(self, container: Container, error: ImageError) -> float:
        spec, view = container.spec, container.view
        if spec.image_pull_policy == "Never" and error.reason == "ErrImagePull":
            error = ImageError(
                "ErrImageNeverPull",
                f'Container image "{spec.image}" is not present with pull policy of Never',
            )
        container.pull_failures += 1
        delay = containers.FIRST_BACK_OFF * 2.0 ** (container.pull_failures - 1)
        container.start_at = time.time() + min(LONGEST_BACK_OFF, delay)
        if error.reason != "ErrImagePull":
            view.waiting = (error.reason, error.message)
        elif container.pull_failures == 1:
            view.waiting = ("ErrImagePull", error.message)
            container.start_at = time.time() + 1.0
        else:
            view.waiting = (
                "ImagePullBackOff",
                f'Back-off pulling image "{spec.image}": ErrImagePull: {error.message}',
            )
        self._context.warn_once(
            "Failed", f'Failed to pull image "{spec.image}": {error.message}', spec.name
        )
        return container.start_at - time.time()


def go_seconds(seconds: float) -> str:
    """A duration as Go writes it: 10s, 1m20s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
