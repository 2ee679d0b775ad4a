"""A job with its pods and PodGroup in memory: plans are carried out at once, time stands where the
test puts it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from hekla.api import batch, names, scheduling
from hekla.api.meta import ObjectMeta
from hekla.api.text.times import stamp
from hekla.controllers import records
from hekla.controllers.job import states
from hekla.controllers.job.plan import DependentsAction, Plan, View, plan
from hekla.controllers.job.policies import (
    COMMAND_ISSUED,
    POD_EVICTED,
    UNKNOWN,
    Trigger,
    decide,
    from_pod,
)

UID = "11111111-2222-3333-4444-555555555555"


def container(**more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "busybox", **more}


def task(name: str, replicas: int = 1, **more: Any) -> batch.TaskSpec:
    """A task whose minimum is all of its pods, as admission leaves it, unless said otherwise."""
    more.setdefault("min_available", replicas)
    more.setdefault("template", {"spec": {"containers": [container()], "restartPolicy": "Never"}})
    return batch.TaskSpec(name=name, replicas=replicas, max_retry=3, **more)


def job_of(*tasks: batch.TaskSpec, name: str = "train", **spec: Any) -> batch.Job:
    spec.setdefault(
        "min_available",
        sum(t.replicas if t.min_available is None else t.min_available for t in tasks),
    )
    spec.setdefault("max_retry", 3)
    spec.setdefault("queue", "default")
    spec.setdefault("scheduler_name", "volcano")
    return batch.Job(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=UID,
            creation_timestamp=stamp(1_000_000),
            generation=1,
        ),
        spec=batch.JobSpec(tasks=list(tasks), **spec),
    )


def policy(action: str, *events: str, **more: Any) -> batch.LifecyclePolicy:
    return batch.LifecyclePolicy(action=action, events=list(events), **more)


def pod_of(
    job: batch.Job, task_name: str, index: int, phase: str = "Pending", **status: Any
) -> records.Pod:
    name = names.pod_name(job.metadata.name, task_name, index)
    owner = records.OwnerReference(
        api_version=batch.JOB.api_version,
        kind="Job",
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
    )
    return records.Pod(
        metadata=records.PodMeta(
            name=name,
            namespace="default",
            uid=f"{name}-v{job.status.version}",
            creation_timestamp=stamp(1_000_000),
            annotations=records.PodMarks(
                task=task_name, job=job.metadata.name, version=str(job.status.version)
            ),
            owner_references=[owner],
        ),
        status=records.PodStatus(phase=phase, **status),
    )


class World:
    """`group_phase` is what a new PodGroup becomes at once; with `graceful` deleted pods linger
    until `leave`."""

    def __init__(
        self, job: batch.Job, *, group_phase: str = "Inqueue", graceful: bool = False
    ) -> None:
        self.job = job
        self.pods: dict[str, records.Pod] = {}
        self.group: scheduling.PodGroup | None = None
        self.group_phase = group_phase
        self.graceful = graceful
        self.now = 1_000_000.0
        self.most_pods = 0
        self.inbox: list[Trigger] = []
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.events: list[str] = []
        self.made = 0

    def copy(self) -> World:
        """A world that goes its own way from here."""
        return copy.deepcopy(self)

    # what happens

    def command(self, action: str) -> Plan:
        return self.reconcile(Trigger(COMMAND_ISSUED, action=action))

    def become(self, phase: str, *pods: str, **status: Any) -> None:
        for name in pods or tuple(self.pods):
            self.pods[name].status = records.PodStatus(phase=phase, **status)

    def fail(self, name: str, code: int = 1, **more: Any) -> None:
        ended = records.Terminated(exit_code=code, finished_at=stamp(self.now), **more)
        statuses = [
            records.ContainerStatus(name="main", state=records.ContainerState(terminated=ended))
        ]
        self.become("Failed", name, container_statuses=statuses)

    def evict(self, name: str) -> None:
        """Somebody deletes a pod, and the watch tells."""
        pod = self.pods.pop(name)
        trigger = from_pod(POD_EVICTED, pod, since=self.now)
        if self.phase in states.AT_WORK and decide(self.job, trigger).action != states.SYNC_JOB:
            self.inbox.append(trigger)

    def group_unknown(self) -> None:
        assert self.group is not None
        self.group.status.phase = "Unknown"
        self.inbox.append(Trigger(UNKNOWN, version=self.job.status.version, since=self.now))

    def leave(self) -> None:
        """Pods that were being deleted are gone."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.leaving}

    # the controller

    def reconcile(self, *triggers: Trigger) -> Plan:
        made = plan(
            View(
                self.job,
                dict(self.pods),
                self.group,
                self.now,
                [*triggers, *self.inbox],
                self.most_pods,
            )
        )
        self.apply(made)
        return made

    def settle(self, looks: int = 20) -> str:
        """Look until nothing changes; gives the phase."""
        for _ in range(looks):
            before = (self.job.status, set(self.pods), self.group is None, list(self.inbox))
            self.reconcile()
            if before == (self.job.status, set(self.pods), self.group is None, self.inbox):
                return self.phase
        raise AssertionError(f"the job does not come to rest in {self.phase}")

    def apply(self, made: Plan, *, crash_after_status: bool = False) -> None:
        self.inbox = [trigger for trigger in self.inbox if trigger not in made.used]
        self.events += [f"{reason}: {message}" for _, reason, message in made.events]
        self.job = msgspec.structs.replace(self.job, status=made.status)
        if crash_after_status:
            return
        for pod in made.delete:
            self.deleted.append(pod.metadata.name)
            if self.graceful:
                marks = records.PodMarks(
                    **{**msgspec.structs.asdict(pod.metadata.annotations), "out_of_sync": "true"}
                )
                meta = msgspec.structs.replace(
                    pod.metadata, deletion_timestamp=stamp(self.now), annotations=marks
                )
                self.pods[pod.metadata.name] = msgspec.structs.replace(pod, metadata=meta)
            else:
                self.pods.pop(pod.metadata.name, None)
        for made_task, index in made.create:
            pod = pod_of(self.job, made_task.name, index)
            self.made += 1
            pod.metadata.uid += f"-{self.made}"
            pod.metadata.creation_timestamp = stamp(self.now)
            assert pod.metadata.name not in self.pods, "a second pod of one name"
            self.pods[pod.metadata.name] = pod
            self.created.append(pod.metadata.name)
        if made.dependents in (DependentsAction.DELETE_POD_GROUP, DependentsAction.DELETE_ALL):
            self.group = None
        elif made.dependents is DependentsAction.RECREATE_POD_GROUP or (
            made.dependents is DependentsAction.ENSURE and self.group is None
        ):
            meta = ObjectMeta(
                name=names.pod_group_name(self.job.metadata.name, UID),
                namespace="default",
                annotations={names.JOB_VERSION: str(self.job.status.version)},
            )
            self.group = scheduling.PodGroup(
                metadata=meta, status=scheduling.PodGroupStatus(phase=self.group_phase)
            )

    # what is

    @property
    def phase(self) -> str:
        return self.job.status.state.phase

    @property
    def status(self) -> batch.JobStatus:
        return self.job.status

    @property
    def history(self) -> list[str]:
        """The phases, each at its last time."""
        return [condition.status for condition in self.job.status.conditions]

    def started(self) -> World:
        """All pods of the job are running."""
        self.settle()
        self.become("Running")
        assert self.settle() == "Running"
        return self
