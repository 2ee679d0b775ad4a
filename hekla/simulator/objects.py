"""Objects of the API as the job controller and a kubelet would write them."""

from __future__ import annotations

from hekla.api.names import SCHEDULER, TASK_SPEC, WALLTIME
from hekla.api.text import quantity
from hekla.api.text.durations import duration_text
from hekla.api.text.times import micro_stamp
from hekla.api.trees import Json, Tree
from hekla.engine.model.annotations import USER
from hekla.engine.model.decisions import Bind
from hekla.engine.model.evictions.notices import EVICT_AT, EVICT_FOR
from hekla.simulator.workload import MICROSECONDS, Role, SimulatedJob


def stamp_of(moment: int) -> str:
    """The timestamp of a moment in microseconds since 1970."""
    whole, rest = divmod(moment, MICROSECONDS)
    stamp = micro_stamp(whole)
    return stamp if not rest else f"{stamp[:-8]}.{rest:06d}Z"


def pod_group(job: SimulatedJob, stamp: str) -> Tree:
    """The PodGroup of a job, as the job controller makes it, or as it was given."""
    if job.group is not None:
        return job.group
    annotations = {} if job.walltime is None else {WALLTIME: duration_text(job.walltime / 1e6)}
    if job.user:
        annotations[USER] = job.user
    owners = [{"kind": "Job", "name": job.title, "controller": True}] if job.title else []
    return {
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "uid": f"group-{job.name}",
            "creationTimestamp": stamp,
            "labels": dict(job.overlay.get("labels", {})),
            "annotations": {**annotations, **job.overlay.get("annotations", {})},
            "ownerReferences": owners,
        },
        "spec": {
            "minMember": job.min_available,
            "queue": job.queue,
            "priorityClassName": job.priority_class,
            "minResources": _least(job),
            **job.overlay.get("spec", {}),
        },
        "status": {"phase": "Pending"},
    }


def pod_key(job: SimulatedJob, role: Role, number: int) -> str:
    """Of a pod of a job: namespace/name."""
    prefix = f"{job.key}-{role.name}" if role.name else job.key
    return f"{prefix}-{number}"


def pod(job: SimulatedJob, role: Role, name: str, uid: str, stamp: str) -> Json:
    """A pod of a job that waits for a node."""
    resources = {"requests": dict(role.requests), "limits": dict(role.requests)}
    named = {TASK_SPEC: role.name} if role.name else {}
    return {
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "uid": uid,
            "labels": {**named, **role.template.get("labels", {})},
            "annotations": {
                "scheduling.k8s.io/group-name": job.name,
                **named,
                **role.template.get("annotations", {}),
            },
            "creationTimestamp": stamp,
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "priorityClassName": job.priority_class,
            "containers": [{"name": "main", "resources": resources}],
            **role.template.get("spec", {}),
        },
        "status": {"phase": "Pending"},
    }


def anew(tree: Tree, uid: str, stamp: str) -> Json:
    """The pod that takes the place of one that was evicted."""
    annotations = {
        name: value
        for name, value in (tree["metadata"].get("annotations") or {}).items()
        if name not in (EVICT_AT, EVICT_FOR)
    }
    return {
        **tree,
        "metadata": {
            **{key: value for key, value in tree["metadata"].items() if key != "deletionTimestamp"},
            "uid": uid,
            "creationTimestamp": stamp,
            "annotations": annotations,
        },
        "spec": {key: value for key, value in tree["spec"].items() if key != "nodeName"},
        "status": {"phase": "Pending"},
    }


def nominated(tree: Tree, node: str) -> Json:
    """The pod for which room is being made on a node."""
    return {**tree, "status": {**tree["status"], "nominatedNodeName": node}}


def started(tree: Tree, bind: Bind, stamp: str) -> Json:
    """The pod once it was bound: it runs."""
    metadata = tree["metadata"]
    annotations = metadata.get("annotations") or {}
    return {
        **tree,
        "metadata": {**metadata, "annotations": {**annotations, **bind.annotations}},
        "spec": {**tree["spec"], "nodeName": bind.node},
        "status": {"phase": "Running", "startTime": stamp},
    }


def succeeded(tree: Tree, stamp: str) -> Json:
    """The pod once it has ended, which it does now."""
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": stamp}
    started = tree["status"].get("startTime", "")
    return {
        **tree,
        "status": {"phase": "Succeeded", "startTime": started, "conditions": [ready]},
    }


def _least(job: SimulatedJob) -> dict[str, str]:
    """What the minimum of its pods requests, the first roles first."""
    total: dict[str, int] = {}
    left = job.min_available
    for role in job.templates():
        count = min(role.pods, left)
        left -= count
        for name, value in role.requests.items():
            total[name] = total.get(name, 0) + quantity.milli(value) * count
    return {name: f"{amount}m" for name, amount in total.items()}
