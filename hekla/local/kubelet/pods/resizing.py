"""Another size for containers that run: whether the node has room for it, and giving it to them.

A pod that asks for more than the node will ever have waits as Infeasible, for more than there is
now as Deferred; it is looked at again with each turn of its worker.  What `resizePolicy` says needs
a restart is restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hekla.api.kubernetes import core
from hekla.local.kubelet.pods import admit
from hekla.local.kubelet.pods.containers import Container
from hekla.local.kubelet.pods.context import PodContext
from hekla.local.kubelet.pods.pod_containers import PodContainers
from hekla.local.kubelet.pods.statuses import RESIZE_IN_PROGRESS, RESIZE_PENDING
from hekla.local.kubelet.pods.termination import Termination
from hekla.local.kubelet.runtime import memory_limits


class Resizing:
    """The sizes of one pod's containers."""

    def __init__(
        self,
        context: PodContext,
        containers: PodContainers,
        termination: Termination,
        admit: Callable[[core.Pod], tuple[str, str] | None],
        allocatable: Callable[[], dict[str, str | int | float]],
    ) -> None:
        self._context = context
        self._containers = containers
        self._termination = termination
        self._admit = admit
        self._allocatable = allocatable

    def resize(self) -> None:
        """Bring the containers to the sizes that the pod asks for, where they differ and the node
        has room."""
        context, view = self._context, self._context.view
        changed = [
            (container, spec)
            for container, spec in zip(
                [*self._containers.inits, *self._containers.mains],
                [*context.pod.spec.init_containers, *context.pod.spec.containers],
            )
            if spec.resources is not container.spec.resources
            and spec.resources != container.spec.resources
        ]
        if not changed:
            if view.resize is not None and view.resize[0] == RESIZE_PENDING:
                view.resize = None  # the pod asks for its old size again
            return
        refused = self._admit(context.pod)
        if refused is not None and refused[0].startswith("OutOf"):
            view.resize = (RESIZE_PENDING, *self._why_not(refused))
            return
        view.resize = None
        for container, spec in changed:
            self._resize_one(container, spec)

    def _resize_one(self, container: Container, spec: core.Container) -> None:
        before, container.spec = container.spec, spec
        if not container.running or container.instance is None:
            container.view.resources = spec.resources
            return
        if needs_restart(spec, before):
            container.view.resources = spec.resources
            container.resized = True
            container.killing = asyncio.create_task(self._termination.stop(container))
            return
        failure = self._apply(container, spec)
        if failure:
            container.spec = before
            message = f"container {spec.name}: {failure}"
            self._context.view.resize = (RESIZE_IN_PROGRESS, "Error", message)
        else:
            container.view.resources = spec.resources

    def _why_not(self, refused: tuple[str, str]) -> tuple[str, str]:
        """(reason, message): whether the pod waits for room, or for a larger node."""
        allocatable = self._allocatable()
        for resource, need in sorted(admit.requests(self._context.pod).items()):
            has = admit.amount(resource, allocatable.get(resource, 0))
            if need > has:
                return (
                    "Infeasible",
                    f"Node didn't have enough capacity: {resource}, requested: {need}, capacity: {has}",
                )
        return "Deferred", refused[1].removeprefix("Pod was rejected: ")

    def _apply(self, container: Container, spec: core.Container) -> str:
        """Give a running container its new limits.  Gives why that was refused, or ""."""
        assert container.instance is not None
        groups = self._context.host.groups
        if groups is None:
            self._containers.limit_memory(container)
            return ""
        family = memory_limits.process_tree(container.instance.claim.pid)
        return groups.change(self._context.pod, spec, container.attempt, family)


def needs_restart(spec: core.Container, before: core.Container) -> bool:
    """Whether a resource has changed whose change the container only learns by starting again."""
    policies = {policy.resource_name: policy.restart_policy for policy in spec.resize_policy}
    return any(
        policies.get(resource) == "RestartContainer"
        and (spec.resources.limits.get(resource), spec.resources.requests.get(resource))
        != (before.resources.limits.get(resource), before.resources.requests.get(resource))
        for resource in ("cpu", "memory")
    )
