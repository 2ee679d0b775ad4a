"""The nodes as a table: one column an attribute, one row a node, changed in place.

Resource columns are `[resources, nodes]` with each resource contiguous, because every question of a
placement runs over all nodes for one resource.  Labels and taints are interned codes, so a selector
is a compare of integers.  A row whose node was deleted stays, not ready, until the table is
compacted: row numbers are held by tasks. Reference: scheduler-core 2.11.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.engine.model.arrays import Bools, Ints, Rows
from hekla.engine.model.resources import EPSILON, Amounts, Floats, Request, ResourceSpace
from hekla.engine.model.tasks import Status, Task

if TYPE_CHECKING:
    from hekla.engine.model.podclass import TermTable


ABSENT = -1
ENDLESS = 1e15
NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.value else self.key


class LabelColumn:
    """One label key over all nodes: a code a node (-1 where it is absent) and what each code stands
    for."""

    __slots__ = ("codes", "index", "values")

    def __init__(self, capacity: int) -> None:
        self.codes: Ints = np.full(capacity, ABSENT, dtype=np.int32)
        self.values: list[str] = []
        self.index: dict[str, int] = {}

    def code(self, value: str) -> int:
        found = self.index.get(value)
        if found is None:
            found = self.index[value] = len(self.values)
            self.values.append(value)
        return found


@dataclass(slots=True)
class NodeFacts:
    """What a node object says, in the engine's words; the state makes it from the wire object."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Amounts
    capacity: Amounts = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Lent:
    """A resource that most nodes have from elsewhere, such as devices that a driver offers."""

    amounts: dict[str, float]
    """Node -> how much of it is to be had there."""
    own: set[int] = field(default_factory=set)
    """Rows of nodes that say themselves how much they have: there that holds, and nothing else."""


class NodeTable:
    """All nodes.  Everything public is a slice over `[:count]`, views into the growing columns."""

    def __init__(self, space: ResourceSpace, terms: TermTable, capacity: int = 64) -> None:
        self.space = space
        self.terms = terms
        self.names: list[str] = []
        self.rows: dict[str, int] = {}
        self.facts: list[NodeFacts | None] = []
        self.tasks: list[dict[str, Task]] = []
        self.ports: dict[int, dict[tuple[str, str, int], int]] = {}
        """Host ports in use: row -> (ip, protocol, port) -> how many pods."""
        self.images: dict[str, tuple[int, set[int]]] = {}
        """Image name -> size in bytes and the rows that have it."""
        self.log: list[int] = []
        """Rows that changed since the last cycle began: the row for a pod that came, its complement
        for anything else."""
        self.version = 0
        """Goes up when anything about any node changes."""
        self.clock = 0
        """The last stamp given: see `stamps`."""
        self.static_version = 0
        """Goes up when a node object changes: what a class computed from labels, taints or images
        is stale."""
        self.dead = 0
        self.unbounded: set[int] = set()
        """Columns of what no node runs out of, because something else than the node keeps account
        of it."""
        self.lent: dict[str, Lent] = {}
        self._labels: dict[str, LabelColumn] = {}
        self._taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_index: dict[tuple[Taint, ...], int] = {(): 0}
        self._width = max(len(space), 4)
        self._capacity = capacity
        self._allocatable = np.zeros((self._width, capacity))
        self._used = np.zeros((self._width, capacity))
        self._releasing = np.zeros((self._width, capacity))
        self._pipelined = np.zeros((self._width, capacity))
        self._requested = np.zeros((self._width, capacity))
        self._nonzero = np.zeros((2, capacity))
        self._pods = np.zeros(capacity, dtype=np.int64)
        self._ready = np.zeros(capacity, dtype=np.bool_)
        self._unschedulable = np.zeros(capacity, dtype=np.bool_)
        self._taints = np.zeros(capacity, dtype=np.int32)
        self._stamps = np.zeros(capacity, dtype=np.int64)

    # -------------------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        return len(self.names)

    @property
    def allocatable(self) -> Floats:
        """`[resources, nodes]`, oversubscription included."""
        return self._allocatable[: len(self.space), : len(self.names)]

    @property
    def used(self) -> Floats:
        """`[resources, nodes]`: held by tasks, the releasing ones too, the pipelined ones not."""
        return self._used[: len(self.space), : len(self.names)]

    @property
    def releasing(self) -> Floats:
        """`[resources, nodes]`: held by tasks that are on their way out."""
        return self._releasing[: len(self.space), : len(self.names)]

    @property
    def pipelined(self) -> Floats:
        """`[resources, nodes]`: promised to tasks that wait for others to leave."""
        return self._pipelined[: len(self.space), : len(self.names)]

    @property
    def requested(self) -> Floats:
        """`[resources, nodes]`: of every pod that is there or promised and not evicted in this
        cycle."""
        return self._requested[: len(self.space), : len(self.names)]

    @property
    def nonzero(self) -> Floats:
        """`[2, nodes]`: cpu and memory of all pods as the load scores count them."""
        return self._nonzero[:, : len(self.names)]

    @property
    def pods(self) -> NDArray[np.int64]:
        """`[nodes]`: how many pods are there, promised ones included."""
        return self._pods[: len(self.names)]

    @property
    def stamps(self) -> NDArray[np.int64]:
        """`[nodes]`: another number whenever the node's object or the pods shown on it change;
        never given twice."""
        return self._stamps[: len(self.names)]

    def mark(self, row: Rows | int) -> None:
        """Something that is worked out from the pods of these nodes has to be worked out again."""
        self.clock += 1
        self._stamps[row] = self.clock

    @property
    def ready(self) -> Bools:
        """`[nodes]`: there is a node object."""
        return self._ready[: len(self.names)]

    @property
    def unschedulable(self) -> Bools:
        """`[nodes]`: cordoned."""
        return self._unschedulable[: len(self.names)]

    @property
    def taint_codes(self) -> Ints:
        """`[nodes]`: index into `taint_sets`."""
        return self._taints[: len(self.names)]

    @property
    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        """Every distinct list of taints seen."""
        return self._taint_sets

    def capacity(self, column: int) -> Floats:
        """`[nodes]` of one resource: what the node has in all; what it can give away where it does
        not say."""
        name = self.space.names[column]
        stated = (
            facts.capacity.get(name, 0.0) if facts is not None else 0.0 for facts in self.facts
        )
        whole: Floats = np.fromiter(stated, dtype=np.float64, count=len(self.facts))
        return np.where(whole > 0, whole, self.allocatable[column])

    def idle(self) -> Floats:
        """`[resources, nodes]`, fresh: what is free now."""
        return self.allocatable - self.used

    def future_idle(self) -> Floats:
        """`[resources, nodes]`, fresh: what is free once the releasing have gone and the promised
        have come."""
        return self.allocatable - self.used + self.releasing - self.pipelined

    def idle_of(self, row: int) -> Amounts:
        return self.space.amounts(self.allocatable[:, row] - self.used[:, row])

    def future_idle_of(self, row: int) -> Floats:
        """`[resources]` of one node."""
        return (
            self.allocatable[:, row]
            - self.used[:, row]
            + self.releasing[:, row]
            - self.pipelined[:, row]
        )

    def fits_future(self, row: int, request: Request) -> bool:
        """Whether one node has room for the request once the releasing have gone."""
        free = self.future_idle_of(row)
        return all(value < free[column] + EPSILON for column, value in request)

    def fits_idle(self, row: int, request: Request) -> bool:
        return all(
            value < self._allocatable[column, row] - self._used[column, row] + EPSILON
            for column, value in request
        )

    def labels(self, key: str) -> LabelColumn:
        """The column of one label key, made when somebody first asks."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = LabelColumn(self._capacity)
            for row, facts in enumerate(self.facts):
                if facts is not None and key in facts.labels:
                    column.codes[row] = column.code(facts.labels[key])
        return column

    def label_codes(self, key: str) -> Ints:
        """`[nodes]`: codes of one label key."""
        return self.labels(key).codes[: len(self.names)]

    def total(self) -> Amounts:
        """What all ready nodes have together."""
        ready = self.ready
        whole = self.allocatable if ready.all() else self.allocatable[:, ready]
        return self.space.amounts(whole.sum(axis=1))

    # --------------------------------------------------------------------------------- node objects

    def row(self, name: str) -> int:
        """The row of a node, made (not ready) when the name is new."""
        row = self.rows.get(name)
        if row is not None:
            return row
        row = len(self.names)
        if row == self._capacity:
            self._grow_rows()
        self.names.append(name)
        self.rows[name] = row
        self.facts.append(None)
        self.tasks.append({})
        self.static_version += 1
        self.version += 1
        return row

    def upsert(self, facts: NodeFacts) -> int:
        """Write a node object into its row; what its tasks hold stays."""
        row = self.row(facts.name)
        self.mark(row)
        self.log.append(~row)
        old = self.facts[row]
        vector = self.space.dense(facts.allocatable)
        self.widen()
        self._allocatable[:, row] = 0.0
        self._allocatable[: len(vector), row] = vector
        for endless in self.unbounded:
            self._allocatable[endless, row] = ENDLESS
        for resource, lent in self.lent.items():
            self._lend(resource, lent, row, facts)
        self._ready[row] = True
        self.version += 1
        if old is not None and _static_facts(old) == _static_facts(facts):
            self.facts[row] = facts
            return row
        self.static_version += 1
        self._unschedulable[row] = facts.unschedulable
        self._taints[row] = self._taint_code(facts.taints)
        for key, column in self._labels.items():
            value = facts.labels.get(key)
            column.codes[row] = ABSENT if value is None else column.code(value)
        for image in old.images if old is not None else ():
            self.images[image][1].discard(row)
        for image, size in facts.images.items():
            known = self.images.get(image)
            if known is None or not known[1]:
                self.images[image] = known = (size, set())
            known[1].add(row)
        self.facts[row] = facts
        return row

    def unbound(self, resource: str) -> None:
        """From now on no node runs out of this resource."""
        self.unbounded.add(self.space.column(resource))
        self.widen()
        self._allocatable[self.space.column(resource), : len(self.names)][self.ready] = ENDLESS
        self.log.extend(~row for row in range(len(self.names)))
        self.version += 1

    def lend(self, resource: str, amounts: dict[str, float]) -> None:
        """From now on nodes that say nothing of a resource have this much of it."""
        lent = self.lent[resource] = Lent(amounts)
        self.space.column(resource)
        self.widen()
        for row, facts in enumerate(self.facts):
            if facts is not None:
                self._lend(resource, lent, row, facts)
                self.log.append(~row)
        self.version += 1

    def _lend(self, resource: str, lent: Lent, row: int, facts: NodeFacts) -> None:
        if facts.allocatable.get(resource, 0.0) > 0:
            lent.own.add(row)
            return
        lent.own.discard(row)
        self._allocatable[self.space.column(resource), row] = lent.amounts.get(facts.name, 0.0)

    def remove(self, name: str) -> None:
        """The node object is gone.  Tasks that are still there keep the row alive."""
        row = self.rows.get(name)
        facts = None if row is None else self.facts[row]
        if row is None or facts is None:
            return
        for image in facts.images:
            self.images[image][1].discard(row)
        self.mark(row)
        self.facts[row] = None
        self._ready[row] = False
        self._allocatable[:, row] = 0.0
        self._taints[row] = 0
        self._unschedulable[row] = False
        for column in self._labels.values():
            column.codes[row] = ABSENT
        for lent in self.lent.values():
            lent.own.discard(row)
        self.static_version += 1
        self.version += 1
        # A node that comes back under the same name goes last, as a new one does.
        if not self.tasks[row]:
            del self.rows[name]
            self.dead += 1

    def _taint_code(self, taints: tuple[Taint, ...]) -> int:
        code = self._taint_index.get(taints)
        if code is None:
            code = self._taint_index[taints] = len(self._taint_sets)
            self._taint_sets.append(taints)
        return code

    @property
    def moving(self) -> bool:
        """Whether anything is on its way out or promised; otherwise there will be as much room as
        there is."""
        return bool(self._releasing.any() or self._pipelined.any())

    # ------------------------------------------------------------------------------------ occupancy
    # Two accounts are kept: what a task's *status* takes from the node (used, releasing,
    # pipelined), and what is *there* to be seen by filters and scores (requested, pods, ports,
    # terms).  They part when a pod is evicted within a cycle: the node still holds it, but whoever
    # looks for a place is shown the node without it.

    def hold(self, task: Task, row: int, status: Status) -> None:
        """Count a task on a node as its status says."""
        self._account(row, task.request, status, 1.0)
        self.tasks[row][task.key] = task
        task.labels.placed = True
        self.appear(task, row)

    def release(self, task: Task, row: int, status: Status) -> None:
        """The exact opposite of `hold`."""
        self._account(row, task.request, status, -1.0)
        self.tasks[row].pop(task.key, None)
        self.vanish(task, row)

    def renew(self, task: Task, row: int) -> None:
        """Another reading of a pod on a node that counts the same there: as `release` and `hold`,
        without the sums."""
        held = self.tasks[row]
        del held[task.key]
        held[task.key] = task
        self.version += 1
        self.mark(row)

    @contextmanager
    def withheld(self, amounts: Floats) -> Iterator[None]:
        """Meanwhile the nodes have so much less room, `[resources, nodes]`."""
        used = self._used[: amounts.shape[0], : amounts.shape[1]]
        used += amounts
        try:
            yield
        finally:
            used -= amounts

    def change(self, task: Task, row: int, old: Status, new: Status) -> None:
        """A task on a node changes its status and so what it counts as."""
        self.log.append(~row)
        self._account(row, task.request, old, -1.0)
        self._account(row, task.request, new, 1.0)

    def appear(self, task: Task, row: int) -> None:
        """Show a pod on the node to filters and scores."""
        self._show(task, row, 1)

    def vanish(self, task: Task, row: int) -> None:
        """The exact opposite of `appear`."""
        self._show(task, row, -1)

    def hold_many(self, tasks: Sequence[Task], rows: Rows, status: Status) -> None:
        """As `hold` for each pair, for tasks of one class."""
        if len(tasks) == 1:
            self.hold(tasks[0], int(rows[0]), status)
            return
        self._account_many(tasks[0].request, rows, status, 1.0)
        held = self.tasks
        for task, row in zip(tasks, rows.tolist()):
            held[row][task.key] = task
            task.labels.placed = True
        self._show_many(tasks, rows, 1)

    def release_many(self, tasks: Sequence[Task], rows: Rows, status: Status) -> None:
        """The exact opposite of `hold_many`."""
        if len(tasks) == 1:
            self.release(tasks[0], int(rows[0]), status)
            return
        self._account_many(tasks[0].request, rows, status, -1.0)
        held = self.tasks
        for task, row in zip(tasks, rows.tolist()):
            held[row].pop(task.key, None)
        self._show_many(tasks, rows, -1)

    def _account(self, row: int, request: Request, status: Status, sign: float) -> None:
        self.widen()
        self.version += 1
        target = self._pipelined if status is Status.PIPELINED else self._used
        for column, value in request:
            target[column, row] += value * sign
            if status is Status.RELEASING:
                self._releasing[column, row] += value * sign

    def _account_many(self, request: Request, rows: Rows, status: Status, sign: float) -> None:
        self.widen()
        self.version += 1
        counts = np.bincount(rows, minlength=len(self.names)).astype(np.float64) * sign
        count = len(self.names)
        target = self._pipelined if status is Status.PIPELINED else self._used
        for column, value in request:
            target[column, :count] += counts * value
            if status is Status.RELEASING:
                self._releasing[column, :count] += counts * value

    def _show(self, task: Task, row: int, by: int) -> None:
        pods = task.pods
        self.log.append(row if by > 0 else ~row)
        self.mark(row)
        for column, value in pods.request:
            self._requested[column, row] += value * by
        self._nonzero[0, row] += pods.request.nonzero[0] * by
        self._nonzero[1, row] += pods.request.nonzero[1] * by
        self._pods[row] += by
        if pods.ports:
            self._use_ports(pods.ports, row, by)
        if task.labels.terms or task.labels.counted or pods.has_terms:
            self.terms.appear(pods, task.labels, row, not task.terminating, by)

    def _show_many(self, tasks: Sequence[Task], rows: Rows, by: int) -> None:
        pods, count = tasks[0].pods, len(self.names)
        self.log.extend(rows.tolist() if by > 0 else (~rows).tolist())
        self.mark(rows)
        whole = np.bincount(rows, minlength=count)
        counts = whole.astype(np.float64) * by
        for column, value in pods.request:
            self._requested[column, :count] += counts * value
        self._nonzero[0, :count] += counts * pods.request.nonzero[0]
        self._nonzero[1, :count] += counts * pods.request.nonzero[1]
        self._pods[:count] += whole * by
        if (
            not pods.ports
            and not pods.has_terms
            and not any(task.labels.terms or task.labels.counted for task in tasks)
        ):
            return
        for task, row in zip(tasks, rows.tolist()):
            if pods.ports:
                self._use_ports(pods.ports, row, by)
            if task.labels.terms or task.labels.counted or pods.has_terms:
                self.terms.appear(pods, task.labels, row, not task.terminating, by)

    def _use_ports(self, ports: tuple[tuple[str, str, int], ...], row: int, by: int) -> None:
        used = self.ports.setdefault(row, {})
        for port in ports:
            used[port] = used.get(port, 0) + by
            if not used[port]:
                del used[port]

    # --------------------------------------------------------------------------------------- growth

    def widen(self) -> None:
        """Make room for resources that appeared since."""
        if len(self.space) <= self._width:
            return
        width = max(len(self.space), self._width * 2)
        for name in ("_allocatable", "_used", "_releasing", "_pipelined", "_requested"):
            old = getattr(self, name)
            new = np.zeros((width, self._capacity))
            new[: self._width] = old
            setattr(self, name, new)
        self._width = width

    def _grow_rows(self) -> None:
        capacity = self._capacity * 2
        for name in ("_allocatable", "_used", "_releasing", "_pipelined", "_requested", "_nonzero"):
            old = getattr(self, name)
            new = np.zeros((old.shape[0], capacity))
            new[:, : self._capacity] = old
            setattr(self, name, new)
        for name in ("_pods", "_ready", "_unschedulable", "_taints", "_stamps"):
            old = getattr(self, name)
            grown = np.zeros(capacity, dtype=old.dtype)
            grown[: self._capacity] = old
            setattr(self, name, grown)
        for column in self._labels.values():
            codes = np.full(capacity, ABSENT, dtype=np.int32)
            codes[: self._capacity] = column.codes
            column.codes = codes
        self._capacity = capacity

    def compact(self) -> list[int]:
        """Give up the rows of nodes that are gone; returns the new row of each old one, -1 for
        those given up."""
        kept = np.array(
            [row for row in range(len(self.names)) if self._ready[row] or self.tasks[row]],
            dtype=np.intp,
        )
        moved = [-1] * len(self.names)
        for new, old in enumerate(kept.tolist()):
            moved[old] = new
        for name in ("_allocatable", "_used", "_releasing", "_pipelined", "_requested", "_nonzero"):
            column = getattr(self, name)
            column[:, : len(kept)] = column[:, kept]
            column[:, len(kept) :] = 0.0
        for name in ("_pods", "_ready", "_unschedulable", "_taints"):
            flat = getattr(self, name)
            flat[: len(kept)] = flat[kept]
            flat[len(kept) :] = 0
        for label in self._labels.values():
            label.codes[: len(kept)] = label.codes[kept]
            label.codes[len(kept) :] = ABSENT
        for term in self.terms.terms.values():
            term.move(kept)
        for peers in self.terms.peers.by_selectors.values():
            peers.renumber(moved)
        self.names = [self.names[row] for row in kept.tolist()]
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.facts = [self.facts[row] for row in kept.tolist()]
        self.tasks = [self.tasks[row] for row in kept.tolist()]
        self.ports = {moved[row]: used for row, used in self.ports.items() if moved[row] >= 0}
        self.images = {
            image: (size, {moved[row] for row in rows if moved[row] >= 0})
            for image, (size, rows) in self.images.items()
        }
        for lent in self.lent.values():
            lent.own = {moved[row] for row in lent.own if moved[row] >= 0}
        self.mark(np.arange(len(kept)))
        self.dead = 0
        self.static_version += 1
        self.version += 1
        return moved


_static_facts = attrgetter(
    *(one.name for one in fields(NodeFacts) if one.name not in ("name", "allocatable", "capacity"))
)
"""Of a node all that scores of `Depends.STATIC` may read: everything but how much it has."""
