"""nodegroup: queues have groups of nodes of their own, required, preferred or avoided.  Reference:
plugins-placement 5."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Code, Depends, Filter, Plugin, Score
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodes import ABSENT
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.queues.queues import ROOT, Queue
from hekla.engine.model.resources import EPSILON, Amounts, Floats, add, amounts, subtract
from hekla.engine.model.tasks import ALLOCATED, Job, Status, Task

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass

LABEL = "volcano.sh/nodegroup-name"
LIMITS = "volcano.sh/nodegroup-resource-limits"


class NodeGroupArguments(Arguments, frozen=True):
    strict: bool = True
    preferred_order: bool = msgspec.field(default=False, name="enablePreferredOrder")


@dataclass(frozen=True, slots=True)
class Affinity:
    """What a queue says about groups, by name."""

    required: tuple[str, ...]
    preferred: tuple[str, ...]
    anti_required: tuple[str, ...]
    anti_preferred: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.required or self.preferred or self.anti_required or self.anti_preferred)

    def allows(self, group: str) -> bool:
        """Later words override earlier ones, as upstream reads them."""
        allowed = group in self.required or group in self.preferred
        if group in self.anti_required:
            allowed = False
        return allowed or group in self.anti_preferred

    def score(self, group: str, ordered: bool) -> float:
        if group in self.anti_preferred:
            return -1.0
        result = 100.0 if group in self.required else 0.0
        if group in self.preferred:
            distinct = len(set(self.preferred))
            last = len(self.preferred) - 1 - self.preferred[::-1].index(group)
            result += 50.0 * (distinct - last) / distinct if ordered else 50.0
        return result


@dataclass(slots=True)
class Rules:
    """What holds for one queue in this cycle."""

    affinity: Affinity | None
    limits: Mapping[str, Amounts]
    broken: bool
    """The limit annotation cannot be read."""


class NodeGroup(Plugin):
    """One filter a reason, decided once a queue and group."""

    name = "nodegroup"
    Arguments = NodeGroupArguments
    arguments: NodeGroupArguments

    def open(self, session: CycleView) -> None:
        self.session = session
        self.rules: dict[str, Rules] = {}
        self.held: dict[tuple[str, str], Amounts] = {}
        limited = [
            queue.name for queue in session.state.queues.values() if LIMITS in queue.annotations
        ]
        for job in session.jobs() if limited else ():
            if job.queue in limited:
                for status in ALLOCATED:
                    for task in job.counts.statuses[status].values():
                        self._count(job, task.row, task.request.amounts, 1.0)

    def _group_of(self, row: int) -> str:
        column = self.session.state.nodes.labels(LABEL)
        code = int(column.codes[row]) if row >= 0 else ABSENT
        return "" if code == ABSENT else column.values[code]

    def _count(self, job: Job, row: int, request: Amounts, sign: float) -> None:
        group = self._group_of(row)
        if group:
            held = self.held.setdefault((job.queue, group), {})
            add(held, request) if sign > 0 else subtract(held, request)

    def _rules(self, task: Task | None) -> Rules:
        job = task.job if task is not None else None
        name = job.queue if job is not None else ""
        found = self.rules.get(name)
        if found is None:
            queue = self.session.state.queues.get(name)
            found = self.rules[name] = _read(queue, self._affinity(queue))
        return found

    def _affinity(self, queue: Queue | None) -> Affinity | None:
        seen: set[str] = set()
        while queue is not None and queue.name not in seen:
            if queue.affinity is not None:
                return _affinity(queue.affinity)
            if not self.flags.get("enableHierarchy", False) or queue.name == ROOT:
                return None
            seen.add(queue.name)
            queue = self.session.state.queues.get(queue.parent or ROOT)
        return None

    # -------------------------------------------------------------------------------------- filters

    def filters(self) -> Iterable[Filter]:
        reasons = {
            "node group resource limit annotation invalid": self._readable,
            "node group label not found": self._labelled,
            "node group affinity not specified": self._stated,
            "node does not satisfy the node group affinity": self._satisfied,
            "node group resource limit exceeded": self._within,
        }
        for reason, mask in reasons.items():
            yield Filter(f"nodegroup: {reason}", reason, Code.UNRESOLVABLE, Depends.CLUSTER, mask)

    def _per_group(
        self, nodes: NodeView, verdict: Callable[[str], bool], unlabelled: bool
    ) -> Bools:
        column = nodes.table.labels(LABEL)
        verdicts = np.array(
            [*(verdict(group) for group in column.values), unlabelled], dtype=np.bool_
        )
        return verdicts[nodes.take(nodes.table.label_codes(LABEL))]

    def _readable(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        return np.zeros(len(nodes), dtype=np.bool_) if self._rules(task).broken else None

    def _labelled(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        free = not self.arguments.strict and not self._rules(task).affinity
        return None if free else self._per_group(nodes, lambda group: True, unlabelled=False)

    def _stated(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if self._rules(task).affinity:
            return None
        return self._per_group(nodes, lambda group: False, unlabelled=True)

    def _satisfied(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        affinity = self._rules(task).affinity
        return self._per_group(nodes, affinity.allows, unlabelled=True) if affinity else None

    def _within(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        rules = self._rules(task)
        if not rules.limits or task is None or task.job is None:
            return None
        queue, request = task.job.queue, pods.request.amounts

        def holds(group: str) -> bool:
            held = self.held.get((queue, group), {})
            return all(
                held.get(name, 0.0) + request.get(name, 0.0) < limit + EPSILON
                for name, limit in rules.limits.get(group, {}).items()
            )

        return self._per_group(nodes, holds, unlabelled=True)

    # ----------------------------------------------------------------------------- score and events

    def scores(self) -> Iterable[Score]:
        yield Score("nodegroup", 1.0, Depends.STATIC, self._preferred, batch=False)

    def _preferred(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        affinity = self._rules(task).affinity
        if not affinity:
            return None
        column = nodes.table.labels(LABEL)
        scores = np.array(
            [
                *(affinity.score(group, self.arguments.preferred_order) for group in column.values),
                0.0,
            ]
        )
        return scores[nodes.take(nodes.table.label_codes(LABEL))]

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self._recount(job)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self._recount(job)

    def _recount(self, job: Job) -> None:
        """A batch goes to many nodes; what its queue holds in each group is counted anew, only
        where limits ask for it.

        What is promised to a pod until others have left counts like what it holds.
        """
        queue = self.session.state.queues.get(job.queue)
        if queue is None or LIMITS not in queue.annotations:
            return
        for key in [key for key in self.held if key[0] == job.queue]:
            del self.held[key]
        for other in self.session.jobs():
            if other.queue == job.queue:
                for status in (*ALLOCATED, Status.PIPELINED):
                    for task in other.counts.statuses[status].values():
                        self._count(other, task.row, task.request.amounts, 1.0)


def _affinity(tree: Tree) -> Affinity:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    toward, away = tree.get("nodeGroupAffinity") or {}, tree.get("nodeGroupAntiAffinity") or {}
    return Affinity(
        tuple(toward.get(required) or ()),
        tuple(toward.get(preferred) or ()),
        tuple(away.get(required) or ()),
        tuple(away.get(preferred) or ()),
    )


def _read(queue: Queue | None, affinity: Affinity | None) -> Rules:
    text = queue.annotations.get(LIMITS, "") if queue is not None else ""
    if not text:
        return Rules(affinity, {}, False)
    try:
        limits = {}
        for group, listed in (json.loads(text) or {}).items():
            made = amounts(listed)
            limits[str(group)] = {name: made[name] for name in made if name in listed}
    except (ValueError, AttributeError, TypeError):
        return Rules(affinity, {}, True)
    return Rules(affinity, limits, False)
