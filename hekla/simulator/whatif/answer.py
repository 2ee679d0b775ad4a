"""What becomes of one job on a copy of a cluster: a simulation that begins with what runs, and is
watched until the job has started.

At the first moment the engine's own cycles decide, so that is whether the job starts now, where, and
who would have to go.  Afterwards time passes: running pods end when they say they do at the latest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hekla.api.trees import Json, Tree
from hekla.engine.framework.policy import Policy
from hekla.engine.model.decisions import Decisions, Evict
from hekla.simulator.run import JobRun
from hekla.simulator.simulation import Simulation
from hekla.simulator.snapshot import snapshot
from hekla.simulator.stand_ins import stand_ins
from hekla.simulator.whatif.copy import ClusterCopy
from hekla.simulator.workload import MICROSECONDS, InputError, SimulatedJob, Workload

MOST_MOMENTS = 20_000
"""Moments that are looked at before an answer is given up: a day of a large cluster."""


@dataclass(frozen=True, slots=True)
class Leaver:
    """A pod that would be evicted."""

    pod: str
    job: str
    node: str
    why: str
    """Action and purpose, as the pod would be told."""


@dataclass(slots=True)
class Answer:
    """What would become of the job."""

    job: str
    queue: str = ""
    needs: int = 0
    ran: bool = False
    """It had started before."""
    start: float | None = None
    """Seconds from now until its minimum runs; 0 for now, None for a start that nothing foretells."""
    placed: dict[str, str] = field(default_factory=dict)
    """Pod -> node, of its pods that find a place until then."""
    leavers: list[Leaver] = field(default_factory=list)
    """Pods that are evicted until then, and at once for others too."""
    ends: list[str] = field(default_factory=list)
    """Jobs whose end lets it start."""
    others: dict[str, int] = field(default_factory=dict)
    """Other jobs that would start now too -> how many pods."""
    why: str = ""
    """Why it would not start now, as the engine explains it."""
    constraint: str = ""
    endless: list[str] = field(default_factory=list)
    """Jobs that run and do not say for how long, where nothing foretells a start."""
    given_up: bool = False
    """The future was too long to be looked at to its end."""
    notes: list[str] = field(default_factory=list)

    @property
    def now(self) -> bool:
        """Whether it would run from now on."""
        return self.start == 0


def ask(copy: ClusterCopy, policy: Policy, key: str) -> Answer:
    """What becomes of the job of this PodGroup (by key).  The copy stays as it is."""
    question = Question(_workload(copy), policy, key)
    return question.answer()


class Question(Simulation):
    """The simulation, with what the engine says of the job."""

    def __init__(self, workload: Workload, policy: Policy, key: str) -> None:
        self.left_out: list[str] = []
        self.key = key
        self.why = self.constraint = ""
        self.purposes: list[tuple[int, Evict, str]] = []
        self.phases: dict[str, str] = {}
        super().__init__(workload, policy)

    def answer(self) -> Answer:
        """Live until the job has started."""
        run = self.runs.get(self.key)
        if run is None:
            return Answer(self.key, why="It has no pods that are to be scheduled.")
        answer = Answer(_title(run), run.job.queue, max(run.job.min_available, 1))
        answer.notes += self.left_out
        moments = 0
        while (moment := self._next_moment()) is not None and moments < MOST_MOMENTS:
            moments += 1
            self._advance(moment)
            if run.started is not None and run.started < 0:
                answer.ran = True
            if moment == 0:
                answer.why, answer.constraint = self.why, self.constraint
                answer.others = self._started_with(run)
            if run.started is not None:
                break
        else:
            answer.given_up = moments >= MOST_MOMENTS
        self._tell(answer, run)
        return answer

    def _tell(self, answer: Answer, run: JobRun) -> None:
        until = 0 if run.started is None else max(run.started, 0)
        acts = self.outcome.acts
        answer.placed = {act.pod: act.node for act in acts if act.run is run and act.what == "bind"}
        answer.leavers = [
            Leaver(one.pod, title, one.node, one.text)
            for moment, one, title in self.purposes
            if moment <= until
        ]
        answer.notes += list(dict.fromkeys(self.outcome.problems))
        if run.started is not None:
            answer.start = until / MICROSECONDS
            ended = {
                _title(act.run): None
                for act in acts
                if act.what == "end" and act.moment == until and act.run is not run
            }
            answer.ends = list(ended) if until else []
        else:
            holding = (one for one in self.pods.values() if one.since is not None)
            answer.endless = sorted({_title(one.run) for one in holding if one.duration is None})

    def _started_with(self, run: JobRun) -> dict[str, int]:
        others: dict[str, int] = {}
        for act in self.outcome.acts:
            if act.what == "bind" and act.run is not run:
                others[_title(act.run)] = others.get(_title(act.run), 0) + 1
        return others

    def _cycle(self) -> Decisions:
        decided = super()._cycle()
        if (found := decided.explanations.get(self.key)) is not None:
            self.why, self.constraint = found.text, found.constraint
        return decided

    def _carry_out(self, decided: Decisions) -> bool:
        """A PodGroup in another phase is looked at once more, as by the daemon: what is said of a
        waiting job then is more than that it was not let in yet."""
        moved = super()._carry_out(decided)
        for group in decided.pod_groups:
            moved = moved or self.phases.get(group.key) != group.phase
            self.phases[group.key] = group.phase
        return moved

    def _evict(self, eviction: Evict) -> None:
        known = self.pods.get(eviction.pod)
        if known is not None:
            self.purposes.append((self.now, eviction, _title(known.run)))
        super()._evict(eviction)

    def _feed(self, tree: Tree) -> None:
        """What the scheduler could not read it schedules without, and so does this."""
        try:
            super()._feed(tree)
        except InputError as error:
            self.left_out.append(f"left out, as by the scheduler: {error}")
            self.state.rejected.clear()


def _title(run: JobRun) -> str:
    """A job as people call it: namespace/name."""
    group = run.job.group
    owners = [] if group is None else (group["metadata"].get("ownerReferences") or ())
    name = next((one["name"] for one in owners if one.get("controller")), run.job.name)
    return f"{run.job.namespace}/{name}"


# -- the workload ----------------------------------------------------------------------------------


def _workload(copy: ClusterCopy) -> Workload:
    names = list(copy.settings.get("scheduler_names") or ())
    workload = snapshot(
        [*copy.trees(), *_stand_ins(copy)],
        now=copy.now,
        **({"scheduler": names[0]} if names else {}),
    )
    workload.settings = copy.settings
    workload.jobs = [_without_leaving(job) for job in workload.jobs]
    return workload


def _without_leaving(job: SimulatedJob) -> SimulatedJob:
    """The job, with pods that are being deleted ending at once."""
    if not any(one.tree["metadata"].get("deletionTimestamp") for one in job.given):
        return job
    given = [
        dataclasses.replace(one, duration=0)
        if one.tree["metadata"].get("deletionTimestamp")
        else one
        for one in job.given
    ]
    return dataclasses.replace(job, given=given)


def _stand_ins(copy: ClusterCopy) -> Iterator[Json]:
    """Pods for PodGroups that wait to be let in and have none yet."""
    with_pods = _groups_with_pods(copy.of_kind("Pod").values())
    scheduler = next(iter(copy.settings.get("scheduler_names") or ()), "volcano")
    for key, group in copy.of_kind("PodGroup").items():
        phase = (group.get("status") or {}).get("phase") or "Pending"
        if key not in with_pods and phase == "Pending":
            yield from stand_ins(group, scheduler)


def _groups_with_pods(pods: Iterable[Tree]) -> set[str]:
    found = set[str]()
    for pod in pods:
        meta = pod["metadata"]
        named = (meta.get("annotations") or {}).get("scheduling.k8s.io/group-name")
        found.add(f"{meta.get('namespace', '')}/{named}")
    return found
