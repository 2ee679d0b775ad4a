"""The gauges of what queues hold, want and may have, under the names that dashboards know.
Reference: plugins-fairness 16.

Whoever shows them takes a gauge's series of one cycle as all there are, so a queue is written in
every cycle.  A resource that a queue had once is written as 0 from then on: a line in a chart that
ends looks like a scheduler that does.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from hekla.engine.model.resources import CPU, MEMORY

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

Labels = tuple[tuple[str, str], ...]
KINDS = ("allocated", "request", "inqueue", "deserved", "capacity", "real_capacity")
_NAMES = {
    kind: (
        f"queue_{kind}_milli_cpu",
        f"queue_{kind}_memory_bytes",
        f"queue_{kind}_scalar_resources",
    )
    for kind in KINDS
}
NOTHING: Mapping[str, float] = {}


class QueueGauges:
    """Kept by a plugin from cycle to cycle, for the labels and the resources seen so far."""

    def __init__(self) -> None:
        self._own: dict[str, Labels] = {}
        self._scalars: dict[str, dict[str, Labels]] = {}

    def write(self, session: CycleView, kind: str, queue: str, of: Mapping[str, float]) -> None:
        """One of KINDS, for one queue."""
        if not session.state.metered:
            return
        own = self._own.get(queue)
        if own is None:
            own = self._own[queue] = (("queue_name", queue),)
            self._scalars[queue] = {}
        scalars = self._scalars[queue]
        for name in of:
            if name not in scalars and name not in (CPU, MEMORY):
                scalars[name] = (*own, ("resource", name))
        cpu, memory, scalar = _NAMES[kind]
        metrics = session.decisions.metrics
        metrics.append((cpu, own, of.get(CPU, 0.0)))
        metrics.append((memory, own, of.get(MEMORY, 0.0)))
        metrics.extend([(scalar, labels, of.get(name, 0.0)) for name, labels in scalars.items()])

    def keep(self, queues: Container[str]) -> None:
        """Queues that are gone are forgotten."""
        for name in [name for name in self._own if name not in queues]:
            del self._own[name], self._scalars[name]
