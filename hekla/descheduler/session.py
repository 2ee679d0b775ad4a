"""One profile in one cycle: the doors that plugins go through to ask and to evict."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hekla.api import meta
from hekla.api.selectors import of_object
from hekla.descheduler.evictions import Eviction, Limits, Outcome
from hekla.descheduler.evictor import GANG, NO_GANG_ROOM, Evictor
from hekla.descheduler.memory import Memory
from hekla.descheduler.policy.arguments import Namespaces
from hekla.descheduler.policy.policy import Profile
from hekla.descheduler.returns import Return
from hekla.descheduler.scheduler_copy import Better, SchedulerCopy
from hekla.descheduler.tables import Pod
from hekla.descheduler.usage import Usage
from hekla.descheduler.view import View

log = logging.getLogger(__name__)

CAME_BACK = "its owner's pods come back to this node"
GANG_CAME_BACK = "pods of its gang come back to their nodes"
RENEWING = frozenset({"PodLifeTime", "RemovePodsHavingTooManyRestarts", "RemoveFailedPods"})
"""Plugins after which a pod may well come back to its node."""
QOS = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


def any_node(pod: Pod, node: str) -> str:
    """For plugins to which any other node is a better one."""
    return ""


@dataclass(slots=True)
class Report:
    """What a cycle did, for the log and the metrics."""

    evictions: Counter[tuple[Outcome, str, str, str]] = field(default_factory=Counter)
    """By outcome, strategy, namespace and node."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By strategy and reason."""
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    """Of each strategy and profile."""
    classes: dict[tuple[str, str], str] = field(default_factory=dict)
    """Node and strategy -> under, appropriate, over or unknown."""
    ratios: dict[tuple[str, str], float] = field(default_factory=dict)
    """Node and resource -> what is used of it."""
    problems: list[str] = field(default_factory=list)
    deletion_costs: dict[str, tuple[Pod, int]] = field(default_factory=dict)
    """The deletion costs that pods are to have, by key."""
    returns: list[Return] = field(default_factory=list)
    """Pods that have come back since the last cycle."""
    skipped: str = ""
    """Why there was no cycle."""

    @property
    def evicted(self) -> int:
        return sum(
            count for (outcome, *_), count in self.evictions.items() if outcome is Outcome.EVICTED
        )


class Session:
    """What a plugin works with."""

    def __init__(
        self,
        profile: Profile,
        view: View,
        evictor: Evictor,
        limits: Limits,
        report: Report,
        usages: Mapping[str, Usage],
        memory: Memory,
        scheduler: SchedulerCopy | None = None,
    ) -> None:
        """`usages`: what each plugin that wants it knows of usage; `scheduler`: whom the profile asks
        where pods would land."""
        self.profile = profile
        self.view = view
        self.evictor = evictor
        self.limits = limits
        self.report = report
        self.usages = usages
        self.memory = memory
        self.scheduler = scheduler
        self.strategy = ""
        """The plugin at work."""

    def usage(self) -> Usage:
        return self.usages.get(self.strategy) or Usage(problem="nothing was measured")

    def evictable(self, pod: Pod) -> bool:
        """Whether the evictor's filter lets the pod through."""
        reason = self.evictor.refusal(pod)
        if reason:
            self.refuse(pod, reason)
        return not reason

    def evict(self, pod: Pod, reason: str) -> Generator[Eviction, bool, Outcome]:
        """Evict a pod that the filter let through, if it would land elsewhere and no limit is reached."""
        if self.view.is_gone(pod):
            return Outcome.REFUSED
        wrong, destination = self.evictor.destination(pod)
        if wrong:
            self.refuse(pod, wrong)
            return Outcome.REFUSED
        return (yield from self.evict_to(pod, reason, destination))

    def evict_to(
        self, pod: Pod, reason: str, destination: int | None, better: Better = any_node
    ) -> Generator[Eviction, bool, Outcome]:
        """Evict a pod that has a place to go; `destination` is where room is booked for it, and `better`
        says of the node that the scheduler would choose why it would not be better."""
        if self.view.is_gone(pod):
            return Outcome.REFUSED
        if self.want_held([pod]):
            self.refuse(pod, CAME_BACK)
            return Outcome.REFUSED
        if not self.evictor.breaks_gang(pod):
            limit = self.limits.reached(pod)
            if limit is not None:
                return self._held(pod, limit)
            wrong, landing = self._landing([pod], [destination], better)
            if wrong:
                self.refuse(pod, wrong)
                return Outcome.REFUSED
            outcome = yield from self._send(pod, reason, landing[0])
            self._settle(outcome)
            return outcome
        if not self.evictor.goes_whole(pod):
            self.refuse(pod, GANG)
            return Outcome.REFUSED
        return (yield from self._evict_gang(pod, reason, better))

    def _landing(
        self, pods: Sequence[Pod], rows: Sequence[int | None], better: Better
    ) -> tuple[str, Sequence[int | None]]:
        """Why the scheduler would not place these better than they are, if the profile asks it and they
        are its pods, and the rows where they would land."""
        if self.scheduler is None or not all(map(self.scheduler.places, pods)):
            return "", rows
        wrong, nodes = self.scheduler.ask(pods, better)
        fit = self.view.fit.rows
        return wrong, rows if wrong else [fit.get(nodes[pod.key]) for pod in pods]

    def _settle(self, outcome: Outcome) -> None:
        """Tell the scheduler's copy what became of the pods that it was asked about."""
        if self.scheduler is None:
            return
        if outcome is Outcome.EVICTED:
            self.scheduler.keep()
        else:
            self.scheduler.withdraw()

    def _evict_gang(
        self, pod: Pod, reason: str, better: Better
    ) -> Generator[Eviction, bool, Outcome]:
        """Evict all members or none; what the API server refuses after the first one cannot be helped."""
        gang = self.view.gang(pod)
        if self.want_held(gang):
            self.refuse(pod, GANG_CAME_BACK)
            return Outcome.REFUSED
        rows: Sequence[int | None] | None = [None] * len(gang)
        if self.evictor.asks_for_room:
            rows = self.view.fit.destinations(gang, self.evictor.among)
        if rows is None:
            self.refuse(pod, NO_GANG_ROOM)
            return Outcome.REFUSED
        limit = self.limits.reached_by(gang)
        if limit is not None:
            return self._held(pod, limit)
        wrong, rows = self._landing(gang, rows, better)
        if wrong:
            self.refuse(pod, wrong)
            return Outcome.REFUSED
        first = Outcome.FAILED
        for member, row in zip(gang, rows, strict=True):
            words = (
                reason if member is pod else f"its gang {pod.group_key} goes as a whole: {reason}"
            )
            outcome = yield from self._send(member, words, row)
            if member is pod:
                first = outcome
            if first is not Outcome.EVICTED:
                break
        self._settle(first)
        return first

    @property
    def moves(self) -> bool:
        """Whether the plugin at work wants pods elsewhere; others want them new."""
        return self.strategy not in RENEWING

    def is_held(self, pod: Pod) -> bool:
        """Whether the pod's owner is left alone on the node, because its pods come back."""
        return self.moves and self.memory.returns.held_until(pod, self.view.now) > 0

    def want_held(self, pods: Iterable[Pod]) -> bool:
        """Remember of those that are held that they would be evicted; gives whether there are any."""
        held = [pod for pod in pods if self.is_held(pod)]
        for pod in held:
            self.memory.returns.wanted(pod, self.view.now)
        return bool(held)

    def _held(self, pod: Pod, limit: Outcome) -> Outcome:
        log.debug("%s stays on %s: %s", pod.key, pod.node, limit)
        self.report.evictions[limit, self.strategy, pod.namespace, pod.node] += 1
        return limit

    def _send(
        self, pod: Pod, reason: str, destination: int | None
    ) -> Generator[Eviction, bool, Outcome]:
        grace = self.view.tables.wishes(pod).grace
        taken = yield Eviction(pod, self.strategy, self.profile.name, reason, grace)
        outcome = Outcome.EVICTED if taken else Outcome.FAILED
        if taken:
            self.limits.count(pod)
            self.view.evicted(pod, destination)
            if self.moves:
                self.memory.returns.evicted(pod, self.view.tables, self.view.now)
        self.report.evictions[outcome, self.strategy, pod.namespace, pod.node] += 1
        return outcome

    def evict_all(self, pods: Iterable[Pod], reason: str) -> Generator[Eviction, bool, None]:
        """Evict pods in this order, each until its node's limit is reached."""
        for pod in pods:
            yield from self.evict(pod, reason)

    def refuse(self, pod: Pod, reason: str) -> None:
        """Say why a pod stays."""
        self.report.refused[self.strategy, reason] += 1
        log.debug("%s on %s stays: %s", pod.key, pod.node, reason)


class Wanted:
    """Which pods a plugin looks at: by namespace and labels."""

    def __init__(
        self, namespaces: Namespaces | None, selector: meta.LabelSelector | None = None
    ) -> None:
        self.namespaces = namespaces
        self.selector = None if selector is None else of_object(selector)

    def __call__(self, pod: Pod) -> bool:
        return (self.namespaces is None or self.namespaces.admits(pod.namespace)) and (
            self.selector is None or self.selector.matches(pod.labels)
        )


def by_importance(pod: Pod) -> tuple[bool, int, int]:
    """The order of eviction: those that offer themselves, then low priority, then low quality of
    service."""
    return (pod.preemptable is not True, pod.priority or 0, QOS.get(pod.qos, 1))
