"""Which action answers an event: the lifecycle policies of a job (reference: controllers 2.6).

Most events are read off the pods as they are, so that one that came while no controller ran is
still answered.  Two cannot be: a pod that was deleted, and a PodGroup that turned Unknown; the
event handlers hand those in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hekla.api import batch
from hekla.api.bus import Event
from hekla.api.text.durations import seconds
from hekla.api.text.times import instant
from hekla.controllers.job.counts import FAILED, PENDING, RUNNING, SUCCEEDED
from hekla.controllers.job.states import SYNC_JOB
from hekla.controllers.records import Pod, Terminated

POD_FAILED = Event.POD_FAILED
POD_EVICTED = Event.POD_EVICTED
POD_PENDING = Event.POD_PENDING
POD_RUNNING = Event.POD_RUNNING
TASK_COMPLETED = Event.TASK_COMPLETED
TASK_FAILED = Event.TASK_FAILED
UNKNOWN = Event.JOB_UNKNOWN
OUT_OF_SYNC = Event.OUT_OF_SYNC
COMMAND_ISSUED = Event.COMMAND_ISSUED
ANY = Event.ANY
_ALWAYS_SYNC = frozenset({OUT_OF_SYNC, COMMAND_ISSUED, POD_RUNNING})
_DEFAULT_TASK_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Trigger:
    """Something that happened to a job.  `since` is in seconds since the epoch; an empty `job_uid`
    fits every job."""

    event: str
    action: str = ""
    job_uid: str = ""
    version: int = 0
    task: str = ""
    pod: str = ""
    pod_uid: str = ""
    partition: str = ""
    exit_code: int = 0
    since: float = 0.0
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The action for a trigger, and how many seconds after the trigger it is due."""

    action: str = SYNC_JOB
    delay: float = 0.0


def decide(job: batch.Job, trigger: Trigger) -> Ruling:
    """The first of these that applies: the trigger's own action, the policies of its task, those of
    the job; else a plain sync."""
    if trigger.action:
        return Ruling(trigger.action)
    if trigger.event in _ALWAYS_SYNC:
        return Ruling()
    if trigger.job_uid and trigger.job_uid != job.metadata.uid:
        return Ruling()
    if trigger.version < job.status.version:
        return Ruling()
    task = (
        next((task for task in job.spec.tasks if task.name == trigger.task), None)
        if trigger.task
        else None
    )
    for policy in (*(task.policies if task else ()), *job.spec.policies):
        if _matches(policy, trigger) and (delay := delay_of(policy)) is not None:
            return Ruling(policy.action, delay)
    return Ruling()


def delay_of(policy: batch.LifecyclePolicy) -> float | None:
    """Seconds that a policy waits; None for a text that is no duration, which admission refuses."""
    try:
        return seconds(policy.timeout) if policy.timeout else 0.0
    except ValueError:
        return None


def unreadable(job: batch.Job) -> str:
    """A message about the first policy that cannot be read and is therefore ignored; empty where
    all can."""
    for policy in (
        *job.spec.policies,
        *(policy for task in job.spec.tasks for policy in task.policies),
    ):
        if delay_of(policy) is None:
            return f"a policy's timeout {policy.timeout!r} is no duration such as 90s or 5m: the policy ({policy.action}) is passed over"
    return ""


def _matches(policy: batch.LifecyclePolicy, trigger: Trigger) -> bool:
    events = policy.triggers()
    if (
        trigger.event
        and (trigger.event in events or ANY in events)
        and (trigger.event != POD_PENDING or policy.timeout)
    ):
        return True
    return bool(policy.exit_code) and policy.exit_code == trigger.exit_code


def listens(job: batch.Job) -> bool:
    """Whether any policy of the job answers events of its pods."""
    return bool(job.spec.policies) or any(task.policies for task in job.spec.tasks)


def triggers(job: batch.Job, pods: Iterable[Pod]) -> Iterator[Trigger]:
    """The triggers that the pods show, the gravest first.  A pod that is being deleted shows none
    yet: if it fails on its way out, that is an eviction, not a failure."""
    version = job.status.version
    tasks: dict[str, list[Pod]] = {}
    failed: list[Pod] = []
    pending: list[Pod] = []
    for pod in pods:
        if (
            pod.leaving
            or pod.metadata.annotations.out_of_sync is not None
            or (pod.job_version or 0) < version
        ):
            continue
        tasks.setdefault(pod.metadata.annotations.task, []).append(pod)
        if pod.status.phase == FAILED:
            failed.append(pod)
        elif pod.status.phase == PENDING:
            pending.append(pod)
    for pod in failed:
        yield from_pod(POD_FAILED, pod)
    for task in job.spec.tasks:
        members = tasks.get(task.name, [])
        if task_failed(task, members):
            yield from_pod(TASK_FAILED, members[0])
        if task_completed(task, members):
            yield from_pod(
                TASK_COMPLETED, next(pod for pod in members if pod.status.phase == SUCCEEDED)
            )
    for pod in pending:
        yield from_pod(POD_PENDING, pod)


def from_pod(event: str, pod: Pod, since: float | None = None) -> Trigger:
    """A trigger about a pod."""
    return Trigger(
        event=event,
        job_uid=pod.owner_uid,
        version=pod.job_version or 0,
        task=pod.metadata.annotations.task,
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        partition=pod.metadata.labels.partition,
        exit_code=exit_code(pod) if event == POD_FAILED else 0,
        since=_since(event, pod) if since is None else since,
        cause=failure(pod) if event == POD_FAILED else "",
    )


def exit_code(pod: Pod) -> int:
    """The exit code of the first container when it has ended, else 0: what `exitCode` policies are
    compared with."""
    statuses = pod.status.container_statuses
    ended = statuses[0].terminated if statuses else None
    return ended.exit_code if ended else 0


def failure(pod: Pod) -> str:
    """Why a pod failed, as a message to a person: the container that failed, its exit code and the
    reason."""
    found = worst_end(pod)
    if found is not None and pod.status.phase == FAILED:
        kind, name, ended = found
        reason = f" ({ended.reason})" if ended.reason and ended.reason != "Error" else ""
        detail = f": {ended.message}" if ended.message else ""
        return f"pod {pod.metadata.name}: {kind} {name} exited with code {ended.exit_code}{reason}{detail}"
    reason = ": ".join(text for text in (pod.status.reason, pod.status.message) if text)
    return f"pod {pod.metadata.name} failed" + (f": {reason}" if reason else "")


def worst_end(pod: Pod) -> tuple[str, str, Terminated] | None:
    """The container end that made a pod fail, or its last one before a restart: (kind of container,
    its name, the end)."""
    kinds = (
        ("container", pod.status.container_statuses),
        ("init container", pod.status.init_container_statuses),
    )
    for of in ("terminated", "terminated_before"):
        for kind, statuses in kinds:
            for status in statuses:
                ended: Terminated | None = getattr(status, of)
                if ended is not None and ended.exit_code:
                    return kind, status.name, ended
    return None


def _since(event: str, pod: Pod) -> float:
    if event == POD_PENDING:
        # Creation times are whole seconds, rounded down: one second more keeps a timeout from
        # firing early.
        return instant(pod.metadata.creation_timestamp) + 1.0
    ends = [
        instant(s.terminated.finished_at)
        for s in pod.status.container_statuses
        if s.terminated and s.terminated.finished_at
    ]
    return max(ends, default=0.0)


def task_completed(task: batch.TaskSpec, pods: list[Pod]) -> bool:
    """Every replica of the task succeeded, and there is at least one."""
    return 0 < task.replicas <= sum(pod.status.phase == SUCCEEDED for pod in pods)


def task_failed(task: batch.TaskSpec, pods: list[Pod]) -> bool:
    """The containers of the task have been restarted as often as the task may."""
    if task.replicas == 0 or task.max_retry == -1:
        return False
    restarts = sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in (RUNNING, PENDING)
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return restarts >= (task.max_retry or _DEFAULT_TASK_RETRIES)
