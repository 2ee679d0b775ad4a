"""RemovePodsViolatingInterPodAntiAffinity: of pods on one node that may not be together, the least
important go.

Reference: descheduler 11.6.
"""

from __future__ import annotations

from hekla.descheduler.evictions import Outcome, Steps
from hekla.descheduler.policy.arguments import InterPodAntiAffinityArguments
from hekla.descheduler.session import Session, Wanted, by_importance
from hekla.descheduler.tables import Pod


def anti_affinity(session: Session, arguments: InterPodAntiAffinityArguments) -> Steps:
    wanted = Wanted(arguments.namespaces, arguments.label_selector)
    for node in session.view.nodes:
        pods = [pod for pod in session.view.live_pods(node) if wanted(pod)]
        for pod in sorted(pods, key=lambda pod: (*by_importance(pod), pod.key)):
            hostile = enemy(pod, pods)
            if hostile is None or not session.evictable(pod):
                continue
            words = f"its anti-affinity forbids {hostile.key} on the same node"
            if (yield from session.evict(pod, words)) is Outcome.EVICTED:
                pods.remove(pod)


def enemy(pod: Pod, pods: list[Pod]) -> Pod | None:
    """Another pod of the node that one of the pod's own terms forbids."""
    for term in pod.anti_affinity:
        for other in pods:
            if (
                other is not pod
                and other.namespace in term.namespaces
                and term.selector.matches(other.labels)
            ):
                return other
    return None
