"""An eviction, what became of it, and how many a cycle may have.  Reference: descheduler 10."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hekla.descheduler.tables import Pod

if TYPE_CHECKING:
    from hekla.descheduler.policy.policy import Policy


class Outcome(StrEnum):
    """What became of an eviction; the values are those of the metric's label `result`."""

    EVICTED = "success"
    FAILED = "error"
    REFUSED = "refused before eviction"
    PER_NODE = "maximum number of pods per node reached"
    PER_NAMESPACE = "maximum number of pods per namespace reached"
    TOTAL = "maximum number of pods per cycle reached"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that is to go, and what for."""

    pod: Pod
    strategy: str
    profile: str
    reason: str


Steps = Generator[Eviction, bool, None]
"""A plugin at work: gives evictions, and hears of each whether the API server took it."""


class Limits:
    """What the cycle may still evict; all profiles share it."""

    def __init__(
        self,
        per_node: int | None = None,
        per_namespace: int | None = None,
        total: int | None = None,
    ) -> None:
        self._per_node, self._per_namespace, self._total = per_node, per_namespace, total
        self._of_node: Counter[str] = Counter()
        self._of_namespace: Counter[str] = Counter()
        self.evicted = 0

    @classmethod
    def of(cls, policy: Policy) -> Limits:
        return cls(policy.most_per_node, policy.most_per_namespace, policy.most)

    def reached(self, pod: Pod) -> Outcome | None:
        """Which limit forbids to evict this pod."""
        if self._per_node is not None and self._of_node[pod.node] >= self._per_node:
            return Outcome.PER_NODE
        if (
            self._per_namespace is not None
            and self._of_namespace[pod.namespace] >= self._per_namespace
        ):
            return Outcome.PER_NAMESPACE
        if self._total is not None and self.evicted >= self._total:
            return Outcome.TOTAL
        return None

    def reached_by(self, pods: Iterable[Pod]) -> Outcome | None:
        """Which limit forbids to evict all of these."""
        trial = Limits(self._per_node, self._per_namespace, self._total)
        trial._of_node, trial._of_namespace = self._of_node.copy(), self._of_namespace.copy()
        trial.evicted = self.evicted
        for pod in pods:
            outcome = trial.reached(pod)
            if outcome is not None:
                return outcome
            trial.count(pod)
        return None

    def count(self, pod: Pod) -> None:
        self._of_node[pod.node] += 1
        self._of_namespace[pod.namespace] += 1
        self.evicted += 1
