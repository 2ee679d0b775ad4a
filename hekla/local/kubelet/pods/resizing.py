"""Another size for containers that run: whether the node has room for it, and giving it to them.

A pod that asks for more than the node will ever have waits as Infeasible, for more than there is
now as Deferred; it is looked at again with each turn of its worker.  What `resizePolicy` says needs
a restart is restarted.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hekla.api.kubernetes import core
from hekla.local.kubelet.pods import admit
from hekla.local.kubelet.runtime import memory_limits as ceilings

if TYPE_CHECKING:
    from hekla.local.kubelet.pods.containers import Run
    from hekla.local.kubelet.pods.pod_worker import Worker

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
CONDITIONS = frozenset((PENDING, IN_PROGRESS))


def resize(worker: Worker) -> None:
    """Brings the pod's containers to the sizes that it asks for, where they differ and the node has
    room."""
    changed = [
        (run, spec)
        for run, spec in zip(
            [*worker.inits, *worker.mains],
            [*worker.pod.spec.init_containers, *worker.pod.spec.containers],
        )
        if spec.resources is not run.spec.resources and spec.resources != run.spec.resources
    ]
    if not changed:
        if worker.view.resize is not None and worker.view.resize[0] == PENDING:
            worker.view.resize = None  # the pod has thought better of it
        return
    refused = worker.admit(worker.pod)
    if refused is not None and refused[0].startswith("OutOf"):
        worker.view.resize = (PENDING, *why_not(worker, refused))
        return
    worker.view.resize = None
    for run, spec in changed:
        before, run.spec = run.spec, spec
        if not run.running or run.instance is None:
            run.view.resources = spec.resources
            continue
        if needs_restart(spec, before):
            run.view.resources = spec.resources
            run.resized = True
            run.killing = asyncio.create_task(
                worker.stop_one(run, lambda: time.time() + worker.grace(), "")
            )
            continue
        failure = apply(worker, run, spec)
        if failure:
            run.spec = before
            worker.view.resize = (IN_PROGRESS, "Error", f"container {spec.name}: {failure}")
        else:
            run.view.resources = spec.resources


def why_not(worker: Worker, refused: tuple[str, str]) -> tuple[str, str]:
    """(reason, message): whether it waits for room, or for a larger node."""
    there = worker.allocatable()
    for resource, need in sorted(admit.requests(worker.pod).items()):
        has = admit.amount(resource, there.get(resource, 0))
        if need > has:
            return (
                "Infeasible",
                f"Node didn't have enough capacity: {resource}, requested: {need}, capacity: {has}",
            )
    return "Deferred", refused[1].removeprefix("Pod was rejected: ")


def needs_restart(spec: core.Container, before: core.Container) -> bool:
    """Whether a resource has changed whose change the container only learns by starting again."""
    policies = {policy.resource_name: policy.restart_policy for policy in spec.resize_policy}
    return any(
        policies.get(resource) == "RestartContainer"
        and (spec.resources.limits.get(resource), spec.resources.requests.get(resource))
        != (before.resources.limits.get(resource), before.resources.requests.get(resource))
        for resource in ("cpu", "memory")
    )


def apply(worker: Worker, run: Run, spec: core.Container) -> str:
    """Gives a running container its new limits; why that was refused, or ""."""
    assert run.instance is not None
    groups = worker.host.groups
    if groups is None:
        worker.limit_memory(run)
        return ""
    return groups.change(worker.uid, spec, run.attempt, ceilings.family(run.instance.claim.pid))
