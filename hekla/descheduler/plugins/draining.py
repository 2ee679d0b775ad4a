"""Moves load from hot nodes to cool ones: what LoadAware, LowNodeUtilization and HighNodeUtilization
share.

Reference: descheduler 8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from hekla.descheduler.classification import Class, Load
from hekla.descheduler.evictions import Eviction, Outcome, Steps
from hekla.descheduler.fit import untolerated
from hekla.descheduler.policy.arguments import Excluded
from hekla.descheduler.session import Session
from hekla.descheduler.tables import PODS, Amounts, Placement, Pod

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Draining:
    """How nodes are drained."""

    sources: Sequence[Load]
    """In the order in which they are drained."""
    destinations: Sequence[Load]
    cost: Callable[[Pod], Amounts]
    """What leaves a node with a pod."""
    order: Callable[[Pod, Load], tuple[object, ...]]
    """The key by which a node's pods are sorted; the smallest goes first."""
    above: Callable[[Load], bool]
    """Whether a node is to lose more."""
    reason: Callable[[Load], str]
    excluded: Excluded | None

    def run(self, session: Session) -> Steps:
        """Drain the sources while the destinations have room in sum for each resource."""
        room = self.room()
        log.info("Total capacity to be moved: %s", amounts_text(room))
        spared = frozenset(self.excluded.exclude) if self.excluded is not None else frozenset()
        tolerated: dict[Placement, bool] = {}
        for load in self.sources:
            pods = [pod for pod in session.view.live_pods(load.node) if session.evictable(pod)]
            log.debug("Pods on node %s: %d removable", load.node.name, len(pods))
            if not pods:
                log.info("No removable pods on node %s, try next node", load.node.name)
            for pod in sorted(pods, key=lambda pod: self.order(pod, load)):
                if not self.above(load) or not has_room(room):
                    break
                if pod.placement not in tolerated:
                    tolerated[pod.placement] = any(
                        untolerated(pod.placement, one.node) is None for one in self.destinations
                    )
                if not tolerated[pod.placement] or pod.namespace in spared:
                    continue
                outcome = yield from self._move(session, pod, load, room)
                if outcome is Outcome.TOTAL:
                    return
                if outcome is Outcome.PER_NODE:
                    break
            if not has_room(room):
                log.info("the nodes with room have none left")
                return

    def _move(
        self, session: Session, pod: Pod, load: Load, room: Amounts
    ) -> Generator[Eviction, bool, Outcome]:
        outcome = yield from session.evict(pod, self.reason(load))
        if outcome is Outcome.EVICTED:
            for name, amount in self.cost(pod).items():
                for sums in (load.usage, room):
                    if name in sums:
                        sums[name] -= amount
        return outcome

    def room(self) -> Amounts:
        """What all destinations may still take of each resource."""
        names = {name for load in self.destinations for name in load.high}
        return {
            name: sum(load.high[name] - load.usage.get(name, 0.0) for load in self.destinations)
            for name in names
        }


def has_room(room: Mapping[str, float]) -> bool:
    return all(amount > 0 for amount in room.values())


def requested(pod: Pod) -> Amounts:
    """What a pod requests, and itself."""
    return {**pod.requests, PODS: 1.0}


def say(session: Session, found: Sequence[tuple[Load, Class]]) -> None:
    """Log and report the classes of nodes."""
    for load, kind in found:
        name = load.node.name
        session.report.classes[name, session.strategy] = kind
        for resource in load.high:
            session.report.ratios[name, resource] = load.percent(resource) / 100.0
        words = {
            Class.UNDER: "Node is underutilized",
            Class.OVER: "Node is overutilized",
            Class.APPROPRIATE: "Node is appropriately utilized",
        }[kind]
        log.log(
            logging.INFO if kind is Class.OVER else logging.DEBUG,
            "%s: node=%s usage=(%s) usagePercentage=(%s)",
            words,
            name,
            amounts_text(load.usage),
            ", ".join(f"{one}={load.percent(one):.0f}" for one in load.high),
        )


def amounts_text(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={amount:.0f}" for name, amount in sorted(amounts.items()))


def hot(load: Load) -> str:
    """`node n1 is over its target: cpu 91% > 80%`."""
    parts = []
    for name in load.exceeded():
        base = load.node.base.get(name, 0.0)
        limit = 100.0 * load.high[name] / base if base > 0 else 0.0
        parts.append(f"{name} {load.percent(name):.0f}% > {limit:.0f}%")
    return f"node {load.node.name} is over its target: {', '.join(parts)}"
