"""Moves load from hot nodes to cool ones: what LoadAware, LowNodeUtilization and HighNodeUtilization
share.

Reference: descheduler 8.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hekla.descheduler.classification import Class, Load
from hekla.descheduler.evictions import Eviction, Outcome, Steps
from hekla.descheduler.fit import EPSILON, Bools, untolerated
from hekla.descheduler.policy.arguments import Excluded
from hekla.descheduler.session import Session
from hekla.descheduler.tables import PODS, Amounts, Placement, Pod

log = logging.getLogger(__name__)

NOT_TOLERATED = "it does not tolerate the taints of any under-used node"
WOULD_BE_HOT = "it would put every under-used node over its target"
LANDS_BADLY = "the scheduler would put it on a node that is no better"


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
    others: Sequence[Load] = ()
    """Nodes that nobody is moved to on purpose, but where the scheduler may well put what is evicted."""
    unmeasured: Callable[[Pod], bool] = lambda _: False
    """Whether what a pod uses is not known, so that its cost is a guess."""

    def run(self, session: Session) -> Steps:
        """Drain the sources while the destinations have room in sum for each resource."""
        landing = Landing(self.destinations, session, self.others)
        log.info("Total capacity to be moved: %s", amounts_text(landing.total()))
        spared = frozenset(self.excluded.exclude) if self.excluded is not None else frozenset()
        counted = Counter(
            {load.node.name: len(session.view.gone_from(load.node)) for load in self.sources}
        )
        for load in self.sources:
            pods = [pod for pod in session.view.live_pods(load.node) if session.evictable(pod)]
            log.debug("Pods on node %s: %d removable", load.node.name, len(pods))
            if not pods:
                log.info("No removable pods on node %s, try next node", load.node.name)
            for pod in sorted(pods, key=lambda pod: self.order(pod, load)):
                self._count_gone(session, load, counted)
                if not self.above(load) or not landing.has_room():
                    break
                if pod.namespace in spared or session.view.is_gone(pod):
                    continue
                outcome = yield from self._move(session, pod, load, landing)
                if outcome is Outcome.TOTAL:
                    return
                if outcome is Outcome.PER_NODE:
                    break
                if outcome is Outcome.EVICTED and self._is_blind(pod, load):
                    log.info(
                        "node %s is not drained further in this cycle: what %s used is not known",
                        load.node.name,
                        pod.key,
                    )
                    break
            if not landing.has_room():
                log.info("the nodes with room have none left")
                return

    def _is_blind(self, pod: Pod, load: Load) -> bool:
        """Whether nothing says that the node is better off without the pod: neither a measurement nor
        what it requests.  Else one pod after the other would go, down to the last."""
        cost = self.cost(pod)
        return self.unmeasured(pod) and not any(cost.get(name, 0.0) for name in load.exceeded())

    def _move(
        self, session: Session, pod: Pod, load: Load, landing: Landing
    ) -> Generator[Eviction, bool, Outcome]:
        cost = self.cost(pod)
        at, wrong = landing.place(pod, cost)
        if at is None:
            session.refuse(pod, wrong)
            return Outcome.REFUSED
        chosen = at

        def better(_: Pod, node: str) -> str:
            nonlocal chosen
            found = landing.taking(node, cost)
            chosen = at if found is None else found
            return LANDS_BADLY if found is None else ""

        outcome = yield from session.evict_to(pod, self.reason(load), landing.row(at), better)
        if outcome is Outcome.EVICTED:
            landing.book(chosen, cost)
        return outcome

    def _count_gone(self, session: Session, load: Load, counted: Counter[str]) -> None:
        """Take from a node's usage what the pods used that have gone since: those that were moved, and
        those whose gang went with one of another node."""
        gone = session.view.gone_from(load.node)
        for pod in gone[counted[load.node.name] :]:
            for name, amount in self.cost(pod).items():
                if name in load.usage:
                    load.usage[name] -= amount
        counted[load.node.name] = len(gone)


class Landing:
    """The nodes that take pods, and how much each may still take of every resource.

    What would put every one of them over its own target stays where it is: moved, it would be moved again.
    """

    def __init__(
        self, destinations: Sequence[Load], session: Session, others: Sequence[Load] = ()
    ) -> None:
        """`others`: nodes that are no destinations, and are better than those that are drained."""
        self._evictor = session.evictor
        self._nodes = [*destinations, *others]
        self._is_destination = np.arange(len(self._nodes)) < len(destinations)
        self._at = {load.node.name: at for at, load in enumerate(self._nodes)}
        self._names = sorted({name for load in destinations for name in load.high})
        self._room = {
            name: np.array([load.high[name] - load.usage.get(name, 0.0) for load in self._nodes])
            for name in self._names
        }
        self._left = {
            name: float(column[: len(destinations)].sum()) for name, column in self._room.items()
        }
        self._tolerated: dict[Placement, Bools] = {}
        rows = session.view.fit.rows if session.evictor.asks_for_room else {}
        self._rows = np.array([rows.get(load.node.name, 0) for load in self._nodes])

    def total(self) -> Amounts:
        """What all may still take."""
        return dict(self._left)

    def has_room(self) -> bool:
        return all(amount > 0 for amount in self._left.values())

    def place(self, pod: Pod, cost: Amounts) -> tuple[int | None, str]:
        """The node that would have most left of what the pod uses most of, and why there is none."""
        mask = self._tolerating(pod.placement)
        if not mask.any():
            return None, NOT_TOLERATED
        taking = self._evictor.taking(pod)
        if taking is not None:
            mask = mask & taking[self._rows]
            if not mask.any():
                return None, self._evictor.no_room
        for name, column in self._room.items():
            mask = mask & (column >= cost.get(name, 0.0) - EPSILON)
        if not mask.any():
            return None, WOULD_BE_HOT
        key = max(self._names, key=lambda name: cost.get(name, 0.0) / max(self._left[name], 1.0))
        return int(np.argmax(np.where(mask, self._room[key], -np.inf))), ""

    def taking(self, node: str, cost: Amounts) -> int | None:
        """The place of a node that stays within its target with so much more; None if it does not."""
        at = self._at.get(node)
        if at is None or any(
            column[at] < cost.get(name, 0.0) - EPSILON for name, column in self._room.items()
        ):
            return None
        return at

    def row(self, at: int) -> int | None:
        """The node's row where rooms are booked."""
        return int(self._rows[at]) if self._evictor.asks_for_room else None

    def book(self, at: int, cost: Amounts) -> None:
        for name, column in self._room.items():
            column[at] -= cost.get(name, 0.0)
            if self._is_destination[at]:
                self._left[name] -= cost.get(name, 0.0)

    def _tolerating(self, placement: Placement) -> Bools:
        mask = self._tolerated.get(placement)
        if mask is None:
            found = (untolerated(placement, load.node) is None for load in self._nodes)
            mask = self._is_destination & np.fromiter(found, np.bool_, len(self._nodes))
            self._tolerated[placement] = mask
        return mask


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
