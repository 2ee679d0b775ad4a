"""What the policy says to those who bind: the map of cards' models, the lock of a node, how long a
volume may take.

Reference: plugins-placement 7.1, 7.7.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from hekla.api.kubernetes import core
from hekla.api.text import times
from hekla.engine.framework.policy import Policy
from hekla.engine.model.durations import instant
from hekla.kube.client import Client
from hekla.kube.errors import Conflict
from hekla.scheduler.volumes import PATIENCE

DEFAULT_MAP = ("kube-system", "volcano-vgpu-device-config")


def device_map(policy: Policy) -> tuple[str, str]:
    """Namespace and name of the ConfigMap that says how cards are shared and cut."""
    for tier in policy.tiers:
        for option in tier:
            if option.name == "deviceshare":
                return option.arguments.map_namespace, option.arguments.map_name
    return DEFAULT_MAP


def volume_patience(policy: Policy) -> float:
    """Seconds for which a volume may take to be bound."""
    for tier in policy.tiers:
        for option in tier:
            if option.name == "predicates" and option.arguments.volume_binding_timeout > 0:
                return float(option.arguments.volume_binding_timeout)
    return PATIENCE


LOCKED_FOR = 300.0
"""Seconds after which a lock that nobody took away is taken over."""
ATTEMPTS, PAUSE = 5, 0.1
_LOCKS = {
    "volcano.sh/gpu-index": "gpu",
    "volcano.sh/vgpu-ids-new": "hamivgpu",
    "hami.io/vgpu-node": "hami.io/mutex.lock",
}
"""What a placement writes on a pod -> the annotation of the node that is its lock."""


class LockError(Exception):
    """A node is locked by another placement; the text says so."""


def locks_of(policy: Policy) -> frozenset[str]:
    """The locks that binds may need; none where nodes are not locked.  GPUs that are handed out
    whole need none."""
    for tier in policy.tiers:
        for option in tier:
            if option.name == "deviceshare" and option.arguments.node_lock:
                return frozenset(
                    lock
                    for lock in _LOCKS.values()
                    if lock != "gpu" or option.arguments.gpu_sharing
                )
    return frozenset()


def lock_of(annotations: Mapping[str, str], locks: frozenset[str]) -> str:
    """The one of these locks that a bind with these annotations needs; empty for none."""
    return next(
        (lock for written, lock in _LOCKS.items() if lock in locks and written in annotations), ""
    )


async def lock_node(client: Client, node: str, lock: str) -> None:
    """Writes the lock.  Raises LockError where it is younger than five minutes, and what the client
    raises."""
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
    """Takes the lock off again, because nothing was bound; the device plugin of the node does it
    otherwise."""
    await client.patch(core.NODE.untyped, node, {"metadata": {"annotations": {lock: None}}})
