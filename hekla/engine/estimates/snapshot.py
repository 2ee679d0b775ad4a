"""What a forecast goes by, read from the state as a cycle has left it.

Nothing is changed, and a plugin is asked what it was asked in the cycle.  Reading goes job by job and
may pause between two: thousands of jobs need not be read in one go.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hekla.api.names import DEFAULT_WALLTIME
from hekla.engine.actions.timed_backfill import mode_of
from hekla.engine.actions.waiting_jobs import WaitingJobs
from hekla.engine.explain.explanation import above_its_share
from hekla.engine.framework.heap import OrderKey
from hekla.engine.framework.joborder import STRICT, waits
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.queues.queues import OPEN, Queue
from hekla.engine.model.reasons import Ceiling
from hekla.engine.model.resources import PODS, Floats, Request, dominant_share
from hekla.engine.model.tasks import HOLDS, Job, Status, Task
from hekla.engine.model.time.walltimes import ENDLESS, job_walltime, stated_walltime
from hekla.engine.placement.forecast import FEW, Closure, Day, Running, Snapshot
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.releases import NEVER, Releases

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

MOST_WITH_ARRIVALS = FEW
"""Waiting jobs up to which it is foreseen who comes meanwhile: each day that is tried takes as long as
the forecast itself."""
AT_ONCE = 64
"""Jobs that are read between two pauses."""


@dataclass(slots=True)
class ToCome:
    """Jobs that may come."""

    parts: list[list[tuple[int, int]]] = field(default_factory=list)
    pods: list[int] = field(default_factory=list)
    walltimes: list[float] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)


class _Owner(NamedTuple):
    """Whose a ceiling is."""

    of_queue: bool
    name: str
    of_jobs: bool
    """Whether it is one of jobs, not of what they hold."""


class _Limits(NamedTuple):
    """As `Snapshot` has them."""

    left: Floats
    more_jobs: Floats
    of_queues: int
    of: list[Rows]


class Reading:
    """One snapshot in the making: `snapshot` is there once `steps` has been walked to its end, unless
    a node came, changed or left meanwhile."""

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.now = now
        self.jobs: list[Job] = []
        """The waiting jobs, in the order of the snapshot."""
        self.snapshot: Snapshot | None = None
        self._classes: dict[object, int] = {}
        self._asked: list[Request] = []
        self._masks: list[Bools] = []
        self._under: dict[tuple[str, tuple[_Owner, ...]], int] = {}
        """A queue and the ceilings of a party -> the row of the jobs that count against them."""
        self.parties: dict[_Owner, Ceiling] = {}
        """Ceilings of users, namespaces and accounts."""
        self._kept: list[Task] = []
        """A task of each class, so that its identity stays taken."""

    def steps(self) -> Iterator[None]:
        """Read, with pauses."""
        session, state = self.session, self.session.state
        seen = state.nodes.static_version
        mode = mode_of(session)
        found: dict[str, list[tuple[OrderKey, Job, list[tuple[int, int]], int, float]]] = {}
        for number, job in enumerate(list(state.active.values())):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            queue = state.queues.get(job.queue)
            if queue is None or state.active.get(job.key) is not job or not waits(job):
                continue
            if job.key in state.reservations.named:
                continue  # It starts in the window of the reservation that it names.
            read = self._read(job, queue)
            if read is not None:
                found.setdefault(job.queue, []).append((session.order.job_key(job), job, *read))
        running: list[Running] = []
        queue_row = {name: row for row, name in enumerate(sorted(state.queues))}
        releases = yield from self._releases(mode)
        for number, key in enumerate(list(releases.by_job)):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            running.extend(self._running(releases, key))
        ordered = list(self._merged(found))
        yield
        begins = yield from session.votes.foresee([one[1] for one in ordered])
        ordered = [one for one in ordered if one[1].key in begins]
        waiting = len(ordered)
        come, days = self._to_come(waiting, queue_row)
        under: list[int] = []
        for number, (_, job, *_) in enumerate(ordered):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            under.append(self._row_under(job.queue, job, bool(job.counts.ready)))
        under += [self._row_under(name) for name in come.queues]
        yield
        if state.nodes.static_version != seen:
            return  # A node came, changed or left meanwhile: what was read does not belong together.
        self.jobs = [one[1] for one in ordered]
        parts = [*(one[2] for one in ordered), *come.parts]
        nodes = state.nodes
        asked = np.zeros((len(self._asked), len(nodes.space)))
        for row, request in enumerate(self._asked):
            for column, value in request:
                asked[row, column] = value
        limits = self._limits()
        width, count = len(nodes.space), len(nodes)
        room = np.zeros((width, count))
        free = nodes.future_idle()
        room[: free.shape[0]] = free
        self.snapshot = Snapshot(
            now=self.now,
            mode=mode,
            room=room,
            running=[_wide(one, width) for one in running],
            asked=asked,
            masks=np.array(self._masks) if self._masks else np.zeros((0, count), dtype=np.bool_),
            shape=np.array([one[0][0] for one in parts], dtype=np.intp),
            need=np.array([one[0][1] for one in parts], dtype=np.float64),
            pods=np.array([*(one[3] for one in ordered), *come.pods], dtype=np.float64),
            walltime=np.array([*(one[4] for one in ordered), *come.walltimes], dtype=np.float64),
            queue=np.array(
                [queue_row[name] for name in (*(job.queue for job in self.jobs), *come.queues)],
                dtype=np.intp,
            ),
            under=np.array(under, dtype=np.intp),
            strict=np.array([session.order.own.of.get(name) == STRICT for name in queue_row]),
            left=limits.left,
            more_jobs=limits.more_jobs,
            of_queues=limits.of_queues,
            limits_of=limits.of,
            parts={row: one for row, one in enumerate(parts) if len(one) > 1},
            closures=list(self._closures(len(parts))),
            begins=np.array([*(begins[job.key] for job in self.jobs), *([0.0] * len(come.parts))])
            if any(begin > self.now for begin in begins.values())
            else None,
            waiting=waiting,
            days=days,
        )

    def _read(self, job: Job, queue: Queue) -> tuple[list[tuple[int, int]], int, float] | None:
        """The classes of the pods that start together, with how many of each; how many pods wait; the
        walltime.  None for a job that nobody could start."""
        session = self.session
        if not may_ever_start(session, job, queue):
            return None
        tasks = [task for task in job.pending() if not task.pods.request.best_effort]
        lacking = max(job.min_available - job.counts.ready, 1)
        if not tasks:
            return self._read_without_pods(job, queue) if job.is_pending else None
        if job.short_of_quota is not None and above_its_share(session, queue, job):
            return None  # What its queue deserves follows what others ask for.
        kind = tasks[0].pods
        if all(task.pods is kind for task in tasks):
            counts = [(self._class_of(tasks[0]), min(lacking, len(tasks)))]
        else:
            by_class: dict[int, int] = {}
            for task in session.order.sorted_tasks(tasks)[:lacking]:
                row = self._class_of(task)
                by_class[row] = by_class.get(row, 0) + 1
            counts = sorted(
                by_class.items(),
                key=lambda one: -max(self._asked[one[0]].values, default=0.0),
            )
        return counts, len(tasks), job_walltime(job, queue)

    def _read_without_pods(
        self, job: Job, queue: Queue
    ) -> tuple[list[tuple[int, int]], int, float] | None:
        """A job whose pods are made once it has been let in: its minimum says what it needs."""
        if job.min_resources is None:
            return None
        need = max(job.min_available, 1)
        space = self.session.state.nodes.space
        if not job.min_resources.keys() <= space.index.keys():
            return None  # No node has such a resource.
        each = {name: value / need for name, value in job.min_resources.items() if value > 0}
        each[PODS] = 1.0
        known = ("", tuple(sorted(each.items())))
        row = self._classes.get(known)
        if row is None:
            row = self._classes[known] = len(self._asked)
            self._asked.append(Request(space, each, (0.0, 0.0)))
            self._masks.append(self.session.state.nodes.ready.copy())
        walltime = job.walltime
        if walltime is None:
            walltime = stated_walltime(queue.annotations, DEFAULT_WALLTIME)
        return [(row, need)], need, ENDLESS if walltime is None else walltime

    def _class_of(self, task: Task) -> int:
        row = self._classes.get(id(task.pods))
        if row is None:
            session = self.session
            row = self._classes[id(task.pods)] = len(self._asked)
            self._kept.append(task)
            self._asked.append(task.request)
            mask = placer_of(session).filters.static_mask(session, task)
            if session.shard_mode == "hard" and session.node_scope is not None:
                mask = mask & session.node_scope
            self._masks.append(mask)
        return row

    def _releases(self, mode: str) -> Generator[None, None, Releases]:
        """When running pods leave: as backfill has it where it minds time, else read with pauses."""
        session = self.session
        if mode:
            return session.hooks.part(WaitingJobs).releases
        releases = Releases()
        for number, job in enumerate(list(session.state.jobs.values())):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            statuses = job.counts.statuses
            if any(statuses[one] for one in (*HOLDS, Status.ALLOCATED, Status.RELEASING)):
                releases.follow(session.state, job, self.now)
        return releases

    def _running(self, releases: Releases, key: str) -> Iterator[Running]:
        """What a job holds, by when it leaves it."""
        job = self.session.state.jobs.get(key)
        by_end: dict[float, list[int]] = {}
        last = 0.0
        for row, _ in releases.by_job.get(key, {}).values():
            end = float(releases.ends[row])
            last = max(last, end)
            if end < NEVER:
                by_end.setdefault(end, []).append(row)
        in_a_queue = job is not None and job.queue in self.session.state.queues
        under = self._row_under(job.queue, job) if job is not None and in_a_queue else -1
        for end, rows in by_end.items():
            if len(rows) == 1:
                (row,) = rows
                nodes, amounts = releases.rows[rows].astype(np.intp), releases.amounts[[row]].T
            else:
                nodes, places = np.unique(releases.rows[rows], return_inverse=True)
                amounts = np.zeros((releases.amounts.shape[1], len(nodes)))
                np.add.at(amounts.T, places, releases.amounts[rows])
            yield Running(key, end, nodes.astype(np.intp), amounts, under, end == last)

    def _merged(
        self,
        found: dict[str, list[tuple[OrderKey, Job, list[tuple[int, int]], int, float]]],
    ) -> Iterator[tuple[OrderKey, Job, list[tuple[int, int]], int, float]]:
        """The jobs of all queues in the order in which they would be served: queue by queue, or where
        the policy orders queues, the queue first whose jobs have had least for its weight."""
        session = self.session
        queues = session.state.queues
        for jobs in found.values():
            jobs.sort(key=lambda one: one[0])
        names = sorted(found, key=lambda name: session.order.queue_key(queues[name]))
        if len(names) < 2 or not session.hooks("queue_order"):
            for name in names:
                yield from found[name]
            return
        shares = {
            name: dominant_share(queues[name].allocated, session.total)
            / max(queues[name].weight, 1)
            for name in names
        }
        rank = {name: number for number, name in enumerate(names)}
        turns = [(-queues[name].priority, shares[name], rank[name], name, 0) for name in names]
        heapq.heapify(turns)
        while turns:
            priority, share, number, name, at = turns[0]
            one = found[name][at]
            yield one
            if at + 1 == len(found[name]):
                heapq.heappop(turns)
                continue
            took = max(
                (
                    self._asked[kind].amounts.get(resource, 0.0) * count / total
                    for kind, count in one[2]
                    for resource, total in session.total.items()
                    if total > 0 and resource != PODS
                ),
                default=0.0,
            )
            share += took / max(queues[name].weight, 1)
            heapq.heapreplace(turns, (priority, share, number, name, at + 1))

    def _row_under(self, queue: str, job: Job | None = None, holds: bool = False) -> int:
        """The row of `limits_of` of such jobs.  `holds`: it waits for more pods, and counts as running
        already."""
        ceilings = [] if job is None else self.session.votes.party_ceilings(job)
        parties = []
        for one in ceilings:
            of_jobs = one.jobs < math.inf
            if not (of_jobs and holds):
                parties.append(_Owner(False, one.owner, of_jobs))
                self.parties.setdefault(parties[-1], one)
        return self._under.setdefault((queue, tuple(parties)), len(self._under))

    def _limits(self) -> _Limits:
        """Those of queues, then those of parties."""
        session = self.session
        ceilings: dict[_Owner, Ceiling] = {}
        of_queue: dict[str, list[_Owner]] = {}
        for name, _ in self._under:
            if name not in of_queue:
                found = session.votes.quota_ceilings(session.state.queues[name])
                of_queue[name] = [_Owner(True, one.owner, False) for one in found]
                ceilings |= zip(of_queue[name], found)
        of_queues = len(ceilings)
        ceilings |= self.parties
        space = session.state.nodes.space
        left = np.full((len(ceilings), len(space)), math.inf)
        for row, one in enumerate(ceilings.values()):
            for resource, most in one.most.items():
                if resource != PODS and resource in space.index:
                    left[row, space.index[resource]] = most - one.held.get(resource, 0.0)
        at = {key: row for row, key in enumerate(ceilings)}
        return _Limits(
            left,
            np.array([one.jobs for one in ceilings.values()]),
            of_queues,
            [
                np.array([at[one] for one in (*of_queue[name], *parties)], dtype=np.intp)
                for name, parties in self._under
            ],
        )

    def _to_come(self, waiting: int, queue_row: dict[str, int]) -> tuple[ToCome, list[Day]]:
        """Who may come, and which of them on which day, in rows behind those that wait."""
        state = self.session.state
        arrivals = state.job_table.arrivals
        come, days = ToCome(), list[Day]()
        if arrivals is None or not 0 < waiting <= MOST_WITH_ARRIVALS:
            return come, days
        for day in arrivals.days(self.now):
            rows = []
            for moment, one in day:
                names = {one.queue, *(task.job.queue for task, _ in one.parts if task.job)}
                if not all(
                    name in queue_row and name in state.queues and state.queues[name].state == OPEN
                    for name in names
                ):
                    continue
                rows.append((moment, waiting + len(come.parts)))
                come.parts.append([(self._class_of(task), number) for task, number in one.parts])
                come.pods.append(one.pods)
                come.walltimes.append(one.walltime)
                come.queues.append(one.queue)
            if rows:
                days.append(rows)
        return come, days

    def _closures(self, jobs: int) -> Iterator[Closure]:
        """The windows of Reservations, as many as planners foresee."""
        reserved = placer_of(self.session).filters.reserved
        if reserved is None:
            return
        owned = [reserved.standing(job).owned for job in self.jobs]
        for one in reserved.by_name.values():
            open_to = np.zeros(jobs, dtype=np.bool_)
            open_to[: len(owned)] = [one.name in names for names in owned]
            for window in reserved.foreseen(one):
                yield Closure(one.mask.copy(), window.start, window.end, open_to)


def may_ever_start(session: Session, job: Job, queue: Queue | None) -> bool:
    """Whether the job could start in time as it stands: its queue is open, and it is valid or will be."""
    if queue is None or queue.state != OPEN:
        return False
    return not job.tasks or session.votes.may_become_valid(job)


def _wide(one: Running, width: int) -> Running:
    """With amounts of so many resources."""
    have = one.amounts.shape[0]
    if have == width:
        return one
    amounts = np.zeros((width, len(one.rows)))
    amounts[: min(have, width)] = one.amounts[:width]
    return one._replace(amounts=amounts)
