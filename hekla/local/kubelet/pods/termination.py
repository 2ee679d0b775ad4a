"""Ends the containers of a pod: preStop hook, SIGTERM, grace period, SIGKILL.  Reference:
local-cluster 8.6."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence

from hekla.api.text.times import instant
from hekla.local.kubelet.pods.containers import Container
from hekla.local.kubelet.pods.context import PodContext
from hekla.local.kubelet.pods.probing import Probing

SHORTEST_GRACE = 2.0
DEFAULT_GRACE = 30.0
CHECK_INTERVAL = 0.25
"""Seconds between two looks at how much of the grace period is left: another deletion shortens it.
"""


class Termination:
    """The end of one pod's containers."""

    def __init__(self, context: PodContext, probing: Probing) -> None:
        self._context = context
        self._probing = probing
        self._taken_up = time.time()
        self.restored = False
        """A kubelet before this one had begun with the pod."""
        self.evicted = ""
        """Why the node ends the pod; empty while it does not."""
        self.began: float | None = None
        """When the end of the whole pod began, in seconds since the epoch."""

    def grace(self) -> float:
        """Seconds that containers get from now on."""
        pod = self._context.pod
        meta = pod.metadata
        seconds = (
            meta.deletion_grace_period_seconds
            if meta.deletion_timestamp
            else pod.spec.termination_grace_period_seconds
        )
        if (self._context.deleted and not meta.deletion_timestamp) or self.evicted:
            seconds = 0
        return max(SHORTEST_GRACE, DEFAULT_GRACE if seconds is None else float(seconds))

    def _kill_at(self) -> float:
        """When the grace period of the whole pod ends, in seconds since the epoch; a second
        deletion may have brought it nearer."""
        assert self.began is not None
        return max(self.began + self.grace(), self._taken_up + SHORTEST_GRACE)

    async def stop_all(self, inits: Sequence[Container], others: Sequence[Container]) -> None:
        """End every container: those that are no sidecars at once, then the sidecars in reverse
        order."""
        if self.began is None:
            self.began = self._beginning()
        await asyncio.gather(
            *(
                self._stop(container, self._kill_at, "Stopping container")
                for container in [*others, *inits]
                if not container.sidecar
            )
        )
        for sidecar in reversed(inits):
            await self._stop(
                sidecar,
                lambda: max(self._kill_at(), time.time() + SHORTEST_GRACE),
                "Stopping container",
            )

    def _beginning(self) -> float:
        now = time.time()
        deleted = self._context.pod.metadata.deletion_timestamp
        if self.restored and deleted:  # the kubelet before this one may have begun already
            return min(now, instant(deleted) - self.grace())
        return now

    async def stop(
        self, container: Container, grace: float | None = None, *, hook: bool = True
    ) -> None:
        """End one container of a pod that goes on, after so many seconds of grace at most: the
        pod's, unless given."""
        until = time.time() + (self.grace() if grace is None else grace)
        await self._stop(container, lambda: until, "", hook=hook)

    async def _stop(
        self, container: Container, deadline: Callable[[], float], event: str, *, hook: bool = True
    ) -> None:
        """End a container.  `deadline` is asked again and again; `event` begins the event's text,
        "" for none."""
        if not container.running or (instance := container.instance) is None:
            return
        if instance.exit is not None:
            return
        spec, runtime = container.spec, self._context.host.runtime
        if container.prober is not None:
            container.prober.stop()
        if event:
            self._context.event("Normal", "Killing", f"{event} {spec.name}", spec.name)
        pre_stop = spec.lifecycle.pre_stop if spec.lifecycle else None
        if pre_stop is not None and hook:
            left = max(0.1, deadline() - time.time())
            await self._probing.run_hook(container, pre_stop, left, "PreStop")
        await runtime.signal(instance, _stop_signal(container))
        least = time.time() + SHORTEST_GRACE if pre_stop is not None else 0.0
        while not container.ended.is_set() and (left := max(deadline(), least) - time.time()) > 0:
            await _ended_within(container, min(left, CHECK_INTERVAL))
        if not container.ended.is_set():
            await runtime.kill(instance)
            await _ended_within(container, SHORTEST_GRACE)


def _stop_signal(container: Container) -> signal.Signals:
    lifecycle = container.spec.lifecycle
    name = (lifecycle.stop_signal if lifecycle is not None else "") or "SIGTERM"
    return getattr(signal, name, signal.SIGTERM)


async def _ended_within(container: Container, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await container.ended.wait()
