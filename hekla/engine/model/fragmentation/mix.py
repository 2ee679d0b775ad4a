"""The mix of pod shapes: which shapes come, and how often, learned from the pods that came.

Each pod counts half as much once `HALF` more have come, so no clock is needed, and the same pods in
the same order give the same mix.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from hekla.engine.model.podclass import PodClass
from hekla.engine.model.tasks import Task

HALF = 10_000
"""Pods after which a pod counts half."""
COVERED = 0.95
"""The most popular shapes that are so much of the mix stand for all of it, and
`MOST` of them at the most."""
MOST = 64
_KEPT = 4096
_HUGE = 1e12


class Popular(NamedTuple):
    """One shape of the mix, by one of its pod classes, and its part of the mix, 0 to 1."""

    pods: PodClass
    popularity: float


class ShapeMix:
    """Weights of shapes.  Pods that ask for the same on the same nodes are of one shape."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self.weights: dict[Hashable, float] = {}
        self.classes: dict[Hashable, PodClass] = {}
        self.total = 0.0
        self.version = 0
        """How many pods have come."""
        self._next = 1.0
        """What the next pod weighs: more than the last, in place of less for those before it."""
        self._growth = 2.0 ** (1.0 / HALF)
        for task in sorted(tasks, key=lambda one: (one.creation, one.key)):
            self.came(task.pods)

    def came(self, pods: PodClass) -> None:
        """A pod of this class came."""
        key = shape_of(pods)
        self.classes[key] = pods
        self.weights[key] = self.weights.get(key, 0.0) + self._next
        self.total += self._next
        self.version += 1
        self._next *= self._growth
        if self._next > _HUGE or len(self.weights) > 2 * _KEPT:
            self._rescale()

    def _rescale(self) -> None:
        """Make the next pod weigh 1 again, and forget the rarest of very many shapes."""
        kept = sorted(self.weights.items(), key=lambda one: -one[1])[:_KEPT]
        self.weights = {key: weight / self._next for key, weight in kept}
        self.classes = {key: self.classes[key] for key in self.weights}
        self.total = sum(self.weights.values())
        self._next = 1.0

    def popular(self) -> list[Popular]:
        """The most popular shapes first, their popularity 1 together; of equal ones, first the one
        that came first."""
        found: list[Popular] = []
        covered = 0.0
        for key, weight in sorted(self.weights.items(), key=lambda one: -one[1]):
            if covered >= COVERED * self.total or len(found) == MOST:
                break
            covered += weight
            found.append(Popular(self.classes[key], weight))
        return [one._replace(popularity=one.popularity / covered) for one in found]


def shape_of(pods: PodClass) -> Hashable:
    """What tells shapes apart: amounts, and which nodes will do."""
    return (
        tuple(sorted(pods.request.amounts.items())),
        pods.node_selector,
        pods.node_terms,
        pods.tolerations,
    )
