"""nodeorder: the scores that Kubernetes' own scheduler has.  Reference: plugins-placement 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from hekla.engine.framework.plugin import (
    MAX_SCORE,
    Arguments,
    Depends,
    Normalise,
    Plugin,
    Reads,
    Score,
    Source,
)
from hekla.engine.model import matching
from hekla.engine.model.arrays import Bools, Scalar
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import domain_sums
from hekla.engine.model.resources import CPU, MEMORY, Floats
from hekla.engine.plugins.placement import evenness

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Task

_GPU = "nvidia.com/gpu"
_MIB = 1024.0 * 1024
_IMAGE_FLOOR, _IMAGE_CEILING = 23 * _MIB, 1000 * _MIB


class NodeOrderArguments(Arguments, frozen=True):
    least: int = msgspec.field(default=1, name="leastrequested.weight")
    most: int = msgspec.field(default=0, name="mostrequested.weight")
    balanced: int = msgspec.field(default=1, name="balancedresource.weight")
    node_affinity: int = msgspec.field(default=2, name="nodeaffinity.weight")
    pod_affinity: int = msgspec.field(default=2, name="podaffinity.weight")
    taints: int = msgspec.field(default=3, name="tainttoleration.weight")
    spread: int = msgspec.field(default=2, name="podtopologyspread.weight")
    image: int = msgspec.field(default=1, name="imagelocality.weight")


class NodeOrder(Plugin):
    """Emptier, more balanced, preferred, near or far from others by preferred terms, with the images at
    hand."""

    name = "nodeorder"
    Arguments = NodeOrderArguments
    arguments: NodeOrderArguments
    reads = Reads(nodes=Source.NODES)

    def open(self, session: CycleView) -> None:
        self.terms = session.state.terms

    def close(self, session: CycleView) -> None:
        session.state.terms.peers.rest()

    def scores(self) -> Iterable[Score]:
        weights: NodeOrderArguments = self.arguments
        row, static, cluster = Depends.NODE_ROW, Depends.STATIC, Depends.CLUSTER
        yield Score("imagelocality", weights.image, static, _image_locality, batch=False)
        yield Score("leastrequested", weights.least, row, _least_allocated)
        yield Score("mostrequested", weights.most, row, _most_allocated)
        yield Score("balancedresource", weights.balanced, row, _balanced)
        yield Score("nodeaffinity", weights.node_affinity, static, _node_affinity, Normalise.MAX)
        yield Score(
            "podaffinity", weights.pod_affinity, cluster, self._pod_affinity, Normalise.SPAN
        )
        yield Score("tainttoleration", weights.taints, static, _taints, Normalise.MAX_REVERSED)
        yield Score(
            "podtopologyspread",
            weights.spread,
            Depends.PEERS,
            evenness.raw,
            running=evenness.running,
        )

    def _pod_affinity(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        """Weights of the pods around, both by this pod's preferred terms and by theirs."""
        table = nodes.table
        total: Floats | None = None
        for weight, term in pods.preferences:
            total = self._add(total, nodes, term.key, term.matched, weight)
        for term in task.labels.terms if task is not None else ():
            if term.pull_any:
                total = self._add(total, nodes, term.key, term.pull, 1.0)
        if total is None and len(table) and pods.preferences:
            return np.zeros(len(nodes))
        return total

    @staticmethod
    def _add(
        total: Floats | None, nodes: NodeView, key: str, column: NDArray[Scalar], weight: float
    ) -> Floats:
        table = nodes.table
        codes = table.label_codes(key)
        counts = np.zeros(len(table))
        known = min(len(column), len(table))
        counts[:known] = column[:known]
        sums = np.append(domain_sums(codes, counts), 0.0) * weight
        part: Floats = sums[nodes.take(codes)]
        return part if total is None else total + part


def _asked(pods: PodClass) -> tuple[tuple[str, float], tuple[str, float]]:
    return (CPU, pods.request.nonzero[0]), (MEMORY, pods.request.nonzero[1])


def _least_allocated(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
    total: Floats = np.zeros(len(nodes))
    weights: Floats = np.zeros(len(nodes))
    for which, (name, asked) in enumerate(_asked(pods)):
        allocatable = nodes.allocatable(nodes.table.space.column(name))
        wanted = nodes.nonzero(which) + asked
        has = allocatable > 0
        free = np.floor((allocatable - wanted) * MAX_SCORE / np.where(has, allocatable, 1.0))
        total += np.where(has & (wanted <= allocatable), free, 0.0)
        weights += has
    return np.floor(total / np.maximum(weights, 1.0))


def _most_allocated(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
    total: Floats = np.zeros(len(nodes))
    weights: Floats = np.zeros(len(nodes))
    for which, (name, asked) in enumerate(_asked(pods)):
        allocatable = nodes.allocatable(nodes.table.space.column(name))
        has = allocatable > 0
        wanted = np.minimum(nodes.nonzero(which) + asked, allocatable)
        total += np.where(has, np.floor(wanted * MAX_SCORE / np.where(has, allocatable, 1.0)), 0.0)
        weights += has
    return np.floor(total / np.maximum(weights, 1.0))


def _balanced(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
    """How much better the node's resources would be in balance; 75 is no change."""
    request = pods.request.amounts
    names = [CPU, MEMORY]
    if request.get(_GPU, 0.0) > 0:
        names.append(_GPU)
    if not any(request.get(name, 0.0) > 0 for name in names):
        return None
    before, after = [], []
    present = []
    for name in names:
        column = nodes.table.space.column(name)
        allocatable = nodes.allocatable(column)
        has = allocatable > 0
        safe = np.where(has, allocatable, 1.0)
        requested = nodes.requested(column)
        before.append(np.where(has, np.minimum(requested / safe, 1.0), 0.0))
        after.append(
            np.where(has, np.minimum((requested + request.get(name, 0.0)) / safe, 1.0), 0.0)
        )
        present.append(has)
    gain = _balance(after, present) - _balance(before, present)
    return 50.0 + np.trunc((50.0 + gain) / 2.0)


def _balance(fractions: list[Floats], present: list[Bools]) -> Floats:
    if len(fractions) == 2:
        spread: Floats = np.where(
            present[0] & present[1], np.abs(fractions[0] - fractions[1]) / 2.0, 0.0
        )
    else:
        stacked, there = np.stack(fractions), np.stack(present)
        count = np.maximum(there.sum(axis=0), 1)
        mean = stacked.sum(axis=0) / count
        squares = np.where(there, (stacked - mean) ** 2, 0.0).sum(axis=0) / count
        spread = np.where(there.sum(axis=0) > 1, np.sqrt(squares), 0.0)
    return np.trunc((1.0 - spread) * MAX_SCORE)


def _node_affinity(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
    if not pods.node_preferences:
        return None

    def compute() -> Floats:
        total: Floats = np.zeros(len(nodes.table))
        for weight, term in pods.node_preferences:
            total += weight * term.mask(nodes.table)
        return total

    return nodes.take(pods.static("nodeaffinity", nodes.table, compute))


def _taints(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
    if len(nodes.table.taint_sets) == 1:
        return None  # No taints anywhere: the same for every node.
    return nodes.take(matching.soft_taints_count(nodes.table, pods.tolerations))


def _image_locality(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
    table = nodes.table
    if not pods.images or not any(image in table.images for image in pods.images):
        return None

    def compute() -> Floats:
        total: Floats = np.zeros(len(table))
        count = max(int(table.ready.sum()), 1)
        for image in pods.images:
            size, rows = table.images.get(image, (0, set()))
            if rows:
                total[list(rows)] += int(size * (len(rows) / count))
        ceiling = _IMAGE_CEILING * pods.without_init
        clamped = np.clip(total, _IMAGE_FLOOR, ceiling)
        return np.floor(MAX_SCORE * (clamped - _IMAGE_FLOOR) / (ceiling - _IMAGE_FLOOR))

    return nodes.take(pods.static("imagelocality", table, compute))
