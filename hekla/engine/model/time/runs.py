"""What jobs took, and so what others like them will take.

Jobs are alike that are one user's, of one name but for what numbers it, and of one shape.  A run is
seen when the last pods of a job have ended; what was seen before this process is handed in.  The
same events give the same runs: nothing here reads a clock.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hekla.api.trees import Json, Tree
from hekla.engine.model.queues.parties import user_of
from hekla.engine.model.tasks import FINISHED, Job, Status, Task
from hekla.engine.model.time.durations import instant
from hekla.engine.model.time.learned import Learned

SAVED = "LearnedRuns"
"""As which kind of object the state is told what was seen before."""
KEPT = 64
"""Runs of a kind that are remembered, the newest."""
FADE = 0.97
"""A run counts for so much of the next newer one."""
UNSAVED = 10_000
"""Runs at most that wait to be written down."""
_NUMBERING = re.compile(
    r"(?:[-._][0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|[-._]?\d+"  # train-17, train17
    r"|[-._](?:[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10})"  # as Kubernetes draws names
    r"|[-._](?=[a-f]*\d)[0-9a-f]{6,})$"  # hashes
)


class Kind(NamedTuple):
    """What tells jobs apart."""

    user: str
    name: str
    """Without what numbers it; `*` stands where something was left out."""
    shape: str


class Run(NamedTuple):
    """One job that has ended by itself."""

    uid: str
    kind: Kind
    seconds: float
    """Of the pod of it that ran longest."""
    ended: float
    """Seconds since 1970."""


class Rules(NamedTuple):
    """How a policy wants to learn."""

    quantile: float
    """From 0 to 1: the part of the runs that took no longer."""
    least: int
    """Runs from which on something is learned."""


class Runs:
    """The runs that were seen, by the kind of job, and what is learned from them."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.by_kind: dict[Kind, deque[Run]] = {}
        self.learned: dict[Kind, Learned | None] = {}
        self.unsaved: list[Run] = []
        """Those that nobody has written down."""
        self.jobs: dict[Kind, dict[str, Job]] = {}
        """The jobs that there are, by kind and key."""
        self.kinds: dict[str, tuple[Job, Kind]] = {}
        self._finished: list[tuple[Job, Task]] = []
        """Pods that have ended since the last cycle."""
        self._ending: dict[str, tuple[Job, Run]] = {}
        """Jobs some of whose pods have ended, and the longest run of these."""
        self._stirred: dict[str, None] = {}
        """Those of them that have changed since the last cycle."""

    # --------------------------------------------------------------------------------- what happens

    def finished(self, job: Job, task: Task) -> None:
        """A pod of the job has ended by itself."""
        if task.status is Status.SUCCEEDED:
            self._finished.append((job, task))

    def look(self, job: Job, present: bool) -> None:
        """The job came or changed, or is gone: what is learned for it."""
        known = self.kinds.pop(job.key, None)
        if known is not None:
            others = self.jobs[known[1]]
            others.pop(job.key, None)
            if not others:
                del self.jobs[known[1]]
        if job.key in self._ending:
            self._stirred[job.key] = None
        job.learned = None
        kind = kind_of(job) if present else None
        if kind is None:
            return
        self.kinds[job.key] = job, kind
        self.jobs.setdefault(kind, {})[job.key] = job
        job.learned = self.of(kind)

    def settle(self, now: float) -> list[Job]:
        """Take in the runs that have ended; gives the jobs for which something else is learned now.

        `now`: seconds since 1970, for pods that do not say when they ended.
        """
        for job, task in self._finished:
            self._ended(job, task, now)
        self._finished.clear()
        moved: dict[str, Job] = {}
        for key in self._stirred:
            job, run = self._ending[key]
            if len(job.tasks) > job.counts.of(*FINISHED):
                continue
            del self._ending[key]
            if self.take(run):
                self.unsaved.append(run)
                moved.update(self.jobs.get(run.kind, {}))
        self._stirred.clear()
        del self.unsaved[:-UNSAVED]
        return list(moved.values())

    def _ended(self, job: Job, task: Task, now: float) -> None:
        kind = kind_of(job, task)
        since = task.start or task.scheduled
        if kind is None or not since:
            return
        ended = task.ended or now
        run = Run(job.pg_uid or task.uid, kind, max(ended - since, 0.0), ended)
        known = self._ending.get(job.key)
        if known is not None and known[1].uid == run.uid:
            longer = max(known[1].seconds, run.seconds)
            run = run._replace(seconds=longer, ended=max(known[1].ended, ended))
        self._ending[job.key] = job, run
        self._stirred[job.key] = None

    # ------------------------------------------------------------------------------ what is learned

    def take(self, run: Run) -> bool:
        """One more run, or one that is known and went on; False where nothing is new."""
        kept = self.by_kind.get(run.kind)
        if kept is None:
            kept = self.by_kind[run.kind] = deque(maxlen=KEPT)
        before = next((one for one in kept if one.uid == run.uid), None)
        if before is not None:
            if before.seconds >= run.seconds:
                return False
            kept.remove(before)
        kept.append(run)
        self.learned.pop(run.kind, None)
        return True

    def of(self, kind: Kind) -> Learned | None:
        """What a job of this kind will take; None where too little is known."""
        if kind in self.learned:
            return self.learned[kind]
        kept = self.by_kind.get(kind, ())
        found = None
        if len(kept) >= self.rules.least:
            seconds = quantile([run.seconds for run in kept], self.rules.quantile)
            found = Learned(max(seconds, 1.0), len(kept), kind.name)
        self.learned[kind] = found
        return found


def quantile(lengths: Iterable[float], part: float) -> float:
    """The least of these lengths than which no more than `part` of them are shorter or equal, the
    oldest first and counting least."""
    weighed = sorted((length, FADE**-at) for at, length in enumerate(lengths))
    wanted, reached = part * math.fsum(weight for _, weight in weighed), 0.0
    for length, weight in weighed:
        reached += weight
        if reached >= wanted:
            return length
    return weighed[-1][0]


def kind_of(job: Job, task: Task | None = None) -> Kind | None:
    """What a job is like; None where it does not say yet how large it is.

    `task`: one of its pods, also where it has left the job.
    """
    amounts = job.min_resources
    if amounts is None:
        task = task or next(iter(job.tasks.values()), None)
        if task is None:
            return None
        amounts = task.request.amounts
    sizes = " ".join(f"{name}={amount:g}" for name, amount in sorted(amounts.items()) if amount)
    shape = f"{job.min_available} {sizes}"
    return Kind(user_of(job), without_number(job.title or job.name), shape)


def without_number(name: str) -> str:
    """A job's name without numbers and hashes at its end: `train-*` of `train-17`."""
    left = name
    while left and (found := _NUMBERING.search(left)):
        left = left[: found.start()]
    if left == name:
        return name
    return f"{left}{'-' if left and name[len(left)] in '-._' else ''}*"


def runs_of(tree: Tree) -> list[Run]:
    """The runs of an object of kind `SAVED`, the oldest first; what cannot be understood is left
    out."""
    found = []
    for one in tree.get("runs") or ():
        try:
            uid, user, name, shape, seconds, ended = one
            run = Run(
                str(uid), Kind(str(user), str(name), str(shape)), float(seconds), float(ended)
            )
        except (TypeError, ValueError):
            continue
        if math.isfinite(run.seconds) and run.seconds >= 0:
            found.append(run)
    return found


def tree_of(runs: Iterable[Run]) -> Json:
    """What `runs_of` reads."""
    rows = [[one.uid, *one.kind, one.seconds, one.ended] for one in runs]
    return {"metadata": {"name": "runs"}, "runs": rows}


def ended_at(status: Mapping[str, object]) -> float:
    """When a pod that has ended did so, by its condition Ready; 0 where it does not say."""
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if one.get("type") == "Ready" and one.get("status") == "False":
            return instant(one.get("lastTransitionTime") or "")
    return 0.0
