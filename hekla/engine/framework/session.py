"""One cycle's view: the state, the policy's plugins, and the rules by which their answers combine.

Nothing is copied.  The session works on the state's own tables through statements, and what a cycle
promised without deciding it is undone when it closes.  Reference: scheduler-core 5.3,
plugins-fairness 0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from hekla.engine.framework.domains import Domains
from hekla.engine.framework.faults import fault
from hekla.engine.framework.hooks import Hooks
from hekla.engine.framework.joborder import OwnOrders
from hekla.engine.framework.order import Order
from hekla.engine.framework.statement import Statement
from hekla.engine.framework.view import CycleView
from hekla.engine.framework.votes import Votes
from hekla.engine.model.arrays import Rows
from hekla.engine.model.decisions import Event, EvictionNotice
from hekla.engine.model.evictions.notices import Notice
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import Job, Task
from hekla.engine.model.transfers import IN_VAIN, MOVED, MOVES, OTHERS


class TimedBackfill(Protocol):
    """Jobs behind one that waits."""

    def pass_by(self) -> None:
        """Serve those that do not hold it up."""

    def close(self) -> None:
        """The cycle's changes are counted."""


if TYPE_CHECKING:
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.state import State


class Session(CycleView):
    """Opened by `hekla.engine.cycle`; actions are handed it, and plugins as the view that it is."""

    def __init__(self, state: State, hooks: Hooks, now: float, uid: str) -> None:
        super().__init__(state, hooks.policy, now, uid)
        self.hooks = hooks
        self.stage: Callable[[str, str], None] | None = None
        """Told which step of an action begins, by callers that mind how long each takes."""
        self.promised: list[Statement] = []
        """Statements that hold room until the cycle ends, without being decided."""
        self.evicted: list[Task] = []
        self.evicted_for: set[str] = set()
        """Jobs for which this cycle evicted others."""
        self.live: list[Statement] = []
        """All statements of the cycle, so that what breaks off can be undone."""
        self.asking: dict[PodClass, int] = {}
        """For each class, how many jobs of one plain pod allocate has found waiting."""
        self.blind = False
        """A plugin could not be opened, so nothing may be decided in this cycle."""
        self.let_in_any = False
        self.timed: TimedBackfill | None = None
        """Where the policy's backfill minds time: what allocate has left to it."""
        self.at_close: list[Callable[[], None]] = []
        """What actions have to do once all that the cycle changed is counted."""
        self._allocated = hooks("allocated")
        self._told = [plugin.allocated for plugin in self._allocated]
        self._deallocated = hooks("deallocated")
        self._ranks: Rows | None = None
        self.order = Order(state, hooks, OwnOrders(self))
        self.votes = Votes(hooks)
        self.domains = Domains(state, hooks, self.votes, self.tree)
        self.no_victim: dict[str, str] = {}
        """Job -> why nobody was evicted for it in this cycle."""

    def rank(self, rows: Rows) -> Rows | None:
        """The order in which these nodes win ties; None where it is the order of the rows
        themselves."""
        seed = self.policy.tie_seed
        if not seed:
            return None
        if self._ranks is None or len(self._ranks) != len(self.state.nodes):
            self._ranks = np.random.default_rng(seed).permutation(len(self.state.nodes))
        return self._ranks[rows]

    def let_in(self, job: Job) -> None:
        """The PodGroup may have its pods placed from now on."""
        job.phase = "Inqueue"
        self.let_in_any = True
        job.enqueue_block = ""
        job.shortages = ()
        self.touched[job.key] = job

    def statement(self) -> Statement:
        made = Statement(self)
        self.live.append(made)
        if len(self.live) > 1000:
            self.live = [one for one in self.live if one]
        return made

    def abandon(self) -> None:
        """Undo what is neither decided nor promised, after an action broke off."""
        promised = {id(one) for one in self.promised}
        for one in reversed(self.live):
            if one and id(one) not in promised:
                one.rollback(quietly=True)
        self.live = [one for one in self.live if one]

    def broke_off(self, what: str, error: Exception) -> None:
        """Something failed in the middle: what it had begun is undone, and whose fault it was is
        said."""
        self.abandon()
        self.decisions.problems.append(f"{what} broke off: {fault(error, self.hooks.plugins)}")

    def tell_allocated(self, tasks: Sequence[Task]) -> None:
        """Tasks of one class hold room from now on."""
        first = tasks[0]
        job = first.job
        if job is None:
            return
        self.touched[job.key] = job
        count = len(tasks)
        total = first.pods.request.amounts if count == 1 else _times(first, count)
        told = 0
        try:
            for allocated in self._told:
                allocated(job, first, total, count)
                told += 1
        except Exception:
            # The placement is undone; whoever had counted it already counts it no more.
            for plugin in self._deallocated:
                if plugin in self._allocated[:told]:
                    plugin.deallocated(job, first, total, count)
            raise

    def tell_deallocated(self, tasks: Sequence[Task]) -> None:
        """Tasks of one class hold room no longer."""
        first = tasks[0]
        job = first.job
        if job is None:
            return
        self.touched[job.key] = job
        total = _times(first, len(tasks))
        for plugin in self._deallocated:
            plugin.deallocated(job, first, total, len(tasks))

    def allocate_now(self, task: Task, row: int) -> None:
        """Without a statement: once the job is ready, everything it holds is bound.  Used by
        backfill."""
        statement = self.statement()
        statement.allocate(task, row)
        job = task.job
        assert job is not None
        waiting: list[Statement] = job.plugin_state.setdefault("allocated_now", [])
        waiting.append(statement)
        if self.votes.job_ready(job):
            for one in waiting:
                one.commit()
            waiting.clear()
        else:
            self.promised.append(statement)

    def tell(self, task: Task, notice: Notice) -> None:
        """A pod is to be told when it will be evicted; 0 that it may stay."""
        job = task.job.key if task.job is not None else ""
        told = EvictionNotice(
            task.key, task.uid, job, notice.at, notice.reason, notice.claimant, notice.purpose
        )
        if self.decisions.notices is msgspec.UNSET:
            self.decisions.notices = []
        self.decisions.notices.append(told)
        self.metric("eviction_notices_total", 1.0, outcome="given" if notice.at else "withdrawn")

    def unpromise(self, task: Task) -> None:
        """Take back what was promised to one task."""
        for statement in self.promised:
            statement.unplace(task)

    def hold_back(self, job: Job, takers: Iterable[str], action: str) -> None:
        """The job may not take back what these took from it: said once, until something outside
        changes."""
        told = self.state.transfers.told
        for taker in takers:
            if (job.key, taker) not in told:
                told.add((job.key, taker))
                self.metric("evictions_held_back_total", 1.0, action=action)
                whose = f"queue {job.queue}" if taker.startswith("queue ") else "it"
                gave = (
                    IN_VAIN
                    if taker == OTHERS
                    else f"{taker} took room from {whose}, and no queue, node or job has changed since"
                )
                said = f"{action} evicts nobody for it: {gave}"
                if taker == MOVES:
                    said = f"{action} evicts none of its pods: {MOVED}"
                self.event(job, "Normal", "EvictionHeldBack", said)

    def warn_once(self, kind: str, key: str, reason: str, problem: str) -> None:
        """An event on an object, once for the same words; without words it has no such problem."""
        told, known = self.hooks.told, (kind, key, reason)
        if not problem:
            told.pop(known, None)
        elif told.get(known) != problem:
            told[known] = problem
            self.decisions.events.append(Event(kind, key, "", "Warning", reason, problem))

    def step(self, name: str) -> None:
        """A step of an action begins (`Predicate`, `Scoring`), or the last one has ended."""
        if self.stage is not None:
            self.stage("step", name)


def session_of(view: CycleView) -> Session:
    """The session behind what a plugin is handed, for one that asks other plugins or evicts."""
    assert isinstance(view, Session)
    return view


def _times(task: Task, count: int) -> Amounts:
    amounts = task.request.amounts
    return amounts if count == 1 else {name: value * count for name, value in amounts.items()}
