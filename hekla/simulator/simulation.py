"""The loop: what arrives or ends at a moment is told to the engine, and a cycle decides.

The engine is fed as the daemon's informers feed it, with objects of the API, and what it decides is
taken to have happened at once: a bound pod runs, an evicted one is gone and its job makes it anew.
"""

from __future__ import annotations

import gc
import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from itertools import count
from typing import Any

from hekla.api.names import SCHEDULER
from hekla.api.trees import Tree
from hekla.engine.actions.learning import rules_of
from hekla.engine.cycle import cycle, hooks_of
from hekla.engine.framework.policy import Policy
from hekla.engine.model.decisions import Bind, Decisions, Evict, PodCondition
from hekla.engine.model.reading import key_of
from hekla.engine.model.state import State
from hekla.engine.model.time.durations import instant
from hekla.simulator.checks import check
from hekla.simulator.network import slowdown
from hekla.simulator.objects import (
    anew,
    nominated,
    pod,
    pod_group,
    pod_key,
    stamp_of,
    started,
    succeeded,
)
from hekla.simulator.progress import Ends, Progress
from hekla.simulator.run import Act, JobRun, PodRun, Run
from hekla.simulator.work import Work
from hekla.simulator.workload import (
    MICROSECONDS,
    Call,
    GivenPod,
    InputError,
    Role,
    SimulatedJob,
    Step,
    Workload,
    microseconds,
)

SERVING = frozenset(
    ("enqueue", "allocate", "backfill", "preempt", "reclaim", "gangpreempt", "gangreclaim")
)
"""Actions that do nothing when no pod waits."""
MOST_EDGES = 200
"""So many windows of reservations may open or close, or budgets be renewed, in a row while nothing
else happens."""
UNHEARD = frozenset(("Ignored", "UnknownWalltime", "UnknownJobOrder", "UnreadableAnnotation"))
"""Reasons of events that tell of something that was asked for in vain."""
NOTICED = 2 * MICROSECONDS
"""What time brings a scheduler notices so much later at most."""
MOST_CYCLES = 100
"""Cycles at one moment, after which the policy is taken to go in a circle."""

Coming = Call | SimulatedJob | tuple[JobRun, GivenPod] | Callable[[], None]


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
        self.policy_admits = "enqueue" in policy.actions
        self.every_moment = every_moment or bool(workload.moments)
        self.beginning = workload.beginning
        self.state = self._make_state(
            **{"scheduler_names": [SCHEDULER], "implied_groups": True, **workload.settings}
        )
        self.state.metered = False
        self.learns = rules_of(policy) is not None
        self.runs = {job.key: JobRun(job, left=job.pods) for job in workload.jobs}
        self.now = 0
        self.coming: list[tuple[int, int, int, Coming]] = []
        """What is to come: a heap of (moment, rank of its kind, number, what)."""
        self._numbers = count()
        self.unadmitted: dict[str, list[GivenPod]] = {}
        """Pods that come some time after their job was admitted."""
        self.held: dict[str, list[tuple[JobRun, GivenPod]]] = {}
        """Pods that come again once the one of the same name has gone."""
        self.moments = deque(workload.moments)
        self.ends: list[tuple[int, str, str]] = []
        """When pods end: a heap of (moment, pod, uid)."""
        self.network = workload.network
        self.job_ends = Ends()
        """When jobs end that work as a whole."""
        self._moved: dict[str, JobRun] = {}
        """Those whose running pods have changed at this moment."""
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
        self._edges = 0
        """Moments at which the engine wanted to look again, since a pod started."""
        self._why: dict[str, str] = {}
        """Job -> why it waits, as it was told last."""
        self._heard: set[str] = set()
        """Messages of events that have been noted."""
        self._unfinished: set[str] = set()
        """Jobs that have lost a pod since the last cycle, and go on with the others."""
        for tree in workload.cluster:
            self._feed(tree)
        for call in workload.calls:
            if call.moment > 0:
                self._comes(call.moment, 0, call)
            else:
                self._call(call)
        for job in sorted(workload.jobs, key=lambda job: job.submit):
            self._comes(max(job.submit, 0), 1, job)
            for one in job.given:
                if one.after_admission and self.policy_admits:
                    self.unadmitted.setdefault(job.key, []).append(one)
                elif one.moment is not None:
                    start = job.submit if one.after_admission else 0
                    self._comes(max(start + one.moment, 0), 2, (self.runs[job.key], one))
        self.outcome.nodes = len(self.state.nodes.rows)
        self.outcome.capacity = {
            name: amount for name, amount in self.state.nodes.total().items() if amount
        }
        check(workload.jobs, self.state)

    def _make_state(self, **settings: Any) -> State:
        return State(**settings)

    def run(
        self, until: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Run:
        """Simulate to the end, or to a moment.  `progress` is told how many jobs have ended, of how
        many."""
        ended = 0
        while (moment := self._next_moment()) is not None and (until is None or moment <= until):
            ended += self._advance(moment)
            if progress is not None:
                progress(ended, len(self.runs))
        if until is not None and moment is not None:
            self.now = until  # It was stopped: what runs has run until then.
        self.outcome.until = self.now
        self.outcome.waiting = {
            run.job.key: self._why.get(run.job.key, "")
            for run in self.outcome.jobs
            if run.started is None and run.job.submit <= self.now
        }
        for one in self.pods.values():
            self._count_use(one)
        return self.outcome

    def _advance(self, moment: int) -> int:
        """Live through one moment; how many jobs ended in it."""
        self.now = moment
        ended = self._end_due()
        self._arrive_due()
        if not self._may_rest():
            self._decide()
        while self.moments and self.moments[0] <= moment:
            self.moments.popleft()
        self._pace()
        return ended

    def _next_moment(self) -> int | None:
        moments = [self.ends[0][0]] if self.ends else []
        if (end := self.job_ends.next()) is not None:
            moments.append(end)
        if self.coming:
            moments.append(self.coming[0][0])
        if self.moments:
            moments.append(self.moments[0])
        if self.period and moments and self._waits():
            moments.append(self.now + self.period)
        edge = self.state.edge
        if edge < math.inf and (moments or self._may_start_at_an_edge()):
            self._look_again(moments, math.ceil(edge * MICROSECONDS) - self.beginning)
        for notice in self.state.eviction_notices.given.values():
            if (due := notice.at * MICROSECONDS - self.beginning) > self.now:
                self._look_again(moments, due)
        return min(moments, default=None)

    def _look_again(self, moments: list[int], due: int) -> None:
        """A moment that time alone brings.  A scheduler that was recorded noticed it a little later,
        in a cycle that is among the moments."""
        due = max(due, self.now + 1)
        after = bisect_left(self.moments, due)
        if after == len(self.moments) or self.moments[after] > due + NOTICED:
            moments.append(due)

    def _may_start_at_an_edge(self) -> bool:
        """Whether pods wait for a window to open or close, or for a budget.  A series has no last one,
        so it is given up after many that let nobody start."""
        self._edges += 1
        return self._waits() and self._edges <= MOST_EDGES

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
            and not self.state.reservations
            and not hooks_of(self.state, self.policy).read_clock
            and SERVING.issuperset(self.policy.actions)
        )

    def _decide(self) -> None:
        """Cycles until one has nothing to do: what was decided may let the next decide more."""
        self._unfinished.clear()
        for _ in range(MOST_CYCLES):
            decided = self._cycle()
            self.outcome.cycles += 1
            self.outcome.problems.extend(decided.problems)
            self._listen(decided)
            if self.moments and self.moments[0] == self.now:
                self.moments.popleft()
            acted = self._carry_out(decided)
            self._arrive_due()
            if self.moments and self.moments[0] == self.now:
                continue
            if not acted or self.moments:
                return
        self.outcome.problems.append(
            f"at {self.now / MICROSECONDS:.0f} s the policy binds and evicts without end"
        )

    def _listen(self, decided: Decisions) -> None:
        """What jobs and queues are told."""
        for key, one in decided.explanations.items():
            self._why[key] = one.text
        for event in decided.events:
            if event.reason in UNHEARD and event.message not in self._heard:
                self._heard.add(event.message)
                self.outcome.ignored.append(f"{event.kind} {event.key}: {event.message}")

    def _cycle(self) -> Decisions:
        return cycle(self.state, self.policy, self._clock())

    # ---------------------------------------------------------------------------------- what happens

    def _end_due(self) -> int:
        """What ends now; how many jobs have ended by it."""
        ended = 0
        due: dict[str, list[str]] = {}
        while self.ends and self.ends[0][0] == self.now:
            _, key, uid = heapq.heappop(self.ends)
            one = self.pods.get(key)
            if one is None or one.uid != uid or one.since is None:
                continue  # It was evicted before.
            due.setdefault(one.run.job.key, []).append(key)
        for job, keys in due.items():
            ended += self._end(self.runs[job], keys)
        for job in self.job_ends.due(self.now):
            self._finish(self.runs[job])
            ended += 1
        return ended

    def _arrive_due(self) -> None:
        while self.coming and self.coming[0][0] <= self.now:
            what = heapq.heappop(self.coming)[3]
            if isinstance(what, Call):
                self._call(what)
            elif isinstance(what, SimulatedJob):
                self._arrive(what)
            elif isinstance(what, tuple):
                self._take(*what)
            else:
                what()

    def _comes(self, moment: int, rank: int, what: Coming) -> None:
        """Calls come before jobs and those before single pods, each in their order."""
        heapq.heappush(self.coming, (moment, rank, next(self._numbers), what))

    def _call(self, call: Call) -> None:
        """Something became of the cluster, or of what its users ask for."""
        given = call.given
        if call.name == "remove_pod" and given[0] in self.pods:
            self._withdraw(given[0])
            return
        if call.name == "upsert_pod_group":
            job = self.state.jobs.get(key_of(given[0]))
            if job is None:
                return  # All of it has ended.
            status = {"phase": job.phase, "conditions": job.conditions}
            given = ({**given[0], "status": status},)
        getattr(self.state, call.name)(*given)

    def _withdraw(self, key: str) -> None:
        """Its owner has taken a pod away."""
        one = self.pods.pop(key)
        self._stop(key, one, "gone")
        self.state.remove_pod(key)
        one.run.left -= 1
        if not one.run.left:
            self._clear(one.run.job)
        else:
            self._unfinished.add(one.run.job.key)

    def _arrive(self, job: SimulatedJob) -> None:
        stamp = self._stamp()
        run = self.runs[job.key]
        if not job.given:
            self.state.upsert_pod_group(pod_group(job, stamp))
            if job.work is not None:
                run.progress = Progress.of(job.work, job.duration or 0)
            for role in job.templates():
                if role.after:
                    run.to_come.append(role)
                else:
                    self._make_role(run, role)
            return
        if job.group is not None:
            self.state.upsert_pod_group(job.group)
        taken = [self._take(run, one) for one in job.given if one.moment is None]
        starts = sorted(start for start in taken if start is not None)
        if starts and len(starts) >= job.min_available:
            run.started = starts[max(job.min_available - 1, 0)]
        if self.state.rejected:
            (kind, key), why = next(iter(self.state.rejected.items()))
            self.outcome.problems.append(f"{kind} {key} is left out: {why}")

    def _make_role(self, run: JobRun, role: Role) -> None:
        """The pods of one template come."""
        job, stamp = run.job, self._stamp()
        duration = None if run.progress is not None else job.duration
        for number in range(role.pods):
            key = pod_key(job, role, number)
            tree = pod(job, role, key.partition("/")[2], self._uid(), stamp)
            self._make(key, PodRun(run, tree, duration, role=role.name))

    def _take(self, run: JobRun, given: GivenPod) -> int | None:
        """A pod as it was given: when it began to run, or None if it waits."""
        meta, status = given.tree["metadata"], given.tree.get("status") or {}
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        if key in self.pods:
            self.held.setdefault(key, []).append((run, given))
            return None
        if status.get("phase") in ("Succeeded", "Failed"):
            self.state.upsert_pod(given.tree)
            self.done.setdefault(run.job.key, []).append(key)
            run.left -= 1
            return None
        one = PodRun(run, given.tree, given.duration, given=given)
        self._make(key, one)
        if not given.tree["spec"].get("nodeName"):
            return None
        stated = instant(status.get("startTime", "") or "")
        start = min(microseconds(stated) - self.beginning, self.now) if stated else self.now
        self._start(one, key, meta.get("uid", ""), start, given.tree["spec"]["nodeName"], "ran")
        return start

    def _uid(self) -> str:
        self._made += 1
        return f"pod-{self._made}"

    def _make(self, key: str, one: PodRun) -> None:
        self.pods[key] = one
        self.state.upsert_pod(one.tree)

    def _start(
        self, one: PodRun, key: str, uid: str, start: int, node: str, what: str = "bind"
    ) -> None:
        one.since, one.node = self.now, node
        task = self.state.tasks.get(key)
        one.request = {} if task is None else task.request.amounts
        self.outcome.acts.append(Act(self.now, what, one.run, key, node, one.request))
        self.running += 1
        one.run.running += 1
        self._place(one, 1)
        if one.duration is not None:
            heapq.heappush(self.ends, (max(start + one.duration, self.now), key, uid))

    def _end(self, run: JobRun, keys: list[str]) -> bool:
        """Pods of a job have done their work: whether the job has.  Of the last of a job only a
        policy that learns is told that they succeeded: they are gone at the same moment."""
        job = run.job
        run.left -= len(keys)
        for key in keys:
            one = self.pods.pop(key)
            self._stop(key, one, "end")
            if run.left or self.learns:
                self.state.upsert_pod(succeeded(one.bound or one.tree, self._stamp()))
            if not run.left:
                self.state.remove_pod(key)
        if run.left:
            self._unfinished.add(job.key)
            self.done.setdefault(job.key, []).extend(keys)
        else:
            run.ended = self.now
            self._clear(job)
        for key in keys:
            if key in self.held:
                self._take(*self.held[key].pop(0))
                self.held = {name: left for name, left in self.held.items() if left}
        return not run.left

    def _place(self, one: PodRun, more: int) -> None:
        """A pod runs, or does not any more: its job's work goes on at another speed, and roles that
        wait for its role may come."""
        run = one.run
        if run.progress is None and not run.job.roles:
            return
        place = one.role, one.node
        run.places[place] = run.places.get(place, 0) + more
        if not run.places[place]:
            del run.places[place]
        if run.progress is not None:
            self._moved[run.job.key] = run
        if run.to_come and more > 0:
            sizes = {role.name: role.pods for role in run.job.roles}
            due = [role for role in run.to_come if run.running_of(role.after) == sizes[role.after]]
            run.to_come = [role for role in run.to_come if role not in due]
            for role in due:
                self._make_role(run, role)

    def _pace(self) -> None:
        """Work goes on as fast as what runs now allows."""
        for key, run in self._moved.items():
            if run.progress is not None and run.left:
                run.progress.pace(self.now, self._speed(run, run.progress.work))
                self.job_ends.foretell(key, run.progress)
        self._moved.clear()

    def _speed(self, run: JobRun, work: Work) -> Fraction:
        job = run.job
        if run.running < job.min_available:
            return Fraction(0)
        workers, of = run.running, job.pods
        if work.role:
            workers = run.running_of(work.role)
            of = sum(role.pods for role in job.roles if role.name == work.role)
            if run.running - workers < job.pods - of:
                return Fraction(0)  # The others are not all there.
        speed = work.speed(workers, of)
        return speed / slowdown(self.network, self.state, work.traffic, run.places)

    def _finish(self, run: JobRun) -> None:
        """All the work of a job is done."""
        run.ended = self.now
        run.left = 0
        run.to_come.clear()
        for role in run.job.templates():
            for number in range(role.pods):
                key = pod_key(run.job, role, number)
                if (one := self.pods.pop(key, None)) is not None:
                    self._stop(key, one, "end")
                    self.state.remove_pod(key)
        self._clear(run.job)

    def _clear(self, job: SimulatedJob) -> None:
        """Nothing of the job is left to do."""
        self._unfinished.discard(job.key)
        for each in self.done.pop(job.key, ()):
            self.state.remove_pod(each)
        if job.group is not None or not job.given:
            self.state.remove_pod_group(job.key)

    def _stop(self, key: str, one: PodRun, what: str) -> None:
        """A pod that runs does not any more."""
        if one.since is not None:
            self._count_use(one)
            self.outcome.acts.append(Act(self.now, what, one.run, key, one.node, one.request))
            self.running -= 1
            one.run.running -= 1
            self._place(one, -1)

    def _carry_out(self, decided: Decisions) -> bool:
        """Whether anything happened that the engine has to look at."""
        for eviction in decided.evictions:
            self._evict(eviction)
        for bind in decided.binds:
            self._bind(bind)
        self._nominate(decided)
        if self.unadmitted:
            for status in decided.pod_groups:
                if status.phase != "Pending":
                    run = self.runs.get(status.key)
                    for given in self.unadmitted.pop(status.key, ()):
                        assert run is not None and given.moment is not None
                        self._comes(self.now + given.moment, 2, (run, given))
        return bool(decided.binds or decided.evictions)

    def _nominate(self, decided: Decisions) -> None:
        """Pods for which room is being made say so, as long after as was recorded."""
        for condition in decided.conditions:
            one = self.pods.get(condition.pod)
            if one is None or not condition.nominated_node:
                continue
            told = {} if one.given is None else one.given.nominations
            lag = told.get(condition.nominated_node, 0)
            if lag == 0:
                self._say_nominated(condition)
            elif lag is not None:
                self._comes(self.now + lag, 0, partial(self._say_nominated, condition))

    def _say_nominated(self, condition: PodCondition) -> None:
        one = self.pods.get(condition.pod)
        if one is not None and one.since is None and one.uid == condition.uid:
            one.tree = nominated(one.tree, condition.nominated_node)
            self.state.upsert_pod(one.tree)

    def _bind(self, bind: Bind) -> None:
        self._edges = 0
        one = self.pods[bind.pod]
        one.bound = started(one.tree, bind, self._stamp())
        steps = () if one.given is None else one.given.beginning
        for step in steps:
            self._comes(self.now + step.lag, 0, partial(self._begin, bind.pod, one, step))
        if not steps:
            self.state.upsert_pod(one.bound)
        self._start(one, bind.pod, bind.uid, self.now, bind.node)
        run = one.run
        if run.started is None and run.running >= run.job.min_available:
            run.started = self.now

    def _begin(self, key: str, one: PodRun, step: Step) -> None:
        """A step of a bound pod on its way to run."""
        if self.pods.get(key) is one:
            self._show(one, step)

    def _show(self, one: PodRun, step: Step) -> None:
        """What was recorded of a pod, on the node and with the devices that it has here."""
        pod = one.bound or one.tree
        annotations = {
            **(step.metadata.get("annotations") or {}),
            **(pod["metadata"].get("annotations") or {}),
        }
        self.state.upsert_pod(
            {
                "metadata": {**step.metadata, "annotations": annotations},
                "spec": {**pod["spec"], "nodeName": one.node},
                "status": step.status,
            }
        )

    def _evict(self, eviction: Evict) -> None:
        """The pod's work is lost, and its job makes it anew: as it was recorded, or else at once."""
        one = self.pods.pop(eviction.pod, None)
        if one is None:
            return
        self._stop(eviction.pod, one, "evict")
        one.run.evictions += 1
        departure = one.given.departure if one.given is not None else None
        if departure is None:
            self._make_anew(eviction.pod, one)
            return
        for step in departure.steps:
            self._comes(self.now + step.lag, 0, partial(self._leave, eviction.pod, one, step))
        successor = departure.successor
        if successor is not None:
            assert successor.moment is not None
            self._comes(self.now + successor.moment, 2, (one.run, successor))

    def _leave(self, key: str, one: PodRun, step: Step) -> None:
        """A step of an evicted pod on its way out."""
        if step.status is not None:
            self._show(one, step)
            return
        assert one.given is not None and one.given.departure is not None
        if one.given.departure.successor is None:
            self._make_anew(key, one)
        else:
            self.state.remove_pod(key)

    def _make_anew(self, key: str, one: PodRun) -> None:
        """A pod is gone; its job makes another, and nobody does for a pod without one."""
        run = one.run
        self.state.remove_pod(key)
        if run.job.given and run.job.group is None:
            run.left -= 1
            return
        tree = anew(one.tree, self._uid(), self._stamp())
        self._make(key, PodRun(run, tree, one.duration, role=one.role))

    def _count_use(self, one: PodRun) -> None:
        """A pod has stopped running, or the simulation ends."""
        if one.since is not None and (held := (self.now - one.since) / MICROSECONDS):
            for name, amount in one.request.items():
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
    with _workload_kept():
        return [one.run(until, progress) for one in made]


SEARCHES = 10_000, 50, 1_000
"""How many objects more there are when Python searches the youngest for cyclic garbage, and how many
such searches make one of the older, and of everything."""


@contextmanager
def _workload_kept() -> Iterator[None]:
    """Python's search for cyclic garbage leaves out what is there now and seldom goes through all
    that has become of it: garbage is what cycles leave behind, and young.  It would be a fifth of a
    large simulation."""
    if gc.get_freeze_count():  # Whoever froze something lets it go again.
        yield
        return
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*SEARCHES)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
