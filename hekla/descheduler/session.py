"""One profile in one cycle: the doors that plugins go through to ask and to evict."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from hekla.api import meta
from hekla.api.selectors import of_object
from hekla.descheduler.evictions import Eviction, Limits, Outcome
from hekla.descheduler.evictor import Evictor
from hekla.descheduler.policy.arguments import Namespaces
from hekla.descheduler.policy.policy import Profile
from hekla.descheduler.tables import Pod
from hekla.descheduler.usage import Usage
from hekla.descheduler.view import View

log = logging.getLogger(__name__)

QOS = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


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
    ) -> None:
        """`usages`: what each plugin that wants it knows of usage."""
        self.profile = profile
        self.view = view
        self.evictor = evictor
        self.limits = limits
        self.report = report
        self.usages = usages
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
        wrong, destination = self.evictor.destination(pod)
        if wrong:
            self.refuse(pod, wrong)
            return Outcome.REFUSED
        return (yield from self.evict_to(pod, reason, destination))

    def evict_to(
        self, pod: Pod, reason: str, destination: int | None
    ) -> Generator[Eviction, bool, Outcome]:
        """Evict a pod that has a place to go; `destination` is where room is booked for it."""
        if wrong := self.evictor.gang_refusal(pod):
            self.refuse(pod, wrong)
            return Outcome.REFUSED
        outcome = self.limits.reached(pod)
        if outcome is None:
            taken = yield Eviction(pod, self.strategy, self.profile.name, reason)
            outcome = Outcome.EVICTED if taken else Outcome.FAILED
        else:
            log.debug("%s stays on %s: %s", pod.key, pod.node, outcome)
        if outcome is Outcome.EVICTED:
            self.limits.count(pod)
            self.view.evicted(pod, destination)
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
