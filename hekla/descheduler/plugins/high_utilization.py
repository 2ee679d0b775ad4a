"""HighNodeUtilization: empties nodes that little is asked of, so that an autoscaler may remove them.

Reference: descheduler 11.3.
"""

from __future__ import annotations

import logging

from hekla.descheduler.classification import NATIVE, Class, Load, loads
from hekla.descheduler.evictions import Steps
from hekla.descheduler.plugins.draining import Draining, requested, say
from hekla.descheduler.plugins.low_utilization import by_requests
from hekla.descheduler.policy.arguments import HighNodeUtilizationArguments
from hekla.descheduler.session import Session, by_importance

log = logging.getLogger(__name__)


def high_node_utilization(session: Session, arguments: HighNodeUtilizationArguments) -> Steps:
    full = dict.fromkeys({*NATIVE, *arguments.thresholds}, 100.0)
    found = loads(by_requests(session.view, session.view.nodes), arguments.thresholds, full)
    sources = [load for load in found if load.is_low()]
    names = {load.node.name for load in sources}
    destinations = [
        load for load in found if load.node.name not in names and not load.node.unschedulable
    ]
    say(
        session,
        [(load, Class.UNDER if load.node.name in names else Class.APPROPRIATE) for load in found],
    )
    for idle, words in (
        (not sources, "No node is underutilized, nothing to do here"),
        (
            len(sources) <= arguments.number_of_nodes,
            "Number of nodes underutilized is less or equal than NumberOfNodes, nothing to do here",
        ),
        (len(sources) == len(found), "All nodes are underutilized, nothing to do here"),
        (not destinations, "No node is available to schedule the pods, nothing to do here"),
    ):
        if idle:
            log.info("%s", words)
            return
    yield from Draining(
        sources=sorted(sources, key=_filled),
        destinations=destinations,
        cost=requested,
        order=lambda pod, _: (*by_importance(pod), -pod.created, pod.key),
        above=lambda _: True,
        reason=lambda load: f"node {load.node.name} is nearly empty, and its pods fit elsewhere",
        excluded=arguments.evictable_namespaces,
    ).run(session)


def _filled(load: Load) -> float:
    return max((load.percent(name) for name in load.high), default=0.0)
