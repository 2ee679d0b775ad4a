"""All kinds for which Hekla has structs, to be found by owner references or by the words that
people type."""

from __future__ import annotations

from functools import cache
from typing import Any

from hekla.api import (
    batch,
    bus,
    config,
    datadependency,
    flow,
    nodeinfo,
    reservation,
    scheduling,
    shard,
    topology,
    training,
)
from hekla.api.kinds import Kind
from hekla.api.kubernetes import (
    admissionregistration,
    apiextensions,
    apps,
    coordination,
    core,
    discovery,
    networking,
    policy,
    priority,
    rbac,
    resource,
    runtimeclass,
    storage,
)
from hekla.api.kubernetes import batch as batch_k8s

INSTALLED: tuple[Kind[Any], ...] = (
    batch.JOB,
    batch.CRON_JOB,
    bus.COMMAND,
    scheduling.POD_GROUP,
    scheduling.QUEUE,
    reservation.RESERVATION,
    flow.JOB_FLOW,
    flow.JOB_TEMPLATE,
    topology.HYPER_NODE,
    nodeinfo.NUMATOPOLOGY,
    shard.NODE_SHARD,
    config.COLOCATION_CONFIGURATION,
)
"""The kinds of the batch system that a cluster is taught by their definitions."""

BATCH: tuple[Kind[Any], ...] = (
    *INSTALLED,
    datadependency.DATA_SOURCE,
    datadependency.DATA_SOURCE_CLAIM,
    training.HYPER_JOB,
)
"""All kinds of the batch system; the last three are types that nothing serves or handles yet."""

BUILT_IN: tuple[Kind[Any], ...] = tuple(
    kind
    for module in (
        core,
        apps,
        batch_k8s,
        policy,
        coordination,
        priority,
        storage,
        networking,
        discovery,
        runtimeclass,
        resource,
        rbac,
        admissionregistration,
        apiextensions,
    )
    for kind in vars(module).values()
    if isinstance(kind, Kind)
)
"""The kinds that every cluster has."""


@cache
def find(api_version: str, kind: str) -> Kind[Any] | None:
    """The kind of this apiVersion and name, if Hekla has a struct for it."""
    for known in BATCH + BUILT_IN:
        if known.kind == kind and known.api_version == api_version:
            return known
    return None
