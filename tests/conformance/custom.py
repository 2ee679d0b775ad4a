"""The custom plugins that some cases name in `needs`; the format's page says what each does."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hekla.engine.framework.plugin import PERMIT, REJECT, Code, Depends, Filter, Plugin
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.tasks import Job, Status, Task


class TestRejecter(Plugin):
    """Keeps the PodGroup named pgA out."""

    __test__ = False
    name = "test-rejecter"

    def job_enqueueable(self, job: Job) -> int:
        return REJECT if job.name == "pgA" else PERMIT


class DeviceFitAfterEviction(Plugin):
    """The pod "preemptor" does not fit where "preemptee" still is and does not leave."""

    name = "device-fit-after-eviction"

    def filters(self) -> Iterable[Filter]:
        yield Filter(
            "device",
            "hidden device capacity is occupied",
            Code.UNSCHEDULABLE,
            Depends.CLUSTER,
            _mask,
            self.name,
        )


def _mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
    if task is None or task.name != "preemptor":
        return None
    blocked = [
        any(one.name == "preemptee" and one.status is not Status.RELEASING for one in held.values())
        for held in nodes.table.tasks
    ]
    result: Bools = nodes.take(~np.array(blocked, dtype=np.bool_))
    return result


class Fake(Plugin):
    """Offers every candidate of priority 10."""

    name = "fake"

    def victim_tasks(self, candidates: list[Task]) -> list[Task]:
        return [task for task in candidates if task.priority == 10]


CUSTOM: dict[str, type[Plugin]] = {
    plugin.name: plugin for plugin in (TestRejecter, DeviceFitAfterEviction, Fake)
}
