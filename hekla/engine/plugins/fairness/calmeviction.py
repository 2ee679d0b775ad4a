"""calm-eviction: pods run for a while before they may be evicted, the cheapest leaves first, and not
too many at once.

It names no victims: it spares pods that others name, whatever tier these are in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hekla.api.text.times import instant, stamp
from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Plugin, Reads, Source
from hekla.engine.framework.session import session_of
from hekla.engine.model.annotations import (
    EVICTION_GRACE,
    EVICTION_NOTICE,
    EVICTION_RATE,
    LAST_CHECKPOINT,
    MIN_RUNTIME,
    RESTART_COST,
    SEMI_PREEMPTIBLE,
)
from hekla.engine.model.evictions.log import MOST_ROUNDS
from hekla.engine.model.gangs import breaks_gang
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.model.time.durations import seconds

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

UNREADABLE = "UnreadableAnnotation"
"""Reason of the event on an object whose annotation means nothing."""


class Rate(NamedTuple):
    """At most so many evictions in so many seconds."""

    most: int
    within: float
    text: str


def rate(text: str) -> Rate:
    """What `10/1h` says.  Raises ValueError."""
    count, _, length = text.partition("/")
    try:
        if count.strip().isdecimal() and (within := seconds(length.strip())) > 0:
            return Rate(int(count), within, text)
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a number of evictions in a time, such as 10/1h")


def duration(text: str) -> float:
    """What `90s` says; not less than 0.  Raises ValueError."""
    found = seconds(text)
    if found < 0:
        raise ValueError(f"{text!r} is less than 0; a duration such as 90s or 1h30m is meant")
    return found


def moment(text: str) -> float:
    """What `2026-11-24T14:00:00Z` says.  Raises ValueError."""
    try:
        return instant(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-11-24T14:00:00Z") from None


def truth(text: str) -> bool:
    """What `true` says.  Raises ValueError."""
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


_OF_JOBS = {
    MIN_RUNTIME: duration,
    RESTART_COST: duration,
    LAST_CHECKPOINT: moment,
    EVICTION_NOTICE: duration,
    EVICTION_GRACE: duration,
    SEMI_PREEMPTIBLE: truth,
}
"""How the annotations of pods and PodGroups are read."""
_OF_QUEUES = {MIN_RUNTIME: duration, EVICTION_RATE: rate}


class CalmEvictionArguments(Arguments, frozen=True):
    min_runtime: str = msgspec.field(default="0s", name="minRuntime")
    longest_min_runtime: str = msgspec.field(default="24h", name="longestMinRuntime")
    eviction_rate: str = msgspec.field(default="", name="evictionRate")
    queue_eviction_rate: str = msgspec.field(default="", name="queueEvictionRate")
    cheapest_first: bool = msgspec.field(default=True, name="cheapestFirst")
    semi_preemptible: bool = msgspec.field(default=False, name="semiPreemptible")
    notice: str = "0s"
    longest_notice: str = msgspec.field(default="10m", name="longestNotice")
    grace: str = "0s"
    loop_window: str = msgspec.field(default="10m", name="loopWindow")

    def extended(self, rest: Tree) -> CalmEvictionArguments:
        for name, value, read in (
            ("minRuntime", self.min_runtime, duration),
            ("longestMinRuntime", self.longest_min_runtime, duration),
            ("notice", self.notice, duration),
            ("longestNotice", self.longest_notice, duration),
            ("grace", self.grace, duration),
            ("loopWindow", self.loop_window, duration),
            ("evictionRate", self.eviction_rate or "1/1s", rate),
            ("queueEvictionRate", self.queue_eviction_rate or "1/1s", rate),
        ):
            try:
                read(value)
            except ValueError as error:
                raise ValueError(f"{name} = {value!r}: {error}") from None
        return self


class CalmEviction(Plugin):
    """Leaves running pods in peace.

    What a pod or its PodGroup says goes before what its PriorityClass says, that before its queue,
    and that before the policy; what a job says of itself has limits in the policy.
    """

    name = "calm-eviction"
    Arguments = CalmEvictionArguments
    arguments: CalmEvictionArguments
    reads = Reads(
        clock=True, between_placements=Source.JOBS, nodes=Source.NODES, victims=Source.PREEMPTOR
    )

    def __init__(self, arguments: CalmEvictionArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.min_runtime = duration(arguments.min_runtime)
        self.longest_min_runtime = duration(arguments.longest_min_runtime)
        self.notice = duration(arguments.notice)
        self.longest_notice = duration(arguments.longest_notice)
        self.grace = math.ceil(duration(arguments.grace))
        self.loop_window = duration(arguments.loop_window)
        self.of_cluster = rate(arguments.eviction_rate) if arguments.eviction_rate else None
        self.of_queues = (
            rate(arguments.queue_eviction_rate) if arguments.queue_eviction_rate else None
        )
        if arguments.cheapest_first:
            self.victim_order = self._victim_order  # type: ignore[method-assign]  # the hook exists only then

    def open(self, session: CycleView) -> None:
        self.session = session
        self.now = session.now
        self.going: dict[str, Task] = {}
        """Who is on the way out by what this cycle has done so far, tentatively or for good."""
        self.going_of: dict[str, int] = {}
        """How many of these by queue."""
        queues = session.state.queues.values()
        self.rates = {queue.name: found for queue in queues if (found := self._rate(queue.name))}
        windows = [one.within for one in (self.of_cluster, *self.rates.values()) if one]
        log = session.state.eviction_log
        log.forget_before(self.now - max([self.loop_window, *windows]))
        self.before = {within: log.count(self.now - within) for within in set(windows)}
        """Window -> the evictions of earlier cycles in it, all and by queue."""

    # ------------------------------------------------------------------------------------ what is said

    def _said(self, task: Task, name: str) -> Iterator[str]:
        """An annotation of the pod, and of its PodGroup."""
        for marks in (task.annotations, {} if task.job is None else task.job.annotations):
            if name in marks:
                yield marks[name]

    def _of_job(self, task: Task, name: str) -> float | None:
        """What a pod, or else its PodGroup, says with an annotation; None where they say nothing
        that can be understood."""
        for text in self._said(task, name):
            try:
                return float(_OF_JOBS[name](text))
            except ValueError:
                continue
        return None

    def _rate(self, queue: str) -> Rate | None:
        marks = self.session.state.queues[queue].annotations
        try:
            return rate(marks[EVICTION_RATE]) if EVICTION_RATE in marks else self.of_queues
        except ValueError:
            return self.of_queues

    def _min_runtime(self, task: Task) -> tuple[float, str]:
        """Seconds for which the pod is left alone, and who says so."""
        own = self._of_job(task, MIN_RUNTIME)
        if own is not None:
            return min(own, self.longest_min_runtime), "its job"
        state, job = self.session.state, task.job
        kind = (job.priority_class if job is not None else "") or task.priority_class
        queue = state.queues.get(job.queue) if job is not None else None
        for marks, whose in (
            (state.priority_annotations.get(kind, {}), f"PriorityClass {kind}"),
            (queue.annotations if queue is not None else {}, f"queue {job.queue if job else ''}"),
        ):
            try:
                return duration(marks[MIN_RUNTIME]), whose
            except (KeyError, ValueError):
                continue
        return self.min_runtime, "the policy"

    # ---------------------------------------------------------------------------------- who is spared

    def spares(self, victim: Task, preemptor: Job | None) -> str:
        length, whose = self._min_runtime(victim)
        if length:
            began = victim.start or victim.scheduled
            if not began and victim.status is Status.BOUND:
                began = self.now
            if began + length > self.now:
                until = stamp(began + length)
                return f"the minimum runtime that {whose} states ends at {until}"
        job = victim.job
        if job is None:
            return ""
        if self._is_semi_preemptible(victim) and breaks_gang(victim, job):
            return f"job {job.title} gives only what is above its minimum of {job.min_available}"
        if preemptor is not None and preemptor is not job:
            until_then = self.session.state.eviction_log.apart_until(preemptor, job, self.now)
            if until_then:
                return (
                    f"{preemptor.title} and {job.title}, or their queues, took the same room from each "
                    f"other {MOST_ROUNDS} times; they are kept apart until {stamp(until_then)}"
                )
        return self._beyond_rate(victim, job)

    def _is_semi_preemptible(self, task: Task) -> bool:
        own = self._of_job(task, SEMI_PREEMPTIBLE)
        return self.arguments.semi_preemptible if own is None else bool(own)

    def _beyond_rate(self, victim: Task, job: Job) -> str:
        for limit, queue in ((self.of_cluster, ""), (self.rates.get(job.queue), job.queue)):
            if limit is None:
                continue
            total, by_queue = self.before[limit.within]
            going = self.going_of.get(queue, 0) if queue else len(self.going)
            if (by_queue.get(queue, 0) if queue else total) + going >= limit.most:
                whose = f"queue {queue}" if queue else "the cluster"
                return f"{whose} has had as many evictions as its rate of {limit.text} allows"
        return ""

    # -------------------------------------------------------------------------------- who leaves first

    def _victim_order(self, victim: Task) -> tuple[float, float, float]:
        """The lowest priority first; among equal ones, who loses the least."""
        job = victim.job
        return (job.priority if job is not None else 0.0), victim.priority, self.cost(victim)

    def cost(self, victim: Task) -> float:
        """Seconds of work that the pod would lose: since its last checkpoint or its start, and those
        that it takes to start again."""
        began = victim.start or victim.scheduled or self.now
        kept = max(
            (at for text in self._said(victim, LAST_CHECKPOINT) if (at := _moment(text))),
            default=0.0,
        )
        lost = max(0.0, self.now - max(began, min(kept, self.now)))
        return lost + (self._of_job(victim, RESTART_COST) or 0.0)

    # ----------------------------------------------------------------------------- how they are told

    def eviction_notice(self, victim: Task) -> float:
        own = self._of_job(victim, EVICTION_NOTICE)
        return self.notice if own is None else min(own, self.longest_notice)

    def eviction_grace(self, victim: Task) -> int:
        own = self._of_job(victim, EVICTION_GRACE)
        return self.grace if own is None else math.ceil(min(own, self.longest_notice))

    # ------------------------------------------------------------------------------------ what happened

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status is Status.RELEASING and task.key not in self.going:
            self.going[task.key] = task
            self.going_of[job.queue] = self.going_of.get(job.queue, 0) + 1

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if self.going.pop(task.key, None) is not None:
            self.going_of[job.queue] -= 1

    def eviction_decided(self, victim: Task, preemptor: Job | None) -> None:
        job = victim.job
        if job is None:
            return
        log = self.session.state.eviction_log
        circle = log.note(self.now, job, preemptor, self.loop_window)
        if circle is None or preemptor is None:
            return
        who = " and ".join(circle.parties)
        text = (
            f"{who} took the same room from each other {MOST_ROUNDS} times within "
            f"{self.arguments.loop_window}; none of them takes from another until {stamp(circle.until)}"
        )
        for one in (preemptor, job):
            self.session.event(one, "Warning", "EvictionLoop", text)
        self.session.metric("eviction_loops_total", 1.0)

    def close(self, session: CycleView) -> None:
        """Say on objects what of their annotations cannot be understood."""
        warn = session_of(session).warn_once
        for name, queue in session.state.queues.items():
            warn("Queue", name, UNREADABLE, _unreadable(queue.annotations, _OF_QUEUES))
        for name, marks in session.state.priority_annotations.items():
            warn("PriorityClass", name, UNREADABLE, _unreadable(marks, {MIN_RUNTIME: duration}))
        for job in session.changed_jobs():
            if job.has_group and not job.shadow:
                warn("PodGroup", job.key, UNREADABLE, _unreadable(job.annotations, _OF_JOBS))


def _moment(text: str) -> float:
    try:
        return moment(text)
    except ValueError:
        return 0.0


def _unreadable(marks: Mapping[str, str], known: Mapping[str, object]) -> str:
    """What of an object's annotations cannot be understood; empty for most."""
    for name in known.keys() & marks.keys() if marks else ():
        read = known[name]
        assert callable(read)
        try:
            read(marks[name])
        except ValueError as error:
            return f"{name}: {error}. Until then it counts as absent."
    return ""
