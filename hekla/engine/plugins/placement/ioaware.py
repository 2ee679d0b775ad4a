"""io-aware: keeps the busiest connection between any two nodes of a job as cheap as it can.

Past upstream.  What two roles send each other is declared on the PodGroup; a node's cost towards
another is what their tasks send each other, times how far apart they are (the tier of the smallest
domain that holds both, 1 without a topology, 0 on one node). Each task goes where the largest cost
that its placing makes is smallest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Depends, Normalise, Plugin, Score
from hekla.engine.model.annotations import TRAFFIC
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Amounts, Floats
from hekla.engine.model.tasks import Status, is_allocated

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Job, Task

Traffic = Mapping[frozenset[str], float]


class IoAwareArguments(Arguments, frozen=True):
    weight: int = msgspec.field(default=1, name="io-aware.weight")

    def extended(self, rest: Tree) -> IoAwareArguments:
        if self.weight < 0:
            raise ValueError(
                f"io-aware.weight = {self.weight}: a weight is a whole number from 0 up"
            )
        return self


class IoAware(Plugin):
    """Scores nodes for the tasks of jobs whose traffic is known."""

    name = "io-aware"
    Arguments = IoAwareArguments
    arguments: IoAwareArguments

    def open(self, session: CycleView) -> None:
        self.tree = session.tree
        self.traffic: dict[str, Traffic] = {}
        self.placed: dict[str, dict[int, dict[str, int]]] = {}
        """Job -> row -> role -> how many of its tasks are there."""
        for job in session.active_jobs():
            if not job.counts.statuses[Status.PENDING]:
                continue
            try:
                traffic = read(
                    job.annotations.get(TRAFFIC), {task.role for task in job.tasks.values()}
                )
            except ValueError as error:
                session.decisions.problems.append(f"{job.key}: {error}")
                continue
            if traffic:
                self.traffic[job.key] = traffic
                rows = self.placed[job.key] = {}
                for task in job.tasks.values():
                    if task.row >= 0 and is_allocated(task.status):
                        _count(rows, task, 1)

    def scores(self) -> Iterable[Score]:
        yield Score(
            "io-aware",
            float(self.arguments.weight),
            Depends.CLUSTER,
            self._score,
            Normalise.MAX_REVERSED,
            batch=False,
        )

    def _score(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        if task is None or task.job is None or task.job.key not in self.traffic:
            return None
        traffic, placed = self.traffic[task.job.key], self.placed[task.job.key]
        rows = range(len(nodes)) if nodes.rows is None else nodes.rows.tolist()
        sends = {row: _between(traffic, {task.role: 1}, roles) for row, roles in placed.items()}
        costs = [
            max(
                (
                    (sent + _between(traffic, placed.get(row, {}), placed[other]))
                    * self._distance(row, other)
                    for other, sent in sends.items()
                    if other != row
                ),
                default=0.0,
            )
            for row in rows
        ]
        return np.array(costs, dtype=np.float64)

    def _distance(self, row: int, other: int) -> float:
        if not self.tree.real:
            return 1.0
        return float(
            max(self.tree.tier_of(self.tree.common(self.tree.leaf(row), self.tree.leaf(other))), 1)
        )

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if job.key in self.placed and task.status in (Status.ALLOCATED, Status.PIPELINED):
            _count(self.placed[job.key], task, 1)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if job.key in self.placed and task.status is Status.PENDING:
            _count(self.placed[job.key], task, -1)


def _count(rows: dict[int, dict[str, int]], task: Task, by: int) -> None:
    roles = rows.setdefault(task.row, {})
    roles[task.role] = roles.get(task.role, 0) + by
    if not roles[task.role]:
        del roles[task.role]
    if not roles:
        del rows[task.row]


def _between(traffic: Traffic, left: Mapping[str, int], right: Mapping[str, int]) -> float:
    """What the tasks on one node and those on another send each other."""
    return sum(
        traffic.get(frozenset((one, other)), 0.0) * many * more
        for one, many in left.items()
        for other, more in right.items()
    )


def read(text: str | None, roles: set[str]) -> Traffic:
    """Declared traffic, `ps,worker=10;worker,worker=1`; without it, a job of ps and worker talks
    between the two.

    Raises ValueError for what cannot be read, and for roles that the job has not.
    """
    if text is None:
        return {frozenset(("ps", "worker")): 1.0} if {"ps", "worker"} <= roles else {}
    found: dict[frozenset[str], float] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        pair, _, amount = part.partition("=")
        names = [one.strip() for one in pair.split(",")]
        unknown = [one for one in names if one not in roles]
        if len(names) != 2 or unknown:
            raise ValueError(
                f"{TRAFFIC}: {part!r}: two roles of the job and an amount, as in ps,worker=10"
            )
        try:
            found[frozenset(names)] = float(amount)
        except ValueError:
            raise ValueError(f"{TRAFFIC}: {part!r}: {amount!r} is no number") from None
    return found
