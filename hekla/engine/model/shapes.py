"""Whether an object of a lesser kind has the shape that plugins rely on; what has not is left out
before any of them reads it.

An API server would not have taken it; a file, a recording or a server with a laxer definition may
bring it all the same.
"""

from __future__ import annotations

import msgspec

from hekla.api import nodeinfo, reservation, scheduling, shard, topology
from hekla.api.kubernetes import claims, core, policy, priority, resource, storage
from hekla.api.text.quantity import Quantity
from hekla.api.trees import Json, Tree, without_nulls

SHAPES: Json = {
    kind.kind: kind.type
    for kind in (
        claims.PERSISTENT_VOLUME,
        claims.PERSISTENT_VOLUME_CLAIM,
        core.NAMESPACE,
        core.RESOURCE_QUOTA,
        nodeinfo.NUMATOPOLOGY,
        policy.POD_DISRUPTION_BUDGET,
        resource.DEVICE_CLASS,
        resource.DEVICE_TAINT_RULE,
        resource.RESOURCE_CLAIM,
        resource.RESOURCE_SLICE,
        reservation.RESERVATION,
        shard.NODE_SHARD,
        core.CONFIG_MAP,
        scheduling.QUEUE,
        scheduling.POD_GROUP,
        priority.PRIORITY_CLASS,
        storage.CSI_DRIVER,
        storage.CSI_NODE,
        storage.CSI_STORAGE_CAPACITY,
        storage.STORAGE_CLASS,
        topology.HYPER_NODE,
    )
}


def check(kind: str, tree: Tree) -> None:
    """Raises ValueError that says where the object is not as its kind is."""
    shape = SHAPES.get(kind)
    if shape is None:
        return
    rest = {name: value for name, value in tree.items() if name != "metadata" and value is not None}
    try:
        msgspec.convert({**rest, "metadata": {}}, shape)
    except msgspec.ValidationError:
        try:  # again, reading null as absent: programs in Go write it for an empty list or map
            msgspec.convert({**without_nulls(rest), "metadata": {}}, shape)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
    for amounts in _amounts(kind, tree):
        for value in (amounts or {}).values():
            Quantity.parse(value)


def _amounts(kind: str, tree: Tree) -> tuple[Tree | None, ...]:
    """Resource lists that a plugin reads name by name, also names that no pod asks for by."""
    if kind == "ResourceQuota":
        status = tree.get("status") or {}
        return status.get("hard"), status.get("used")
    if kind == "PodGroup":
        return ((tree.get("spec") or {}).get("minResources"),)
    return ()
