"""Who took room from whom, for as long as nothing outside changes: what a claim gave is not taken
back.

A claim that evicts changes whose turn it is, and the evicted come back.  Where two see themselves
in the right at once, or three in a circle, this would go on for ever.  So takers are remembered,
and nobody takes from one who took from him, be it through others.  What comes of evictions
themselves is no change: pods that are made anew, jobs that restart.  A changed queue, node or
priority class, a job that comes, changes or ends, or another policy is one, and then all is
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hekla.engine.model.tasks import FINISHED, Job, Status, Task

if TYPE_CHECKING:
    from hekla.engine.model.nodes import NodeFacts
    from hekla.engine.model.queues.queues import Queue

MOST_IN_VAIN = 3
"""How often others are evicted for a pod that each time does not get the room."""
MOST_MOVES = 3
"""How often each pod of a job is moved off busy nodes, in the mean."""
Barred = frozenset[str]
MOVES = "moves"
MOVED = "its pods have been moved off busy nodes time and again, and no queue, node or job has changed since"
IN_VAIN = "what was freed for it went to others each time, and nothing else has changed since"
OTHERS = "others"
_NOBODY: Barred = frozenset()


class Takers:
    """Of parties of one kind, who took from whom.  Whom one may take from is a graph without
    circles."""

    def __init__(self) -> None:
        self.of: dict[str, set[str]] = {}
        self._reached: dict[str, Barred] = {}

    def took(self, preemptor: str, victim: str) -> None:
        known = self.of.setdefault(victim, set())
        if preemptor not in known:
            known.add(preemptor)
            self._reached.clear()

    def ahead_of(self, party: str) -> Barred:
        """Those who took from the party, from these, and so on."""
        if party not in self.of:
            return _NOBODY
        found = self._reached.get(party)
        if found is None:
            reached: set[str] = set()
            left = [party]
            while left:
                fresh = self.of.get(left.pop(), set()) - reached
                reached |= fresh
                left.extend(fresh)
            found = self._reached[party] = frozenset(reached - {party})
        return found


class Transfers:
    """Evictions for somebody since anything outside changed."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.queues = Takers()
        self.jobs = Takers()
        """Within a queue, by lineage."""
        self.disturbed: set[str] = set()
        """Lineages of which pods were evicted: their pods go and come because of that."""
        self.in_vain: dict[str, int] = {}
        """Pod -> how often others were evicted for it, which has no place yet."""
        self.moves: dict[str, int] = {}
        """Lineage -> how many of its pods were moved for the sake of their nodes."""
        self.fragmented = float("inf")
        """How fragmented the nodes were when pods were last moved because of that: as long as
        nothing outside changes, this must fall before more are moved."""
        self.told: set[tuple[str, str]] = set()
        """Claimers and those from whom they may not take back, of whom this was said."""

    def evicted(self, victim: Task, preemptor: Job | None) -> None:
        """A pod is evicted, for somebody's sake or nobody's."""
        job = victim.job
        if job is None:
            return
        self.disturbed.add(job.lineage)
        if preemptor is None or preemptor.lineage == job.lineage:
            return
        if preemptor.queue != job.queue:
            self.queues.took(preemptor.queue, job.queue)
        else:
            self.jobs.took(preemptor.lineage, job.lineage)

    def moved(self, task: Task) -> None:
        """A pod is evicted for the sake of its node."""
        if task.job is not None:
            lineage = task.job.lineage
            self.moves[lineage] = self.moves.get(lineage, 0) + 1

    def moved_enough(self, job: Job) -> bool:
        """Whether the pods of a job stay, because wherever they are their node is busy."""
        return self.moves.get(job.lineage, 0) >= MOST_MOVES * len(job.tasks)

    def claimed(self, task: Task) -> None:
        """Others are evicted for a pod, which has the room yet to take."""
        self.in_vain[task.key] = self.in_vain.get(task.key, 0) + 1

    def forget_in_vain(self, tasks: Iterable[Task]) -> None:
        """Pods have their places: nobody is evicted in vain for them any more."""
        if self.in_vain:
            for task in tasks:
                self.in_vain.pop(task.key, None)

    def gave_up(self, task: Task) -> bool:
        """Whether nobody is evicted for a pod any more, because time and again it did not get what
        was freed for it."""
        return bool(self.in_vain) and self.in_vain.get(task.key, 0) >= MOST_IN_VAIN

    def barred(self, job: Job) -> tuple[Barred, Barred] | None:
        """Queues, and jobs of its own queue, from which this job may take nothing back; None where
        there are none."""
        if not self.disturbed:
            return None
        queues, jobs = self.queues.ahead_of(job.queue), self.jobs.ahead_of(job.lineage)
        return (queues, jobs) if queues or jobs else None

    # ------------------------------------------------------------------------------ what is outside

    def forget(self) -> None:
        """Something outside has changed."""
        if self.disturbed:
            self._begin()

    def queue_changed(self, old: Queue | None, new: Queue) -> None:
        if self.disturbed and (old is None or _shares(old) != _shares(new)):
            self._begin()

    def node_changed(self, old: NodeFacts | None, new: NodeFacts) -> None:
        if self.disturbed and (old is None or _room(old) != _room(new)):
            self._begin()

    def pod_added(self, task: Task) -> None:
        """A pod that was not there: made anew, or new."""
        if self.disturbed and not self._disturbed(task):
            self._begin()

    def pod_updated(self, old: Task, task: Task) -> None:
        """A pod that ends by itself makes room, and one that is resized takes more or less."""
        if not self.disturbed:
            return
        if old.status not in FINISHED and task.status in FINISHED:
            crashed = task.status is Status.FAILED
            if not (crashed and (task.terminating or self._disturbed(old))):
                self._begin()
        elif old.request.amounts != task.request.amounts:
            self._begin()

    def pod_removed(self, task: Task) -> None:
        """A pod is gone: evicted, with one that was evicted, or taken away."""
        if self.disturbed and task.status not in FINISHED and not self._disturbed(task):
            self._begin()

    def comes_back(self, task: Task) -> bool:
        """Whether a pod that comes is in the place of one that was evicted."""
        return bool(self.disturbed) and self._disturbed(task)

    def _disturbed(self, task: Task) -> bool:
        return task.job is not None and task.job.lineage in self.disturbed


def wants_of(job: Job) -> tuple[object, ...]:
    """What a PodGroup asks for; if this changes, it is another job to its queue."""
    return (
        job.queue,
        job.min_available,
        job.min_resources,
        job.role_minimums,
        job.priority_class,
        job.stated_preemptable,
        job.preemptable,
    )


def _shares(queue: Queue) -> tuple[object, ...]:
    return (
        queue.weight,
        queue.priority,
        queue.parent,
        queue.reclaimable,
        queue.state,
        queue.capability,
        queue.deserved,
        queue.guarantee,
        queue.annotations,
        queue.affinity,
    )


def _room(facts: NodeFacts) -> tuple[object, ...]:
    return facts.allocatable, facts.labels, facts.taints, facts.unschedulable
