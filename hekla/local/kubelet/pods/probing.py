"""Asks the containers of a pod how they are, and runs their hooks.  Reference: local-cluster 8.6."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hekla.api.kubernetes import core
from hekla.local.kubelet.pods.containers import Container
from hekla.local.kubelet.pods.context import PodContext
from hekla.local.kubelet.runtime import isolation, probes
from hekla.local.kubelet.volumes import volumes


class Probing:
    """The probes and hooks of one pod."""

    def __init__(self, context: PodContext, paths: dict[str, Path]) -> None:
        self._context = context
        self._paths = paths
        """Where each volume is, by its name."""

    async def run_hook(
        self, container: Container, hook: core.LifecycleHandler, timeout: float, name: str
    ) -> bool:
        """Run a hook (`name` is PostStart or PreStop) for so many seconds at most; False where it
        failed, which an event tells."""
        outcome = await probes.attempt(hook, self._target(container), timeout)
        if not outcome.good:
            self._context.event(
                "Warning",
                f"Failed{name}Hook",
                f"{name}Hook failed: {outcome.text}",
                container.spec.name,
            )
        return outcome.good

    def start(self, container: Container, kill: Callable[[float | None], None]) -> None:
        """Begin to probe a container that runs, if it has probes.

        `kill` is called when a startup or liveness probe has failed too often, with the seconds of
        grace that the probe itself asks for, or None.
        """
        spec = container.spec
        if (
            spec.startup_probe is None
            and spec.liveness_probe is None
            and spec.readiness_probe is None
        ):
            return
        context = self._context

        def on_result(kind: str, good: bool, text: str) -> None:
            view = container.view
            if kind == "startup" and good:
                view.started = True
                view.ready = spec.readiness_probe is None
            elif kind == "readiness":
                view.ready = good
            elif not good:
                context.event(
                    "Normal",
                    "Killing",
                    f"Container {spec.name} failed {kind} probe, will be restarted",
                    spec.name,
                )
                probe = {"startup": spec.startup_probe, "liveness": spec.liveness_probe}[kind]
                kill(probe.termination_grace_period_seconds if probe is not None else None)
            context.wake()

        def on_failure(kind: str, text: str) -> None:
            message = f"{kind.capitalize()} probe failed: {text.strip()}"
            context.event("Warning", "Unhealthy", message, spec.name)

        container.prober = probes.Prober(
            spec, self._target(container), on_result, on_failure, container.probed
        )
        container.prober.start(container.view.started)

    def _target(self, container: Container) -> probes.Target:
        assert container.instance is not None
        address = self._context.view.pod_ip
        ports = {port.name: port.container_port for port in container.spec.ports if port.name}
        if self._context.host.isolation.mounts:
            return probes.Target(container.instance, address, ports)
        paths = isolation.Paths(volumes.mounts(container.spec, self._paths, {})[0])
        return probes.Target(container.instance, address, ports, paths.rewrite)
