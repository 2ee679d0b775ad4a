"""What the policy tells the binder: the ConfigMap of device models, the lock of a node, and the
time that a volume may take.

Reference: plugins-placement 7.1, 7.7.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from hekla.api.kubernetes import core
from hekla.api.text import times
from hekla.engine.framework.policy import Policy
from hekla.engine.model.time.durations import instant
from hekla.kube.client import Client
from hekla.kube.errors import Conflict
from hekla.scheduler.volumes import PATIENCE

DEFAULT_MAP = ("kube-system", "volcano-vgpu-device-config")


def device_map(policy: Policy) -> tuple[str, str]:
    """Namespace and name of the ConfigMap that says how devices are shared and partitioned."""
    for stated in policy.arguments_of("deviceshare"):
        return stated.map_namespace, stated.map_name
    return DEFAULT_MAP


def volume_patience(policy: Policy) -> float:
    """Seconds that a volume may take to be bound."""
    for stated in policy.arguments_of("predicates"):
        if stated.volume_binding_timeout > 0:
            return float(stated.volume_binding_timeout)
    return PATIENCE


LOCKED_FOR = 300.0
"""Seconds after which a lock that was not released may be replaced."""
ATTEMPTS, PAUSE = 5, 0.1
_LOCKS = {
    "volcano.sh/gpu-index": "gpu",
    "volcano.sh/vgpu-ids-new": "hamivgpu",
    "hami.io/vgpu-node": "hami.io/mutex.lock",
}
"""Annotation of a placed pod -> the node's annotation that is the lock for it."""


class LockError(Exception):
    """A node is locked by another bind."""


def locks_of(policy: Policy) -> frozenset[str]:
    """The locks that binds under this policy need.  Whole GPUs need none."""
    for stated in policy.arguments_of("deviceshare"):
        if stated.node_lock:
            return frozenset(
                lock for lock in _LOCKS.values() if lock != "gpu" or stated.gpu_sharing
            )
    return frozenset()


def lock_of(annotations: Mapping[str, str], locks: frozenset[str]) -> str:
    """The lock among these that a bind with these annotations needs; "" if it needs none."""
    return next(
        (lock for written, lock in _LOCKS.items() if lock in locks and written in annotations), ""
    )


async def lock_node(client: Client, node: str, lock: str) -> None:
    """Set the lock on a node.  Raises LockError if another is younger than five minutes, and what
    the client raises."""
    for attempt in range(ATTEMPTS):
        metadata = (await client.get(core.NODE.untyped, node))["metadata"]
        stamp = (metadata.get("annotations") or {}).get(lock, "")
        if stamp and time.time() - instant(stamp) < LOCKED_FOR:
            raise LockError(f"node {node} has been locked since {stamp} (annotation {lock})")
        patch = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {lock: times.stamp(time.time())},
            }
        }
        try:
            await client.patch(core.NODE.untyped, node, patch)
            return
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(PAUSE)


async def unlock_node(client: Client, node: str, lock: str) -> None:
    """Remove the lock after a failed bind.  After a successful one the node's device plugin removes
    it."""
    await client.patch(core.NODE.untyped, node, {"metadata": {"annotations": {lock: None}}})
