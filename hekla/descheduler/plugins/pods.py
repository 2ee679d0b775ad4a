"""Plugins that look at each pod by itself: its age, its restarts, its failure, its node's taints and
labels.

Reference: descheduler 11.4, 11.5 and 11.8 to 11.10.
"""

from __future__ import annotations

from hekla.descheduler.evictions import Steps
from hekla.descheduler.fit import admits, untolerated
from hekla.descheduler.policy.arguments import (
    FailedPodsArguments,
    NodeAffinityArguments,
    NodeTaintsArguments,
    PodLifeTimeArguments,
    TooManyRestartsArguments,
)
from hekla.descheduler.session import Session, Wanted
from hekla.descheduler.tables import Node, Pod, Taint


def pod_life_time(session: Session, arguments: PodLifeTimeArguments) -> Steps:
    """Old pods, the oldest of all nodes first."""
    wanted = Wanted(arguments.namespaces, arguments.label_selector)
    longest = arguments.max_pod_life_time_seconds or 0
    states = frozenset(arguments.states)
    now = session.view.now
    old = [
        pod
        for pod in session.view.pods()
        if int(pod.age(now)) > longest
        and (not states or pod.phase in states or not states.isdisjoint(pod.waiting))
        and wanted(pod)
        and session.evictable(pod)
    ]
    for pod in sorted(old, key=lambda pod: (pod.created, pod.key)):
        yield from session.evict(pod, f"it is {int(pod.age(now))} s old, older than {longest} s")


def too_many_restarts(session: Session, arguments: TooManyRestartsArguments) -> Steps:
    wanted = Wanted(arguments.namespaces, arguments.label_selector)
    for pod in session.view.pods():
        restarts = pod.restarts + (pod.init_restarts if arguments.including_init_containers else 0)
        if restarts >= arguments.pod_restart_threshold and wanted(pod) and session.evictable(pod):
            words = f"its containers restarted {restarts} times, {arguments.pod_restart_threshold} are allowed"
            yield from session.evict(pod, words)


def failed_pods(session: Session, arguments: FailedPodsArguments) -> Steps:
    wanted = Wanted(arguments.namespaces, arguments.label_selector)
    for pod in session.view.pods():
        if pod.phase != "Failed" or not wanted(pod):
            continue
        if pod.age(session.view.now) < arguments.min_pod_lifetime_seconds:
            continue
        if any(owner.kind in arguments.exclude_owner_kinds for owner in pod.owners):
            continue
        reasons = pod.reasons + (pod.init_reasons if arguments.including_init_containers else ())
        if arguments.reasons and not set(reasons).intersection(arguments.reasons):
            continue
        if session.evictable(pod):
            yield from session.evict(
                pod, f"it has failed ({', '.join(reasons) or 'without a reason'})"
            )


def node_taints(session: Session, arguments: NodeTaintsArguments) -> Steps:
    """Pods that do not tolerate their node's taints of effect NoSchedule."""
    wanted = Wanted(arguments.namespaces, arguments.label_selector)
    effects = (
        ("NoSchedule", "PreferNoSchedule")
        if arguments.include_prefer_no_schedule
        else ("NoSchedule",)
    )
    excluded = frozenset(arguments.excluded_taints)
    for node in session.view.nodes:
        taints = tuple(taint for taint in node.taints if not _excluded(taint, excluded))
        minded = Node(node.name, taints=taints)
        if not taints:
            continue
        for pod in session.view.pods_on(node):
            taint = untolerated(pod.placement, minded, effects)
            if taint is not None and wanted(pod) and session.evictable(pod):
                yield from session.evict(
                    pod, f"it does not tolerate the taint {taint} of node {node.name}"
                )


def _excluded(taint: Taint, excluded: frozenset[str]) -> bool:
    return taint.key in excluded or f"{taint.key}={taint.value}" in excluded


def node_affinity(session: Session, arguments: NodeAffinityArguments) -> Steps:
    """Pods with a required node affinity that their node does not fulfil any more and another does."""
    wanted = Wanted(arguments.namespaces, arguments.label_selector)
    for node in session.view.nodes:
        for pod in session.view.live_pods(node):
            if pod.placement.affinity is None or _fits(pod, node) or not wanted(pod):
                continue
            elsewhere = any(_fits(pod, other) for other in session.view.nodes if other is not node)
            if elsewhere and session.evictable(pod):
                yield from session.evict(
                    pod, f"node {node.name} does not match its node affinity any more"
                )


def _fits(pod: Pod, node: Node) -> bool:
    return admits(pod.placement, node)
