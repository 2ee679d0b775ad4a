"""overcommit: lets in somewhat more than fits, so that the next jobs stand ready.  Reference:
plugins-fairness 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hekla.engine.explain.explanation import shortages
from hekla.engine.framework.plugin import PERMIT, REJECT, Arguments, Plugin
from hekla.engine.model.resources import Amounts, add, exceeding, exceeds, plus
from hekla.engine.model.tasks import Job

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

DEFAULT_FACTOR = 1.2


class OvercommitArguments(Arguments, frozen=True):
    factor: float = msgspec.field(default=DEFAULT_FACTOR, name="overcommit-factor")

    def __post_init__(self) -> None:
        if self.factor < 1.0:
            raise ValueError(f"overcommit-factor = {self.factor}: a number from 1.0 up")


class Overcommit(Plugin):
    """Bounds what is admitted by the whole cluster times a factor."""

    name = "overcommit"
    Arguments = OvercommitArguments
    arguments: OvercommitArguments

    def open(self, session: CycleView) -> None:
        self.session = session
        state = session.state
        self.most: Amounts = {
            name: value * self.arguments.factor for name, value in session.total.items()
        }
        self.room = dict(self.most)
        nodes = state.nodes
        used = nodes.used if nodes.ready.all() else nodes.used[:, nodes.ready]
        for name, held in zip(state.space.names, used.sum(axis=1).tolist()):
            if held:
                self.room[name] = self.room.get(name, 0.0) - held
        self.inqueue = dict(state.job_table.reserved)

    def job_enqueueable(self, job: Job) -> int:
        if job.min_resources is None:
            return PERMIT
        if not exceeds(self.room, job.min_resources, self.inqueue):
            return PERMIT
        short = exceeding(plus(self.inqueue, job.min_resources), self.room, job.min_resources)
        self.session.refuse(
            job,
            "resource in cluster is overused: " + ", ".join(f"overused {name}" for name in short),
            shortages("", "cluster", job.min_resources, self._held(), self.most),
        )
        return REJECT

    def _held(self) -> Amounts:
        """What pods use and admitted jobs were promised: the end of jobs gives it back."""
        held = dict(self.inqueue)
        for name, most in self.most.items():
            held[name] = held.get(name, 0.0) + most - self.room[name]
        return held

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources is not None:
            add(self.inqueue, job.deduct_gated(job.min_resources))
