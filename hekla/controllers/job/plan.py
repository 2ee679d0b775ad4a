"""What a reconcile of a job leads to: the whole decision of the job controller, without a cluster.

`plan(view)` takes what is (the job, its pods, its PodGroup, what was written but is not visible
yet, what the watch handed in) and gives what to write.  The state table says which kind of work an
action is; the three kinds of work are below.

A stop is decided first and carried out after: the new phase and version are written, then the pods
that do not belong to them are deleted.  A controller that dies in between finds the phase and does
the rest, and a pod of an old version never outlives a restart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from hekla.api import batch, scheduling
from hekla.api.sizes import MOST_TOGETHER
from hekla.controllers.job import states, status
from hekla.controllers.job.counts import FAILED, PENDING, RUNNING, SUCCEEDED, Counts
from hekla.controllers.job.dependencies import ready
from hekla.controllers.job.plugins import UNMARKED
from hekla.controllers.job.podgroup import complaint, lets_pods_in, of_earlier_run
from hekla.controllers.job.policies import (
    POD_EVICTED,
    POD_FAILED,
    Ruling,
    Trigger,
    decide,
    listens,
    triggers,
    unreadable,
)
from hekla.controllers.job.states import Situation, Transition, Verb
from hekla.controllers.job.volumes import claim_name
from hekla.controllers.job.window import missing, placed
from hekla.controllers.records import Pod
from hekla.kube.events import Severity

_ENDED = (SUCCEEDED, FAILED)


@dataclass(slots=True)
class View:
    """What a reconcile sees.  `pods` holds the job's own pods by name, and nothing written is still
    unseen."""

    job: batch.Job
    pods: Mapping[str, Pod]
    group: scheduling.PodGroup | None
    now: float
    handed_in: list[Trigger] = field(default_factory=list)
    """Commands, and events that the pods no longer show: evictions, a PodGroup that turned Unknown.
    """
    most_pods: int = 0
    """The largest minAvailable for which pods are created; 0: the cluster sets no bound."""


class DependentsAction(Enum):
    """What happens to the job's dependents: its PodGroup, and the objects of its plugins."""

    KEEP = "keep"
    ENSURE = "ensure"
    RECREATE_POD_GROUP = "recreate PodGroup"
    """As ENSURE, but the PodGroup that exists belongs to an earlier run and is deleted first."""
    DELETE_POD_GROUP = "delete PodGroup"
    """The plugins' objects stay, because the job may be resumed."""
    DELETE_ALL = "delete all"


@dataclass(slots=True)
class Plan:
    """What to write.  The status comes first when `status_first`, else after everything else has
    succeeded."""

    status: batch.JobStatus
    action: str = states.SYNC_JOB
    status_first: bool = False
    create: list[tuple[batch.TaskSpec, int]] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    dependents: DependentsAction = DependentsAction.KEEP
    events: list[tuple[Severity, str, str]] = field(default_factory=list)
    """(type, reason, message) of events on the job."""
    used: list[Trigger] = field(default_factory=list)
    """Handed-in triggers that this plan answers."""
    delayed: list[Trigger] = field(default_factory=list)
    """Triggers whose action is due later."""
    wake: float | None = None
    """Seconds until the job has to be reconciled again."""


def plan(view: View) -> Plan:
    """The writes for a job as it is."""
    job = view.job
    choice = _choose(view)
    transition = states.transition(job.status.state.phase, choice.action)
    if transition.verb is Verb.SYNC:
        made = _with_its_end(view, _sync(view, transition))
    elif transition.verb is Verb.KILL_TARGET:
        made = _kill_target(view, transition, choice)
    else:
        made = _kill(view, transition, choice)
    made.action, made.used, made.delayed, made.wake = (
        choice.action,
        choice.used,
        choice.delayed,
        choice.wake,
    )
    if choice.action != states.SYNC_JOB:
        # The reference's message ends in a space.
        made.events.insert(
            0, ("Normal", "ExecuteAction", f"Start to execute action {choice.action} ")
        )
    return made


# -- which action ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Choice:
    action: str = states.SYNC_JOB
    triggers: list[Trigger] = field(default_factory=list)
    """The triggers that ask for this action, the first of them the one that decided."""
    used: list[Trigger] = field(default_factory=list)
    delayed: list[Trigger] = field(default_factory=list)
    wake: float | None = None


_NO_CHOICE = _Choice()


def _choose(view: View) -> _Choice:
    """Choose the first action that is due.  Targeted restarts of several pods at one time are one
    restart."""
    happened = [*view.handed_in, *_seen(view)]
    if not happened:
        return _NO_CHOICE
    choice = _Choice()
    job = view.job
    for trigger in happened:
        ruling = decide(job, trigger)
        due = trigger.since + ruling.delay if ruling.delay else view.now
        if ruling.delay and _overtaken(view, trigger):
            choice.used.append(trigger)
        elif due > view.now:
            choice.delayed.append(trigger)
            choice.wake = min(choice.wake or due - view.now, due - view.now)
        elif ruling.action == states.SYNC_JOB or _aimless(view, ruling, trigger):
            choice.used.append(trigger)
        elif not choice.triggers or (
            ruling.action == choice.action and ruling.action in states.TARGETED
        ):
            choice.action = ruling.action
            choice.triggers.append(trigger)
            choice.used.append(trigger)
            if ruling.action not in states.TARGETED:
                break
    if (
        choice.triggers
        and choice.action not in states.TARGETED
        and choice.action not in states.INTERNAL
    ):
        # Of the run that ends here.
        choice.used += [trigger for trigger in view.handed_in if trigger.event == POD_EVICTED]
    return choice


def _seen(view: View) -> list[Trigger]:
    """The triggers that the pods show; none once the job is not at work."""
    if view.job.status.state.phase not in states.AT_WORK or not listens(view.job):
        return []
    return list(triggers(view.job, view.pods.values()))


def _aimless(view: View, ruling: Ruling, trigger: Trigger) -> bool:
    """Whether a restart of a partition finds no pod of it, as in a task without partitions.

    If it were chosen all the same, it would stop nothing, and would keep the job from creating pods
    for as long as the trigger exists.
    """
    if ruling.action != states.RESTART_PARTITION:
        return False
    aim = _Choice(states.RESTART_PARTITION, [trigger])
    return not any(_aimed_at(aim, pod) for pod in view.pods.values() if not pod.leaving)


def _overtaken(view: View, trigger: Trigger) -> bool:
    """Whether a delayed answer to a lost pod is no longer needed, because its replacement runs."""
    if trigger.event not in (POD_EVICTED, POD_FAILED):
        return False
    replacement = view.pods.get(trigger.pod)
    return (
        replacement is not None
        and replacement.metadata.uid != trigger.pod_uid
        and replacement.status.phase == RUNNING
        and not replacement.leaving
    )


# -- the three kinds of work -----------------------------------------------------------------------


def _kill(view: View, transition: Transition, choice: _Choice) -> Plan:
    """Stop the whole job: delete every pod, or with `soft` every pod that has not ended by itself."""
    job, old = view.job, view.job.status
    last_retry = old.retry_count >= job.spec.max_retry - 1
    victims: list[Pod] = []
    counts = Counts()
    for pod in view.pods.values():
        if pod.leaving:
            counts.terminating += 1
        elif (transition.soft or last_retry) and pod.status.phase in _ENDED:
            counts.add(pod.metadata.annotations.task, pod.status.phase)
        else:
            victims.append(pod)
            counts.terminating += 1
    retries = old.retry_count + int(transition.retry)
    # The version tells the pods of this run from those of the next.  A stop is planned many times
    # and counts once.
    begins = old.state.phase in states.AT_WORK or transition.retry or not old.running_duration
    fresh = msgspec.structs.replace(
        status.counted(old, counts), retry_count=retries, version=old.version + int(begins)
    )
    fresh = _entered(view, fresh, transition.outcome(_situation(view, counts, retries)), choice)
    fresh.running_duration = status.running_duration(job, fresh)
    if old.state.phase in states.AT_WORK or transition.retry:
        return Plan(
            fresh, status_first=True, delete=victims, dependents=DependentsAction.DELETE_POD_GROUP
        )
    fresh.controlled_resources = {
        key: name for key, name in old.controlled_resources.items() if not key.startswith("plugin-")
    }
    return Plan(fresh, delete=victims, dependents=DependentsAction.DELETE_ALL)


def _kill_target(view: View, transition: Transition, choice: _Choice) -> Plan:
    """Stop some pods; the rest, the PodGroup and the plugins' objects stay."""
    victims = [pod for pod in view.pods.values() if not pod.leaving and _aimed_at(choice, pod)]
    doomed = {pod.metadata.uid for pod in victims}
    counts = Counts()
    for pod in view.pods.values():
        if pod.metadata.uid in doomed or pod.leaving:
            counts.terminating += 1
        else:
            counts.add(pod.metadata.annotations.task, pod.status.phase)
    retries = view.job.status.retry_count + int(transition.retry)
    fresh = msgspec.structs.replace(status.counted(view.job.status, counts), retry_count=retries)
    fresh = _entered(view, fresh, transition.outcome(_situation(view, counts, retries)), choice)
    return Plan(fresh, status_first=True, delete=victims)


def _aimed_at(choice: _Choice, pod: Pod) -> bool:
    marks, labels = pod.metadata.annotations, pod.metadata.labels
    for trigger in choice.triggers:
        if choice.action == states.RESTART_POD and pod.metadata.name == trigger.pod:
            return True
        if trigger.task and trigger.task == marks.task:
            if choice.action == states.RESTART_TASK:
                return True
            if (
                choice.action == states.RESTART_PARTITION
                and trigger.partition
                and trigger.partition == labels.partition
            ):
                return True
    return False


def _sync(view: View, transition: Transition) -> Plan:
    """Bring the pods to what the spec asks, as far as the PodGroup lets them in."""
    job = view.job
    made = Plan(job.status, dependents=DependentsAction.ENSURE)
    group = view.group
    if group is not None and of_earlier_run(job, group):
        made.dependents, group = DependentsAction.RECREATE_POD_GROUP, None
    warning = complaint(job, group)
    if warning:
        made.events.append(("Warning", "PodGroupPending", warning))
    passed_over = unreadable(job)
    if passed_over:
        made.events.append(("Warning", "PolicyIgnored", passed_over))
    counts = Counts()
    places, beyond = placed(job, view.pods)
    for task in job.spec.tasks:
        there = places.get(task.name, {})
        for index in sorted(there):
            pod = there[index]
            if pod.leaving:
                counts.terminating += 1
            elif _out_of_place(view, pod):
                made.delete.append(pod)
                counts.terminating += 1
            else:
                counts.add(task.name, pod.status.phase)
    most = view.most_pods or MOST_TOGETHER
    if job.spec.min_available > most:
        made.events.append(("Warning", "FailedCreate", too_many(job.spec.min_available, most)))
    elif lets_pods_in(group):
        short = [task for task in job.spec.tasks if len(places.get(task.name, ())) < task.replicas]
        tasks = {task.name: task for task in job.spec.tasks}
        found = missing(job, [task for task in short if ready(tasks, task, places)], places)
        made.create = found.create
        for task, _ in found.create:
            counts.add(task.name, PENDING)
        counts.held = sum(found.held.values())
    for pod in beyond:
        counts.terminating += 1
        if not pod.leaving:
            made.delete.append(pod)
    fresh = status.counted(job.status, counts)
    fresh.min_available, fresh.controlled_resources, fresh.running_duration = (
        job.spec.min_available,
        controlled(job),
        "",
    )
    if not job.status.state.phase:
        fresh = status.entered(fresh, states.PENDING, view.now)
    phase = transition.outcome(_situation(view, counts, fresh.retry_count))
    made.status = _entered(view, fresh, phase, _NO_CHOICE)
    return made


def _with_its_end(view: View, made: Plan) -> Plan:
    """The plan, or where the job has ended and no pod has to be stopped for it: the plan that says
    this and what the end leads to, in one write of the status."""
    said = made.status
    if said.state.phase not in batch.FINISHED or made.create or made.delete:
        return made
    ended = dataclasses.replace(view, job=msgspec.structs.replace(view.job, status=said))
    end = _kill(ended, states.transition(said.state.phase, states.SYNC_JOB), _NO_CHOICE)
    if end.delete or end.status.controlled_resources != said.controlled_resources:
        return made
    end.status_first, end.events = True, made.events
    return end


def too_many(minimum: int, most: int) -> str:
    return f"spec.minAvailable: {minimum} pods would have to run together, and at most {most} are begun (--max-job-pods); none are created"


def controlled(job: batch.Job) -> dict[str, str]:
    """The controlledResources of the status: plugins and claims."""
    if not job.spec.plugins and not job.spec.volumes:
        return {}
    plugins = {f"plugin-{name}": name for name in sorted(job.spec.plugins) if name not in UNMARKED}
    claims = [claim_name(job, position) for position in range(len(job.spec.volumes))]
    return {**plugins, **{f"volume-pvc-{claim}": claim for claim in claims}}


def _out_of_place(view: View, pod: Pod) -> bool:
    """Whether a pod was left behind by an interrupted stop: marked for deletion, or made for an
    earlier run."""
    if pod.metadata.annotations.out_of_sync is not None:
        return True
    old = view.job.status
    if (pod.job_version or 0) >= old.version:
        return False
    if pod.status.phase not in _ENDED:
        return True
    # A restart deletes pods that had ended; a resume and the last retry keep them.
    resumed = status.phase_before(old) in (states.ABORTED, states.ABORTING)
    return (
        old.state.phase == states.RESTARTING
        and not resumed
        and old.retry_count < view.job.spec.max_retry
    )


def _situation(view: View, counts: Counts, retries: int) -> Situation:
    return Situation(view.job.spec, counts, retries, view.job.status.min_available)


def _entered(
    view: View, fresh: batch.JobStatus, phase: str | None, choice: _Choice
) -> batch.JobStatus:
    """Move to a phase, with the reason that a user will look for: the last failure stays readable
    after the pods are gone."""
    if phase is None or phase == fresh.state.phase:
        return fresh
    cause = choice.triggers[0] if choice.triggers else None
    reason, message = (cause.event, cause.cause) if cause else ("", "")
    if not message:
        message = _last_failure(view) or fresh.state.message
        reason = reason or (POD_FAILED if message else "")
    if phase in (states.COMPLETED, states.COMPLETING) and reason != POD_FAILED:
        message = ""
    return status.entered(fresh, phase, view.now, reason=reason, message=message)


def _last_failure(view: View) -> str:
    if not any(pod.status.phase == FAILED for pod in view.pods.values()):
        return ""
    failures = [
        trigger for trigger in triggers(view.job, view.pods.values()) if trigger.event == POD_FAILED
    ]
    return max(failures, key=lambda trigger: trigger.since).cause if failures else ""
