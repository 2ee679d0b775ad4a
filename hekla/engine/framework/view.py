"""One cycle as plugins see it: who is there, what time it is, and what they may say of it.

Reference: scheduler-core 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.decisions import Decisions, Event
from hekla.engine.model.hypernodes import tree_of
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.reasons import Shortage
from hekla.engine.model.resources import Amounts, Floats
from hekla.engine.model.tasks import Job

T = TypeVar("T")

if TYPE_CHECKING:
    from hekla.engine.framework.policy import Policy
    from hekla.engine.model.state import State


class CycleView:
    """The state, which is not copied, and the decisions so far."""

    def __init__(self, state: State, policy: Policy, now: float, uid: str) -> None:
        self.state = state
        self.policy = policy
        self.now = now
        """Seconds since 1970."""
        self.uid = uid
        self.decisions = Decisions()
        self.touched: dict[str, Job] = {}
        """Jobs about which this cycle has decided something."""
        self.node_scope: Bools | None = None
        """`[nodes]`: those this scheduler may use; None for all."""
        self.shard_mode = "none"
        """"hard" where other nodes are out of the question, "soft" where they come last."""
        self.total: Amounts = {}
        """What all nodes together can allocate."""
        self.tree = tree_of(state)
        self.lifts_gates = state.lifts_gates
        """Whether tasks gated by their queue alone are to be let go (gate
        SchedulingGatesQueueAdmission)."""
        self.awake: dict[str, Job] | None = None
        """Of the jobs that have something to decide, those that this cycle looks at; None for all.
        The others wait for room that is not there, and nothing has come to them."""
        self.edge = math.inf
        """The first moment for which a plugin has asked to be asked again."""
        self._room: tuple[Floats, Floats, Floats] | None = None

    def active_jobs(self) -> Iterator[Job]:
        """Jobs that have something to decide and whose queue exists, in the order in which they
        became active."""
        return iter(list(self.state.active.values()))

    @property
    def looked_at(self) -> Mapping[str, Job]:
        """The jobs of this cycle that have something to decide."""
        return self.state.active if self.awake is None else self.awake

    def changed_jobs(self, resting: bool = False) -> list[Job]:
        """Jobs that have something to decide, or that changed since they were last reported; those
        that rest only if asked for."""
        state = self.state
        jobs = {**state.unreported, **self.looked_at, **self.touched}.values()
        return (
            list(jobs)
            if resting
            else [job for job in jobs if job.rests_until <= self.now or not self.rests(job)]
        )

    def rests(self, job: Job) -> bool:
        """Whether nothing came to the job since its last report, and what that held back is not due
        yet."""
        return (
            job.rests_until > self.now
            and job.key not in self.touched
            and job.key not in self.looked_at
        )

    def jobs(self) -> Iterator[Job]:
        """All jobs of the session, also those that run content."""
        return (job for job in self.state.jobs.values() if job.contribution is not None)

    def job(self, key: str) -> Job | None:
        job = self.state.jobs.get(key)
        return job if job is not None and job.contribution is not None else None

    def queue_of(self, job: Job) -> Queue:
        return self.state.queues[job.queue]

    def in_session(self, job: Job | None) -> TypeGuard[Job]:
        return job is not None and job.contribution is not None

    def has_action(self, name: str) -> bool:
        return name in self.policy.actions

    def argument(self, action: str, name: str, default: T) -> T:
        """What the policy says, whose arguments have the type of their defaults."""
        stated: T = self.policy.configurations.get(action, {}).get(name, default)
        return stated

    def preferred(self, rows: Rows) -> Rows:
        """The nodes inside this scheduler's shard, if there are any; all of them without shards."""
        if self.shard_mode != "soft" or self.node_scope is None:
            return rows
        inside = rows[self.node_scope[rows]]
        return inside if len(inside) else rows

    def shard_groups(self, rows: Rows) -> list[Rows]:
        """Nodes in the order of shards: one's own first, others' only where the mode is soft."""
        if self.shard_mode != "soft" or self.node_scope is None:
            return [rows]
        inside = self.node_scope[rows]
        return [rows[inside], rows[~inside]]

    def opening_room(self) -> tuple[Floats, Floats, Floats]:
        """Idle, future idle and allocatable, `[resources, nodes]`, as they were when first asked in
        this cycle."""
        if self._room is None:
            nodes = self.state.nodes
            self._room = nodes.idle(), nodes.future_idle(), nodes.allocatable.copy()
        return self._room

    def ask_again(self, at: float) -> None:
        """Answers will be others from this moment on, though nothing else may have happened."""
        self.edge = min(self.edge, at)

    def refuse(self, job: Job, message: str, lacks: Sequence[Shortage] = ()) -> None:
        """The job may not enter now; said on its PodGroup, once for the same words.  `lacks` gives
        the numbers."""
        detail = ", ".join(one.of_minimum(job.queue) for one in lacks)
        job.enqueue_block = f"{message} ({detail})" if detail else message
        job.shortages = tuple(lacks)
        if job.last_refusal != message:
            job.last_refusal = message
            self.event(job, "Normal", "Unschedulable", message)

    def event(self, job: Job, kind: str, reason: str, message: str) -> None:
        """An event on the job's PodGroup."""
        self.decisions.events.append(Event("PodGroup", job.key, job.pg_uid, kind, reason, message))

    def metric(self, name: str, value: float, **labels: str) -> None:
        if self.state.metered:
            self.decisions.metrics.append((name, tuple(labels.items()), value))
