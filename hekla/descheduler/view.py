"""The cluster in one cycle: as it is, less what the cycle has evicted so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from hekla.api.selectors import EVERYTHING, LabelSelector
from hekla.descheduler.fit import Fit
from hekla.descheduler.tables import Node, Pod, Tables


class View:
    """What plugins ask."""

    def __init__(
        self,
        tables: Tables,
        now: float,
        selector: LabelSelector = EVERYTHING,
        settling: Mapping[str, float] | None = None,
    ) -> None:
        """`settling`: when a node last lost a pod to an eviction."""
        self.tables = tables
        self.now = now
        self.settling = settling or {}
        self.nodes: list[Node] = [
            node for node in tables.nodes.values() if node.ready and selector.matches(node.labels)
        ]
        """The nodes that are handled."""
        self._gone: dict[str, Pod] = {}
        self._gone_from: dict[str, list[Pod]] = {}
        self._alive: dict[str, int] = {}

    @cached_property
    def fit(self) -> Fit:
        """All ready nodes, also those that are not handled."""
        ready = [node for node in self.tables.nodes.values() if node.ready]
        return Fit(ready, self.tables.requested)

    def pods_on(self, node: Node) -> list[Pod]:
        """The node's pods, ended ones too, without those that this cycle has evicted."""
        found = self.tables.on_node.get(node.name, {})
        if not self._gone:
            return list(found.values())
        return [pod for key, pod in found.items() if key not in self._gone]

    def pods(self) -> Iterator[Pod]:
        """The pods of all handled nodes."""
        for node in self.nodes:
            yield from self.pods_on(node)

    def live_pods(self, node: Node) -> list[Pod]:
        return [pod for pod in self.pods_on(node) if not pod.ended]

    def gone_from(self, node: Node) -> list[Pod]:
        """The live pods that this cycle has evicted from the node."""
        return self._gone_from.get(node.name, [])

    def is_gone(self, pod: Pod) -> bool:
        return pod.key in self._gone

    def gang_left(self, pod: Pod) -> tuple[int, int]:
        """How many members the pod's gang would have without it, and its minimum; a gang of one, and
        what is no member or has ended, has none."""
        key = pod.group_key
        minimum = self.tables.minimum.get(key, 0) if key else 0
        if minimum <= 1 or pod.ended:
            return 0, 0
        alive = self._alive.get(key)
        if alive is None:
            alive = self._alive[key] = sum(
                _is_alive(one) for one in self.tables.members.get(key, {}).values()
            )
        return alive - 1, minimum

    def gang(self, pod: Pod) -> list[Pod]:
        """The live members of the pod's gang that are still there, itself first."""
        members = self.tables.members.get(pod.group_key, {})
        others = (one for key, one in sorted(members.items()) if one is not pod)
        return [pod, *(one for one in others if _is_alive(one) and not self.is_gone(one))]

    def evicted(self, pod: Pod, destination: int | None) -> None:
        """The pod goes, and has room booked for it."""
        self._gone[pod.key] = pod
        if not pod.ended:
            self._gone_from.setdefault(pod.node, []).append(pod)
        if pod.group_key in self._alive and _is_alive(pod):
            self._alive[pod.group_key] -= 1
        if "fit" in self.__dict__:
            self.fit.release(pod)
        if destination is not None:
            self.fit.book(pod, destination)


def _is_alive(pod: Pod) -> bool:
    return not pod.ended and not pod.terminating
