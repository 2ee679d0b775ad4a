"""rescheduling: moves pods off nodes that are really busy, onto nodes that are not.  Reference:
plugins-fairness 13."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Plugin, Reads
from hekla.engine.framework.session import session_of
from hekla.engine.model.resources import CPU, MEMORY, Floats
from hekla.engine.model.tasks import NOWHERE, Status, Task
from hekla.engine.model.time.durations import seconds
from hekla.engine.model.transfers import MOVES
from hekla.engine.placement.landing import Landing
from hekla.engine.plugins.placement.numaaware import guaranteed

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

LOW = "lowNodeUtilization"
_LAST = "rescheduling"


class LowNodeUtilization(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Percentages of a node's capacity: below the first in everything is low, above the second in
    anything is high."""

    thresholds: dict[str, int] = {}
    target_thresholds: dict[str, int] = {}


class Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `strategies`."""

    name: str = LOW
    params: LowNodeUtilization = LowNodeUtilization()


class ReschedulingArguments(Arguments, frozen=True):
    interval: str = "5m"
    metrics_period: str = msgspec.field(default="5m", name="metricsPeriod")
    strategies: list[Strategy] = []
    """Empty: lowNodeUtilization with its defaults."""

    def extended(self, rest: Tree) -> ReschedulingArguments:
        seconds(self.interval)
        for one in self.strategies:
            if one.name != LOW:
                raise ValueError(f'strategies: "{one.name}" does not exist; known is {LOW}')
            for limits in (one.params.thresholds, one.params.target_thresholds):
                for name, value in limits.items():
                    if name not in (CPU, MEMORY, "pod", "pods") or not 0 <= value <= 100:
                        raise ValueError(
                            f"{one.name}: {name} = {value}: cpu and memory in percent, 0 to 100"
                        )
        return self


class Rescheduling(Plugin):
    """Names victims for `shuffle`, at most once an interval."""

    name = "rescheduling"
    Arguments = ReschedulingArguments
    arguments: ReschedulingArguments
    reads = Reads(clock=True)

    def __init__(self, arguments: ReschedulingArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.interval = _interval(arguments.interval)
        self.due = False

    def open(self, session: CycleView) -> None:
        self.session = session_of(session)
        remembered = session.state.remembered
        self.due = remembered.setdefault(_LAST, session.now) + self.interval < session.now
        if self.due:
            remembered[_LAST] = session.now

    def victim_tasks(self, candidates: list[Task]) -> list[Task]:
        if not self.due:
            return []
        chosen: dict[str, Task] = {}
        for strategy in self.arguments.strategies or [Strategy()]:
            for task in self._low_utilization(strategy.params, candidates):
                chosen.setdefault(task.key, task)
        return list(chosen.values())

    def _low_utilization(self, params: LowNodeUtilization, candidates: list[Task]) -> list[Task]:
        nodes = self.session.state.nodes
        usage = self._usage()
        low_at = np.array(
            [[params.thresholds.get(name, 100)] for name in (CPU, MEMORY)], dtype=np.float64
        )
        target = np.array(
            [[params.target_thresholds.get(name, 100)] for name in (CPU, MEMORY)], dtype=np.float64
        )
        low = nodes.ready & ~nodes.unschedulable & (usage < low_at).all(axis=0)
        high = nodes.ready & ~low & (usage > target).any(axis=0)
        if not low.any() or low.sum() == nodes.ready.sum() or not high.any():
            return []
        columns = [nodes.space.column(CPU), nodes.space.column(MEMORY)]
        room = np.trunc((target - usage)[:, low] / 100.0 * nodes.allocatable[columns][:, low]).sum(
            axis=1
        )
        whole = np.stack([nodes.capacity(column) for column in columns])
        on_row: dict[int, list[Task]] = {}
        for task in candidates:
            if task.preemptable and task.status is Status.RUNNING:
                on_row.setdefault(task.row, []).append(task)
        there: Floats = usage.copy()
        """With the pods that land there."""
        landing = Landing(self.session, "shuffle")
        try:
            rows = np.flatnonzero(high)
            for row in rows[np.argsort(-usage[:, rows].sum(axis=0), kind="stable")].tolist():
                load: Floats = usage[:, row].copy()
                for task in sorted(on_row.get(row, ()), key=_least_missed):
                    if not (load >= target[:, 0]).any() or (room == 0).any():
                        break
                    if self._stays(task):
                        continue
                    asked = np.array([task.request.amounts[CPU], task.request.amounts[MEMORY]])
                    part = asked[:, None] / np.where(whole > 0, whole, 1.0) * 100.0
                    too_busy = ((there + part > target) & (part > 0)).any(axis=0)
                    found = landing.moves(task, high | too_busy)
                    if found == NOWHERE:
                        continue
                    room -= asked
                    load -= part[:, row]
                    there[:, found] += part[:, found]
        finally:
            landing.undo()
        return landing.moved

    def _stays(self, task: Task) -> bool:
        """Whether a pod was moved often enough, which its job is told."""
        job = task.job
        if job is None or not self.session.state.transfers.moved_enough(job):
            return False
        self.session.hold_back(job, (MOVES,), "shuffle")
        return True

    def _usage(self) -> Floats:
        """`[2, nodes]`: cpu and memory in use, in percent, averaged over the period; 0 where nobody
        measured."""
        nodes, period = self.session.state.nodes, self.arguments.metrics_period
        usage = np.zeros((2, len(nodes)))
        for name, measured in self.session.state.others.get("NodeUsage", {}).items():
            row = nodes.rows.get(name)
            if row is not None:
                usage[0, row] = (measured.get("cpu_usage_avg_percent") or {}).get(period, 0.0)
                usage[1, row] = (measured.get("memory_usage_avg_percent") or {}).get(period, 0.0)
        return usage


def _interval(text: str) -> float:
    """Seconds between two looks; five minutes where they cannot be read."""
    try:
        return seconds(text)
    except ValueError:
        return 300.0


def _least_missed(task: Task) -> tuple[int, int]:
    """Low priority first, as the pod's class has it; among equals best effort, then burstable, then
    guaranteed."""
    return task.pod_priority, 0 if task.best_effort else 2 if guaranteed(task.pods) else 1
