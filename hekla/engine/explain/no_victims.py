"""Why nobody was evicted for a job: "no victim because ...", in the words of the search that found
none."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from hekla.engine.framework.plugin import ABSTAIN, Plugin, Source, Victims
from hekla.engine.model.arrays import Bools
from hekla.engine.model.tasks import Job, Status, Task

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


MOST_REASONS = 3
"""Of those why pods may not be evicted now, how many a text names."""


class Search:
    """What one task met on the nodes that it looked at, or one job in the domains."""

    __slots__ = (
        "empty",
        "kept",
        "plugins",
        "short",
        "spared",
        "takers",
        "unbalanced",
        "untouched",
        "whole",
    )

    def __init__(self) -> None:
        self.empty = 0
        self.spared = 0
        self.short = 0
        self.unbalanced = 0
        self.plugins: tuple[str, ...] = ()
        self.kept: dict[str, dict[str, None]] = {}
        """Why pods may not be evicted now -> which."""
        self.untouched = 0
        """Places where nobody else could have been asked."""
        self.takers: dict[str, None] = {}
        """Queues and jobs whose pods were left alone because they hold what was taken from the
        preemptor before."""
        self.whole = ""
        """A reason that holds without looking at any node."""

    def sparing(self, session: Session, hook: str, ask: Callable[[Plugin], Victims]) -> None:
        """Who let nobody go, where that is not known yet."""
        if not self.plugins:
            answers = ((plugin.name, ask(plugin)) for plugin in session.hooks(hook))
            self.plugins = tuple(
                name for name, answer in answers if answer.vote != ABSTAIN and not answer.tasks
            )

    def refused(
        self,
        session: Session,
        hook: str,
        ask: Callable[[Plugin], Victims],
        candidates: list[Task],
        victims: list[Task],
    ) -> None:
        """One node did not do: whoever could be asked to leave would not make room enough."""
        if not candidates:
            self.empty += 1
        elif victims:
            self.short += 1
        else:
            self.spared += 1
            self.sparing(session, hook, ask)

    def without_takers(self, session: Session, job: Job, candidates: list[Task]) -> list[Task]:
        """Those from whom the job would not take back what was taken from it."""
        barred = session.state.transfers.barred(job)
        if barred is None:
            return candidates
        queues, jobs = barred
        kept = []
        for one in candidates:
            other = one.job
            if other is not None and other.queue in queues:
                self.takers[f"queue {other.queue}"] = None
            elif other is not None and other.queue == job.queue and other.lineage in jobs:
                self.takers[f"job {other.key}"] = None
            else:
                kept.append(one)
        return kept

    def spares(self, victim: Task, reason: str) -> None:
        """A pod may not be evicted now, if there is a reason."""
        if reason:
            self.kept.setdefault(reason, {})[victim.key] = None

    def without_spared(self, session: Session, job: Job, candidates: list[Task]) -> list[Task]:
        """Those whom no plugin spares for now."""
        votes = session.votes
        if not votes.may_spare or not candidates:
            return candidates
        left = []
        for one in candidates:
            reason = votes.spares(one, job)
            if reason:
                self.spares(one, reason)
            else:
                left.append(one)
        self.untouched += not left
        return left

    def text(self, whose: str, places: str = "node") -> str:
        """As a clause; `whose` says which pods were looked for, `places` where."""
        if self.whole:
            return self.whole
        parts = []
        empty = self.empty - self.untouched
        if empty > 0:
            parts.append(f"{_places(empty, places)} no running pod {whose} that may be evicted")
        parts += _kept(self.kept)
        if self.spared:
            who = " and ".join(self.plugins) or "the plugins together"
            verb = "spare" if len(self.plugins) != 1 else "spares"
            parts.append(f"{_places(self.spared, places)} only pods that {who} {verb}")
        if self.unbalanced:
            verb = f"{_places(self.unbalanced, places)} only pods of queues that would then be"
            parts.append(f"{verb} less above their shares than the one that claims")
        if self.short:
            parts.append(f"{_places(self.short, places)} too little room even without all victims")
        if self.takers:
            parts.append(
                f"{' and '.join(self.takers)} took this room before, and nothing else has changed since"
            )
        return ", ".join(parts) or f"no {places} is left that evictions could help"


class FailedSearches:
    """Claims of this action that found nobody to evict, for those that would ask the same of the
    same nodes.

    A full cluster has many pods that wait, of few kinds.  The pods of jobs that hold nothing are
    alike to the plugins that say so (`Reads.victims`) where queue, priorities, class, labels
    and marks are the same; and a search that failed fails again as long as nothing is placed or
    evicted.
    """

    def __init__(self, session: Session, hook: str) -> None:
        self.nodes, self.transfers = session.state.nodes, session.state.transfers
        self.log, self.now = session.state.eviction_log, session.now
        self.possible = all(
            plugin.reads.victims is Source.PREEMPTOR
            for plugin in (*session.hooks(hook), *session.hooks("spares"))
        )
        self.searches: dict[Hashable, Search] = {}
        self.version = self.nodes.version

    def like(self, task: Task, mask: Bools) -> Hashable | None:
        """What claims that are answered alike have in common, `mask` being the nodes asked; None
        for one that is like no other."""
        job = task.job
        if (
            not self.possible
            or job is None
            or job.policies
            or job.has_topology
            or task.claims
            or task.pods.volumes
        ):
            return None
        if len(job.counts.statuses[Status.PENDING]) != len(job.tasks):
            return None  # What a job holds decides about its share.
        # Others' labels move no filter.
        labels = task.labels if task.labels.terms or task.labels.peers is not None else None
        return (
            job.queue,
            job.priority,
            job.preemptable,
            task.namespace,
            task.pods,
            labels,
            task.priority,
            task.pod_priority,
            task.preemptable,
            task.revocable_zone,
            mask.tobytes(),
            self.transfers.barred(job),
            self.log.held_apart(job, self.now),
        )

    def known(self, like: Hashable) -> Search | None:
        """The search that failed for a claim like this one, if there was one since anything
        changed."""
        if self.version != self.nodes.version:
            self.searches.clear()
            self.version = self.nodes.version
        return self.searches.get(like)

    def note(self, like: Hashable, search: Search) -> None:
        """A claim that was not `known` a moment ago has failed, and so left everything as it was."""
        self.searches[like] = search
        self.version = self.nodes.version


def _kept(kept: dict[str, dict[str, None]]) -> list[str]:
    """Whom plugins spare for now, the commonest reasons first."""
    reasons = sorted(kept, key=lambda reason: (-len(kept[reason]), reason))
    said = []
    for reason in reasons[:MOST_REASONS]:
        pods = list(kept[reason])
        who = pods[0] if len(pods) == 1 else f"{len(pods)} pods such as {pods[0]}"
        said.append(f"{who} may not be evicted now: {reason}")
    rest = sum(len(kept[reason]) for reason in reasons[MOST_REASONS:])
    if rest:
        said.append(f"{rest} more for reasons like these")
    return said


def _places(count: int, kind: str) -> str:
    return f"1 {kind} has" if count == 1 else f"{count} {kind}s have"
