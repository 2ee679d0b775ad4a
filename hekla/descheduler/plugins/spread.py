"""RemovePodsViolatingTopologySpreadConstraint: domains that have too many pods of a constraint give
some up.

Reference: descheduler 11.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from hekla.descheduler.evictions import Steps
from hekla.descheduler.policy.arguments import TopologySpreadArguments
from hekla.descheduler.session import Session, Wanted, by_importance
from hekla.descheduler.tables import Pod, Spread


@dataclass(slots=True)
class Domain:
    """The nodes with one value of the topology's label, and the pods there that the constraint counts."""

    value: str
    nodes: set[str] = field(default_factory=set)
    pods: list[Pod] = field(default_factory=list)


def topology_spread(session: Session, arguments: TopologySpreadArguments) -> Steps:
    wanted, labelled = Wanted(arguments.namespaces), Wanted(None, arguments.label_selector)
    by_namespace: dict[str, list[Pod]] = {}
    for pod in session.view.pods():
        if not pod.terminating and not pod.ended and wanted(pod):
            by_namespace.setdefault(pod.namespace, []).append(pod)
    chosen: dict[str, tuple[Pod, str]] = {}
    for pods in by_namespace.values():
        constraints = dict.fromkeys(
            one
            for pod in pods
            for one in pod.spreads
            if one.hard or arguments.include_soft_constraints
        )
        for constraint in constraints:
            domains = _domains(session, constraint, pods)
            if not domains:
                continue
            mean = sum(len(one.pods) for one in domains) / len(domains)
            low = {name for one in domains if len(one.pods) < mean for name in one.nodes}
            words = (
                f"{constraint.topology_key} is uneven: {max(len(one.pods) for one in domains)} and "
                f"{min(len(one.pods) for one in domains)} pods, a skew of {constraint.max_skew} is allowed"
            )
            for domain in domains:
                domain.pods.sort(key=lambda pod: _keep_first(session, pod))
            moved = list(surplus(domains, constraint.max_skew, mean))
            if moved:
                for domain in domains:
                    if len(domain.pods) > mean:
                        session.want_held(domain.pods)  # others may go in their place
            for pod in moved:
                if _fits_in(session, pod, low):
                    chosen.setdefault(pod.key, (pod, words))
    for pod, words in chosen.values():
        if labelled(pod) and session.evictable(pod):
            yield from session.evict(pod, words)


def _domains(session: Session, constraint: Spread, pods: list[Pod]) -> list[Domain]:
    domains: dict[str, Domain] = {}
    of_node: dict[str, Domain] = {}
    for node in session.view.nodes:
        value = node.labels.get(constraint.topology_key)
        if value is not None:
            of_node[node.name] = domain = domains.setdefault(value, Domain(value))
            domain.nodes.add(node.name)
    for pod in pods:
        if pod.node in of_node and constraint.selector.matches(pod.labels):
            of_node[pod.node].pods.append(pod)
    return list(domains.values())


def _keep_first(session: Session, pod: Pod) -> tuple[object, ...]:
    """Pods at the end go first: those that may be evicted, of them the ones without selector and
    affinity, of them the least important."""
    pinned = bool(pod.placement.node_selector) or pod.placement.affinity is not None
    offers, priority, quality = by_importance(pod)
    return (
        session.evictor.refusal(pod) == "" and not session.is_held(pod),
        not pinned,
        not offers,
        -priority,
        -quality,
        pod.key,
    )


def surplus(domains: list[Domain], max_skew: int, mean: float) -> Iterator[Pod]:
    """The pods that the walk from both ends moves to smaller domains."""
    ordered = sorted(domains, key=lambda one: len(one.pods))
    sizes = [len(one.pods) for one in ordered]
    if sizes[-1] - sizes[0] <= max_skew:
        return
    left = [list(one.pods) for one in ordered]
    low, high = 0, len(ordered) - 1
    while low < high:
        skew = sizes[high] - sizes[low]
        if sizes[high] <= mean:
            high -= 1
            continue
        if skew <= max_skew:
            low += 1
            continue
        moved = min(
            math.ceil(sizes[high] - mean),
            math.ceil(mean - sizes[low]),
            math.ceil((skew - max_skew) / 2),
        )
        if moved <= 0:
            low += 1
            continue
        for _ in range(moved):
            yield left[high].pop()
        sizes[high] -= moved
        sizes[low] += moved


def _fits_in(session: Session, pod: Pod, nodes: set[str]) -> bool:
    fit = session.view.fit
    return any(
        mask and node.name in nodes
        for mask, node in zip(fit.taking(pod).tolist(), fit.nodes, strict=True)
    )
