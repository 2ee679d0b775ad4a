"""Which nodes would take a pod by the scheduler's plain rules, less the room that this cycle has promised.

Reference: descheduler 9.2.  Rows are nodes; what a placement admits is asked once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hekla.api.kubernetes.placement import Toleration
from hekla.api.selectors import SelectorError, matches_node
from hekla.descheduler.tables import PODS, Amounts, Node, Placement, Pod, Taint

Bools = NDArray[np.bool_]
HARD = ("NoSchedule", "NoExecute")
EPSILON = 1e-6


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(
        (not one.effect or one.effect == taint.effect)
        and (not one.key or one.key == taint.key)
        and (one.operator == "Exists" or (bool(one.key) and one.value == taint.value))
        for one in tolerations
    )


def untolerated(placement: Placement, node: Node, effects: Sequence[str] = HARD) -> Taint | None:
    """A taint of the node with one of these effects that the pod does not tolerate."""
    for taint in node.taints:
        if taint.effect in effects and not tolerates(placement.tolerations, taint):
            return taint
    return None


def selects(placement: Placement, node: Node) -> bool:
    """Whether the node is one that the pod's selector and required affinity name."""
    if any(node.labels.get(key) != value for key, value in placement.node_selector):
        return False
    try:
        return placement.affinity is None or matches_node(
            placement.affinity, node.name, node.labels
        )
    except SelectorError:
        return False  # the scheduler would not place it either


def admits(placement: Placement, node: Node) -> bool:
    """Whether a pod may be on the node, apart from room."""
    return (
        not node.unschedulable and untolerated(placement, node) is None and selects(placement, node)
    )


class Fit:
    """The nodes that are ready, and what is free there."""

    def __init__(self, nodes: Sequence[Node], requested: Mapping[str, Amounts]) -> None:
        self.nodes = nodes
        self.rows = {node.name: row for row, node in enumerate(nodes)}
        self._columns: dict[str, int] = {PODS: 0}
        for node in nodes:
            for name in node.base:
                self._columns.setdefault(name, len(self._columns))
        self._free = np.zeros((len(nodes), len(self._columns)))
        for row, node in enumerate(nodes):
            taken = requested.get(node.name, {})
            for name, amount in node.base.items():
                self._free[row, self._columns[name]] = amount - taken.get(name, 0.0)
        self._admitted: dict[Placement, Bools] = {}

    def admitting(self, placement: Placement) -> Bools:
        """The nodes that the placement allows."""
        mask = self._admitted.get(placement)
        if mask is None:
            mask = self._admitted[placement] = np.fromiter(
                (admits(placement, node) for node in self.nodes), np.bool_, len(self.nodes)
            )
        return mask

    def taking(self, pod: Pod, among: Bools | None = None) -> Bools:
        """The nodes other than its own that would take the pod now."""
        mask: Bools = self.admitting(pod.placement) & (self._free[:, 0] >= 1 - EPSILON)
        if among is not None:
            mask &= among
        own = self.rows.get(pod.node)
        if own is not None:
            mask[own] = False
        for name, amount in pod.requests.items():
            if amount <= 0:
                continue
            column = self._columns.get(name)
            if column is None:
                return np.zeros(len(self.nodes), np.bool_)
            mask &= self._free[:, column] >= amount - EPSILON
        return mask

    def destination(self, pod: Pod, among: Bools | None = None) -> int | None:
        """The row of a node that would take the pod: of those, one with the most free slots for pods.
        None without any."""
        mask = self.taking(pod, among)
        if not mask.any():
            return None
        return int(np.argmax(np.where(mask, self._free[:, 0], -1.0)))

    def destinations(self, pods: Sequence[Pod], among: Bools | None = None) -> list[int] | None:
        """A row for each of these, all at once and none of them where it is; None if they do not fit."""
        free = self._free.copy()
        try:
            rows = []
            for pod in pods:
                row = self.destination(pod, among)
                if row is None:
                    return None
                self.book(pod, row)
                rows.append(row)
            return rows
        finally:
            self._free = free

    def book(self, pod: Pod, row: int) -> None:
        """Keep the room for the pod to come."""
        self._add(pod, row, -1.0)

    def release(self, pod: Pod) -> None:
        """Give back what the pod had on its node."""
        row = self.rows.get(pod.node)
        if row is not None and pod.counts:
            self._add(pod, row, 1.0)

    def _add(self, pod: Pod, row: int, times: float) -> None:
        self._free[row, 0] += times
        for name, amount in pod.requests.items():
            column = self._columns.get(name)
            if column:
                self._free[row, column] += times * amount
