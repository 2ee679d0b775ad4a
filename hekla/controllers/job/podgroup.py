"""The PodGroup of a job: what the scheduler has to place as a whole (reference: controllers 2.13,
2.15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from hekla.api import batch, names, scheduling
from hekla.api.text.quantity import Quantity
from hekla.api.text.times import instant
from hekla.controllers.job import states
from hekla.controllers.job.plugins.plugin import owner_reference
from hekla.podrules.usage import Usage, add, pod_usage

PriorityOf = Callable[[str], int]
"""The value of a PriorityClass, by name; 0 for one that does not exist."""

_WAITING = frozenset({"", "Pending"})


def lets_pods_in(group: scheduling.PodGroup | None) -> bool:
    """Pods are created only once the scheduler has taken the group into account."""
    return group is not None and group.status.phase not in _WAITING


def of_earlier_run(job: batch.Job, group: scheduling.PodGroup) -> bool:
    """Whether a restarting job still sees the PodGroup of the run that was stopped, whose phase
    says nothing about this run."""
    made_for = group.metadata.annotations.get(names.JOB_VERSION, "")
    return (
        job.status.state.phase == states.RESTARTING
        and made_for.isdigit()
        and int(made_for) < job.status.version
    )


def complaint(job: batch.Job, group: scheduling.PodGroup | None) -> str:
    """Why the group does not run, for the job's event: its newest true condition, unless that says
    that it is scheduled; empty when there is nothing to complain of.

    The reason why a group waits that has already been admitted is not counted: as a rule it was
    admitted just now, and waits for its pods.  What the policy ignores keeps no group waiting.
    """
    if group is None or not group.status.conditions:
        return ""
    let_in = lets_pods_in(group)
    idle = {names.IGNORED, names.WAITING} if let_in else {names.IGNORED}
    held = [one for one in group.status.conditions if one.status == "True" and one.type not in idle]
    if not held:
        return ""
    newest = max(held, key=lambda condition: instant(condition.last_transition_time))
    if newest.type == "Scheduled":
        return ""
    name = f"{job.metadata.namespace}:{job.metadata.name}"
    return f"PodGroup {name} {newest.type.lower()}, reason: {newest.message}"


def group_body(job: batch.Job, live: dict[str, Any]) -> dict[str, Any]:
    """The PodGroup to create; `live` is the part of its spec that `live_spec` gives."""
    return {
        "apiVersion": scheduling.POD_GROUP.api_version,
        "kind": scheduling.POD_GROUP.kind,
        "metadata": {
            "name": names.pod_group_name(job.metadata.name, job.metadata.uid),
            "namespace": job.metadata.namespace,
            "labels": dict(job.metadata.labels),
            # Beyond Volcano: the version tells the group of this run from one that a restart has
            # yet to delete.
            "annotations": {**_own_annotations(job), names.JOB_VERSION: str(job.status.version)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            **_fixed_spec(job),
            **{name: value for name, value in live.items() if value not in ("", [])},
        },
    }


_OF_THE_JOB = frozenset({names.LAST_FAILURE, names.FILLED_MINIMUMS})
"""Annotations that are about the job itself and are not copied."""


def _own_annotations(job: batch.Job) -> dict[str, str]:
    return {key: value for key, value in job.metadata.annotations.items() if key not in _OF_THE_JOB}


def _fixed_spec(job: batch.Job) -> dict[str, Any]:
    """The part of the spec that is set at creation only."""
    spec: dict[str, Any] = {"queue": job.spec.queue}
    if job.spec.network_topology is not None:
        topology = job.spec.network_topology
        wanted: dict[str, Any] = {"mode": topology.mode}
        if topology.highest_tier_allowed is not None:
            wanted["highestTierAllowed"] = topology.highest_tier_allowed
        elif topology.highest_tier_name:
            wanted["highestTierName"] = topology.highest_tier_name
        spec["networkTopology"] = {key: value for key, value in wanted.items() if value != ""}
    return spec


def live_spec(job: batch.Job, priority_of: PriorityOf) -> dict[str, Any]:
    """The part of the spec that follows the job."""
    return {
        "minMember": job.spec.min_available,
        "minTaskMember": {task.name: task_minimum(task) for task in job.spec.tasks},
        "minResources": min_resources(job, priority_of),
        "priorityClassName": job.spec.priority_class_name,
        "subGroupPolicy": [
            _sub_group(task) for task in job.spec.tasks if task.partition_policy is not None
        ],
    }


def difference(group: scheduling.PodGroup, wanted: dict[str, Any]) -> dict[str, Any]:
    """What to merge into the spec of a group that exists; empty when it is as wanted.

    Entries of `minTaskMember` are added and changed, never taken away: that is what a merge does.
    """
    existing: dict[str, Any] = msgspec.to_builtins(group.spec)
    changes: dict[str, Any] = {}
    for name, value in wanted.items():
        current = existing.get(name)
        if name == "minTaskMember":
            if any((current or {}).get(task) != minimum for task, minimum in value.items()):
                changes[name] = value
        elif name == "minResources":
            if not _same_resources(current or {}, value):
                # A merge keeps what it does not name, so what is to go is named with null.
                changes[name] = {
                    **{key: None for key in current or {} if key not in value},
                    **value,
                }
        elif (current or None) != (value or None):
            changes[name] = value if value else None
    return changes


def _same_resources(one: dict[str, Any], other: dict[str, str]) -> bool:
    return one == other or (
        one.keys() == other.keys()
        and all(Quantity.parse(one[name]) == Quantity.parse(other[name]) for name in one)
    )


def task_minimum(task: batch.TaskSpec) -> int:
    if task.min_available is not None:
        return task.min_available
    policy = task.partition_policy
    if policy is not None and policy.min_partitions and policy.partition_size:
        return policy.min_partitions * policy.partition_size
    return task.replicas


def _sub_group(task: batch.TaskSpec) -> dict[str, Any]:
    policy = task.partition_policy
    assert policy is not None
    entry: dict[str, Any] = {
        "name": task.name,
        "subGroupSize": policy.partition_size,
        "minSubGroups": policy.min_partitions or 0,
        "labelSelector": {"matchLabels": {names.TASK_SPEC: task.name}},
        "matchLabelKeys": [names.PARTITION_ID],
    }
    if policy.network_topology is not None:
        topology = policy.network_topology
        tiers = {
            "highestTierAllowed": topology.highest_tier_allowed,
            "highestTierName": topology.highest_tier_name or None,
        }
        entry["networkTopology"] = {
            "mode": topology.mode,
            **{name: value for name, value in tiers.items() if value is not None},
        }
    return entry


# -- minResources ----------------------------------------------------------------------------------


def min_resources(job: batch.Job, priority_of: PriorityOf) -> dict[str, str]:
    """The resources of the pods that have to run together, the most important tasks first."""
    tasks = by_priority(job.spec.tasks, priority_of) if len(job.spec.tasks) > 1 else job.spec.tasks
    minimum = job.spec.min_available
    taken = taken_by_minimum(tasks, minimum)
    pods = [
        (msgspec.json.encode(task.template.get("spec") or {}), count)
        for task, count in zip(tasks, taken, strict=True)
        if count
    ]
    return _amounts(tuple(pods))


@lru_cache(maxsize=64)
def _amounts(pods: tuple[tuple[bytes, int], ...]) -> dict[str, str]:
    """What this many pods of each spec request.  Cached, because jobs of one kind come by the
    thousand."""
    total: Usage = {}
    for spec, count in pods:
        add(total, pod_usage(msgspec.json.decode(spec)), count)
    return {name: str(amount) for name, amount in sorted(total.items())}


def by_priority(tasks: Sequence[batch.TaskSpec], priority_of: PriorityOf) -> list[batch.TaskSpec]:
    """Tasks by the value of the PriorityClass that their template names, highest first; ties as in
    the spec."""

    def priority(task: batch.TaskSpec) -> int:
        name = (task.template.get("spec") or {}).get("priorityClassName") or ""
        return priority_of(name) if name else 0

    return sorted(tasks, key=priority, reverse=True)


def taken_by_minimum(tasks: Sequence[batch.TaskSpec], minimum: int) -> list[int]:
    """How many pods of each task make up a job's minimum."""
    of_tasks = sum(
        [task.replicas if task.min_available is None else task.min_available for task in tasks]
    )
    return greedily(tasks, minimum) if minimum < of_tasks else by_task_minimum(tasks, minimum)


def greedily(tasks: Sequence[batch.TaskSpec], minimum: int) -> list[int]:
    """Pods to take of each task: as many as there are, until the minimum is reached."""
    taken = []
    for task in tasks:
        count = min(minimum, task.replicas)
        taken.append(count)
        minimum -= count
    return taken


def by_task_minimum(tasks: Sequence[batch.TaskSpec], minimum: int) -> list[int]:
    """Pods to take of each task: what the tasks need first, then what is still missing."""
    taken = [0] * len(tasks)
    for at, task in enumerate(tasks):
        if task.min_available is not None:
            taken[at] = min(task.min_available, minimum)
            minimum -= taken[at]
    for at, task in enumerate(tasks):
        more = min(task.replicas - (task.min_available or 0), minimum)
        if more > 0:
            taken[at] += more
            minimum -= more
    return taken
