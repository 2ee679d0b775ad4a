"""Builds the pods of a job (reference: controllers 2.11).

Everything that the pods of one task have in common is put together once, as a `BodyTemplate`; a pod
is then its index.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from hekla.api import batch, names
from hekla.controllers.job.plugins import Plugin
from hekla.controllers.job.plugins.plugin import owner_reference
from hekla.controllers.job.pod_template import BodyTemplate, Slot
from hekla.controllers.job.volumes import mount_volumes

_FROM_JOB_ANNOTATIONS = (names.PREEMPTABLE, names.COOLDOWN_TIME, names.REVOCABLE_ZONE)
_FROM_JOB_LABELS = (names.PREEMPTABLE, names.COOLDOWN_TIME)


def template_of(
    job: batch.Job, task: batch.TaskSpec, plugins: list[Plugin], *, forwarded: bool = False
) -> BodyTemplate:
    """The template of a task's pods.  Raises PluginError when a plugin cannot serve the job."""
    slot = Slot(job.metadata.uid or hashlib.sha1(job.metadata.name.encode()).hexdigest())
    template = task.template
    if plugins or job.spec.volumes:  # both write into the template, at any depth
        template = msgspec.json.decode(msgspec.json.encode(template))  # the quickest deep copy
    pod = _pod(job, task, template, slot, forwarded)
    mount_volumes(job, pod)
    for plugin in plugins:
        plugin.complete(job, task, pod, slot)
    return BodyTemplate(pod, slot)


def _pod(
    job: batch.Job, task: batch.TaskSpec, template: dict[str, Any], slot: Slot, forwarded: bool
) -> dict[str, Any]:
    own: dict[str, Any] = template.get("metadata") or {}
    spec: dict[str, Any] = {**(template.get("spec") or {})}
    spec["schedulerName"] = spec.get("schedulerName") or job.spec.scheduler_name
    if not spec.get("priorityClassName") and job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    metadata: dict[str, Any] = {
        "name": slot.name(job.metadata.name, task.name),
        "namespace": job.metadata.namespace,
        "labels": {**(own.get("labels") or {}), **_labels(job, task, slot, forwarded)},
        "annotations": {
            **(own.get("annotations") or {}),
            **_annotations(job, task, slot, forwarded),
        },
        "ownerReferences": [owner_reference(job)],
    }
    if own.get("finalizers"):
        metadata["finalizers"] = own["finalizers"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _annotations(
    job: batch.Job, task: batch.TaskSpec, slot: Slot, forwarded: bool
) -> dict[str, str]:
    given = job.metadata.annotations
    made = {
        names.TASK_INDEX: slot.index,
        names.TASK_SPEC: task.name or names.DEFAULT_TASK,
        names.GROUP_NAME: names.pod_group_name(job.metadata.name, job.metadata.uid),
        names.JOB_NAME: job.metadata.name,
        names.QUEUE_NAME: job.spec.queue,
        names.JOB_VERSION: str(job.status.version),
        names.TEMPLATE_UID: f"{job.metadata.name}-{task.name}",
        names.JOB_RETRY_COUNT: str(job.status.retry_count),
    }
    if task.topology_policy:
        made[names.NUMA_TOPOLOGY_POLICY] = task.topology_policy
    made.update((key, given[key]) for key in _FROM_JOB_ANNOTATIONS if key in given)
    for key in (names.JDB_MIN_AVAILABLE, names.JDB_MAX_UNAVAILABLE):
        if key in given:
            made[key] = given[key]
            break
    if forwarded:
        made[names.JOB_FORWARDING] = "true"
    return made


def _labels(job: batch.Job, task: batch.TaskSpec, slot: Slot, forwarded: bool) -> dict[str, str]:
    made = {
        names.TASK_INDEX: slot.index,
        names.JOB_NAME: job.metadata.name,
        names.TASK_SPEC: task.name or names.DEFAULT_TASK,
        names.JOB_NAMESPACE: job.metadata.namespace,
        names.QUEUE_NAME: job.spec.queue,
    }
    made.update(
        (key, job.metadata.labels[key]) for key in _FROM_JOB_LABELS if key in job.metadata.labels
    )
    if task.partition_policy is not None:
        size = task.partition_policy.partition_size
        made[names.PARTITION_ID] = slot.computed(lambda index: index // size) if size > 0 else "0"
    if forwarded:
        made[names.JOB_FORWARDING] = "true"
    return made
