"""The loop: what arrives or ends at a moment is told to the engine, and a cycle decides.

The engine is fed as the daemon's informers feed it, with objects of the API, and what it decides is
taken to have happened at once: a bound pod runs, an evicted one is gone and its job makes it anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hekla.api.names import WALLTIME
from hekla.api.text import quantity
from hekla.api.text.durations import duration_text
from hekla.api.text.times import micro_stamp
from hekla.api.trees import Json, Tree
from hekla.engine.cycle import cycle, hooks_of
from hekla.engine.framework.policy import Policy
from hekla.engine.model.decisions import Bind, Decisions, Evict
from hekla.engine.model.resources import amounts
from hekla.engine.model.state import State
from hekla.simulator.workload import MICROSECONDS, NAMESPACE, InputError, SimulatedJob, Workload

BEGINNING = 1_000_000_000
"""The moment 0 of a simulation, in seconds since 1970: an ordinary day, so that no time looks
absent."""
SCHEDULER = "volcano"
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
        self.state = State(scheduler_names=[SCHEDULER])
        self.state.metered = False
        self.runs = {f"{NAMESPACE}/{job.name}": JobRun(job, left=job.pods) for job in workload.jobs}
        self.now = 0
        self.arrivals = sorted(workload.jobs, key=lambda job: (job.submit, job.name))
        self.next = 0
        """The first of the arrivals that has not come."""
        self.ends: list[tuple[int, str, str]] = []
        """When pods end: a heap of (moment, pod, uid)."""
        self.pods: dict[str, tuple[JobRun, Json]] = {}
        """The pods that there are, with the run that each belongs to."""
        self.since: dict[str, int] = {}
        """Running pod -> since when."""
        self.outcome = Run(list(self.runs.values()))
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
        for key in list(self.since):
            self._count_use(key)
        return self.outcome

    def _next_moment(self) -> int | None:
        moments = [self.ends[0][0]] if self.ends else []
        if self.next < len(self.arrivals):
            moments.append(self.arrivals[self.next].submit)
        if self.period and moments and self._waits():
            moments.append(self.now + self.period)
        for notice in self.state.eviction_notices.given.values():
            if (due := (notice.at - BEGINNING) * MICROSECONDS) > self.now:
                moments.append(due)
        return min(moments, default=None)

    def _waits(self) -> bool:
        """Whether a pod is without a node."""
        return len(self.pods) > len(self.since)

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
            decided = cycle(self.state, self.policy, seconds(self.now))
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
        while self.next < len(self.arrivals) and self.arrivals[self.next].submit == self.now:
            self._arrive(self.arrivals[self.next])
            self.next += 1

    def _arrive(self, job: SimulatedJob) -> None:
        stamp = self._stamp()
        self.state.upsert_pod_group(pod_group(job, stamp))
        run = self.runs[f"{NAMESPACE}/{job.name}"]
        for number in range(job.pods):
            self._make(run, f"{job.name}-{number}", stamp)

    def _make(self, run: JobRun, name: str, stamp: str) -> None:
        self._made += 1
        tree = pod(run.job, name, f"pod-{self._made}", stamp)
        self.pods[f"{NAMESPACE}/{name}"] = run, tree
        self.state.upsert_pod(tree)

    def _end(self, key: str, uid: str) -> bool:
        """A pod has done its work: whether its job has."""
        known = self.pods.get(key)
        if known is None or known[1]["metadata"]["uid"] != uid or key not in self.since:
            return False  # It was evicted before.
        run = known[0]
        self._count_use(key)
        del self.pods[key]
        run.running -= 1
        run.left -= 1
        if run.left:
            self._unfinished.add(run.job.name)
            self.done.setdefault(run.job.name, []).append(key)
            self.state.upsert_pod({**known[1], "status": {"phase": "Succeeded"}})
            return False
        self._unfinished.discard(run.job.name)
        run.ended = self.now
        for each in (*self.done.pop(run.job.name, ()), key):
            self.state.remove_pod(each)
        self.state.remove_pod_group(f"{NAMESPACE}/{run.job.name}")
        return True

    def _carry_out(self, decided: Decisions) -> bool:
        """Whether anything happened that the engine has to look at."""
        for eviction in decided.evictions:
            self._evict(eviction)
        for bind in decided.binds:
            self._bind(bind)
        return bool(decided.binds or decided.evictions)

    def _bind(self, bind: Bind) -> None:
        run, tree = self.pods[bind.pod]
        started = {
            **tree,
            "metadata": {
                **tree["metadata"],
                "annotations": {**tree["metadata"]["annotations"], **bind.annotations},
            },
            "spec": {**tree["spec"], "nodeName": bind.node},
            "status": {"phase": "Running", "startTime": self._stamp()},
        }
        self.pods[bind.pod] = run, started
        self.state.upsert_pod(started)
        self.since[bind.pod] = self.now
        run.running += 1
        if run.started is None and run.running >= run.job.min_available:
            run.started = self.now
        heapq.heappush(self.ends, (self.now + run.job.duration, bind.pod, bind.uid))

    def _evict(self, eviction: Evict) -> None:
        """The pod is gone, its work is lost, and its job makes it anew."""
        known = self.pods.get(eviction.pod)
        if known is None:
            return
        run, tree = known
        if eviction.pod in self.since:
            self._count_use(eviction.pod)
            run.running -= 1
        run.evictions += 1
        self.state.remove_pod(eviction.pod)
        self._make(run, tree["metadata"]["name"], self._stamp())

    def _count_use(self, key: str) -> None:
        """A pod has stopped running, or the simulation ends."""
        held = (self.now - self.since.pop(key)) / MICROSECONDS
        if held:
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
        return micro_stamp_of(self.now)


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


def seconds(moment: int) -> float:
    """A moment of the simulation as the engine's clock, exactly as its timestamp is read."""
    return (BEGINNING * MICROSECONDS + moment) / MICROSECONDS


def micro_stamp_of(moment: int) -> str:
    whole, rest = divmod(moment, MICROSECONDS)
    stamp = micro_stamp(BEGINNING + whole)
    return stamp if not rest else f"{stamp[:-8]}.{rest:06d}Z"


def pod_group(job: SimulatedJob, stamp: str) -> Json:
    """The PodGroup of a job, as the job controller makes it."""
    annotations = {} if job.walltime is None else {WALLTIME: duration_text(job.walltime / 1e6)}
    return {
        "metadata": {
            "name": job.name,
            "namespace": NAMESPACE,
            "uid": f"group-{job.name}",
            "creationTimestamp": stamp,
            "annotations": annotations,
        },
        "spec": {
            "minMember": job.min_available,
            "queue": job.queue,
            "priorityClassName": job.priority_class,
            "minResources": _times(job.requests, job.min_available),
        },
        "status": {"phase": "Pending"},
    }


def pod(job: SimulatedJob, name: str, uid: str, stamp: str) -> Json:
    """A pod of a job that waits for a node."""
    resources = {"requests": dict(job.requests), "limits": dict(job.requests)}
    annotations = dict(job.template.get("annotations", {}))
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "labels": dict(job.template.get("labels", {})),
            "annotations": {"scheduling.k8s.io/group-name": job.name, **annotations},
            "creationTimestamp": stamp,
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "priorityClassName": job.priority_class,
            "containers": [{"name": "main", "resources": resources}],
            **job.template.get("spec", {}),
        },
        "status": {"phase": "Pending"},
    }


def _times(requests: Tree, count: int) -> dict[str, str]:
    return {name: f"{quantity.milli(value) * count}m" for name, value in requests.items()}
