"""multifactor: one priority of a job out of several factors, each from 0 to 1 times its weight, as in
Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Plugin, Reads, Source
from hekla.engine.framework.session import session_of
from hekla.engine.model.resources import dominant_share
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.durations import seconds
from hekla.engine.plugins.fairness.fairshare import FairShare

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

FACTORS = ("age", "size", "share", "qos", "partition")


class MultifactorArguments(Arguments, frozen=True):
    age: int = msgspec.field(default=0, name="multifactor.age")
    size: int = msgspec.field(default=0, name="multifactor.size")
    share: int = msgspec.field(default=0, name="multifactor.share")
    qos: int = msgspec.field(default=0, name="multifactor.qos")
    partition: int = msgspec.field(default=0, name="multifactor.partition")
    max_age: str = msgspec.field(default="168h", name="multifactor.maxAge")
    favour_small: bool = msgspec.field(default=False, name="multifactor.favorSmall")

    def extended(self, rest: Tree) -> MultifactorArguments:
        for name in FACTORS:
            value = getattr(self, name)
            if value < 0:
                raise ValueError(
                    f"multifactor.{name} = {value}: a weight is a whole number from 0 up"
                )
        if not any(getattr(self, name) for name in FACTORS):
            named = ", ".join(f"multifactor.{name}" for name in FACTORS)
            raise ValueError(f"all weights are 0, so it orders nothing; at least one of {named}")
        try:
            length = seconds(self.max_age)
        except ValueError as error:
            raise ValueError(f"multifactor.maxAge = {self.max_age!r}: {error}") from None
        if length <= 0:
            raise ValueError(f"multifactor.maxAge = {self.max_age!r}: a duration above 0")
        return self


class Multifactor(Plugin):
    """The job with the highest sum goes first."""

    name = "multifactor"
    Arguments = MultifactorArguments
    arguments: MultifactorArguments
    reads = Reads(
        clock=True, between_placements=Source.JOBS, nodes=Source.NODES, victims=Source.PREEMPTOR
    )

    def __init__(self, arguments: MultifactorArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.max_age = seconds(arguments.max_age)

    def open(self, session: CycleView) -> None:
        self.session = session
        state = session.state
        self.highest_class = max([0, *state.job_table.priority_classes.values()])
        self.highest_queue = max([0, *(queue.priority for queue in state.queues.values())])
        self.known: dict[str, float] = {}
        """Job -> its priority in this cycle."""
        plugins = session_of(session).hooks.plugins
        self.fair = next((one for one in plugins if isinstance(one, FairShare)), None)
        if self.arguments.share and self.fair is None:
            session.decisions.problems.append(
                f"multifactor: multifactor.share = {self.arguments.share} needs the plugin fairshare, "
                "which the policy does not name; until then all shares are equal"
            )

    def job_order(self, job: Job) -> float:
        known = self.known.get(job.key)
        if known is None:
            known = self.known[job.key] = -self.priority(job)
        return known

    def priority(self, job: Job) -> float:
        """Weights times factors."""
        factors = {
            "age": self._age,
            "size": self._size,
            "share": self._share,
            "qos": self._qos,
            "partition": self._partition,
        }
        total = 0.0
        for name, factor in factors.items():
            weight: int = getattr(self.arguments, name)
            if weight:
                total += weight * factor(job)
        return total

    def _age(self, job: Job) -> float:
        """How long it has waited, of the longest time that counts."""
        return min(1.0, max(0.0, self.session.now - job.creation) / self.max_age)

    def _size(self, job: Job) -> float:
        """Which part of the cluster it asks for at least, by the resource of which that is most."""
        asked = job.min_resources or job.total_request
        part = min(1.0, dominant_share(asked, self.session.total)) if any(asked.values()) else 0.0
        return 1.0 - part if self.arguments.favour_small else part

    def _share(self, job: Job) -> float:
        """1 for who has used nothing, a half for who has used its share."""
        if self.fair is None or not self.fair.applies(job.queue):
            return 1.0
        return self.fair.factor(job.queue, self.fair.party(job))

    def _qos(self, job: Job) -> float:
        """The value of its PriorityClass, of the highest that there is."""
        return max(0.0, job.priority / self.highest_class) if self.highest_class else 0.0

    def _partition(self, job: Job) -> float:
        """The priority of its queue, of the highest that there is."""
        priority = self.session.state.queues[job.queue].priority
        return max(0.0, priority / self.highest_queue) if self.highest_queue else 0.0
