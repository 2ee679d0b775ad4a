"""FragmentationAware: a node that has given away most of one resource and little of another gives up the pod
without which it is most even.

Arguments and measure are Koordinator's: the standard deviation of the shares that are given away.  A pod goes only
where another node loses less evenness by it than its own gains, so that pods do not go to and fro.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hekla.descheduler.evictions import Eviction, Outcome, Steps
from hekla.descheduler.plugins.low_utilization import Measured, by_requests
from hekla.descheduler.plugins.targets import Targets
from hekla.descheduler.policy.arguments import FragmentationAwareArguments
from hekla.descheduler.session import Session
from hekla.descheduler.tables import Pod

log = logging.getLogger(__name__)

NO_EVENER_PLACE = "no other node would take it and lose less evenness than its own gains"
Floats = NDArray[np.float64]


class Shares:
    """The parts of resources that nodes have given away, `[nodes, resources]`; nan where a node has none."""

    def __init__(self, requested: Measured, resources: list[str]) -> None:
        self.nodes = [node for node, _ in requested]
        self.resources = resources
        self.rows = {node.name: row for row, node in enumerate(self.nodes)}
        base = self._array([node.base for node in self.nodes])
        self._base = np.where(base > 0, base, np.nan)
        self.given = self._array([sums for _, sums in requested]) / self._base

    def _array(self, amounts: Sequence[Mapping[str, float]]) -> Floats:
        listed = [[one.get(name, 0.0) for name in self.resources] for one in amounts]
        return np.array(listed, np.float64).reshape(len(amounts), len(self.resources))

    def of_pod(self, pod: Pod) -> Floats:
        """What the pod asks for of each node, `[nodes, resources]`."""
        return self._array([pod.requests]) / self._base

    def gain(self, row: int, pod: Pod) -> float:
        """By how much the node's deviation falls without the pod."""
        return float(
            imbalance(self.given[row]) - imbalance(self.given[row] - self.of_pod(pod)[row])
        )

    def losses(self, pod: Pod) -> Floats:
        """By how much each node's deviation rises with the pod, `[nodes]`."""
        return imbalance(self.given + self.of_pod(pod)) - imbalance(self.given)

    def text(self, row: int) -> str:
        """`cpu 90%, memory 25%`."""
        parts = zip(self.resources, self.given[row].tolist(), strict=True)
        return ", ".join(f"{name} {100 * share:.0f}%" for name, share in parts if share == share)


def imbalance(shares: Floats) -> Floats:
    """Population standard deviation over the last axis, of what the node has."""
    known = ~np.isnan(shares)
    count = np.maximum(known.sum(axis=-1), 1)
    mean = np.where(known, shares, 0.0).sum(axis=-1) / count
    spread = np.where(known, shares - mean[..., None], 0.0)
    return np.asarray(np.sqrt((spread**2).sum(axis=-1) / count))


def fragmentation_aware(session: Session, arguments: FragmentationAwareArguments) -> Steps:
    if arguments.paused:
        return
    targets = Targets(session, arguments)
    shares = Shares(by_requests(session.view, targets.nodes), arguments.resources)
    before = imbalance(shares.given)
    for row in np.argsort(-before, kind="stable").tolist():
        if before[row] <= arguments.imbalance_threshold:
            return
        pods = [pod for pod in session.view.live_pods(shares.nodes[row]) if pod in targets]
        gains = {pod.key: shares.gain(row, pod) for pod in pods}
        for pod in sorted(pods, key=lambda pod: (-gains[pod.key], -pod.created, pod.key)):
            if gains[pod.key] <= arguments.min_improvement_threshold:
                break
            if not session.evictable(pod):
                continue
            outcome = yield from _move(session, arguments, shares, row, pod, gains[pod.key])
            if outcome is not Outcome.REFUSED:
                break


def _move(
    session: Session,
    arguments: FragmentationAwareArguments,
    shares: Shares,
    row: int,
    pod: Pod,
    gain: float,
) -> Generator[Eviction, bool, Outcome]:
    """Evict one pod, if the evictor knows a place for it and, with `nodeFit`, one that stays more even than
    its own becomes: there its room is booked."""
    wrong, place = session.evictor.destination(pod)
    if wrong:
        session.refuse(pod, wrong)
        return Outcome.REFUSED
    losses = shares.losses(pod)
    fit = session.view.fit
    if arguments.node_fit:
        taking = fit.taking(pod, session.evictor.among)
        mask = np.array([taking[fit.rows[node.name]] for node in shares.nodes]) & (losses < gain)
        if not mask.any():
            session.refuse(pod, NO_EVENER_PLACE)
            return Outcome.REFUSED
        place = fit.rows[shares.nodes[int(np.argmin(np.where(mask, losses, np.inf)))].name]
    chosen = None if place is None else shares.rows.get(fit.nodes[place].name)

    def better(_: Pod, node: str) -> str:
        nonlocal chosen
        chosen = shares.rows.get(node)
        return NO_EVENER_PLACE if chosen is not None and losses[chosen] >= gain else ""

    now = float(imbalance(shares.given[row]))
    words = (
        f"node {shares.nodes[row].name} is uneven: {shares.text(row)} given away, "
        f"a deviation of {now:.2f}, without it {now - gain:.2f}"
    )
    if arguments.dry_run:
        log.info("FragmentationAware has dryRun: %s on %s would go: %s", pod.key, pod.node, words)
        return Outcome.FAILED
    outcome = yield from session.evict_to(pod, words, place, better)
    if outcome is Outcome.EVICTED:
        shares.given[row] -= shares.of_pod(pod)[row]
        if chosen is not None:
            shares.given[chosen] += shares.of_pod(pod)[chosen]
    return outcome
