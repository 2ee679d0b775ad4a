"""Objects of the API as the job controller and a kubelet would write them."""

from __future__ import annotations

from hekla.api.names import SCHEDULER, WALLTIME
from hekla.api.text import quantity
from hekla.api.text.durations import duration_text
from hekla.api.text.times import micro_stamp
from hekla.api.trees import Json, Tree
from hekla.engine.model.decisions import Bind
from hekla.engine.model.evictions.notices import EVICT_AT, EVICT_FOR
from hekla.simulator.workload import MICROSECONDS, SimulatedJob


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
    return {
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "uid": f"group-{job.name}",
            "creationTimestamp": stamp,
            "annotations": annotations,
        },
        "spec": {
            "minMember": job.min_available,
            "queue": job.queue,
            "priorityClassName": job.priority_class,
            "minResources": _times(job.requests, job.min_available),
        },
        "status": {"phase": "Pending"},
    }


def pod(job: SimulatedJob, name: str, uid: str, stamp: str) -> Json:
    """A pod of a job that waits for a node."""
    resources = {"requests": dict(job.requests), "limits": dict(job.requests)}
    annotations = dict(job.template.get("annotations", {}))
    return {
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "uid": uid,
            "labels": dict(job.template.get("labels", {})),
            "annotations": {"scheduling.k8s.io/group-name": job.name, **annotations},
            "creationTimestamp": stamp,
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "priorityClassName": job.priority_class,
            "containers": [{"name": "main", "resources": resources}],
            **job.template.get("spec", {}),
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


def succeeded(tree: Tree) -> Json:
    """The pod once it has ended."""
    return {**tree, "status": {"phase": "Succeeded"}}


def _times(requests: Tree, count: int) -> dict[str, str]:
    return {name: f"{quantity.milli(value) * count}m" for name, value in requests.items()}
