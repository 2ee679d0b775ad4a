"""Nodes as filters and scores see them: rows of the table, with pods that nobody has placed yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hekla.engine.model.arrays import Bools, Rows, Scalar
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.resources import EPSILON, Floats, Request


class NodeView:
    """Some rows of the table, as they would be after `extra` more pods of one class were placed on
    each.

    `extra` is one number, or one for each row of the view, in which a row may then stand several
    times. Scores and filters that depend on a node's load read this, so the same code answers for
    all nodes now, for one node after a placement, and for a node after three more placements that
    nobody has made yet.
    """

    __slots__ = ("_imagines", "_pipelining", "_request", "_taken", "extra", "rows", "table")

    def __init__(
        self,
        table: NodeTable,
        rows: Rows | None = None,
        request: Request | None = None,
        extra: int | Rows = 0,
        pipelining: bool = False,
    ) -> None:
        self.table = table
        self.rows = rows
        self._request = request
        self.extra = extra
        """How many pods of the class are imagined on every row, or on each."""
        self._imagines = not isinstance(extra, int) or extra > 0
        self._pipelining = pipelining
        self._taken: dict[tuple[str, int], Floats] = {}

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    def take(self, column: NDArray[Scalar]) -> NDArray[Scalar]:
        """The rows of this view out of a column over all nodes."""
        return column if self.rows is None else column.take(self.rows, axis=-1)

    def _once(self, what: str, columns: Floats, column: int) -> Floats:
        """One resource out of a part of the table, gathered once: filters and scores ask for the
        same few."""
        if self.rows is None:
            whole: Floats = columns[column]
            return whole
        known = self._taken.get((what, column))
        if known is None:
            known = self._taken[what, column] = columns[column].take(self.rows)
        return known

    def allocatable(self, column: int) -> Floats:
        """`[rows]` of one resource."""
        return self._once("allocatable", self.table.allocatable, column)

    def used(self, column: int) -> Floats:
        """`[rows]` of one resource: held now, plus the imagined pods unless they are only promised."""
        base = self._once("used", self.table.used, column)
        if self._imagines and not self._pipelining:
            base = base + self._value(column) * self.extra
        return base

    def requested(self, column: int) -> Floats:
        """`[rows]` of one resource: held or promised, as Kubernetes' own scores count it."""
        base = self._once("requested", self.table.requested, column)
        if self._imagines:
            base = base + self._value(column) * self.extra
        return base

    def nonzero(self, which: int) -> Floats:
        """`[rows]`: cpu (0) or memory (1) with the small default for containers that name none."""
        base = self.take(self.table.nonzero[which])
        if self._imagines and self._request is not None:
            base = base + self._request.nonzero[which] * self.extra
        return base

    def pods(self) -> NDArray[np.int64]:
        """`[rows]`: how many pods are there."""
        base: NDArray[np.int64] = self.take(self.table.pods)
        return base + self.extra if self._imagines else base

    def fits(self, request: Request, future: bool) -> Bools:
        """`[rows]`: room for one more request, now or once the releasing have gone."""
        table = self.table
        result: Bools | None = None
        for column, value in request:
            free = self.allocatable(column) - self._once("used", table.used, column)
            if future:
                free = (
                    free
                    + self._once("releasing", table.releasing, column)
                    - self._once("pipelined", table.pipelined, column)
                )
            if self._imagines and (future or not self._pipelining):
                free = free - self._value(column) * self.extra
            fits = value < free + EPSILON
            result = fits if result is None else result & fits
        return np.ones(len(self), dtype=np.bool_) if result is None else result

    def _value(self, column: int) -> float:
        if self._request is not None:
            for other, value in self._request:
                if other == column:
                    return value
        return 0.0
