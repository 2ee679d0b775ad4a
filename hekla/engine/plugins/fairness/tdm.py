"""tdm: nodes that are lent by the clock; their pods leave when the time is over.  Reference:
plugins-fairness 9."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import (
    PERMIT,
    REJECT,
    Arguments,
    Code,
    Depends,
    Filter,
    Mask,
    Plugin,
    Reads,
    Score,
    Source,
    Victims,
)
from hekla.engine.model.annotations import MAX_UNAVAILABLE, MIN_AVAILABLE
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.model.time.durations import seconds

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass

ZONE_LABEL = "volcano.sh/revocable-zone"
_EVICTED = "tdm evicted"
_FAMILY = "tdm.revocable-zone."
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_WHOLE = re.compile(r"[+-]?[0-9]+")


class TdmArguments(Arguments, frozen=True):
    period: str = msgspec.field(default="1m", name="tdm.evict.period")
    made: ClassVar[frozenset[str]] = frozenset({"zones"})
    zones: dict[str, str] = {}

    def __post_init__(self) -> None:
        seconds(self.period)

    @classmethod
    def accepts(cls, key: str) -> bool:
        return _FAMILY in key

    def extended(self, rest: Tree) -> TdmArguments:
        for key, value in rest.items():
            if not isinstance(value, str) or window(value) is None:
                raise ValueError(f"{key} = {value!r}: a window such as 9:00-18:30")
        return msgspec.structs.replace(
            self, zones={key.replace(_FAMILY, "", 1): value for key, value in rest.items()}
        )


class Tdm(Plugin):
    """Revocable nodes serve preemptable pods while their zone's window is open."""

    name = "tdm"
    reads = Reads(victims=Source.PREEMPTOR, clock=True, waiting_order=True)
    Arguments = TdmArguments
    arguments: TdmArguments

    def __init__(self, arguments: TdmArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.period = seconds(arguments.period)

    def open(self, session: CycleView) -> None:
        self.session = session
        local = session.state.zone
        self.troubles = {
            zone: trouble(zone, text, session.now, local)
            for zone, text in self.arguments.zones.items()
        }

    def _closed(self, zone: str) -> str:
        """Why a zone cannot be used now, or nothing."""
        return self.troubles.get(zone, f"revocable zone {zone} not support")

    # ---------------------------------------------------------------------------------------- where

    def filters(self) -> Iterable[Filter]:
        for zone in sorted(self.arguments.zones):
            yield Filter(
                f"tdm: {zone}",
                f"current time beyond revocable zone {zone}:{self.arguments.zones[zone]}",
                Code.UNRESOLVABLE,
                Depends.CLUSTER,
                self._zone_filter(zone),
                self.name,
            )
        reason = "not allow to dispatch to revocable node"
        yield Filter(
            "tdm",
            reason,
            Code.UNRESOLVABLE,
            Depends.CLUSTER,
            self._may_use,
            self.name,
            self._why_not,
        )

    def _why_not(self, pods: PodClass, row: int) -> str:
        zone = self._zone_of(row)
        return (
            "not allow to dispatch to revocable node"
            if zone in self.arguments.zones
            else self._closed(zone)
        )

    def _zone_filter(self, zone: str) -> Mask:
        def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
            if not self._closed(zone):
                return None
            column = nodes.table.labels(ZONE_LABEL)
            if zone not in column.index:
                return None
            result: Bools = nodes.take(nodes.table.label_codes(ZONE_LABEL)) != column.index[zone]
            return result

        return mask

    def _may_use(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if task is not None and task.revocable_zone:
            return self._per_zone(nodes, lambda zone: zone in self.arguments.zones)
        return self._per_zone(nodes, lambda zone: False)

    def _per_zone(self, nodes: NodeView, verdict: Callable[[str], bool]) -> Bools:
        column = nodes.table.labels(ZONE_LABEL)
        verdicts = np.array(
            [*(not zone or verdict(zone) for zone in column.values), True], dtype=np.bool_
        )
        return verdicts[nodes.take(nodes.table.label_codes(ZONE_LABEL))]

    def scores(self) -> Iterable[Score]:
        yield Score("tdm", 1.0, Depends.STATIC, self._revocable, batch=False)

    def _revocable(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        if task is None or not task.revocable_zone:
            return None
        column = nodes.table.labels(ZONE_LABEL)
        scores = np.array(
            [*(100.0 if zone and not self._closed(zone) else 0.0 for zone in column.values), 0.0]
        )
        return scores[nodes.take(nodes.table.label_codes(ZONE_LABEL))]

    # ----------------------------------------------------------------------------------- who leaves

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        if preemptor.preemptable or preemptor.revocable_zone:
            return Victims([], REJECT)
        ready = self.session.state.nodes.ready
        lasting = (
            task
            for task in candidates
            if task.row >= 0 and ready[task.row] and not self._zone_of(task.row)
        )
        return Victims(self._budgeted(lasting))

    def victim_tasks(self, candidates: list[Task]) -> list[Task]:
        remembered, now = self.session.state.remembered, self.session.now
        if remembered.get(_EVICTED, -math.inf) + self.period > now:
            return []
        remembered[_EVICTED] = now
        closed = [zone for zone in sorted(self.arguments.zones) if self._closed(zone)]
        held = self.session.state.nodes.tasks
        rows = [row for zone in closed for row in range(len(held)) if self._zone_of(row) == zone]
        return self._budgeted(task for row in rows for task in held[row].values())

    def _zone_of(self, row: int) -> str:
        column = self.session.state.nodes.labels(ZONE_LABEL)
        return column.values[column.codes[row]] if row >= 0 and column.codes[row] >= 0 else ""

    def _budgeted(self, tasks: Iterable[Task]) -> list[Task]:
        """Of those that may leave, of each job the first, as many as its budget allows."""
        groups: dict[Job, list[Task]] = {}
        for task in tasks:
            job = task.job
            if self.session.in_session(job) and task.preemptable and task.status is Status.RUNNING:
                groups.setdefault(job, []).append(task)
        return [task for job, held in groups.items() for task in held[: most_evictions(job)]]

    # ----------------------------------------------------------------------------------------- jobs

    def job_order(self, job: Job) -> bool:
        return job.preemptable

    def job_pipelined(self, job: Job) -> int:
        return PERMIT if job.is_pipelined() else REJECT

    def job_starving(self, job: Job) -> bool:
        return not job.preemptable and bool(job.counts.statuses[Status.PENDING])


def most_evictions(job: Job) -> int:
    """How many pods of a job may go at once, by its disruption budget."""
    count, running = len(job.tasks), len(job.counts.statuses[Status.RUNNING])
    least, most = job.annotations.get(MIN_AVAILABLE), job.annotations.get(MAX_UNAVAILABLE)
    if least is not None:
        kept = _number(least, count)
        return running - kept if running >= kept else 1
    if most is not None:
        gone = count - job.counts.of(Status.SUCCEEDED, Status.FAILED) - running
        return max(_number(most, count) - gone, 0)
    return 1


def _number(text: str, of: int) -> int:
    """A count, or a percentage rounded up; anything else is nothing."""
    digits = text.removesuffix("%")
    if not _WHOLE.fullmatch(digits):
        return 0
    return -(-of * int(digits) // 100) if digits != text else int(digits)


def window(text: str) -> tuple[timedelta, timedelta] | None:
    """From and to as times since midnight, the second after the first; None for a text that is no
    window."""
    times = [_TIME.fullmatch(part) for part in text.strip().split("-")]
    if len(times) != 2 or not all(one and int(one[1]) <= 23 and int(one[2]) <= 59 for one in times):
        return None
    start, end = (timedelta(hours=int(one[1]), minutes=int(one[2])) for one in times if one)
    return start, end if start < end else end + timedelta(days=1)


def trouble(zone: str, text: str, now: float, local: tzinfo) -> str:
    """Why a window is not open now, or nothing.  Reference: plugins-fairness 9.1."""
    times = window(text)
    if times is None:
        return f"revocable zone {text} format error"
    moment = datetime.fromtimestamp(int(now), local).replace(tzinfo=None)
    today = moment.replace(hour=0, minute=0, second=0)
    inside = today + times[0] <= moment <= today + times[1]
    return "" if inside else f"current time beyond revocable zone {zone}:{text}"
