"""Which nodes are reserved when, and for whom: Reservations resolved to rows of the node table.

A pod of others may start on a reserved node only if it ends, by its walltime, before the next window
opens; one without a walltime counts as endless.  The nodes of a count are chosen once and kept, also
over a restart, by the object's status.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hekla.api.names import RESERVATION
from hekla.api.text.times import stamp
from hekla.api.text.windows import Window, Windows, read_windows
from hekla.api.trees import Tree
from hekla.engine.model.annotations import USER
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.matching import LabelSelector, label_selector
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import EPSILON, Amounts, amounts
from hekla.engine.model.tasks import HOLDS, Job, Task
from hekla.engine.model.time.durations import instant
from hekla.engine.model.time.walltimes import SOON, job_walltime, walltime_of

KIND = "Reservation"
MOST_MISSED = 10_000
"""Windows that are counted at once, after a long time without a scheduler."""
FORESEEN = 20
"""How many windows of each reservation planners look ahead."""
ENDED, FAILED, CONFLICT = "Ended", "Failed", "Conflict"


class Problem(NamedTuple):
    """Why a reservation does not have what it asks for."""

    state: str
    reason: str
    message: str


class Standing(NamedTuple):
    """How a job stands to the reservations."""

    owned: frozenset[str]
    """Names of those that it may use."""
    named: str
    """The one that it names; "" for none."""
    length: float
    """Its walltime in seconds."""


class Refusal(NamedTuple):
    """Nodes on which a pod may not start, and why: what such a node is."""

    text: str
    mask: Bools


@dataclass(slots=True, eq=False)
class NodeReservation:
    """One Reservation."""

    name: str
    uid: str
    created: float
    spec: Tree
    windows: Windows
    names: frozenset[str]
    selector: LabelSelector | None
    count: int | None
    shape: Amounts
    queues: frozenset[str]
    users: frozenset[str]
    jobs: frozenset[str]
    evicts: bool
    overlaps: bool
    sent: Tree
    """Its status, as the API server has it."""
    chosen: tuple[str, ...] = ()
    past: int = 0
    current: Window | None = None
    """The window that is open or opens next; None after the last."""
    mask: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """`[nodes]` that it has."""
    rows: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    problem: Problem | None = None
    begun: bool = False
    """Whether it is known which window is the current one."""
    _ahead: list[Window] = field(default_factory=list)
    _ends: list[float] = field(default_factory=list)

    @property
    def has_owners(self) -> bool:
        return bool(self.queues or self.users or self.jobs)

    def is_open(self, at: float) -> bool:
        return self.current is not None and self.current.start <= at + SOON < self.current.end

    def window(self, at: float) -> Window | None:
        """The first window that ends after a moment, from the current one on."""
        place = bisect_right(self._ends, at)
        while place == len(self._ahead):
            after = self._ends[-1] if self._ends else -math.inf
            following = self.current if not self._ahead else self.windows.next(after)
            if following is None:
                return None
            self._ahead.append(following)
            self._ends.append(following.end)
            place = bisect_right(self._ends, at)
        return self._ahead[place]

    def move_on(self, now: float) -> None:
        """Count the windows that have closed."""
        if self.current is None or self.current.end > now + SOON:
            return
        for _ in range(MOST_MISSED):
            if self.current is None or self.current.end > now + SOON:
                break
            self.past += 1
            self.current = self.windows.next(self.current.end)
        else:
            self.current = self.windows.next(now)
        self._ahead, self._ends = [], []


def read_reservation(name: str, tree: Tree) -> NodeReservation:
    """A Reservation as the engine keeps it.  Raises ValueError."""
    meta, spec, status = (tree.get(part) or {} for part in ("metadata", "spec", "status"))
    nodes, owners = spec.get("nodes") or {}, spec.get("owners") or {}
    count = nodes.get("count")
    selector = nodes.get("selector")
    return NodeReservation(
        name=name,
        uid=str(meta.get("uid", "")),
        created=instant(meta.get("creationTimestamp", "") or ""),
        spec=spec,
        windows=read_windows(spec.get("window") or {}),
        names=frozenset(nodes.get("names") or ()),
        selector=None if selector is None else label_selector(selector),
        count=None if count is None else int(count),
        shape=amounts(nodes.get("resources") or {}),
        queues=frozenset(owners.get("queues") or ()),
        users=frozenset(owners.get("users") or ()),
        jobs=frozenset(owners.get("jobs") or ()),
        evicts=spec.get("drain") == "Evict",
        overlaps=bool(spec.get("overlap")),
        sent=status,
        chosen=tuple(status.get("nodes") or ()) if count is not None else (),
        past=int(status.get("past") or 0),
    )


class Reservations:
    """All of them.  True where there are any, or a job names one."""

    def __init__(self, nodes: NodeTable, queues: Mapping[str, Queue]) -> None:
        self.nodes = nodes
        self.queues = queues
        self.by_name: dict[str, NodeReservation] = {}
        self.unreadable: dict[str, tuple[str, str, Tree]] = {}
        """Name -> uid, what is wrong, and the status as the API server has it."""
        self.named: dict[str, str] = {}
        """Job -> the reservation that it names."""
        self.version = 0
        """Goes up when other nodes may be reserved than before, or for other times."""
        self.edge = math.inf
        """The next moment at which a window opens or closes, or a pod has to hear of it."""
        self.now = 0.0
        self._stale = True
        self._seen: tuple[int, ...] = ()
        self._standing: dict[str, Standing] = {}
        self._masks: dict[tuple[object, ...], Bools | None] = {}

    def __bool__(self) -> bool:
        return bool(self.by_name or self.unreadable or self.named)

    # ------------------------------------------------------------------------------- what is known

    def upsert(self, name: str, tree: Tree) -> bool:
        """One came or changed: whether anything but its status did.  Raises ValueError where it
        cannot be understood; nothing is reserved by it then."""
        known, spec = self.by_name.get(name), tree.get("spec") or {}
        uid = str((tree.get("metadata") or {}).get("uid", ""))
        if known is not None and known.uid == uid and known.spec == spec:
            known.sent = tree.get("status") or {}
            return False
        self._stale = True
        try:
            made = read_reservation(name, tree)
        except ValueError as error:
            self.by_name.pop(name, None)
            self.unreadable[name] = uid, str(error), tree.get("status") or {}
            raise
        self.unreadable.pop(name, None)
        if known is not None and known.uid == uid:
            made.past = known.past
            if known.spec.get("nodes") != spec.get("nodes"):
                made.chosen = ()
            elif known.chosen:
                made.chosen = known.chosen
        self.by_name[name] = made
        return True

    def remove(self, name: str) -> None:
        self.by_name.pop(name, None)
        self.unreadable.pop(name, None)
        self._stale = True

    def follow_job(self, key: str, annotations: Mapping[str, str]) -> None:
        """A job came or changed: whether it names a reservation."""
        name = annotations.get(RESERVATION)
        if name:
            self.named[key] = name
        elif self.named:
            self.named.pop(key, None)

    def due(self, now: float) -> bool:
        """Whether a window has opened or closed since the last cycle."""
        return now >= self.edge

    def open(self, now: float) -> None:
        """A cycle begins: work out again which nodes are reserved, if anything changed."""
        nodes = self.nodes
        self.now = now
        self._standing.clear()
        seen = id(nodes.rows), len(nodes), nodes.static_version
        if self._stale or seen != self._seen or self.due(now):
            self._stale, self._seen = False, seen
            self._masks.clear()
            self.version += 1
            self._resolve(now)
        self.edge = min((self._edge(one, now) for one in self.by_name.values()), default=math.inf)

    def in_order(self) -> list[NodeReservation]:
        """The oldest first: it keeps its nodes where two want the same."""
        return sorted(self.by_name.values(), key=lambda one: (one.created, one.name))

    @staticmethod
    def _edge(one: NodeReservation, now: float) -> float:
        if one.current is None:
            return math.inf
        return one.current.start if one.current.start > now + SOON else one.current.end

    # ---------------------------------------------------------------------------------- whose it is

    def standing(self, job: Job) -> Standing:
        """How a job stands to the reservations, worked out once a cycle."""
        known = self._standing.get(job.key)
        if known is None:
            user = job.annotations.get(USER) or job.namespace
            called = {job.key, f"{job.namespace}/{job.title}"}
            owned = frozenset(
                one.name
                for one in self.by_name.values()
                if job.queue in one.queues or user in one.users or called & one.jobs
            )
            length = job_walltime(job, self.queues.get(job.queue))
            known = Standing(owned, self.named.get(job.key, ""), length)
            self._standing[job.key] = known
        return known

    def refused(self, task: Task, at: float | None = None) -> Bools | None:
        """`[nodes]` on which a pod may not start at a moment (None: now); None where it may start
        everywhere."""
        if task.job is None:
            return None
        at = self.now if at is None else at
        owned, named, length = self.standing(task.job)
        blocking = tuple(one for one, _ in self._blocking(owned, at, length))
        if not blocking and not named:
            return None
        own = self.by_name.get(named) if named in owned else None
        runs = own is not None and self._runs(own, at)
        key = (owned if any(one.overlaps for one in blocking) else None, blocking, named, runs)
        if key not in self._masks:
            mask = np.zeros(len(self.nodes), dtype=np.bool_)
            for one in blocking:
                mask |= self._kept(one, owned)
            if named:
                mask |= ~own.mask if own is not None and runs else np.True_
            self._masks[key] = mask
        return self._masks[key]

    def refusals(self, task: Task) -> Iterator[Refusal]:
        """The same of now, by reason."""
        if task.job is None:
            return
        owned, named, length = self.standing(task.job)
        if named:
            why = self._named(named, owned)
            own = self.by_name.get(named)
            every = np.ones(len(self.nodes), dtype=np.bool_)
            yield Refusal(why, every if own is None or not self._open_to(own, owned) else ~own.mask)
        for one, window in self._blocking(owned, self.now, length):
            until = stamp(window.end)
            if window.start <= self.now + SOON:
                text = f"reserved for {one.name} until {until}"
            elif math.isinf(length):
                text = (
                    f"reserved for {one.name} from {stamp(window.start)} to {until}, "
                    "and this job says no walltime"
                )
            else:
                text = (
                    f"reserved for {one.name} from {stamp(window.start)} to {until}, "
                    f"and this job may run until {stamp(self.now + length)}"
                )
            yield Refusal(text, self._kept(one, owned))

    def waits_for_its_window(self, job: Job) -> bool:
        """Whether the job names a reservation that is not open to it now."""
        owned, named, _ = self.standing(job)
        own = self.by_name.get(named)
        return bool(named) and (own is None or not self._open_to(own, owned))

    def opens_to(self, job: Job) -> tuple[str, float] | None:
        """The reservation that the job names, and when it opens to it; None where it is open, or never
        opens to that job."""
        owned, named, _ = self.standing(job)
        own = self.by_name.get(named)
        window = None if own is None or named not in owned else own.window(self.now)
        return None if window is None or window.start <= self.now + SOON else (named, window.start)

    def evicts(self, name: str) -> bool:
        """Whether there is still a reservation of this name that evicts who is in its way."""
        one = self.by_name.get(name)
        return one is not None and one.evicts and one.current is not None

    def foreseen(self, one: NodeReservation, until: float = math.inf) -> Iterator[Window]:
        """Its next windows, the open one too."""
        at = self.now
        for _ in range(FORESEEN):
            window = one.window(at)
            if window is None or window.start > until:
                return
            yield window
            at = window.end

    def moments(self, until: float) -> list[float]:
        """When windows open and close from now on, ascending."""
        found = {
            moment
            for one in self.by_name.values()
            for window in self.foreseen(one, until)
            for moment in window
        }
        return sorted(moment for moment in found if moment > self.now + SOON)

    def _blocking(
        self, owned: frozenset[str], at: float, length: float
    ) -> Iterator[tuple[NodeReservation, Window]]:
        """The reservations of others into which something would run that begins at a moment, and
        their windows."""
        for one in self.by_name.values():
            if one.name in owned or not len(one.rows):
                continue
            window = one.window(at + SOON)
            if window is not None and window.start < at + length - SOON:
                yield one, window

    def _kept(self, one: NodeReservation, owned: frozenset[str]) -> Bools:
        """`[nodes]` that a reservation keeps from the owners of these: those of another that may
        overlap with it are shared."""
        if not one.overlaps or not one.has_owners:
            return one.mask
        kept = one.mask.copy()
        for name in owned:
            other = self.by_name[name]
            if other.overlaps:
                kept &= ~other.mask
        return kept

    def _runs(self, one: NodeReservation, at: float) -> bool:
        window = one.window(at + SOON)
        return window is not None and window.start <= at + SOON

    def _open_to(self, one: NodeReservation, owned: frozenset[str]) -> bool:
        return one.name in owned and one.is_open(self.now)

    def _named(self, name: str, owned: frozenset[str]) -> str:
        """Why nodes are out for a job that names a reservation."""
        own = self.by_name.get(name)
        lead = f"out: the job names reservation {name}, which"
        if own is None:
            return f"{lead} does not exist"
        if name not in owned:
            return f"{lead} is not for its queue, user or name"
        if own.current is None:
            return f"{lead} is over"
        if not own.is_open(self.now):
            return f"{lead} opens at {stamp(own.current.start)}"
        return f"not in reservation {name}, which the job names"

    # ---------------------------------------------------------------------------------- which nodes

    def _resolve(self, now: float) -> None:
        resolved: list[NodeReservation] = []
        for one in self.in_order():
            if not one.begun:
                one.begun, one.current = True, self._first(one, now)
            one.move_on(now)
            self._choose(one, resolved, now)
            resolved.append(one)

    @staticmethod
    def _first(one: NodeReservation, now: float) -> Window | None:
        """The window that its status speaks of, so that it is counted once it has closed; else the
        next."""
        sent = instant(one.sent.get("start", "") or "")
        known = one.windows.next(sent) if sent and one.sent.get("state") != ENDED else None
        return known if known is not None and known.start == sent else one.windows.next(now)

    def _choose(self, one: NodeReservation, before: Iterable[NodeReservation], now: float) -> None:
        """Which nodes a reservation has: what it asks for, less what others have at that time."""
        nodes = self.nodes
        one.problem = None
        one.mask = wanted = self._wanted(one)
        if one.current is None:
            one.mask, one.rows = np.zeros(len(nodes), dtype=np.bool_), np.zeros(0, dtype=np.intp)
            return
        free = wanted.copy()
        for other in before:
            if (one.overlaps and other.overlaps) or not (free & other.mask).any():
                continue
            both = one.windows.clash(other.windows, now)
            if both is None:
                continue
            shared = free & other.mask
            if one.count is None and one.problem is None:
                which = _listed(nodes.names[row] for row in np.flatnonzero(shared).tolist())
                one.problem = Problem(
                    CONFLICT,
                    "Overlap",
                    f"{which} reserved for {other.name} from {stamp(both.start)} to {stamp(both.end)}; "
                    "both have to say overlap: true to share",
                )
            free &= ~other.mask
        one.mask = free if one.count is None else self._chosen(one, free, now)
        one.rows = np.flatnonzero(one.mask)
        if one.problem is None:
            one.problem = self._shortage(one, wanted, free)

    def _wanted(self, one: NodeReservation) -> Bools:
        """`[nodes]` that are as a reservation asks."""
        nodes = self.nodes
        mask = nodes.ready.copy()
        if one.names:
            listed = np.zeros(len(nodes), dtype=np.bool_)
            listed[[nodes.rows[name] for name in one.names if name in nodes.rows]] = True
            mask &= listed
        if one.selector is not None:
            mask &= np.fromiter(
                (facts is not None and one.selector.matches(facts.labels) for facts in nodes.facts),
                dtype=np.bool_,
                count=len(nodes),
            )
        for column, amount in [(nodes.space.column(name), has) for name, has in one.shape.items()]:
            nodes.widen()
            if amount > 0:
                mask &= nodes.allocatable[column] > amount - EPSILON
        return mask

    def _chosen(self, one: NodeReservation, free: Bools, now: float) -> Bools:
        """`[nodes]`: those that it had, and for those that it lost the ones that are free soonest."""
        nodes, count = self.nodes, one.count or 0
        kept = [name for name in one.chosen if name in nodes.rows and free[nodes.rows[name]]]
        kept = kept[:count]
        rest = set(np.flatnonzero(free).tolist()) - {nodes.rows[name] for name in kept}
        if len(kept) < count:
            by_end = sorted(
                rest,
                key=lambda row: (
                    bool(nodes.unschedulable[row]),
                    self._free_at(row, now),
                    nodes.names[row],
                ),
            )
            kept += [nodes.names[row] for row in by_end[: count - len(kept)]]
        one.chosen = tuple(kept)
        mask = np.zeros(len(nodes), dtype=np.bool_)
        mask[[nodes.rows[name] for name in kept]] = True
        return mask

    def _shortage(self, one: NodeReservation, wanted: Bools, free: Bools) -> Problem | None:
        missing = sorted(one.names - set(self.nodes.rows))
        if one.count is None:
            if missing:
                return Problem(FAILED, "NoSuchNodes", f"there is no node {', '.join(missing)}")
            if not wanted.any():
                return Problem(FAILED, "NoSuchNodes", "no node is as spec.nodes asks")
            return None
        found = int(wanted.sum())
        if int(free.sum()) >= one.count:
            return None
        if found < one.count:
            text = f"it asks for {one.count} nodes, and {found} are as spec.nodes asks"
            return Problem(FAILED, "TooFewNodes", text)
        taken = found - int(free.sum())
        text = f"it asks for {one.count} nodes, and of {found} that will do, others have {taken}"
        return Problem(CONFLICT, "Overlap", f"{text} at that time")

    def _free_at(self, row: int, now: float) -> float:
        """When the last pod on a node ends."""
        return max((self.end_of(task, now) for task in self._holding(row)), default=now)

    # ----------------------------------------------------------------------------- who is still there

    def end_of(self, task: Task, now: float) -> float:
        """When a pod on a node ends at the latest; infinite where nobody says."""
        assert task.job is not None
        since = task.start or task.scheduled or now
        return since + walltime_of(task, task.job, self.queues.get(task.job.queue))

    def others_on(self, one: NodeReservation) -> Iterator[Task]:
        """Pods on its nodes that are none of its owners'."""
        for row in one.rows.tolist():
            for task in self._holding(row):
                assert task.job is not None
                if one.name not in self.standing(task.job).owned and not self._shares(one, task):
                    yield task

    def _shares(self, one: NodeReservation, task: Task) -> bool:
        assert task.job is not None
        return not self._kept(one, self.standing(task.job).owned)[task.row]

    def _holding(self, row: int) -> Iterator[Task]:
        """Pods of jobs on a node; what no job owns, such as a node's own daemons, is let be."""
        for task in self.nodes.tasks[row].values():
            if task.job is not None and task.status in HOLDS:
                yield task


def _listed(names: Iterable[str]) -> str:
    """`n1 is`, `n1, n2 are`, `n1, n2, n3 and 4 more are`."""
    known = sorted(names)
    more = f" and {len(known) - 3} more" if len(known) > 3 else ""
    return f"{', '.join(known[:3])}{more} {'is' if len(known) == 1 else 'are'}"
