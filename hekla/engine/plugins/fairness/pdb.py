"""pdb: no more pods are evicted than their PodDisruptionBudgets allow.  Reference: plugins-fairness
10."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Plugin, Reads, Source, Victims
from hekla.engine.model import matching
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import Job, Status, Task

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView


class PdbArguments(Arguments, frozen=True):
    unlabelled_may_go: bool = msgspec.field(default=False, name="pdb.evictUnlabelled")


class Pdb(Plugin):
    """Counts budgets down over the candidates, in their order; one that would overdraw a budget is
    spared."""

    name = "pdb"
    Arguments = PdbArguments
    arguments: PdbArguments
    reads = Reads(victims=Source.PREEMPTOR, between_placements=Source.JOBS)
    spares_victims = True

    def open(self, session: CycleView) -> None:
        self.going: dict[str, Task] = {}
        """Whom this cycle evicts already: their budgets do not know it yet."""
        self.budgets: dict[str, tuple[str, matching.LabelSelector, int, frozenset[str]]] = {}
        for key, tree in session.state.others.get("PodDisruptionBudget", {}).items():
            budget = _budget(tree)
            if budget is not None:
                self.budgets[key] = budget

    def _within(self, candidates: list[Task]) -> list[Task]:
        left = {key: allowed for key, (_, _, allowed, _) in self.budgets.items()}
        for task in self.going.values():
            self._violates(task, left)
        unlabelled = self.arguments.unlabelled_may_go
        return [
            task
            for task in candidates
            if (unlabelled or task.labels.labels) and not self._violates(task, left)
        ]

    def _violates(self, task: Task, left: dict[str, int]) -> bool:
        """Counts the task in; whether a budget is overdrawn by it."""
        result = False
        for key, (namespace, selector, _, disrupted) in self.budgets.items():
            if (
                namespace == task.namespace
                and task.name not in disrupted
                and selector.matches(task.labels.labels)
            ):
                left[key] -= 1
                result = result or left[key] < 0
        return result

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status is Status.RELEASING:
            self.going[task.key] = task

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self.going.pop(task.key, None)

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return Victims(self._within(candidates))

    reclaimable = preemptable

    def victim_tasks(self, candidates: list[Task]) -> list[Task]:
        return self._within(candidates)


def _budget(tree: Tree) -> tuple[str, matching.LabelSelector, int, frozenset[str]] | None:
    try:
        status = tree.get("status") or {}
        allowed = int(status.get("disruptionsAllowed", 0) or 0)
        selector = matching.label_selector((tree.get("spec") or {}).get("selector"))
    except (AttributeError, TypeError, ValueError):
        return None
    if selector is None or not selector.requirements:
        return None
    namespace = (tree.get("metadata") or {}).get("namespace", "")
    disrupted = frozenset(status.get("disruptedPods") or ())
    return namespace, selector, allowed, disrupted
