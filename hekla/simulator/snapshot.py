"""A cluster with what runs and waits in it, made of the objects that its API server has.

A gang is a PodGroup with the pods that name it; those that its Job has not made yet are made of the
Job's templates.  Running pods hold their nodes, and end when the time is over that they say they
need at most.  https://volcano.sh/en/docs/v1-9-0/vcjob/ says how a Job's pods are named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from hekla.api import names
from hekla.api.trees import Json, Tree
from hekla.engine.model.reading import GROUP_NAME, key_of
from hekla.engine.model.resources import amounts
from hekla.engine.model.time.durations import instant
from hekla.engine.model.time.walltimes import pod_walltime, stated_walltime
from hekla.podrules.plain_pods import stands_alone
from hekla.podrules.usage import pod_resources
from hekla.simulator.workload import (
    BEGINNING,
    MICROSECONDS,
    GivenPod,
    SimulatedJob,
    Workload,
    microseconds,
)

ENDED = ("Succeeded", "Failed")
OVER = ("Completed", "Aborted", "Terminated", "Failed", "Completing", "Aborting", "Terminating")
"""Phases of a Job that makes no more pods."""


def snapshot(
    objects: Iterable[Tree],
    now: float | None = None,
    default_duration: int | None = None,
    scheduler: str = names.SCHEDULER,
) -> Workload:
    """The workload of a cluster: its gangs as jobs, everything else as the cluster.

    `now`: when it was looked at, in seconds since 1970; None: the newest time that an object tells.
    `default_duration`: microseconds that a pod of a gang runs that says nothing; None: for ever.
    `scheduler`: the name of pods that are simulated.  What others have bound takes its room.
    Jobs are those of batch.volcano.sh.
    """
    taken = list(objects)
    by_kind: dict[str, list[Tree]] = {kind: [] for kind in ("Pod", "PodGroup", "Job")}
    cluster: list[Tree] = []
    for one in taken:
        by_kind.get(str(one.get("kind", "")), cluster).append(one)
    if now is None:
        now = max(map(_newest, taken), default=0.0) or BEGINNING / MICROSECONDS
    reader = _Reader(microseconds(now), default_duration, scheduler, cluster)
    jobs = reader.jobs(by_kind)
    return Workload(jobs, cluster, reader.notes(), reader.beginning)


class _Reader:
    def __init__(
        self, beginning: int, default: int | None, scheduler: str, cluster: list[Tree]
    ) -> None:
        self.beginning, self.default, self.scheduler = beginning, default, scheduler
        self.queue_limits = {
            key_of(one): stated_walltime(
                one["metadata"].get("annotations") or {}, names.DEFAULT_WALLTIME
            )
            for one in cluster
            if one.get("kind") == "Queue"
        }
        self.left_out: dict[str, int] = {}

    def notes(self) -> list[str]:
        return [f"{count} {what}" for what, count in sorted(self.left_out.items())]

    def leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def jobs(self, by_kind: dict[str, list[Tree]]) -> list[SimulatedJob]:
        groups = {key_of(one): one for one in by_kind["PodGroup"]}
        members: dict[str, list[Tree]] = {key: [] for key in groups}
        alone: list[SimulatedJob] = []
        for pod in by_kind["Pod"]:
            named = (pod["metadata"].get("annotations") or {}).get(GROUP_NAME)
            group = f"{pod['metadata'].get('namespace', '')}/{named}"
            if named and group in groups:
                members[group].append(pod)
            elif (pod.get("status") or {}).get("phase") not in ENDED:
                alone += self._alone(pod, named)
        for job in by_kind["Job"]:
            if ((job.get("status") or {}).get("state") or {}).get("phase") in OVER:
                continue
            meta = job["metadata"]
            name = names.pod_group_name(meta["name"], meta.get("uid", ""))
            key = f"{meta.get('namespace', '')}/{name}"
            if key not in groups:
                groups[key], members[key] = _group_of(job, name), []
            there = {one["metadata"]["name"] for one in members[key]}
            members[key] += [one for one in _pods_of(job, name) if one["metadata"]["name"] not in there]  # fmt: skip
        made = [self._gang(key, group, members[key]) for key, group in groups.items()]
        return [one for one in made if one is not None] + alone

    def _gang(self, key: str, group: Tree, pods: list[Tree]) -> SimulatedJob | None:
        waiting = [one for one in pods if not (one.get("spec") or {}).get("nodeName")]
        unended = [one for one in pods if (one.get("status") or {}).get("phase") not in ENDED]
        if not pods:
            self.leave_out("PodGroups have neither pods nor a Job: left out")
            return None
        if not unended:
            return None
        if any(one["spec"].get("schedulerName") != self.scheduler for one in waiting):
            self.leave_out("PodGroups wait for another scheduler: left out")
            return None
        meta, spec = group["metadata"], group.get("spec") or {}
        limit = stated_walltime(meta.get("annotations") or {})
        queue = spec.get("queue") or names.DEFAULT_QUEUE
        given = [GivenPod(one, self._duration(one, limit, queue)) for one in pods]
        sizes = [amounts(usage_of(one)) for one in unended]
        return SimulatedJob(
            name=meta["name"],
            namespace=meta.get("namespace", ""),
            submit=self._moment(meta.get("creationTimestamp")),
            duration=max((one.duration for one in given if one.duration is not None), default=None),
            requests=usage_of(unended[0]),
            pods=len(pods),
            min_available=int(spec.get("minMember") or 0),
            walltime=None if limit is None or limit == math.inf else microseconds(limit),
            queue=queue,
            priority_class=spec.get("priorityClassName", ""),
            processors=sum(one.get("cpu", 0.0) for one in sizes) / 1000,
            group=group,
            given=given,
        )

    def _alone(self, pod: Tree, named: str | None) -> Iterator[SimulatedJob]:
        """A pod without a PodGroup: a group of one where it is ours, room taken where it is not."""
        meta, spec = pod["metadata"], pod.get("spec") or {}
        ours = spec.get("schedulerName") == self.scheduler and not named and stands_alone(meta)
        if not ours and not spec.get("nodeName"):
            whose = "wait for a PodGroup" if spec.get("schedulerName") == self.scheduler else "wait for another scheduler"  # fmt: skip
            self.leave_out(f"pods {whose}: left out")
            return
        queue = (meta.get("annotations") or {}).get(names.GROUP_QUEUE_NAME) or names.DEFAULT_QUEUE
        duration = self._duration(pod, None, queue) if ours else self._own_limit(pod)
        usage = usage_of(pod)
        yield SimulatedJob(
            name=names.bare_pod_group_name(meta.get("uid", "")) if ours else f"pod {meta['name']}",
            namespace=meta.get("namespace", ""),
            submit=self._moment(meta.get("creationTimestamp")),
            duration=duration,
            requests=usage,
            queue=queue,
            processors=amounts(usage).get("cpu", 0.0) / 1000,
            given=[GivenPod(pod, duration)],
            background=not ours,
        )

    def _duration(self, pod: Tree, limit: float | None, queue: str) -> int | None:
        """Microseconds from its start: what limits it, else its queue's limit, else the default."""
        own = pod_walltime(pod["metadata"].get("annotations") or {}, pod.get("spec") or {})
        known = [one for one in (own, limit) if one is not None]
        found = min(known) if known else self.queue_limits.get(queue)
        if found is not None and found < math.inf:
            return microseconds(found)
        return self.default

    def _own_limit(self, pod: Tree) -> int | None:
        """Of a pod that others schedule: a daemon's stays, whatever pods of gangs do."""
        own = pod_walltime(pod["metadata"].get("annotations") or {}, pod.get("spec") or {})
        return None if own is None or own == math.inf else microseconds(own)

    def _moment(self, stamp: object) -> int:
        stated = instant(str(stamp or ""))
        return min(microseconds(stated) - self.beginning, 0) if stated else 0


def usage_of(pod: Tree) -> dict[str, str]:
    """What a pod requests."""
    found = pod_resources(pod.get("spec") or {}, "requests")
    return {name: str(amount) for name, amount in found.items()}


def _newest(tree: Tree) -> float:
    """The newest time that an object tells, in seconds since 1970; 0 for none."""
    meta, status = tree.get("metadata") or {}, tree.get("status") or {}
    told = [meta.get("creationTimestamp"), status.get("startTime")]
    for one in status.get("conditions") or ():
        told += [one.get("lastTransitionTime"), one.get("lastHeartbeatTime")]
    return max((instant(one) for one in told if isinstance(one, str)), default=0.0)


def _group_of(job: Tree, name: str) -> Json:
    """The PodGroup of a Job that has none yet."""
    meta, spec = job["metadata"], job.get("spec") or {}
    return {
        "metadata": {**meta, "name": name, "uid": f"group-{meta.get('uid', '')}"},
        "spec": {
            "minMember": spec.get("minAvailable") or 0,
            "queue": spec.get("queue") or names.DEFAULT_QUEUE,
            "priorityClassName": spec.get("priorityClassName", ""),
        },
        "status": {"phase": "Pending"},
    }


def _pods_of(job: Tree, group: str) -> Iterator[Json]:
    """The pods that a Job is made of, as they wait."""
    meta, spec = job["metadata"], job.get("spec") or {}
    for task in spec.get("tasks") or ():
        template = task.get("template") or {}
        own, inside = template.get("metadata") or {}, template.get("spec") or {}
        role = task.get("name") or names.DEFAULT_TASK
        for index in range(int(task.get("replicas", 1))):
            name = names.pod_name(meta["name"], role, index)
            marks = {
                GROUP_NAME: group,
                names.TASK_SPEC: role,
                names.TASK_INDEX: str(index),
                names.JOB_NAME: meta["name"],
            }
            yield {
                "metadata": {
                    "name": name,
                    "namespace": meta.get("namespace", ""),
                    "uid": f"{meta.get('uid', '')}-{role}-{index}",
                    "labels": {**(own.get("labels") or {}), **marks},
                    "annotations": {**(own.get("annotations") or {}), **marks},
                    "creationTimestamp": meta.get("creationTimestamp", ""),
                },
                "spec": {
                    **inside,
                    "schedulerName": inside.get("schedulerName")
                    or spec.get("schedulerName")
                    or names.SCHEDULER,
                    "priorityClassName": inside.get("priorityClassName")
                    or spec.get("priorityClassName", ""),
                },
                "status": {"phase": "Pending"},
            }
