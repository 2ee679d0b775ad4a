"""task-topology: roles of a job that talk to each other share nodes, others keep apart.  Reference:
plugins-placement 10.

Pending tasks are put into buckets, by the affinities of their roles to each other; a bucket pulls its
tasks onto nodes where some of it are already, as far as they fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hekla.engine.framework.plugin import Arguments, Depends, Plugin, Score
from hekla.engine.model.annotations import AFFINITY, ANTI_AFFINITY, TASK_ORDER
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import (
    CPU,
    EPSILON,
    MEMORY,
    PODS,
    Amounts,
    Floats,
    add,
    empty,
    subtract,
)
from hekla.engine.model.tasks import Status, is_allocated

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Job, Task

_MIB = 1024.0 * 1024
_SELF_ANTI, _INTER, _SELF, _INTER_ANTI = 4, 3, 2, 1


class TaskTopologyArguments(Arguments, frozen=True):
    weight: int = msgspec.field(default=1, name="task-topology.weight")


@dataclass(frozen=True, slots=True)
class TaskAffinities:
    """The affinities and anti-affinities between the roles of a job."""

    affinity: tuple[tuple[str, ...], ...] = ()
    anti_affinity: tuple[tuple[str, ...], ...] = ()
    order: tuple[str, ...] = ()

    @property
    def priorities(self) -> dict[str, int]:
        """The weight of each role that has an affinity."""
        found: dict[str, int] = {}
        for groups, alone, together in (
            (self.affinity, _SELF, _INTER),
            (self.anti_affinity, _SELF_ANTI, _INTER_ANTI),
        ):
            for group in groups:
                for role in group:
                    found[role] = max(found.get(role, 0), alone if len(group) == 1 else together)
        return found

    def likes(self, role: str, others: Mapping[str, int], anti_only: bool = False) -> int:
        """How many of the others the role wants to be with, less those that it wants to avoid."""
        value = 0
        for other, count in others.items():
            if not anti_only and _named_together(self.affinity, role, other):
                value += count
            if _named_together(self.anti_affinity, role, other):
                value -= count
        return value


def _named_together(groups: Iterable[tuple[str, ...]], role: str, other: str) -> bool:
    if role == other:
        return any(group == (role,) for group in groups)
    return any(len(group) > 1 and role in group and other in group for group in groups)


@dataclass(slots=True)
class Bucket:
    """Tasks that want to be together."""

    index: int
    roles: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    """Those without a node yet."""
    nodes: dict[int, int] = field(default_factory=dict)
    """Row -> how many of the bucket are on it."""
    request: Amounts = field(default_factory=empty)
    bound: int = 0

    def add(self, task: Task) -> None:
        self.roles[task.role] = self.roles.get(task.role, 0) + 1
        if task.status is Status.PENDING:
            self.tasks[task.key] = task
            add(self.request, task.request.amounts)
        else:
            self.bound += 1
            self.nodes[task.row] = self.nodes.get(task.row, 0) + 1

    def place(self, task: Task, by: int) -> None:
        """A task of the bucket got a node (`by` 1) or lost it again (-1)."""
        self.bound += by
        self.nodes[task.row] = self.nodes.get(task.row, 0) + by
        if by > 0:
            if self.tasks.pop(task.key, None) is not None:
                subtract(self.request, task.request.amounts)
        else:
            self.tasks[task.key] = task
            add(self.request, task.request.amounts)

    @property
    def weight(self) -> float:
        """What is left of the bucket, as one number: millicores, MiB, and the rest as it is."""
        rest = sum(value for name, value in self.request.items() if name not in (CPU, MEMORY, PODS))
        return self.request[CPU] + self.request[MEMORY] / _MIB + rest


class Arrangement:
    """The buckets of one job."""

    def __init__(self, affinities: TaskAffinities, tasks: Iterable[Task], names: list[str]) -> None:
        self.affinities = affinities
        self.priorities = affinities.priorities
        self.weights = {
            role: len(affinities.order) - at for at, role in enumerate(affinities.order)
        }
        self.buckets: list[Bucket] = []
        self.of: dict[str, Bucket] = {}
        self.placed: dict[int, dict[str, int]] = {}
        """Row -> role -> how many were placed in this cycle."""
        concerned = [task for task in tasks if task.role in self.priorities]
        held = [task for task in concerned if task.row >= 0 and is_allocated(task.status)]
        pending = [task for task in concerned if task.status is Status.PENDING]
        by_row: dict[int, Bucket] = {}
        for task in sorted(held, key=lambda one: (names[one.row], one.name)):
            if task.row not in by_row:
                by_row[task.row] = self._new()
            self._put(task, by_row[task.row])
        for task in sorted(pending, key=lambda one: (*self.urgency(one.role), one.name)):
            self._put(task, self._best(task.role))
        self.largest = max((len(bucket.tasks) + bucket.bound for bucket in self.buckets), default=0)

    def urgency(self, role: str) -> tuple[int, int]:
        """Smaller goes first."""
        return -self.weights.get(role, 0), -self.priorities.get(role, 0)

    def _new(self) -> Bucket:
        self.buckets.append(Bucket(len(self.buckets)))
        return self.buckets[-1]

    def _put(self, task: Task, bucket: Bucket) -> None:
        bucket.add(task)
        self.of[task.key] = bucket

    def _best(self, role: str) -> Bucket:
        rated = [
            (-self.affinities.likes(role, bucket.roles), bucket.weight, bucket.index)
            for bucket in self.buckets
        ]
        if not rated or min(rated)[0] > 0:
            return self._new()
        return self.buckets[min(rated)[2]]


class TaskTopology(Plugin):
    """Orders and pulls the tasks of jobs that say who belongs with whom."""

    name = "task-topology"
    Arguments = TaskTopologyArguments
    arguments: TaskTopologyArguments

    def open(self, session: CycleView) -> None:
        self.jobs: dict[str, Arrangement] = {}
        names = session.state.nodes.names
        for job in session.active_jobs():
            if not job.counts.statuses[Status.PENDING] or not _states_any(job.annotations):
                continue
            try:
                affinities = read(
                    job.annotations,
                    {task.role for task in job.tasks.values() if task.role},
                    job.key,
                )
            except ValueError as error:
                job.plugin_state["task-topology"] = str(error)
                continue
            job.plugin_state.pop("task-topology", None)
            self.jobs[job.key] = Arrangement(affinities, job.tasks.values(), names)

    def task_order(self, task: Task) -> tuple[int, ...]:
        found = self.jobs.get(task.job.key) if task.job is not None else None
        bucket = found.of.get(task.key) if found is not None else None
        if found is None or bucket is None:
            return 1, 0, 0, 0, 0
        return 0, -len(bucket.tasks), bucket.index, *found.urgency(task.role)

    def scores(self) -> Iterable[Score]:
        yield Score(
            "task-topology", float(self.arguments.weight), Depends.CLUSTER, self._score, batch=False
        )

    def _score(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        found = self.jobs.get(task.job.key) if task is not None and task.job is not None else None
        bucket = found.of.get(task.key) if found is not None and task is not None else None
        if found is None or bucket is None or task is None:
            return None
        rows = range(len(nodes)) if nodes.rows is None else nodes.rows.tolist()
        avoided = {
            row: min(0, found.affinities.likes(task.role, roles, True))
            for row, roles in found.placed.items()
        }
        near = np.fromiter(
            (bucket.nodes.get(row, 0) + avoided.get(row, 0) for row in rows),
            dtype=np.float64,
            count=len(nodes),
        )
        fits, kept = _kept(bucket, task, nodes)
        result = np.where(fits, near + kept, 0.0)
        return result * 100.0 / found.largest if found.largest else result

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status in (Status.ALLOCATED, Status.PIPELINED):
            self._move(job, task, 1)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status is Status.PENDING:
            self._move(job, task, -1)

    def _move(self, job: Job, task: Task, by: int) -> None:
        found = self.jobs.get(job.key)
        bucket = found.of.get(task.key) if found is not None else None
        if found is None or bucket is None:
            return
        bucket.place(task, by)
        roles = found.placed.setdefault(task.row, {})
        roles[task.role] = roles.get(task.role, 0) + by


def _kept(bucket: Bucket, task: Task, nodes: NodeView) -> tuple[Bools, Floats]:
    """`[rows]`: whether the task fits, and how many of the bucket would with it once the releasing
    have gone."""
    table: NodeTable = nodes.table
    free: dict[str, Floats] = {}

    def fit(request: Mapping[str, float]) -> Bools:
        result = np.ones(len(nodes), dtype=np.bool_)
        for name, value in request.items():
            if name not in free:
                column = table.space.column(name)
                if column >= len(table.allocatable):
                    continue
                free[name] = nodes.take(
                    table.allocatable[column] - table.used[column] + table.releasing[column]
                )
            result &= value < free[name] + EPSILON
        return result

    alone = fit(task.request.amounts)
    left = dict(bucket.request)
    kept = np.full(len(nodes), float(len(bucket.tasks)))
    open_rows = alone & ~fit(left)
    for other in list(bucket.tasks.values()):
        if not open_rows.any():
            break
        if other is task:
            continue
        kept[open_rows] -= 1.0
        subtract(left, other.request.amounts)
        open_rows &= ~fit(left)
    return alone, kept


def _states_any(annotations: Mapping[str, str]) -> bool:
    return any(name in annotations for name in (AFFINITY, ANTI_AFFINITY, TASK_ORDER))


def read(annotations: Mapping[str, str], roles: set[str], job: str) -> TaskAffinities:
    """What a PodGroup says.  Raises ValueError for roles that the job has not, or that are named
    twice in a group."""
    affinity = _groups(annotations.get(AFFINITY), roles, job)
    anti_affinity = _groups(annotations.get(ANTI_AFFINITY), roles, job)
    order = tuple(annotations[TASK_ORDER].split(",")) if annotations.get(TASK_ORDER) else ()
    _check((order,), roles, job)
    return TaskAffinities(affinity, anti_affinity, order)


def _groups(text: str | None, roles: set[str], job: str) -> tuple[tuple[str, ...], ...]:
    if text is None:
        return ()
    groups = tuple(tuple(group.split(",")) for group in text.split(";"))
    _check(groups, roles, job)
    return groups


def _check(groups: Iterable[tuple[str, ...]], roles: set[str], job: str) -> None:
    for group in groups:
        seen: set[str] = set()
        for role in group:
            if not role:
                continue
            if role not in roles:
                raise ValueError(f"task {role} do not exist in job <{job}>")
            if role in seen:
                raise ValueError(f"task {role} is duplicate in job <{job}>")
            seen.add(role)
