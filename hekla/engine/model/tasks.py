"""Tasks (one a pod) and the groups whose counts decide: jobs and their sub-groups.

Counts are kept as statuses change, so that "is this gang ready" is a comparison of two numbers,
never a walk over its pods. Reference: scheduler-core 2.7, 2.9, 2.10, 4; plugins-fairness 0.2.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hekla.api.trees import Json
from hekla.engine.model.resources import (
    Amounts,
    Request,
    add,
    empty,
    floor_subtract,
    is_empty,
    subtract,
)

if TYPE_CHECKING:
    from hekla.engine.model.podclass import LabelSet, PodClass
    from hekla.engine.model.queues.queues import Contribution
    from hekla.engine.model.reasons import FitErrors, Shortage
    from hekla.engine.model.time.learned import Learned


class Status(enum.Enum):
    """Where a task stands; Allocated and Pipelined exist only inside a cycle."""

    PENDING = "Pending"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    __hash__ = object.__hash__


ALLOCATED = (Status.BOUND, Status.BINDING, Status.RUNNING, Status.ALLOCATED)
READY = (*ALLOCATED, Status.SUCCEEDED)
SCHEDULED = (Status.RUNNING, Status.BOUND, Status.FAILED, Status.SUCCEEDED)
HOLDS = frozenset((Status.BINDING, Status.BOUND, Status.RUNNING))
"""A pod of these counts the same on its node, for its job's minimum and in what its job holds."""
FINISHED = (Status.SUCCEEDED, Status.FAILED)
PREEMPTABLE = (Status.BOUND, Status.RUNNING)
NOT_LET_IN = ("", "Pending")
"""Phases of a PodGroup that is yet to enter."""
_ALLOCATED_SET = frozenset(ALLOCATED)
_READY_SET = frozenset(READY)
_NO_TASKS: Mapping[str, Task] = {}
_NO_TEXTS: Mapping[str, str] = {}
_NO_NUMBERS: Mapping[str, int] = {}
_NOTHING: Amounts = {}
NOWHERE = -1
SentStatus = tuple[str, int, int, int, tuple[tuple[str, ...], ...]]
"""A PodGroup's phase, how many of its pods run, succeeded and failed, and its conditions as type,
status, reason and message."""
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"


def is_allocated(status: Status) -> bool:
    """Whether a task of this status counts towards what its job and queue hold."""
    return status in _ALLOCATED_SET


def _no_texts() -> Mapping[str, str]:
    """None, shared by all that have none."""
    return _NO_TEXTS


def _no_numbers() -> Mapping[str, int]:
    return _NO_NUMBERS


@dataclass(slots=True, eq=False, repr=False)
class Task:
    """One pod, as the scheduler sees it."""

    key: str
    namespace: str
    name: str
    uid: str
    pods: PodClass
    labels: LabelSet
    annotations: Mapping[str, str] = field(default_factory=_no_texts)
    job: Job | None = None
    subjob: SubJob | None = None
    role: str = ""
    priority: int = 1
    priority_class: str = ""
    preemptable: bool = True
    revocable_zone: str = ""
    creation: float = 0.0
    index: int | None = None
    status: Status = Status.PENDING
    row: int = NOWHERE
    nominated: str = ""
    gated: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    """Keys of the ResourceClaims that it uses, as far as they are known by name."""
    unmade: tuple[str, ...] = ()
    """Names, within the pod, of claims that are yet to be made for it."""
    terminating: bool = False
    evicted_for: bool = False
    """Room for this task was made by evicting others in this cycle."""
    last: tuple[Status, int, bool] | None = None
    """Status, node row and `evicted_for` that a discarded statement had given this task."""
    condition: tuple[str, str, str] | None = None
    """Reason, message and nominated node that the pod's condition carries already."""
    start: float = 0.0
    ended: float = 0.0
    """When it ended, where it has and says so."""
    scheduled: float = 0.0
    """When it was bound, by its condition PodScheduled."""
    allocated_domain: str = ""
    """The domain that its sub-job had taken when this task was looked at."""
    disrupted: bool = False
    """Terminating because this scheduler preempted it."""
    stated: bytes = b""
    """Digest of what the pod says but for where it is and how far it has come; empty where
    nothing is known of it."""
    walltime: float | None = None
    """Seconds that the pod says it runs at most, or may; None where it says nothing."""
    pod_priority: int = 0
    """As the pod's spec says it, 0 without: what nodes are compared by when their victims are
    weighed."""

    def __repr__(self) -> str:
        return f"<Task {self.key} {self.status.value}>"

    @property
    def request(self) -> Request:
        return self.pods.request

    @property
    def best_effort(self) -> bool:
        return self.pods.request.best_effort

    @property
    def gated_by_others(self) -> bool:
        """Gated by anything but the queue gate, which this scheduler itself lifts."""
        return bool(self.gated) and self.gated != (QUEUE_GATE,)


class TasksByStatus(dict[Status, dict[str, Task]]):
    """The tasks of a job by status and key.  A status that no task has takes no room: jobs are many,
    and most tasks of a job have the same status."""

    __slots__ = ()

    def __missing__(self, status: Status) -> Mapping[str, Task]:
        return _NO_TASKS

    def put(self, task: Task, status: Status) -> None:
        found = self.get(status)
        if found is None:
            self[status] = {task.key: task}
        else:
            found[task.key] = task

    def take(self, key: str, status: Status) -> Task | None:
        """Take a task out; None if it is not there."""
        found = self.get(status)
        if found is None:
            return None
        task = found.pop(key, None)
        if not found:
            del self[status]
        return task


class Counts:
    """Tasks by status, and the few sums that the gang formulas need."""

    __slots__ = ("pending_best_effort", "ready", "ready_of", "roles", "statuses")

    def __init__(self) -> None:
        self.statuses = TasksByStatus()
        self.pending_best_effort = 0
        self.roles: dict[str, dict[Status, int]] = {}
        """Tasks by role and status, of those that have a role."""
        self.ready = 0
        """Tasks that hold a place or have done their work (READY)."""
        self.ready_of: dict[str, int] = {}
        """The same by role, of those that have one."""

    def enter(self, task: Task, status: Status) -> None:
        self.statuses.put(task, status)
        self._count(task, status, 1)

    def leave(self, task: Task, status: Status) -> None:
        if self.statuses.take(task.key, status) is not None:
            self._count(task, status, -1)

    def move(self, tasks: Sequence[Task], old: Status, new: Status) -> None:
        """Many tasks of one class and role from one status to another."""
        statuses = self.statuses
        source, target = statuses[old], statuses.setdefault(new, {})
        for task in tasks:
            key = task.key
            del source[key]
            target[key] = task
        if not source:
            del statuses[old]
        first, many = tasks[0], len(tasks)
        if first.pods.request.best_effort:
            self.pending_best_effort += many * ((new is Status.PENDING) - (old is Status.PENDING))
        role = first.role
        change = many * ((new in _READY_SET) - (old in _READY_SET))
        self.ready += change
        if role:
            counts = self.roles.get(role)
            if counts is None:
                counts = self.roles[role] = {}
            counts[old] = counts.get(old, 0) - many
            counts[new] = counts.get(new, 0) + many
            if change:
                self.ready_of[role] = self.ready_of.get(role, 0) + change

    def replace(self, task: Task, old: Status) -> None:
        """Another reading of a pod takes the place of the last, which had another of the statuses
        HOLDS or the same."""
        self.statuses.take(task.key, old)
        self.statuses.put(task, task.status)
        if task.role and old is not task.status:
            counts = self.roles[task.role]
            counts[old] -= 1
            counts[task.status] = counts.get(task.status, 0) + 1

    def _count(self, task: Task, status: Status, by: int) -> None:
        if status is Status.PENDING and task.best_effort:
            self.pending_best_effort += by
        ready = status in _READY_SET
        if ready:
            self.ready += by
        role = task.role
        if role:
            counts = self.roles.setdefault(role, {})
            counts[status] = counts.get(status, 0) + by
            if ready:
                self.ready_of[role] = self.ready_of.get(role, 0) + by

    def of(self, *statuses: Status) -> int:
        known, found = self.statuses, 0
        for status in statuses:
            tasks = known.get(status)
            if tasks is not None:
                found += len(tasks)
        return found

    @property
    def waiting(self) -> int:
        return len(self.statuses[Status.PIPELINED])

    @property
    def valid(self) -> int:
        return self.ready + self.waiting + len(self.statuses[Status.PENDING])


@dataclass(slots=True, eq=False, repr=False)
class Group:
    """What a job and a sub-group of it have in common: tasks, a minimum, and the questions about
    both."""

    uid: str
    min_available: int = 0
    tasks: dict[str, Task] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    topology: Topology | None = None
    """As its owner wrote it."""
    effective: Topology | None = None
    """As this cycle understands it."""
    allocated_domain: str = ""
    """The smallest domain that holds what it has placed."""

    def is_ready(self) -> bool:
        return self.counts.ready + self.counts.pending_best_effort >= self.min_available

    def is_pipelined(self) -> bool:
        counts = self.counts
        return counts.waiting + counts.ready + counts.pending_best_effort >= self.min_available

    def is_starving(self) -> bool:
        return self.counts.waiting + self.counts.ready < self.min_available

    def pending(self) -> Iterable[Task]:
        return self.counts.statuses[Status.PENDING].values()


class Topology:
    """How near to each other the tasks of a group must be; a job's own, copied so that a session
    may rewrite it."""

    __slots__ = ("highest_tier", "highest_tier_name", "mode")

    def __init__(self, mode: str, highest_tier: int | None, highest_tier_name: str) -> None:
        self.mode = mode
        self.highest_tier = highest_tier
        self.highest_tier_name = highest_tier_name

    @property
    def hard(self) -> bool:
        return self.mode == "hard" and self.highest_tier is not None


class Selector(Protocol):
    """Which sets of labels are meant."""

    def matches(self, labels: Mapping[str, str]) -> bool: ...


@dataclass(frozen=True, slots=True)
class SubGroupPolicy:
    """How a PodGroup divides its pods into sub-groups.  Reference: scheduler-core 2.10."""

    name: str
    selector: Selector | None
    keys: tuple[str, ...]
    size: int
    topology: Topology | None

    def match(self, labels: Mapping[str, str]) -> list[str] | None:
        """The values that name the sub-group of a pod with these labels; None where the policy does
        not apply."""
        if not self.keys or (self.selector is not None and not self.selector.matches(labels)):
            return None
        values = [labels.get(key, "") for key in self.keys]
        return values if all(values) else None

    def join(self, values: list[str]) -> str:
        joined = "-".join(values)
        return joined if len(joined.encode()) <= 128 else short_hash(joined)


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class SubJob(Group):
    """A partition of a job's tasks.  The default one of a job without policies shares the job's own
    counts."""

    job: Job
    group: str
    match_index: int = 0
    nominated_domain: str = ""
    """Where an eviction made room for it, within this cycle."""

    @property
    def priority(self) -> int:
        return max((task.priority for task in self.tasks.values()), default=0) if self.tasks else 0

    def pending_resources(self) -> Amounts:
        """What its pending tasks ask for together."""
        return requests_of(self.pending())


@dataclass(slots=True, eq=False, repr=False)
class Job(Group):
    """One PodGroup with its tasks."""

    key: str = field(init=False)
    namespace: str = field(init=False)
    name: str = field(init=False)
    title: str = field(init=False)
    """What people call it: as its PodGroup's owner is called."""
    lineage: str = field(init=False)
    """What it stays when it is made anew: a pod by itself is its owner's, and the next one is
    so too."""
    has_group: bool = False
    shadow: bool = False
    pg_uid: str = ""
    queue: str = ""
    creation: float = 0.0
    priority: int = 0
    priority_class: str = ""
    phase: str = ""
    annotations: Mapping[str, str] = field(default_factory=_no_texts)
    conditions: list[Json] = field(default_factory=list)
    min_resources: Amounts | None = None
    min_quantities: Json = field(default_factory=dict)
    """The same as written."""
    role_minimums: Mapping[str, int] = field(default_factory=_no_numbers)
    role_total: int = 0
    min_sub_jobs: Mapping[str, int] = field(default_factory=_no_numbers)
    policies: tuple[SubGroupPolicy, ...] = ()
    sub_jobs: dict[str, SubJob] = field(default_factory=dict)
    preemptable: bool = False
    stated_preemptable: bool = True
    """As `preemptable`, but true where nothing is stated: what the gang evictions ask."""
    revocable_zone: str = ""
    waiting_time: float | None = None
    walltime: float | None = None
    """Seconds that its PodGroup says it runs at most; None where it says nothing."""
    learned: Learned | None = None
    """What others like it took, where the policy asks."""
    told_learned: float = 0.0
    """The seconds of it that people were told last."""
    allocated: Amounts = field(default_factory=empty)
    total_request: Amounts = field(default_factory=empty)
    fit_errors: dict[str, FitErrors] = field(default_factory=dict)
    """Task key -> why it did not fit, of this cycle."""
    fit_message: str = ""
    short_of_quota: Task | None = None
    """A task that its queue may not take now."""
    enqueue_block: str = ""
    """Why the job was not let in, in this cycle's words."""
    shortages: tuple[Shortage, ...] = ()
    """How short of what it is, where `enqueue_block` speaks of amounts."""
    last_event: str = ""
    last_refusal: str = ""
    status_sent: SentStatus | None = None
    status_time: float = -1.0
    rests_until: float = -math.inf
    """What is to be told of the job waits until then (engine time), unless the job changes
    before."""
    stated: bytes = b""
    """Digest of all that its PodGroup says but for its status; empty where nothing is known of
    it."""
    contribution: Contribution | None = None
    """What this job adds to its queue's sums, as last counted."""
    plugin_state: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.key = self.lineage = self.uid
        self.namespace, _, self.name = self.key.rpartition("/")
        self.title = self.name

    def __repr__(self) -> str:
        return f"<Job {self.key}>"

    def clear_fit_errors(self) -> None:
        """What kept the job waiting in an earlier cycle says nothing about this one."""
        self.fit_errors = {}
        self.fit_message = ""
        self.short_of_quota = None
        for task in self.counts.statuses[Status.PENDING].values():
            task.last = None

    # ----------------------------------------------------------------------------------- membership

    def default_sub_job(self) -> SubJob:
        """The one sub-job of a job without policies."""
        found = self.sub_jobs.get(self.key)
        if found is None:
            if self.policies:
                found = SubJob(self.key, 1, job=self, group=self.key)
            else:
                shared = self.tasks, self.counts
                found = SubJob(self.key, self.min_available, *shared, job=self, group=self.key)
            found.topology = self.topology
            self.sub_jobs[self.key] = found
        return found

    def add_task(self, task: Task) -> None:
        self.tasks[task.key] = task
        task.job = self
        self.counts.enter(task, task.status)
        add(self.total_request, task.request.amounts)
        if is_allocated(task.status):
            add(self.allocated, task.request.amounts)
        self.attach_sub_job(task)

    def attach_sub_job(self, task: Task) -> None:
        """Put the task in the sub-group that the job's policies give it."""
        if not self.policies:
            task.subjob = self.default_sub_job()
            return
        sub_job = self._sub_job_of(task)
        sub_job.tasks[task.key] = task
        sub_job.counts.enter(task, task.status)
        task.subjob = sub_job

    def _sub_job_of(self, task: Task) -> SubJob:
        labels = task.labels.labels
        for policy in self.policies:
            values = policy.match(labels)
            if values is None:
                continue
            group = f"{self.key}/{policy.name}"
            uid = f"{group}-{policy.join(values)}"
            found = self.sub_jobs.get(uid)
            if found is None:
                found = SubJob(uid, policy.size, job=self, group=group)
                found.match_index = (
                    int(values[0]) if values and values[0].lstrip("-").isdigit() else 0
                )
                found.topology = policy.topology
                self.sub_jobs[uid] = found
            return found
        return self.default_sub_job()

    def remove_task(self, task: Task) -> None:
        if self.tasks.pop(task.key, None) is None:
            return
        self.counts.leave(task, task.status)
        subtract(self.total_request, task.request.amounts)
        if is_allocated(task.status):
            subtract(self.allocated, task.request.amounts)
        sub_job = task.subjob
        if sub_job is not None and sub_job.counts is not self.counts:
            sub_job.tasks.pop(task.key, None)
            sub_job.counts.leave(task, task.status)
            if not sub_job.tasks:
                self.sub_jobs.pop(sub_job.uid, None)
        self.fit_errors.pop(task.key, None)
        task.job = task.subjob = None

    def rebuild_sub_jobs(self) -> None:
        """After the PodGroup changed: every task finds its sub-group again."""
        known = self.sub_jobs.get(self.key)
        if not self.policies and known is not None and known.counts is self.counts:
            known.min_available, known.topology = self.min_available, self.topology
            return
        self.sub_jobs = {}
        for task in self.tasks.values():
            self.attach_sub_job(task)

    def set_status(self, task: Task, status: Status) -> None:
        """The one place where a task's status changes."""
        old = task.status
        if old is status:
            return
        self.counts.leave(task, old)
        sub_job = task.subjob
        shared = sub_job is None or sub_job.counts is self.counts
        if not shared:
            sub_job.counts.leave(task, old)  # type: ignore[union-attr]  # not shared: there is one
        task.status = status
        self.counts.enter(task, status)
        if not shared:
            sub_job.counts.enter(task, status)  # type: ignore[union-attr]  # as above
        was, now = is_allocated(old), is_allocated(status)
        if now and not was:
            add(self.allocated, task.request.amounts)
        elif was and not now:
            subtract(self.allocated, task.request.amounts)

    def set_status_many(self, tasks: Sequence[Task], status: Status) -> None:
        """As `set_status` for tasks of one class, role, sub-group and old status."""
        if not tasks:
            return
        first = tasks[0]
        old = first.status
        self.counts.move(tasks, old, status)
        sub_job = first.subjob
        if sub_job is not None and sub_job.counts is not self.counts:
            sub_job.counts.move(tasks, old, status)
        for task in tasks:
            task.status = status
        was, now = old in _ALLOCATED_SET, status in _ALLOCATED_SET
        if now != was:
            add(self.allocated, first.request.amounts, len(tasks) if now else -len(tasks))

    def bind(self, task: Task) -> None:
        """As `set_status_many` for one pending task of a job without policies that asks for
        something and is bound.

        What a turn of a one-pod job comes to, so it is written out.
        """
        counts, key, role = self.counts, task.key, task.role
        counts.statuses.take(key, Status.PENDING)
        counts.statuses.put(task, Status.BINDING)
        counts.ready += 1
        if role:
            of_role = counts.roles.get(role)
            if of_role is None:
                of_role = counts.roles[role] = {}
            of_role[Status.PENDING] = of_role.get(Status.PENDING, 0) - 1
            of_role[Status.BINDING] = of_role.get(Status.BINDING, 0) + 1
            counts.ready_of[role] = counts.ready_of.get(role, 0) + 1
        task.status = Status.BINDING
        held = self.allocated
        for name, value in task.pods.request.amounts.items():
            held[name] = held.get(name, 0.0) + value

    # -------------------------------------------------------------------------------- gang formulas

    def _roles_hold(self, statuses: tuple[Status, ...], pending_empty: bool) -> bool:
        for role, minimum in self.role_minimums.items():
            if minimum > 0 and self.role_count(role, statuses, pending_empty) < minimum:
                return False
        return True

    def role_count(
        self, role: str, statuses: tuple[Status, ...] = READY, pending_empty: bool = True
    ) -> int:
        """How many tasks of a role are in the given statuses, best-effort pending ones counted when
        asked."""
        if role:
            counts = self.counts.roles.get(role, {})
            result = sum(counts.get(status, 0) for status in statuses)
        else:  # which a PodGroup may name, and hardly any does
            result = sum(
                1 for task in self.tasks.values() if not task.role and task.status in statuses
            )
        if pending_empty and self.counts.pending_best_effort:
            result += sum(1 for task in self.pending() if task.role == role and task.best_effort)
        return result

    def roles_valid(self) -> bool:
        if self.min_available < self.role_total:
            return True
        return self._roles_hold((*READY, Status.PIPELINED, Status.PENDING), False)

    def roles_ready(self) -> bool:
        if self.min_available < self.role_total:
            return True
        ready = self.counts.ready_of
        return all(
            ready.get(role, 0) >= minimum or self.role_count(role) >= minimum
            for role, minimum in self.role_minimums.items()
        )

    def roles_pipelined(self) -> bool:
        return self.min_available < self.role_total or self._roles_hold(
            (*READY, Status.PIPELINED), True
        )

    def sub_jobs_valid(self) -> bool:
        if not any(self.min_sub_jobs.values()):
            return True
        existing: dict[str, int] = {}
        for sub_job in self.sub_jobs.values():
            existing[sub_job.group] = existing.get(sub_job.group, 0) + 1
        return all(
            existing.get(group, 0) >= minimum for group, minimum in self.min_sub_jobs.items()
        )

    def sub_jobs_reach(self, pipelined: bool) -> bool:
        """Enough sub-groups of each policy are ready (or pipelined)."""
        wanted = {group: minimum for group, minimum in self.min_sub_jobs.items() if minimum > 0}
        if not wanted:
            return True
        have: dict[str, int] = {}
        for sub_job in self.sub_jobs.values():
            if sub_job.is_pipelined() if pipelined else sub_job.is_ready():
                have[sub_job.group] = have.get(sub_job.group, 0) + 1
        return all(have.get(group, 0) >= minimum for group, minimum in wanted.items())

    @property
    def is_pending(self) -> bool:
        """The PodGroup has not been let in yet."""
        return self.phase in NOT_LET_IN

    @property
    def has_topology(self) -> bool:
        if self.topology is not None:
            return True
        for sub in self.sub_jobs.values():  # noqa: SIM110 (as above: every job is asked in every cycle that it waits)
            if sub.topology is not None:
                return True
        return False

    @property
    def has_hard_topology(self) -> bool:
        if self.effective is not None and self.effective.hard:
            return True
        for sub in self.sub_jobs.values():  # noqa: SIM110 (asked at each turn: a generator would cost more than it asks)
            if sub.effective is not None and sub.effective.hard:
                return True
        return False

    # ------------------------------------------------------------------------------ sums for queues

    def allocated_count(self) -> int:
        return self.counts.of(*ALLOCATED)

    def elastic(self) -> Amounts:
        """What it holds beyond its minimum, where it does; without a stated minimum, all of it."""
        least = self.min_resources or _NOTHING
        return {
            name: over
            for name, value in self.allocated.items()
            if (over := value - least.get(name, 0.0)) > 0
        }

    def remaining_minimum(self) -> Amounts:
        """What its minimum still lacks; a scalar that is met is absent."""
        result: Amounts = {}
        held = self.allocated
        for name, value in (self.min_resources or _NOTHING).items():
            rest = value - held.get(name, 0.0)
            if rest > 0:
                result[name] = rest
            elif name in ("cpu", "memory", "pods"):
                result[name] = 0.0
            elif name not in held:
                result[name] = value
        return result

    def deduct_gated(self, of: Amounts) -> Amounts:
        """Take away what tasks ask for that may not be scheduled yet; pods that ask for nothing
        take nothing away."""
        gated: Amounts = {}
        for task in self.counts.statuses[Status.PENDING].values():
            if task.gated and task.gated_by_others:
                add(gated, task.request.amounts)
        return floor_subtract(of, gated) if gated and not is_empty(gated) else of


def requests_of(tasks: Iterable[Task]) -> Amounts:
    """What these tasks ask for together."""
    total = empty()
    for task in tasks:
        add(total, task.request.amounts)
    return total


def short_hash(text: str) -> str:
    """32 bits of FNV-1a, written with letters that a name may have."""
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(alphabet[ord(digit) % len(alphabet)] for digit in str(value))
