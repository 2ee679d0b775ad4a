"""pdb: no more pods are evicted than their PodDisruptionBudgets allow.  Reference: plugins-fairness 10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hekla.engine import matching
from hekla.engine.plugin import Plugin, Victims
from hekla.engine.tasks import Task

if TYPE_CHECKING:
    from hekla.engine.session import Session


class Pdb(Plugin):
    """Counts budgets down over the candidates, in their order; one that would overdraw a budget is spared."""

    name = "pdb"

    def open(self, session: Session) -> None:
        self.budgets: dict[str, tuple[str, matching.LabelSelector, int, frozenset[str]]] = {}
        for key, tree in session.state.others.get("PodDisruptionBudget", {}).items():
            budget = _budget(tree)
            if budget is not None:
                self.budgets[key] = budget

    def _within(self, candidates: list[Task]) -> list[Task]:
        left = {key: allowed for key, (_, _, allowed, _) in self.budgets.items()}
        chosen = []
        for task in candidates:
            labels = task.labels.labels
            if not labels:
                continue
            violates = False
            for key, (namespace, selector, _, disrupted) in self.budgets.items():
                if namespace != task.namespace or task.name in disrupted or not selector.matches(labels):
                    continue
                left[key] -= 1
                violates = violates or left[key] < 0
            if not violates:
                chosen.append(task)
        return chosen

    def preemptable(self, claimer: Task, candidates: list[Task]) -> Victims:
        return Victims(self._within(candidates))

    reclaimable = preemptable

    def victim_tasks(self, candidates: list[Task]) -> list[Task]:
        return self._within(candidates)


def _budget(tree: Any) -> tuple[str, matching.LabelSelector, int, frozenset[str]] | None:
    status = tree.get("status") or {}
    try:
        selector = matching.label_selector((tree.get("spec") or {}).get("selector"))
    except ValueError:
        return None
    if selector is None or not selector.requirements:
        return None
    namespace = (tree.get("metadata") or {}).get("namespace", "")
    disrupted = frozenset(status.get("disruptedPods") or ())
    return namespace, selector, int(status.get("disruptionsAllowed", 0) or 0), disrupted
