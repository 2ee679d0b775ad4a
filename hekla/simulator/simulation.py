"""The loop: what arrives or ends at a moment is told to the engine, and a cycle decides.

The engine is fed as the daemon's informers feed it, with objects of the API, and what it decides is
taken to have happened at once: a bound pod runs, an evicted one is gone and its job makes it anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hekla.api.names import SCHEDULER
from hekla.api.trees import Tree
from hekla.engine.cycle import cycle, hooks_of
from hekla.engine.framework.policy import Policy
from hekla.engine.model.decisions import Bind, Decisions, Evict
from hekla.engine.model.durations import instant
from hekla.engine.model.resources import amounts
from hekla.engine.model.state import State
from hekla.simulator.objects import anew, pod, pod_group, stamp_of, started, succeeded
from hekla.simulator.workload import (
    MICROSECONDS,
    GivenPod,
    InputError,
    SimulatedJob,
    Workload,
    microseconds,
)

SERVING = frozenset(
    ("enqueue", "allocate", "backfill", "preempt", "reclaim", "gangpreempt", "gangreclaim")
)
"""Actions that do nothing when no pod waits."""
MOST_CYCLES = 100
"""Cycles at one moment, after which the policy is taken to go in a circle."""


@dataclass(slots=True)
class JobRun:
    """What became of a job.  Times in microseconds since the beginning."""

    job: SimulatedJob
    started: int | None = None
    """When its minimum first ran."""
    ended: int | None = None
    evictions: int = 0
    running: int = 0
    left: int = 0
    """Pods that have not ended."""


@dataclass(slots=True)
class PodRun:
    """A pod that there is."""

    run: JobRun
    tree: Tree
    """As it came."""
    duration: int | None
    bound: Tree | None = None
    """As it runs, where it was bound here."""
    since: int | None = None
    """Since when it runs in this simulation."""


@dataclass(slots=True)
class Run:
    """What became of a workload under one policy."""

    jobs: list[JobRun]
    until: int = 0
    """The last moment that was looked at."""
    cycles: int = 0
    capacity: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    """Resource -> what was held, times the seconds that it was."""
    problems: list[str] = field(default_factory=list)
    by_key: dict[str, JobRun] = field(default_factory=dict)
    """PodGroup (namespace/name) -> what became of its job, also of pods that others schedule."""


class Simulation:
    """One workload under one policy.

    `every_moment`: a cycle also where it can decide nothing (see `_may_rest`), for comparison.
    `period`: microseconds after which a cycle follows while a pod waits, though nothing has
    happened; 0 for none.
    """

    def __init__(
        self, workload: Workload, policy: Policy, every_moment: bool = False, period: int = 0
    ) -> None:
        self.period = period
        self.policy = policy
        self.every_moment = every_moment
        self.beginning = workload.beginning
        self.state = State(
            **{"scheduler_names": [SCHEDULER], "implied_groups": True, **workload.settings}
        )
        self.state.metered = False
        self.runs = {job.key: JobRun(job, left=job.pods) for job in workload.jobs}
        self.now = 0
        self.arrivals = sorted(workload.jobs, key=lambda job: (job.submit, job.key))
        self.next = 0
        """The first of the arrivals that has not come."""
        self.ends: list[tuple[int, str, str]] = []
        """When pods end: a heap of (moment, pod, uid)."""
        self.pods: dict[str, PodRun] = {}
        """The pods that there are."""
        self.running = 0
        """How many of them run."""
        self.outcome = Run(
            [run for run in self.runs.values() if not run.job.background], by_key=self.runs
        )
        self._made = 0
        self.done: dict[str, list[str]] = {}
        """Pods that have ended, of each job that goes on: they count for its minimum."""
        self._unfinished: set[str] = set()
        """Jobs that have lost a pod since the last cycle, and go on with the others."""
        for tree in workload.cluster:
            self._feed(tree)
        self.outcome.capacity = {
            name: amount for name, amount in self.state.nodes.total().items() if amount
        }
        self._check(workload)

    def run(
        self, until: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Run:
        """Simulate to the end, or to a moment.  `progress` is told how many jobs have ended, of how
        many."""
        ended = 0
        while (moment := self._next_moment()) is not None and (until is None or moment <= until):
            self.now = moment
            ended += self._end_due()
            self._arrive_due()
            if not self._may_rest():
                self._decide()
            if progress is not None:
                progress(ended, len(self.runs))
        if until is not None and moment is not None:
            self.now = until  # It was stopped: what runs has run until then.
        self.outcome.until = self.now
        for key, one in self.pods.items():
            self._count_use(key, one)
        return self.outcome

    def _next_moment(self) -> int | None:
        moments = [self.ends[0][0]] if self.ends else []
        if self.next < len(self.arrivals):
            moments.append(max(self.arrivals[self.next].submit, 0))
        if self.period and moments and self._waits():
            moments.append(self.now + self.period)
        for notice in self.state.eviction_notices.given.values():
            if (due := notice.at * MICROSECONDS - self.beginning) > self.now:
                moments.append(due)
        return min(moments, default=None)

    def _waits(self) -> bool:
        """Whether a pod is without a node."""
        return len(self.pods) > self.running

    def _may_rest(self) -> bool:
        """Whether a cycle could decide nothing: no pod waits, all that has happened is that whole
        jobs have gone, and the policy acts for those that wait alone and minds no time."""
        return (
            not self._waits()
            and not self._unfinished
            and not self.every_moment
            and not hooks_of(self.state, self.policy).read_clock
            and SERVING.issuperset(self.policy.actions)
        )

    def _decide(self) -> None:
        """Cycles until one has nothing to do: what was decided may let the next decide more."""
        self._unfinished.clear()
        for _ in range(MOST_CYCLES):
            decided = cycle(self.state, self.policy, self._clock())
            self.outcome.cycles += 1
            self.outcome.problems.extend(decided.problems)
            if not self._carry_out(decided):
                return
        self.outcome.problems.append(
            f"at {self.now / MICROSECONDS:.0f} s the policy binds and evicts without end"
        )

    # ---------------------------------------------------------------------------------- what happens

    def _end_due(self) -> int:
        """What ends now; how many jobs have ended by it."""
        ended = 0
        while self.ends and self.ends[0][0] == self.now:
            _, key, uid = heapq.heappop(self.ends)
            ended += self._end(key, uid)
        return ended

    def _arrive_due(self) -> None:
        while self.next < len(self.arrivals) and self.arrivals[self.next].submit <= self.now:
            self._arrive(self.arrivals[self.next])
            self.next += 1

    def _arrive(self, job: SimulatedJob) -> None:
        stamp = self._stamp()
        run = self.runs[job.key]
        if not job.given:
            self.state.upsert_pod_group(pod_group(job, stamp))
            for number in range(job.pods):
                tree = pod(job, f"{job.name}-{number}", self._uid(), stamp)
                self._make(f"{job.namespace}/{job.name}-{number}", PodRun(run, tree, job.duration))
            return
        if job.group is not None:
            self.state.upsert_pod_group(job.group)
        starts = sorted(
            start for start in (self._take(run, one) for one in job.given) if start is not None
        )
        if len(starts) >= job.min_available:
            run.started = starts[max(job.min_available - 1, 0)]
        if self.state.rejected:
            (kind, key), why = next(iter(self.state.rejected.items()))
            self.outcome.problems.append(f"{kind} {key} is left out: {why}")

    def _take(self, run: JobRun, given: GivenPod) -> int | None:
        """A pod as it was given: when it began to run, or None if it waits."""
        meta, status = given.tree["metadata"], given.tree.get("status") or {}
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        if status.get("phase") in ("Succeeded", "Failed"):
            self.state.upsert_pod(given.tree)
            self.done.setdefault(run.job.key, []).append(key)
            run.left -= 1
            return None
        one = PodRun(run, given.tree, given.duration)
        self._make(key, one)
        if not given.tree["spec"].get("nodeName"):
            return None
        stated = instant(status.get("startTime", "") or "")
        start = min(microseconds(stated) - self.beginning, self.now) if stated else self.now
        self._start(one, key, meta.get("uid", ""), start)
        return start

    def _uid(self) -> str:
        self._made += 1
        return f"pod-{self._made}"

    def _make(self, key: str, one: PodRun) -> None:
        self.pods[key] = one
        self.state.upsert_pod(one.tree)

    def _start(self, one: PodRun, key: str, uid: str, start: int) -> None:
        one.since = self.now
        self.running += 1
        one.run.running += 1
        if one.duration is not None:
            heapq.heappush(self.ends, (max(start + one.duration, self.now), key, uid))

    def _end(self, key: str, uid: str) -> bool:
        """A pod has done its work: whether its job has."""
        one = self.pods.get(key)
        if one is None or one.tree["metadata"].get("uid", "") != uid or one.since is None:
            return False  # It was evicted before.
        run = one.run
        self._count_use(key, one)
        del self.pods[key]
        self.running -= 1
        run.running -= 1
        run.left -= 1
        job = run.job
        if run.left:
            self._unfinished.add(job.key)
            self.done.setdefault(job.key, []).append(key)
            self.state.upsert_pod(succeeded(one.bound or one.tree))
            return False
        self._unfinished.discard(job.key)
        run.ended = self.now
        for each in (*self.done.pop(job.key, ()), key):
            self.state.remove_pod(each)
        if job.group is not None or not job.given:
            self.state.remove_pod_group(job.key)
        return True

    def _carry_out(self, decided: Decisions) -> bool:
        """Whether anything happened that the engine has to look at."""
        for eviction in decided.evictions:
            self._evict(eviction)
        for bind in decided.binds:
            self._bind(bind)
        return bool(decided.binds or decided.evictions)

    def _bind(self, bind: Bind) -> None:
        one = self.pods[bind.pod]
        one.bound = started(one.tree, bind, self._stamp())
        self.state.upsert_pod(one.bound)
        self._start(one, bind.pod, bind.uid, self.now)
        run = one.run
        if run.started is None and run.running >= run.job.min_available:
            run.started = self.now

    def _evict(self, eviction: Evict) -> None:
        """The pod is gone, its work is lost, and its job makes it anew; nobody does for a pod without
        one."""
        one = self.pods.pop(eviction.pod, None)
        if one is None:
            return
        run = one.run
        if one.since is not None:
            self._count_use(eviction.pod, one)
            self.running -= 1
            run.running -= 1
        run.evictions += 1
        self.state.remove_pod(eviction.pod)
        if run.job.given and run.job.group is None:
            run.left -= 1
            return
        tree = anew(one.tree, self._uid(), self._stamp())
        self._make(eviction.pod, PodRun(run, tree, one.duration))

    def _count_use(self, key: str, one: PodRun) -> None:
        """A pod has stopped running, or the simulation ends."""
        if one.since is not None and (held := (self.now - one.since) / MICROSECONDS):
            for name, amount in self.state.tasks[key].request.amounts.items():
                self.outcome.used[name] = self.outcome.used.get(name, 0.0) + amount * held

    # ----------------------------------------------------------------------------------- the cluster

    def _feed(self, tree: Tree) -> None:
        kind = str(tree.get("kind", ""))
        upsert = {
            "Node": self.state.upsert_node,
            "Queue": self.state.upsert_queue,
            "PriorityClass": self.state.upsert_priority_class,
            "Namespace": self.state.upsert_namespace,
        }.get(kind)
        if upsert is not None:
            upsert(tree)
        else:
            self.state.upsert_other(kind, tree)
        if self.state.rejected:
            (kind, key), why = next(iter(self.state.rejected.items()))
            raise InputError(f"{kind} {key}: {why}")

    def _check(self, workload: Workload) -> None:
        """Every job fits an empty cluster and names what is there, so that none waits for ever by
        mistake.  Raises InputError."""
        self.state.count_changes()
        total = self.state.nodes.total()
        for job in workload.jobs:
            if job.given:  # A cluster has jobs that nobody can run, and they wait.
                continue
            if job.queue not in self.state.queues:
                known = ", ".join(sorted(self.state.queues)) or "none"
                raise InputError(
                    f'job "{job.name}": queue = "{job.queue}" does not exist; there are: {known}'
                )
            if (
                job.priority_class
                and job.priority_class not in self.state.job_table.priority_classes
            ):
                raise InputError(
                    f'job "{job.name}": priority class "{job.priority_class}" does not exist'
                )
            for name, amount in amounts(job.requests).items():
                if amount * job.min_available > total.get(name, 0.0) and name != "pods":
                    scale = 1000.0 if name == "cpu" else 1.0
                    raise InputError(
                        f'job "{job.name}": {job.min_available} pods of {name}={job.requests.get(name)} are more '
                        f"than the cluster has ({total.get(name, 0.0) / scale:g})"
                    )

    def _stamp(self) -> str:
        return stamp_of(self.beginning + self.now)

    def _clock(self) -> float:
        """The moment as the engine's clock, exactly as its timestamp is read."""
        return (self.beginning + self.now) / MICROSECONDS


def simulate(
    workload: Workload,
    policies: Sequence[Policy],
    until: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    period: int = 0,
) -> list[Run]:
    """The workload under each of the policies.  `until` and `period` are microseconds.  Raises
    InputError before anything runs."""
    made = [Simulation(workload, policy, period=period) for policy in policies]
    return [one.run(until, progress) for one in made]
