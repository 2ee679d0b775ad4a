"""An eviction, what became of it, and how many a cycle may have.  Reference: descheduler 10."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hekla.descheduler.tables import Owner, Pod

if TYPE_CHECKING:
    from hekla.descheduler.policy.policy import Policy


class Outcome(StrEnum):
    """What became of an eviction; the values are those of the metric's label `result`."""

    EVICTED = "success"
    FAILED = "error"
    REFUSED = "refused before eviction"
    PER_NODE = "maximum number of pods per node reached"
    PER_NAMESPACE = "maximum number of pods per namespace reached"
    PER_OWNER = "maximum number of pods per owner reached"
    TOTAL = "maximum number of pods per cycle reached"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that is to go, and what for."""

    pod: Pod
    strategy: str
    profile: str
    reason: str
    grace: int | None = None
    """Seconds that the pod, or its PodGroup, asks for to end; None where they say nothing."""


Steps = Generator[Eviction, bool, None]
"""A plugin at work: gives evictions, and hears of each whether the API server took it."""


class Limits:
    """What the cycle may still evict; all profiles share it."""

    def __init__(
        self,
        per_node: int | None = None,
        per_namespace: int | None = None,
        total: int | None = None,
        per_owner: int | None = None,
    ) -> None:
        self._per_node, self._per_namespace, self._total = per_node, per_namespace, total
        self._per_owner = per_owner
        self._of_node: Counter[str] = Counter()
        self._of_namespace: Counter[str] = Counter()
        self._of_owner: Counter[tuple[str, Owner]] = Counter()
        self.evicted = 0

    @classmethod
    def of(cls, policy: Policy) -> Limits:
        return cls(
            policy.most_per_node, policy.most_per_namespace, policy.most, policy.most_per_owner
        )

    def reached(self, pod: Pod) -> Outcome | None:
        """Which limit forbids to evict this pod."""
        if self._per_node is not None and self._of_node[pod.node] >= self._per_node:
            return Outcome.PER_NODE
        if (
            self._per_namespace is not None
            and self._of_namespace[pod.namespace] >= self._per_namespace
        ):
            return Outcome.PER_NAMESPACE
        if self._per_owner is not None and any(
            self._of_owner[pod.namespace, owner] >= self._per_owner for owner in pod.owners
        ):
            return Outcome.PER_OWNER
        if self._total is not None and self.evicted >= self._total:
            return Outcome.TOTAL
        return None

    def reached_by(self, pods: Iterable[Pod]) -> Outcome | None:
        """Which limit forbids to evict all of these."""
        trial = Limits(self._per_node, self._per_namespace, self._total, self._per_owner)
        trial._of_node, trial._of_namespace = self._of_node.copy(), self._of_namespace.copy()
        trial._of_owner, trial.evicted = self._of_owner.copy(), self.evicted
        for pod in pods:
            outcome = trial.reached(pod)
            if outcome is not None:
                return outcome
            trial.count(pod)
        return None

    def count(self, pod: Pod) -> None:
        self._of_node[pod.node] += 1
        self._of_namespace[pod.namespace] += 1
        self._of_owner.update((pod.namespace, owner) for owner in pod.owners)
        self.evicted += 1
