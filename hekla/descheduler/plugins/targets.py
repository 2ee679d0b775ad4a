"""What FragmentationAware and ScaleDownBinPack look at: Koordinator's arguments name nodes and pods alike."""

from __future__ import annotations

from hekla.api.selectors import EVERYTHING, of_object
from hekla.descheduler.policy.arguments import KoordinatorArguments
from hekla.descheduler.session import Session, Wanted
from hekla.descheduler.tables import Node, Pod


class Targets:
    """The nodes and pods that a plugin may change."""

    def __init__(self, session: Session, arguments: KoordinatorArguments) -> None:
        selector = arguments.node_selector
        matching = EVERYTHING if selector is None else of_object(selector)
        self.nodes: list[Node] = [
            node for node in session.view.nodes if matching.matches(node.labels)
        ]
        self._namespaces = Wanted(arguments.evictable_namespaces)
        self._selectors = [Wanted(None, one.selector) for one in arguments.pod_selectors]

    def __contains__(self, pod: Pod) -> bool:
        return self._namespaces(pod) and (
            not self._selectors or any(one(pod) for one in self._selectors)
        )
