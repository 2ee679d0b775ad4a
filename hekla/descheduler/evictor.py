"""Which pods may be evicted at all: the DefaultEvictor's rules, and what a batch system adds to them.

A gang never falls below its minimum, whatever asks for it.  Reference: descheduler 9 and 14.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hekla.api.selectors import EVERYTHING, of_object, parse_labels
from hekla.api.text.durations import seconds
from hekla.descheduler.fit import Bools
from hekla.descheduler.policy.arguments import CRITICAL, WHOLE_GROUP, DefaultEvictorArguments
from hekla.descheduler.tables import SILENT, Pod
from hekla.descheduler.view import View

GANG = "its gang would fall below minMember"
GANG_MEMBER_STAYS = "a member of its gang may not be evicted, and it goes as a whole"
NO_GANG_ROOM = "the other nodes would not take its whole gang"
NO_ROOM = "no other node would take it"
NO_COOL_ROOM = "no other node would take it that is not over the target itself"


class Rule(NamedTuple):
    """A reason to leave a pod alone, and what it holds for."""

    reason: str
    holds: Callable[[Evictor, Pod], bool]


class Evictor:
    """The evictor of one profile in one cycle."""

    def __init__(
        self, arguments: DefaultEvictorArguments, view: View, cool: Bools | None = None
    ) -> None:
        """`cool`: the rows of nodes that are not over-used, where LoadAware wants its pods to fit."""
        self.arguments = arguments
        self.view = view
        self.cool = cool
        self.min_age = seconds(arguments.min_pod_age) if arguments.min_pod_age else 0.0
        self.longest_min_runtime = seconds(arguments.longest_min_runtime)
        self.selector = (
            EVERYTHING if arguments.label_selector is None else of_object(arguments.label_selector)
        )
        self._gangs: dict[str, str] = {}
        """Why each gang cannot go as a whole; "" for one that may."""
        self.problem = ""
        """Why this evictor lets nothing be evicted."""
        self.threshold = self._threshold()

    def _threshold(self) -> int:
        given = self.arguments.priority_threshold
        if given is None:
            return CRITICAL
        if not given.name:
            return CRITICAL if given.value is None else given.value
        value = self.view.tables.priorities.get(given.name)
        if value is None:
            self.problem = f"priorityThreshold.name: there is no PriorityClass {given.name!r}"
            return -(2**31)
        return value

    def refusal(self, pod: Pod) -> str:
        """Why the pod may not be evicted; "" if it may."""
        if not pod.marked:
            for rule in RULES:
                if rule.holds(self, pod):
                    return rule.reason
        if not self.breaks_gang(pod):
            return ""
        return self.whole_gang_refusal(pod) if self.goes_whole(pod) else GANG

    def goes_whole(self, pod: Pod) -> bool:
        """Whether a gang that cannot spare the pod may go as a whole."""
        return (
            self.arguments.gang_policy == WHOLE_GROUP
            and self.view.tables.wishes(pod).semi_preemptible is not True
        )

    def lacks_runtime(self, pod: Pod) -> bool:
        """Whether the pod has not run for as long as it, its PodGroup or its PriorityClass says."""
        tables = self.view.tables
        length = tables.wishes(pod).min_runtime
        if length is not None:
            length = min(length, self.longest_min_runtime)
        else:
            length = tables.wishes_of_classes.get(pod.priority_class, SILENT).min_runtime
        return bool(length) and self.view.now - (pod.started or self.view.now) < (length or 0.0)

    def breaks_gang(self, pod: Pod) -> bool:
        """Whether the pod's gang would fall below its minimum."""
        left, minimum = self.view.gang_left(pod)
        return left < minimum

    def whole_gang_refusal(self, pod: Pod) -> str:
        """Why the gang cannot go as a whole."""
        key = pod.group_key
        if key not in self._gangs:
            stay = any(
                not one.marked and any(rule.holds(self, one) for rule in RULES)
                for one in self.view.gang(pod)
            )
            self._gangs[key] = GANG_MEMBER_STAYS if stay else ""
        return self._gangs[key]

    @property
    def asks_for_room(self) -> bool:
        """Whether a pod goes only where another node would take it."""
        return bool(self.arguments.node_fit) or self.cool is not None

    @property
    def no_room(self) -> str:
        return NO_ROOM if self.cool is None else NO_COOL_ROOM

    def taking(self, pod: Pod) -> Bools | None:
        """The nodes that would take the pod; None where nobody asks."""
        return self.view.fit.taking(pod, self.among) if self.asks_for_room else None

    def destination(self, pod: Pod) -> tuple[str, int | None]:
        """Why the pod would not find another place ("" if it would, or nobody asks), and the row that
        would take it."""
        if not self.asks_for_room:
            return "", None
        row = self.view.fit.destination(pod, self.among)
        return ("", row) if row is not None else (self.no_room, None)

    @cached_property
    def among(self) -> Bools | None:
        """The rows of the nodes that may take pods; None for all."""
        if not self.arguments.node_selector:
            return self.cool
        selector = parse_labels(self.arguments.node_selector)
        nodes = self.view.fit.nodes
        mask = np.fromiter((selector.matches(node.labels) for node in nodes), np.bool_, len(nodes))
        return mask if self.cool is None else mask & self.cool


def _above_threshold(evictor: Evictor, pod: Pod) -> bool:
    if evictor.arguments.evict_system_critical_pods or pod.priority is None:
        return False
    return pod.priority >= evictor.threshold


RULES = (
    Rule("pod is a DaemonSet pod", lambda _, pod: any(one.kind == "DaemonSet" for one in pod.owners)),
    Rule("pod is a mirror pod", lambda _, pod: pod.mirror),
    Rule("pod is a static pod", lambda _, pod: pod.static),
    Rule("pod is terminating", lambda _, pod: pod.terminating),
    Rule(
        "pod does not have any ownerRefs",
        lambda evictor, pod: not pod.owners and not evictor.arguments.evict_failed_bare_pods,
    ),
    Rule(
        "pod does not have any ownerRefs and is not in failed phase",
        lambda evictor, pod: (
            not pod.owners and evictor.arguments.evict_failed_bare_pods and pod.phase != "Failed"
        ),
    ),
    Rule(
        "pod has system critical priority",
        lambda evictor, pod: (
            not evictor.arguments.evict_system_critical_pods and (pod.priority or 0) >= CRITICAL
        ),
    ),
    Rule("pod has higher priority than specified priority class threshold", _above_threshold),
    Rule(
        "pod has local storage and descheduler is not configured with evictLocalStoragePods",
        lambda evictor, pod: pod.local_storage and not evictor.arguments.evict_local_storage_pods,
    ),
    Rule(
        "pod has a PVC and descheduler is configured to ignore PVC pods",
        lambda evictor, pod: pod.claims and evictor.arguments.ignore_pvc_pods,
    ),
    Rule(
        "pod labels do not match the labelSelector filter in the policy parameter",
        lambda evictor, pod: not evictor.selector.matches(pod.labels),
    ),
    Rule("pod is not preemptable", lambda _, pod: pod.preemptable is False),
    Rule(
        "pod is in its cooldown",
        lambda evictor, pod: pod.cooldown > 0 and evictor.view.now - (pod.started or pod.created) < pod.cooldown,
    ),
    Rule(
        "pod is younger than minPodAge",
        lambda evictor, pod: pod.age(evictor.view.now) < evictor.min_age,
    ),
    Rule("pod has not had its minimum runtime", lambda evictor, pod: evictor.lacks_runtime(pod)),
)  # fmt: skip
"""Reference: descheduler 9.1, in its order; the last four are the batch system's."""
