"""usage: places by what nodes really use, not by what was asked for.  Reference: plugins-placement
11."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hekla.api.text import quantity
from hekla.engine.framework.plugin import (
    MAX_SCORE,
    Arguments,
    Code,
    Depends,
    Filter,
    Mask,
    Plugin,
    Reads,
    Score,
)
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import CPU, MEMORY, Amounts, Floats
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.model.time.durations import seconds

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass

PERIOD = "10m"
STALE = 300.0
SAMPLING = 30.0


class Thresholds(msgspec.Struct, frozen=True):
    cpu: int = 80
    mem: int = 80


class Estimator(msgspec.Struct, frozen=True):
    request_ratio: float = 0.7
    burst_ratio: float = 0.0
    risk_threshold: float = 0.6
    risk_factor: float = 1.2
    be_cpu: int | str = "250m"
    be_mem: int | str = "200Mi"


class UsageArguments(Arguments, frozen=True):
    weight: int = msgspec.field(default=5, name="usage.weight")
    cpu: int = msgspec.field(default=1, name="cpu.weight")
    memory: int = msgspec.field(default=1, name="memory.weight")
    thresholds: Thresholds = Thresholds()
    estimator: Estimator = Estimator()


class Usage(Plugin):
    """Keeps away from nodes whose real load is high, and counts pods that are too new to show in
    it."""

    name = "usage"
    Arguments = UsageArguments
    arguments: UsageArguments
    reads = Reads(clock=True)

    def __init__(self, arguments: UsageArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.weight = arguments.weight if arguments.weight >= 0 else 5
        self.weights = (
            arguments.cpu if arguments.cpu >= 0 else 1,
            arguments.memory if arguments.memory >= 0 else 1,
        )
        stated: Thresholds = arguments.thresholds
        self.limits = tuple(
            limit if 0 <= limit <= 100 else 80 for limit in (stated.cpu, stated.mem)
        )
        self.estimator = sound(arguments.estimator)

    def open(self, session: CycleView) -> None:
        self.session = session
        self.window = interval(session.policy.metrics)
        nodes = session.state.nodes
        size = len(nodes)
        self.load: Floats = np.zeros((2, size))
        self.fresh: Bools = np.zeros(size, dtype=np.bool_)
        for name, usage in session.state.others.get("NodeUsage", {}).items():
            row = nodes.rows.get(name)
            if row is None:
                continue
            self.load[0, row] = (usage.get("cpu_usage_avg_percent") or {}).get(PERIOD, 0.0)
            self.load[1, row] = (usage.get("memory_usage_avg_percent") or {}).get(PERIOD, 0.0)
            age = usage.get("metrics_age_seconds")
            if "time" in usage:
                age = session.now - float(usage["time"])
            self.fresh[row] = age is not None and age <= STALE
        space = nodes.space
        self.capacity: Floats = np.stack(
            (nodes.capacity(space.column(CPU)), nodes.capacity(space.column(MEMORY)))
        )
        self.shadow: Floats = np.zeros((2, size))
        self.estimates: dict[str, tuple[int, float, float]] = {}
        for row, held in enumerate(nodes.tasks):
            for task in held.values():
                if self._unseen(task):
                    self._estimate(task, row)

    def _unseen(self, task: Task) -> bool:
        if task.status in (Status.ALLOCATED, Status.BINDING, Status.BOUND):
            return True
        young = not task.start or self.session.now - task.start < self.window
        return task.status is Status.RUNNING and young

    def _composite(self, rows: int | slice | Rows) -> Floats:
        """`[2, rows]`: measured load and estimates as a part of the capacity, 0 to 1."""
        capacity = self.capacity[:, rows]
        safe = np.where(capacity > 0, capacity, 1.0)
        part = (self.load[:, rows] / 100.0 * capacity + self.shadow[:, rows]) / safe
        return np.where(capacity > 0, np.clip(part, 0.0, 1.0), 0.0)

    def _estimate(self, task: Task, row: int) -> None:
        estimator = self.estimator
        whole = sum(self.weights)
        composite = self._composite(row)
        risk = (
            float(composite[0] * self.weights[0] + composite[1] * self.weights[1]) / whole
            if whole
            else 0.0
        )
        factor = estimator.risk_factor if risk >= estimator.risk_threshold else 1.0
        cpu, memory = estimate(
            estimator, task.request.amounts, task.pods.limits, task.best_effort, factor
        )
        self.estimates[task.key] = (row, cpu, memory)
        self.shadow[0, row] += cpu
        self.shadow[1, row] += memory

    def filters(self) -> Iterable[Filter]:
        cpu = "the CPU load of the node exceeds the upper limit."
        memory = "the memory load of the node exceeds the upper limit."
        yield Filter(
            "usage cpu", cpu, Code.UNRESOLVABLE, Depends.CLUSTER, self._below(0), self.name
        )
        yield Filter(
            "usage memory", memory, Code.UNRESOLVABLE, Depends.CLUSTER, self._below(1), self.name
        )

    def _below(self, which: int) -> Mask:
        def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
            limit = self.limits[which]
            return ~(nodes.take(self.fresh) & (nodes.take(self.load[which]) > limit))

        return mask

    def scores(self) -> Iterable[Score]:
        yield Score("usage", MAX_SCORE * self.weight, Depends.CLUSTER, self._idle, batch=False)

    def _idle(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        whole = sum(self.weights)
        if not whole:
            return None
        rows = slice(None) if nodes.rows is None else nodes.rows
        composite = self._composite(rows)
        score = (
            (1 - composite[0]) * self.weights[0] + (1 - composite[1]) * self.weights[1]
        ) / whole
        return np.where(nodes.take(self.fresh), score, 0.0)

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if count == 1 and task.row >= 0:
            self._forget(task)
            self._estimate(task, task.row)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self._forget(task)

    def _forget(self, task: Task) -> None:
        known = self.estimates.pop(task.key, None)
        if known is not None:
            row, cpu, memory = known
            self.shadow[0, row] = max(self.shadow[0, row] - cpu, 0.0)
            self.shadow[1, row] = max(self.shadow[1, row] - memory, 0.0)


def interval(metrics: Mapping[str, str]) -> float:
    """Seconds between two measurements, from the section `metrics` of the policy."""
    try:
        stated = seconds(metrics.get("interval", ""))
    except ValueError:
        return SAMPLING
    return stated if stated > 0 else SAMPLING


def sound(stated: Estimator) -> Estimator:
    """Each number that is out of its range has its default."""
    usual, changed = Estimator(), {}
    for name in ("request_ratio", "burst_ratio", "risk_threshold"):
        if not 0 <= getattr(stated, name) <= 1:
            changed[name] = getattr(usual, name)
    if not stated.risk_factor >= 1:
        changed["risk_factor"] = usual.risk_factor
    for name, unit in (("be_cpu", 1), ("be_mem", 1024 * 1024)):
        try:
            bad = _best_effort(getattr(stated, name), unit) < 0
        except ValueError:
            bad = True
        if bad:
            changed[name] = getattr(usual, name)
    return msgspec.structs.replace(stated, **changed)


def estimate(
    estimator: Estimator, requests: Amounts, limits: Amounts, best_effort: bool, factor: float
) -> tuple[float, float]:
    """What a pod will probably use: millicores and bytes."""
    if best_effort:
        return factor * _best_effort(estimator.be_cpu, 1), factor * _best_effort(
            estimator.be_mem, 1024 * 1024
        )
    result = []
    for name in (CPU, MEMORY):
        asked, limit = requests.get(name, 0.0), limits.get(name, 0.0)
        ceiling = limit if limit > 0 and limit >= asked else asked
        raw = asked * estimator.request_ratio + (ceiling - asked) * estimator.burst_ratio
        result.append(min(max(raw * factor, 0.0), ceiling))
    return result[0], result[1]


def _best_effort(stated: int | str, unit: int) -> float:
    if isinstance(stated, int):
        return float(stated * unit)
    return float(quantity.milli(stated) if unit == 1 else quantity.whole(stated))
