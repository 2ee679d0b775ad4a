"""cdp: a pod that has just started is left alone for a while.  Reference: plugins-fairness 12."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.engine.framework.plugin import Plugin, Reads, Source, Victims
from hekla.engine.model.annotations import COOLDOWN
from hekla.engine.model.tasks import Status, Task
from hekla.engine.model.time.durations import seconds

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView


class CooldownProtection(Plugin):
    """Spares pods that were scheduled less than their cooldown ago."""

    name = "cdp"
    reads = Reads(victims=Source.PREEMPTOR, clock=True)

    def open(self, session: CycleView) -> None:
        self.now = session.now

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return Victims([task for task in candidates if not self._protected(task)])

    reclaimable = preemptable

    def _protected(self, task: Task) -> bool:
        stated = task.labels.labels.get(COOLDOWN, task.annotations.get(COOLDOWN))
        if stated is None or task.status is not Status.RUNNING or not task.scheduled:
            return False
        try:
            return task.scheduled + seconds(stated) > self.now
        except ValueError:
            return False
