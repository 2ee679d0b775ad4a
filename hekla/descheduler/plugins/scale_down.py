"""ScaleDownBinPack: of an owner that is made smaller, those pods go whose nodes become empty.

Nodes with the least of others' work beside the target pods come first; on a node the largest pod, then the newest.
With `CalculateOnly` the order is written on the pods as their deletion cost, which controllers mind; with
`EvictDirectly` pods go in that order.  Arguments and measure are Koordinator's.
"""

from __future__ import annotations

import math
from itertools import pairwise

from hekla.descheduler.evictions import Outcome, Steps
from hekla.descheduler.plugins.targets import Targets
from hekla.descheduler.policy.arguments import EVICT_DIRECTLY, ScaleDownBinPackArguments
from hekla.descheduler.session import Session
from hekla.descheduler.tables import Node, Pod

LAST = 2**31 - 1
"""The deletion cost of target pods that may not be evicted."""


def scale_down_bin_pack(session: Session, arguments: ScaleDownBinPackArguments) -> Steps:
    if arguments.paused:
        return
    targets = Targets(session, arguments)
    ranked: list[tuple[float, Node, list[Pod]]] = []
    spared: list[Pod] = []
    for node in targets.nodes:
        pods = session.view.live_pods(node)
        targeted = [pod for pod in pods if pod in targets]
        eligible = [pod for pod in targeted if session.evictable(pod)]
        chosen = {pod.key for pod in eligible}
        spared += [pod for pod in targeted if pod.key not in chosen]
        if not eligible:
            continue
        size = {pod.key: _size(arguments, node, pod) for pod in pods}
        own = sum(size[pod.key] for pod in eligible)
        others = sum(size[pod.key] for pod in pods if pod.key not in chosen)
        eligible.sort(key=lambda pod: (-size[pod.key], -pod.created, pod.key))
        ranked.append((_burden(others, own), node, eligible))
    ranked.sort(key=lambda one: (one[0], one[1].name))
    if arguments.strategy == EVICT_DIRECTLY:
        yield from _evict(session, arguments, ranked)
    else:
        _write_costs(session, [pod for _, _, pods in ranked for pod in pods], spared)


def _size(arguments: ScaleDownBinPackArguments, node: Node, pod: Pod) -> float:
    """The weighed shares of the node that a pod asks for."""
    return sum(
        arguments.weight(name) * pod.requests.get(name, 0.0) / node.base[name]
        for name in arguments.resources
        if node.base.get(name, 0.0) > 0
    )


def _burden(others: float, own: float) -> float:
    """What a node keeps when its target pods have gone, for each part that they free; 0 empties it."""
    if others <= 0:
        return 0.0
    return others / own if own > 0 else math.inf


def _evict(
    session: Session,
    arguments: ScaleDownBinPackArguments,
    ranked: list[tuple[float, Node, list[Pod]]],
) -> Steps:
    left = arguments.max_pods_to_evict or 0
    for burden, node, pods in ranked:
        words = (
            f"node {node.name} becomes empty without it and its like"
            if burden == 0
            else f"node {node.name} keeps the least of other work: {burden:.2f} of what these pods take"
        )
        for pod in pods:
            if left <= 0:
                return
            outcome = yield from session.evict(pod, words)
            left -= outcome is Outcome.EVICTED


def _write_costs(session: Session, ranked: list[Pod], spared: list[Pod]) -> None:
    """Report the costs to be written: of an owner's pods all or, where they say that order already, none."""
    costs = {pod.key: rank for rank, pod in enumerate(ranked)} | {pod.key: LAST for pod in spared}
    by_owner: dict[tuple[object, ...], list[Pod]] = {}
    for pod in (*ranked, *spared):
        by_owner.setdefault((pod.namespace, *pod.owners), []).append(pod)
    for pods in by_owner.values():
        if not _says(pods, costs):
            session.report.deletion_costs.update({pod.key: (pod, costs[pod.key]) for pod in pods})


def _says(pods: list[Pod], costs: dict[str, int]) -> bool:
    """Whether what stands on the pods orders them as the costs would; they are in that order."""
    said = [pod.deletion_cost for pod in pods]
    if any(one is None for one in said):
        return False
    known = [one for one in said if one is not None]
    spared = [one == LAST for one in known]
    return spared == [costs[pod.key] == LAST for pod in pods] and all(
        before < after or after == LAST for before, after in pairwise(known)
    )
